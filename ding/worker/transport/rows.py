"""Lists of dicts as columns: a key is said once, and so is a value that is the same in every row."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

Rows = list[dict[str, Any]]


def to_columns(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """`{'size': n, 'same': {key: value}, 'each': {key: [n values]}}`, or `{'rows': rows}` where the keys differ.

    Example:
        >>> to_columns([{"id": 1, "iter": 7}, {"id": 2, "iter": 7}])
        {'size': 2, 'same': {'iter': 7}, 'each': {'id': [1, 2]}}
    """
    if not rows:
        return {"rows": []}
    names = tuple(rows[0])
    if any(tuple(row) != names for row in rows):
        return _to_columns_of_any_order(rows)
    same, each = {}, {}
    for name, values in zip(names, zip(*(row.values() for row in rows), strict=True), strict=True):
        if _is_constant(values):
            same[name] = values[0]
        else:
            each[name] = list(values)
    return {"size": len(rows), "same": same, "each": each}


def _to_columns_of_any_order(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    keys = rows[0].keys()
    if any(row.keys() != keys for row in rows):
        return {"rows": list(rows)}
    return to_columns([{key: row[key] for key in keys} for row in rows])


def from_columns(columns: dict[str, Any]) -> Rows:
    """The rows that `to_columns` was given.

    Raises:
        ValueError: it is no such dict, or its columns differ in length.
    """
    if "rows" in columns:
        return list(columns["rows"])
    try:
        size, same, each = columns["size"], columns["same"], columns["each"]
        names = list(each)
        rows = [{**same, **dict(zip(names, values, strict=True))} for values in zip(*each.values(), strict=True)]
    except (KeyError, TypeError, ValueError) as e:
        raise ValueError(f"these are not rows in columns: {str(columns)[:200]}") from e
    if not names:
        rows = [dict(same) for _ in range(size)]
    if len(rows) != size:
        raise ValueError(f"{size} rows are announced, but the columns have {len(rows)}")
    return rows


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


def _is_constant(values: tuple[Any, ...]) -> bool:
    first = values[0]
    kind = type(first)
    if kind not in (str, int, bool, float, type(None)):  # others could be shared between the rows
        return False
    if type(values[-1]) is not kind or values[-1] != first:  # most of those that differ, without looking at all
        return False
    return set(map(type, values)) == {kind} and values.count(first) == len(values)
