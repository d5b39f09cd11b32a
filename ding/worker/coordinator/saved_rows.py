"""Long lists, of the metadata of samples above all, in a form that is small and quickly written: columns, as arrays."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from operator import itemgetter
from typing import Any

import numpy as np

from ding.utils.segment_tree import IntArray

# Shorter lists stay what they are.
_MIN_LENGTH = 16
# The one key of the dict that a packed list is.
_MARK = "__list__"
_PLAIN = (type(None), bool, int, float, str)
_BLOCK = 512
_INTS = (np.int8, np.int16, np.int32, np.int64)


def pack_lists(value: Any) -> Any:
    """`value`, with each long list in it, or in a dict of it, replaced by a dict that `unpack_lists` knows.

    Raises:
        ValueError: there is a dict that looks like such a one.

    Example:
        >>> rows = [{"data_id": f"chunk_{i // 8}", "data_index": i % 8, "eval_flag": False} for i in range(16)]
        >>> unpack_lists(pack_lists({"data": rows})) == {"data": rows}
        True
    """
    if type(value) is list and len(value) >= _MIN_LENGTH:
        return {_MARK: _pack(value)}
    if isinstance(value, Mapping):
        if _MARK in value:
            raise ValueError(f"a dict with the key {_MARK!r} cannot be kept")
        return {key: pack_lists(item) for key, item in value.items()}
    return value


def unpack_lists(value: Any) -> Any:
    """What `pack_lists` was given."""
    if not isinstance(value, dict):
        return value
    if _MARK in value:
        return _unpack(value[_MARK])
    return {key: unpack_lists(item) for key, item in value.items()}


def _pack(values: list[Any]) -> dict[str, Any]:
    kinds = set(map(type, values))
    if kinds <= {dict, type(None)}:
        return _pack_rows(values)
    kind = kinds.pop() if len(kinds) == 1 else None
    if kind in _PLAIN and values.count(values[0]) == len(values):
        return {"same": values[0], "size": len(values)}
    if kind is str:
        return _pack_strings(values)
    if kind is int:
        with contextlib.suppress(OverflowError):
            return {"array": _small(np.fromiter(values, np.int64, len(values)))}
    if kind is float or kind is bool:
        return {"array": np.fromiter(values, kind, len(values))}
    return {"list": values}


def _small(numbers: IntArray) -> IntArray:
    """The numbers in the shortest type that holds them."""
    least, most = numbers.min(), numbers.max()
    return numbers.astype(next(t for t in _INTS if np.iinfo(t).min <= least and most <= np.iinfo(t).max))


def _pack_strings(values: list[str]) -> dict[str, Any]:
    places = {value: place for place, value in enumerate(dict.fromkeys(values))}
    if 2 * len(places) > len(values):
        return {"list": values}
    return {
        "table": list(places),
        "places": _small(np.fromiter(map(places.__getitem__, values), np.int64, len(values))),
    }


def _pack_rows(rows: list[Any]) -> dict[str, Any]:
    """Rows by their keys, as a rule all of one group; those that are None are a group, too."""
    columns = _columns(rows)
    if columns is not None:
        return {"groups": [columns], "places": None}
    groups: dict[Any, list[Any]] = {}
    keys = [None if row is None else tuple(row) for row in rows]
    for key, row in zip(keys, rows, strict=True):
        groups.setdefault(key, []).append(row)
    numbers = {key: number for number, key in enumerate(groups)}
    places = _small(np.array([numbers[key] for key in keys]))
    return {"groups": [_columns(group) for group in groups.values()], "places": places}


def _columns(rows: list[Any]) -> dict[str, Any] | None:
    """Rows that have the same keys, by key; None for others, and for a list of None."""
    names = () if rows[0] is None else tuple(rows[0])
    try:
        if set(map(len, rows)) != {len(names)}:
            return None
        columns = _read(rows, names)
    except (KeyError, TypeError):
        return None
    return {"size": len(rows), "each": [[name, _pack(column)] for name, column in zip(names, columns, strict=True)]}


def _read(rows: list[dict[str, Any]], names: tuple[Any, ...]) -> list[list[Any]]:
    """The columns. They are read in blocks, for each row comes into the processor's cache once then."""
    columns: list[list[Any]] = [[] for _ in names]
    for start in range(0, len(rows), _BLOCK):
        block = rows[start : start + _BLOCK]
        for name, column in zip(names, columns, strict=True):
            column.extend(map(itemgetter(name), block))
    return columns


def _unpack(packed: dict[str, Any]) -> list[Any]:
    if "same" in packed:
        return [packed["same"]] * packed["size"]
    if "array" in packed:
        values: list[Any] = packed["array"].tolist()
        return values
    if "table" in packed:
        table = packed["table"]
        return [table[place] for place in packed["places"].tolist()]
    if "groups" in packed:
        return _unpack_rows(packed)
    return list(packed["list"])


def _unpack_rows(packed: dict[str, Any]) -> list[Any]:
    groups, places = packed["groups"], packed["places"]
    if places is None:
        return _rows(groups[0])
    left = [None if group is None else iter(_rows(group)) for group in groups]
    return [None if (rows := left[place]) is None else next(rows) for place in places.tolist()]


def _rows(columns: dict[str, Any]) -> list[dict[str, Any]]:
    names = [name for name, _ in columns["each"]]
    if not names:
        return [{} for _ in range(columns["size"])]
    each = [_unpack(packed) for _, packed in columns["each"]]
    return [dict(zip(names, values, strict=True)) for values in zip(*each, strict=True)]
