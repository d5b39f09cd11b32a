"""Samples as plain values and arrays in columns, the format of chunks, messages and states.

A value that all samples share is stored once, repeated strings in a table, and integers in the narrowest dtype. Reading
does not trust the data: it never allocates more than a bounded multiple of the data's size.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

import numpy as np

from ding.utils.data.samples import (
    Column,
    Items,
    Kind,
    Node,
    RowNumbers,
    Samples,
    Table,
    columns_of,
    node_items,
    pack,
    rows_of,
    table_of,
)
from ding.utils.msgpack_helper import can_pack

# Maximum ratio of the expanded size to the stored size, where each object counts as one byte.
_MAX_GROWTH = 64
# Added to the stored size, because a few samples may be equal in all keys.
_FREE_BYTES = 1024
# Minimum size of an expanded value.
_VALUE_BYTES = 8
_MAX_DEPTH = 32
_CONSTANTS = (str, int, float, bool, type(None))
_ARRAYS = (Kind.TENSOR, Kind.ARRAY, Kind.SCALAR)
_KINDS_OF_DTYPE: dict[str, tuple[Kind, ...]] = {
    "b": (*_ARRAYS, Kind.BOOL),
    "i": (*_ARRAYS, Kind.INT),
    "u": _ARRAYS,
    "f": (*_ARRAYS, Kind.FLOAT),
    "c": _ARRAYS,
}
_INTS = [(-(2**bits), 2**bits - 1, np.dtype(f"i{size}")) for bits, size in ((7, 1), (15, 2), (31, 4), (63, 8))]


def to_plain(samples: Items, verbatim: bool = False) -> dict[str, Any]:
    """Return samples as dicts, lists and arrays for `from_plain`. Shared arrays are stored once.

    Samples that do not fit columns are stored as a list of items.

    Args:
        verbatim: whether to store all arrays as they are. By default, they take as little space as possible.

    Example:
        >>> plain = to_plain([{"id": 1, "iter": 7}, {"id": 2, "iter": 7}])
        >>> plain["columns"]
        ['dict', {'id': ['column', 'int', False, 0, None], 'iter': ['same', 7]}]
        >>> list(from_plain(plain))
        [{'id': 1, 'iter': 7}, {'id': 2, 'iter': 7}]
    """
    table = Table.of(samples)
    if table is None or not table.columns:
        return {"items": list(rows_of(samples))}
    for way in (_Way.VERBATIM if verbatim else _Way.BRIEF, _Way.COMPACT):
        writer = _Writer(way)
        plain = {"size": len(table), "columns": writer.node(table.columns), "blocks": writer.blocks}
        if _can_hold(writer.size_bytes, len(table), table.columns):
            return plain
    return {"items": list(rows_of(samples))}  # arrays of size 0


def _can_hold(size_bytes: int, size: int, columns: dict[str, Node]) -> bool:
    """Return whether `size_bytes` bytes of arrays and objects may expand to these columns of `size` samples."""
    stored = size_bytes + _FREE_BYTES
    return size <= stored and sum(map(_expanded_bytes, columns_of(columns))) <= _MAX_GROWTH * stored


def _expanded_bytes(column: Column) -> int:
    steps: int = column.data.shape[1] if column.steps else 1
    count = len(column.data) if column.rows is None else column.rows.size
    return count * max(_VALUE_BYTES * steps, column.itemsize)


class _Way(enum.Enum):
    """Ways to encode samples: equal values once, all values one by one, or arrays and rows as they are.

    All but the second store each string once.
    """

    BRIEF = "brief"
    COMPACT = "compact"
    VERBATIM = "verbatim"


class _Writer:
    """Encoder of nodes as lists that begin with their type. Arrays are added to `blocks`.

    Args:
        way: how the nodes are encoded.

    Attributes:
        size_bytes: size of all arrays, plus one for each object.
    """

    def __init__(self, way: _Way) -> None:
        self.blocks: list[np.ndarray] = []
        self.size_bytes = 0
        self._way = way
        self._numbers: dict[int, int] = {}  # by the id of an array of the samples

    def node(self, node: Node, depth: int = 0) -> list[Any]:
        if isinstance(node, Column):
            return self._objects(node.items()) if node.kind is Kind.OBJECT else self._column(node)
        if isinstance(node, dict) and depth < _MAX_DEPTH:
            return ["dict", {key: self.node(value, depth + 1) for key, value in node.items()}]
        if type(node) in (list, tuple) and depth < _MAX_DEPTH:
            return [type(node).__name__, [self.node(value, depth + 1) for value in node]]
        return self._objects(node_items(node))

    def _objects(self, values: list[Any]) -> list[Any]:
        kinds = set(map(type, values)) if self._way is not _Way.COMPACT else set()
        if kinds <= {str, bool, type(None)} and len(kinds) == 1:
            if values.count(values[0]) == len(values):
                return ["same", values[0]]
            places = {value: place for place, value in enumerate(dict.fromkeys(values))}
            if 2 * len(places) <= len(values):
                rows = _narrow(np.array([places[value] for value in values]))
                self.size_bytes += len(places) + rows.nbytes
                return ["objects", list(places), rows]
        self.size_bytes += len(values)
        return ["objects", values, None]

    def _column(self, column: Column) -> list[Any]:
        rows = column.rows
        is_scattered = rows is not None and (rows.ndim > 1 or not len(rows) <= len(column.data) <= 2 * len(rows) + 1)
        if self._way is _Way.COMPACT or (self._way is _Way.BRIEF and is_scattered):
            column = column.compact()
        if self._way is _Way.BRIEF and column.rows is None and len(column.data) and not column.steps:
            brief = self._numbers_in_brief(column.kind, column.data)
            if brief is not None:
                return brief
        number = self._numbers.setdefault(id(column.data), len(self.blocks))
        if number == len(self.blocks):
            self._add_block(column.data)
        rows = column.rows
        if rows is not None and self._way is _Way.BRIEF:
            rows = _narrow(rows)
        self.size_bytes += 0 if rows is None else rows.nbytes
        return ["column", column.kind.value, column.steps, number, rows]

    def _numbers_in_brief(self, kind: Kind, values: np.ndarray) -> list[Any] | None:
        """Encode Python numbers [N >= 1]; return None if their array cannot be shortened."""
        if kind is Kind.FLOAT and values.dtype == np.float64:
            bits = values.view(np.int64)
            return ["same", values[0].item()] if (bits == bits[0]).all() else None
        if kind is not Kind.INT and kind is not Kind.BOOL:
            return None
        least, most = values.min().item(), values.max().item()
        if least == most:
            return ["same", least]
        if kind is Kind.BOOL:
            return None
        self._add_block(values.astype(_dtype_for(least, most)))
        return ["column", kind.value, False, len(self.blocks) - 1, None]

    def _add_block(self, block: np.ndarray) -> None:
        self.blocks.append(np.ascontiguousarray(block))
        self.size_bytes += block.nbytes


def _narrow(numbers: RowNumbers) -> RowNumbers:
    """Return integers in the narrowest dtype that holds them."""
    return numbers.astype(_dtype_for(numbers.min().item(), numbers.max().item())) if len(numbers) else numbers


def _dtype_for(least: int, most: int) -> np.dtype:
    return next(dtype for low, high, dtype in _INTS if low <= least and most <= high)


def from_plain(plain: Any, verbatim: bool = False, limit_bytes: int | None = None) -> list[Any]:
    """Return the samples that `to_plain` got, as `Samples` if they were in columns; untrusted data is safe.

    Args:
        verbatim: as for `to_plain`; then a value may consist of several rows.
        limit_bytes: maximum size of the columns with all values written out; None for no other limit than that of the
            data's own size.

    Raises:
        ValueError: the format is wrong, or the data claims a size that it cannot hold.
    """
    try:
        if not isinstance(plain, dict):  # such as a tensor, which may raise any error below
            raise ValueError(f"a {type(plain).__name__} is not a dict")
        if "items" in plain:
            if type(plain["items"]) is not list:
                raise ValueError("the items are not a list")
            items: list[Any] = plain["items"]
            return items
        size, blocks = plain["size"], plain["blocks"]
        if type(size) is not int or size < 0:
            raise ValueError(f"size = {size!r} is not allowed; it must be an int >= 0")
        if not all(isinstance(block, np.ndarray) for block in blocks):
            raise ValueError("a block is not an array")
        columns = _Reader(size, blocks, 2 if verbatim else 1).read(plain["columns"])
        if limit_bytes is not None and sum(map(_expanded_bytes, columns_of(columns))) > limit_bytes:
            raise ValueError(f"the samples take more than {limit_bytes} bytes")
        return Samples(Table(columns, size=size))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as e:
        raise ValueError(f"the data is not samples in columns: {e!r}") from e


def samples_state(items: Any) -> Any:
    """Return a list of samples, or nested lists of them, as plain data for states. Tables stay in columns."""
    table = table_of(items)
    if table is not None:
        return {"samples": to_plain(table.compact()), "chained": table.is_chained}
    return {"items": [samples_state(item) for item in items]} if isinstance(items, list) else {"item": items}


def samples_of_state(state: Any) -> Any:
    """Return the samples that were passed to `samples_state`.

    Raises:
        ValueError: the state has another format.
    """
    match state:
        case {"samples": columns, "chained": bool(is_chained)}:
            samples = from_plain(columns)
            table = table_of(samples)
            return samples if table is None else Samples(Table(table.columns, chained=is_chained, size=len(table)))
        case {"items": list(items)}:
            return [samples_of_state(item) for item in items]
        case {"item": item}:
            return item
    raise ValueError(f"the state is not samples: {str(state)[:200]}")


def node_state(node: Node) -> dict[str, Any] | None:
    """Return the values of a node as plain data for states, None if they cannot be packed."""
    return to_plain(Table({"node": node})) if _is_plain(node) else None


def node_of_state(state: Any) -> Node:
    """Return the node that was passed to `node_state`.

    Raises:
        ValueError: the state has another format.
    """
    table = Table.of(from_plain(state))
    if table is None:
        raise ValueError("the state is not samples in columns")
    return table.columns["node"]


def _is_plain(node: Node) -> bool:
    if isinstance(node, Column):
        return node.kind is not Kind.OBJECT or can_pack(node.items())
    if isinstance(node, dict):
        return all(map(_is_plain, node.values()))
    return type(node) in (list, tuple) and all(map(_is_plain, node))


class _Reader:
    """Decoder of the nodes of `size` samples, whose row numbers have up to `max_ndim` dimensions."""

    def __init__(self, size: int, blocks: Sequence[np.ndarray], max_ndim: int) -> None:
        self._size, self._blocks, self._max_ndim = size, blocks, max_ndim
        self._size_bytes = sum(block.nbytes for block in blocks)
        # The rows of a value that is stored once; takes no memory.
        self._first_row = np.broadcast_to(np.zeros(1, np.int64), (size,))

    def read(self, plain: Any) -> dict[str, Node]:
        columns = self._node(plain, 0)
        if type(columns) is not dict:
            raise ValueError("the columns are not a dict")
        if not _can_hold(self._size_bytes, self._size, columns):
            raise ValueError(f"{self._size_bytes} bytes cannot hold {self._size} samples")
        return columns

    def _node(self, plain: Any, depth: int) -> Node:
        kind, *content = plain
        if depth > _MAX_DEPTH:
            raise ValueError(f"more than {_MAX_DEPTH} dicts and lists are nested")
        if kind == "column":
            return self._column(*content)
        if kind == "objects":
            return self._objects(*content)
        (values,) = content
        if kind == "same":
            return self._same(values)
        if kind == "dict" and isinstance(values, dict) and values:
            return {key: self._node(value, depth + 1) for key, value in values.items()}
        if kind in ("list", "tuple") and isinstance(values, list) and values:
            nodes = [self._node(value, depth + 1) for value in values]
            return nodes if kind == "list" else tuple(nodes)
        raise ValueError(f"unknown node {kind!r}")

    def _same(self, value: Any) -> Column:
        if type(value) not in _CONSTANTS:
            raise ValueError(f"a {type(value).__name__} cannot be shared by all samples")
        column: Column = pack([value])
        return Column(column.kind, column.data, self._first_row)

    def _objects(self, values: Any, rows: Any = None) -> Column:
        if type(values) is not list:
            raise ValueError("the objects are not a list")
        self._size_bytes += len(values)
        return self._checked(Column(Kind.OBJECT, values, self._rows(rows, len(values))), "objects ")

    def _column(self, name: str, steps: bool, number: int, rows: Any) -> Column:
        kind, data = Kind(name), self._blocks[number]
        if type(steps) is not bool or kind not in _KINDS_OF_DTYPE.get(data.dtype.kind, ()) or data.ndim < 1 + steps:
            raise ValueError(f"a column of kind {name!r} cannot have dtype {data.dtype} and shape {data.shape}")
        rows = self._rows(rows, len(data))
        column = self._checked(Column(kind, data, rows, steps))
        if kind is Kind.INT:
            column.data = data.astype(np.int64, copy=False)
        return column

    def _rows(self, rows: Any, count: int) -> RowNumbers | None:
        """Check row numbers, which must be in [0, `count`)."""
        if rows is None:
            return None
        if not (isinstance(rows, np.ndarray) and rows.dtype.kind == "i" and 1 <= rows.ndim <= self._max_ndim):
            raise ValueError("the row numbers are not an array of integers")
        if rows.size and (rows.min() < 0 or rows.max() >= count):
            raise ValueError(f"row numbers are not in [0, {count})")
        self._size_bytes += rows.nbytes
        return rows.astype(np.int64, copy=False)

    def _checked(self, column: Column, what: str = "") -> Column:
        if len(column) != self._size:
            raise ValueError(f"{len(column)} {what}found, expected {self._size}")
        return column
