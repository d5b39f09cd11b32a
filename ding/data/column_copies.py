"""Columns that share no memory with others: copies of values and items, and columns as plain values and arrays."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from ding.data.column_fit import can_share
from ding.data.row_ring import Array, shared_rows
from ding.utils.data.samples import Column, Kind, Node, Samples, columns_of, is_same_structure, map_node, node_items
from ding.utils.fast_copy import fastcopy
from ding.utils.segment_tree import IntArray

# Objects of these types cannot be changed, so they need no copies.
_IMMUTABLE = frozenset((type(None), bool, int, float, str, bytes))


def own_node(node: Node, slots: IntArray) -> Node:
    """The values of a node at `slots`, copied."""
    return map_node(lambda column: own_column(column, slots), node)


def own_column(column: Column, slots: IntArray) -> Column:
    """The values of a column at `slots`, copied."""
    if column.kind is Kind.OBJECT:
        data = column.values()
        return Column(Kind.OBJECT, own_objects([data[slot] for slot in slots.tolist()]))
    rows = slots if column.rows is None else column.rows[slots]
    return Column(column.kind, column.data[rows], None, column.steps)


def own_objects(values: list[Any]) -> list[Any]:
    """Copies of objects; of those that cannot be changed, and of foreign types, the objects themselves."""
    return values if _IMMUTABLE.issuperset(map(type, values)) else [fastcopy.copy(value) for value in values]


def own_item(item: Any) -> Any:
    """A copy of an item that is a dict, or is samples; any other item itself."""
    if type(item) is dict:
        return fastcopy.copy(item)
    if isinstance(item, Samples) and item.columns is not None:
        return Samples({key: map_node(_own_if_objects, node) for key, node in item.columns.items()})
    return copy.copy(item) if isinstance(item, dict) else item


def own_samples(samples: Samples) -> Samples:
    """The same samples in arrays that hold nothing else; observations are still stored once. Needs `columns`."""
    columns = samples.columns or {}
    obs, next_obs = columns.get("obs"), columns.get("next_obs")
    pairs: list[tuple[Column, Column]] = []
    if obs is not None and next_obs is not None and is_same_structure(obs, next_obs):
        pairs = list(zip(columns_of(obs), columns_of(next_obs), strict=True))
    shared = {
        id(old): new for pair in pairs if can_share(*pair) for old, new in zip(pair, shared_rows(*pair), strict=True)
    }
    everything = np.arange(len(samples))

    def own(column: Column) -> Column:
        return shared[id(column)] if id(column) in shared else own_column(column, everything)

    return Samples({key: map_node(own, node) for key, node in columns.items()})


def _own_if_objects(column: Column) -> Column:
    return Column(Kind.OBJECT, own_objects(column.items())) if column.kind is Kind.OBJECT else column


def packed_columns(columns: dict[str, Node]) -> dict[str, Any]:
    """Columns as plain values and arrays, that `unpacked_columns` knows; an array of several columns once."""
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
    """The columns that `packed_columns` was given."""
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
