"""Lists of dicts as columns: a key is said once, and so is a value that is the same in every row."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from ding.utils.data.samples import Samples, node_items, pack

Rows = list[dict[str, Any]]


def to_columns(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """`{'size': n, 'same': {key: value}, 'each': {key: [n values]}}`, or `{'rows': rows}` where the keys differ.

    Example:
        >>> to_columns([{"id": 1, "iter": 7}, {"id": 2, "iter": 7}])
        {'size': 2, 'same': {'iter': 7}, 'each': {'id': [1, 2]}}
    """
    if not rows:
        return {"rows": []}
    columns = rows.columns if isinstance(rows, Samples) else None
    if columns is not None:
        return _parted({key: node_items(node) for key, node in columns.items()}, len(rows))
    names = tuple(rows[0])
    if any(tuple(row) != names for row in rows):
        return _to_columns_of_any_order(rows)
    values = zip(*(row.values() for row in rows), strict=True)
    return _parted(dict(zip(names, map(list, values), strict=True)), len(rows))


def _parted(columns: dict[str, list[Any]], size: int) -> dict[str, Any]:
    same, each = {}, {}
    for name, values in columns.items():
        if _is_constant(values):
            same[name] = values[0]
        else:
            each[name] = values
    return {"size": size, "same": same, "each": each}


def _to_columns_of_any_order(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    keys = rows[0].keys()
    if any(row.keys() != keys for row in rows):
        return {"rows": list(rows)}
    return to_columns([{key: row[key] for key in keys} for row in rows])


def from_columns(columns: dict[str, Any]) -> Rows:
    """The rows that `to_columns` was given; as `Samples`, unless their keys differ.

    Raises:
        ValueError: it is no such dict, or its columns differ in length.
    """
    if "rows" in columns:
        return list(columns["rows"])
    try:
        size, same, each = columns["size"], columns["same"], columns["each"]
        sizes = {len(values) for values in each.values() if type(values) is list}
        is_plain = type(size) is int and size >= 0 and type(same) is dict
        if not is_plain or len(sizes) > 1 or any(type(values) is not list for values in each.values()):
            raise ValueError("the size is no number, or the columns are no lists of one length")
    except (AttributeError, KeyError, TypeError, ValueError) as e:
        raise ValueError(f"these are not rows in columns: {str(columns)[:200]}") from e
    if sizes and sizes != {size}:
        raise ValueError(f"{size} rows are announced, but the columns have {sizes.pop()}")
    if not size or not (same or each):
        return [{} for _ in range(size)]
    every = {name: [value] * size for name, value in same.items()}
    return Samples({name: pack(values) for name, values in {**every, **each}.items()}, size=size)


def cut_columns(columns: dict[str, Any], sizes: Sequence[int]) -> list[dict[str, Any]]:
    """The same rows in several parts, so many in each, without making them.

    Raises:
        ValueError: these are not rows in columns, or other than the sum of `sizes`.

    Example:
        >>> cut_columns({"size": 3, "same": {"it": 7}, "each": {"id": [1, 2, 3]}}, [1, 2])
        [{'size': 1, 'same': {'it': 7}, 'each': {'id': [1]}}, {'size': 2, 'same': {'it': 7}, 'each': {'id': [2, 3]}}]
    """
    ends = list(itertools.accumulate(sizes))
    spans = [slice(end - size, end) for size, end in zip(sizes, ends, strict=True)]
    try:
        count = len(columns["rows"]) if "rows" in columns else columns["size"]
        if "rows" in columns:
            parts = [{"rows": columns["rows"][span]} for span in spans]
        else:
            parts = [
                {"size": size, "same": columns["same"], "each": {k: v[span] for k, v in columns["each"].items()}}
                for size, span in zip(sizes, spans, strict=True)
            ]
    except (AttributeError, KeyError, TypeError) as e:
        raise ValueError(f"these are not rows in columns: {str(columns)[:200]}") from e
    if count != sum(sizes):
        raise ValueError(f"{count} rows came; asked for were {sum(sizes)}")
    return parts


def _is_constant(values: list[Any]) -> bool:
    first = values[0]
    kind = type(first)
    if kind not in (str, int, bool, float, type(None)):  # others could be shared between the rows
        return False
    if type(values[-1]) is not kind or values[-1] != first:  # most of those that differ, without looking at all
        return False
    return set(map(type, values)) == {kind} and values.count(first) == len(values)
