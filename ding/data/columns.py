"""Checks, copies and memory of columns."""

from __future__ import annotations

import contextlib
import copy
import itertools
import math
import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ding.data.row_ring import Array
from ding.utils.data.samples import Column, Kind, Node, Samples, columns_of, is_same_structure, map_node, node_items
from ding.utils.fast_copy import fastcopy
from ding.utils.segment_tree import IntArray

# Objects of these types cannot be changed, so they need no copies.
_IMMUTABLE = frozenset((type(None), bool, int, float, str, bytes))
# A line of the cache.
LINE_BYTES = 64


def columns_of_items(items: Sequence[Any]) -> dict[str, Node] | None:
    """Returns the columns of dicts with the same keys, or None for other items. End flags may be missing in some."""
    samples = Samples.of(items)
    if samples is None and all(type(item) is dict and item for item in items):
        groups = [list(group) for _, group in itertools.groupby(items, dict.keys)]
        parts = [Samples.of(group) for group in groups]
        samples = Samples.joined([part for part in parts if part is not None])
    return None if samples is None else samples.columns


def can_share(obs: Column, next_obs: Column, by_frames: bool = False) -> bool:
    """Returns whether the two can be stored once: as rows of one array, or as common frames with `by_frames`."""
    if obs.kind is Kind.OBJECT or obs.steps or obs is next_obs or not fits(obs, next_obs):
        return False
    return by_frames or (obs.data is next_obs.data and obs.rows is not None and next_obs.rows is not None)


def fits(stored: Column, column: Column) -> bool:
    """Returns whether values of `column` can be written to `stored`: same kind, dtype and shape."""
    return signature([stored]) == signature([column])


def can_hold(stored: Node, node: Node) -> bool:
    """Returns whether values of `node` can be written to the columns of `stored`."""
    if isinstance(stored, Column) and stored.kind is Kind.OBJECT:
        return True
    if not is_same_structure(stored, node):
        return False
    pairs = zip(columns_of(stored), columns_of(node), strict=True)
    return all(old.kind is Kind.OBJECT or fits(old, new) for old, new in pairs)


def signature(nodes: Iterable[Node]) -> list[Any]:
    """Returns the kind, dtype and shape of the values of each column: equal for columns that fit each other.

    Nodes that are not columns never fit.
    """
    return [
        (
            node.kind,
            node.steps,
            node.data.dtype,
            (node.rows.shape[1:] if node.rows is not None else ()) + node.data.shape[1:],
        )
        if type(node) is Column and node.kind is not Kind.OBJECT
        else getattr(node, "kind", id(node))
        for node in nodes
    ]


def shape_of(column: Column) -> tuple[int, ...]:
    """Returns the shape of one value, including its number of frames if it refers to several."""
    frames: tuple[int, ...] = () if column.rows is None else column.rows.shape[1:]
    shape: tuple[int, ...] = column.data.shape[1:]
    return frames + shape


def described(node: Node) -> str:
    """Returns a description of a node, for warnings."""
    if not isinstance(node, Column):
        return f"a {type(node).__name__} of {sorted(map(str, node)) if isinstance(node, dict) else len(node)}"
    if node.kind is Kind.OBJECT:
        return "an object"
    shape = f"of shape {list(shape_of(node))}" if shape_of(node) else ""
    return " ".join(filter(None, (node.kind.value, str(node.data.dtype), shape)))


def own_node(node: Node, slots: IntArray) -> Node:
    """Returns a copy of the values of a node at `slots`."""
    return map_node(lambda column: own_column(column, slots), node)


def own_column(column: Column, slots: IntArray) -> Column:
    """Returns a copy of the values of a column at `slots`."""
    if column.kind is Kind.OBJECT:
        data = column.values()
        return Column(Kind.OBJECT, own_objects([data[slot] for slot in slots.tolist()]))
    rows = slots if column.rows is None else column.rows[slots]
    return Column(column.kind, column.data[rows], None, column.steps)


def own_objects(values: list[Any]) -> list[Any]:
    """Returns copies of objects. Immutable objects and objects of unknown types are shared."""
    return values if _IMMUTABLE.issuperset(map(type, values)) else [fastcopy.copy(value) for value in values]


def own_item(item: Any) -> Any:
    """Returns a copy of an item that is a dict or `Samples`, and any other item itself."""
    if type(item) is dict:
        return fastcopy.copy(item)
    if isinstance(item, Samples) and item.columns is not None:
        return Samples({key: map_node(_own_if_objects, node) for key, node in item.columns.items()})
    return copy.copy(item) if isinstance(item, dict) else item


def own_samples(samples: Samples) -> Samples:
    """Returns the samples, which must have `columns`, in new arrays. Shared observations stay shared."""
    columns = samples.compact().columns or {}
    copies = {id(column.data): column.data.copy() for column in columns_of(columns) if column.kind is not Kind.OBJECT}

    def own(column: Column) -> Column:
        data = own_objects(column.items()) if column.kind is Kind.OBJECT else copies[id(column.data)]
        return Column(column.kind, data, None if column.kind is Kind.OBJECT else column.rows, column.steps)

    return Samples({key: map_node(own, node) for key, node in columns.items()})


def _own_if_objects(column: Column) -> Column:
    return Column(Kind.OBJECT, own_objects(column.items())) if column.kind is Kind.OBJECT else column


def packed_columns(columns: dict[str, Node]) -> dict[str, Any]:
    """Returns columns as plain values and arrays, for `unpacked_columns`. Shared arrays stay shared."""
    arrays: dict[int, Array] = {}

    def pack(node: Node) -> Any:
        if isinstance(node, dict):
            return {"keys": list(node), "nodes": [pack(value) for value in node.values()]}
        if type(node) in (list, tuple):
            return {"type": type(node).__name__, "nodes": [pack(value) for value in node]}
        if not isinstance(node, Column):  # a namedtuple
            node = Column(Kind.OBJECT, node_items(node))
        if node.kind is Kind.OBJECT:
            return {"kind": node.kind.value, "values": node.items()}
        arrays.setdefault(id(node.data), np.ascontiguousarray(node.data))
        place = list(arrays).index(id(node.data))
        return {"kind": node.kind.value, "array": place, "rows": node.rows, "steps": node.steps}

    return {"columns": pack(dict(columns)), "arrays": list(arrays.values())}


def unpacked_columns(packed: dict[str, Any]) -> dict[str, Node]:
    """Returns the columns that were passed to `packed_columns`."""
    arrays = packed["arrays"]

    def unpack(node: dict[str, Any]) -> Node:
        if "keys" in node:
            return dict(zip(node["keys"], map(unpack, node["nodes"]), strict=True))
        if "nodes" in node:
            return {"list": list, "tuple": tuple}[node["type"]](map(unpack, node["nodes"]))
        if "values" in node:
            return Column(Kind(node["kind"]), list(node["values"]))
        return Column(Kind(node["kind"]), arrays[node["array"]], node["rows"], node["steps"])

    columns: dict[str, Node] = unpack(packed["columns"])
    return columns


class ColumnMemory:
    """Allocates the arrays of a store, in memory or as mapped files.

    Args:
        folder: Folder of the files, created with the first one. None for memory.
    """

    def __init__(self, folder: str | None) -> None:
        self._folder = folder
        self._files: list[str] = []
        self._numbers = itertools.count()

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype) -> Array:
        """Returns an uninitialized array, aligned to a line of the cache. Memory is committed when it is written."""
        if self._folder is None:
            memory = np.empty(math.prod(shape) * dtype.itemsize + LINE_BYTES, np.uint8)
            array: Array = np.ndarray(shape, dtype, memory, -memory.ctypes.data % LINE_BYTES)
            return array
        os.makedirs(self._folder, exist_ok=True)
        name = os.path.join(self._folder, f"{os.getpid()}_{id(self):x}_{next(self._numbers)}.column")
        self._files.append(name)
        return np.asarray(np.memmap(name, dtype, "w+", shape=shape))

    def delete_files(self) -> None:
        """Delete the files of all arrays."""
        for name in self._files:
            with contextlib.suppress(FileNotFoundError):  # the folder was cleared
                os.remove(name)
        self._files.clear()
