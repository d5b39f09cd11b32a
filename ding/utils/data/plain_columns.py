"""Samples as plain values and arrays in columns, the format of chunks, messages and states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ding.utils.data.samples import (
    Column,
    Items,
    Kind,
    Node,
    Samples,
    Table,
    columns_of,
    node_items,
    rows_of,
    table_of,
)
from ding.utils.msgpack_helper import can_pack


def to_plain(samples: Items) -> dict[str, Any]:
    """Return samples as dicts, lists and arrays for `from_plain`. Arrays are not copied, and shared ones stored once.

    Samples that do not fit columns are stored as a list of items.

    Example:
        >>> plain = to_plain([{"id": 1, "tag": "a"}, {"id": 2, "tag": "a"}])
        >>> plain["columns"], plain["blocks"]
        (['dict', {'id': ['column', 'int', False, 0, None], 'tag': ['objects', ['a'], array([0, 0])]}], [array([1, 2])])
        >>> list(from_plain(plain))
        [{'id': 1, 'tag': 'a'}, {'id': 2, 'tag': 'a'}]
    """
    table = Table.of(samples)
    if table is None or not table.columns:
        return {"items": list(rows_of(samples))}
    blocks: dict[int, np.ndarray] = {}
    columns = _plain_node(table.columns, blocks)
    return {
        "size": len(table),
        "chained": table.is_chained,
        "columns": columns,
        "blocks": [np.ascontiguousarray(block) for block in blocks.values()],
    }


def _plain_node(node: Node, blocks: dict[int, np.ndarray]) -> list[Any]:
    """Return a node as a list that begins with its type; arrays are added to `blocks`, by their id."""
    if isinstance(node, dict):
        return ["dict", {key: _plain_node(value, blocks) for key, value in node.items()}]
    if type(node) in (list, tuple):
        return [type(node).__name__, [_plain_node(value, blocks) for value in node]]
    if not isinstance(node, Column) or node.kind is Kind.OBJECT:
        return _plain_objects(node_items(node))
    blocks.setdefault(id(node.data), node.data)
    return ["column", node.kind.value, node.steps, list(blocks).index(id(node.data)), node.rows]


def _plain_objects(values: list[Any]) -> list[Any]:
    """Return objects, with repeated strings, such as the names of chunks, stored once."""
    if {str}.issuperset(map(type, values)):
        places = {value: place for place, value in enumerate(dict.fromkeys(values))}
        if 2 * len(places) <= len(values):
            return ["objects", list(places), np.array([places[value] for value in values])]
    return ["objects", values, None]


def from_plain(plain: Any) -> list[Any]:
    """Return the samples that `to_plain` got, as `Samples` if they were in columns.

    Raises:
        ValueError: the data has another format.
    """
    try:
        if isinstance(items := plain.get("items"), list):
            return items
        size, blocks = plain["size"], plain["blocks"]
        columns = _node_of(plain["columns"], blocks)
        if not columns or not isinstance(columns, dict) or any(len(column) != size for column in columns_of(columns)):
            raise ValueError(f"the columns do not have {size} values")
        return Samples(Table(columns, size=size, chained=plain.get("chained", False)))
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as e:
        raise ValueError(f"the data is not samples in columns: {e!r}") from e


def _node_of(plain: Any, blocks: Sequence[np.ndarray]) -> Node:
    kind, *content = plain
    if kind == "dict":
        return {key: _node_of(value, blocks) for key, value in content[0].items()}
    if kind in ("list", "tuple"):
        nodes = [_node_of(value, blocks) for value in content[0]]
        return nodes if kind == "list" else tuple(nodes)
    if kind == "objects":
        values, rows = content
        return Column(Kind.OBJECT, list(values), _checked(rows, len(values)))
    if kind != "column":
        raise ValueError(f"unknown node {kind!r}")
    name, steps, number, rows = content
    data = blocks[number]
    if data.dtype.kind not in "biufc" or data.ndim < 1 + steps:
        raise ValueError(f"a column of kind {name!r} cannot have dtype {data.dtype} and shape {data.shape}")
    return Column(Kind(name), data, _checked(rows, len(data)), steps)


def _checked(rows: Any, count: int) -> Any:
    """Return row numbers, which must be in [0, `count`), or None."""
    if rows is not None and rows.size and not 0 <= rows.min() <= rows.max() < count:
        raise ValueError(f"row numbers are not in [0, {count})")
    return rows


def samples_state(items: Any) -> Any:
    """Return a list of samples, or nested lists of them, as plain data for states. Tables stay in columns."""
    table = table_of(items)
    if table is not None:
        return {"samples": to_plain(table.compact())}
    return {"items": [samples_state(item) for item in items]} if isinstance(items, list) else {"item": items}


def samples_of_state(state: Any) -> Any:
    """Return the samples that were passed to `samples_state`.

    Raises:
        ValueError: the state has another format.
    """
    match state:
        case {"samples": samples}:
            return from_plain(samples)
        case {"items": list(items)}:
            return [samples_of_state(item) for item in items]
        case {"item": item}:
            return item
    raise ValueError(f"the state is not samples: {str(state)[:200]}")


def node_state(node: Node | None) -> dict[str, Any] | None:
    """Return the values of a node as plain data for states; None if they cannot be packed, or there is no node."""
    plain = None if node is None else to_plain(Table({"node": node}))
    return plain if plain is not None and can_pack(plain["columns"]) else None


def node_of_state(state: Any) -> Node:
    """Return the node that was passed to `node_state`.

    Raises:
        ValueError: the state has another format.
    """
    table = table_of(from_plain(state))
    if table is None:
        raise ValueError("the state is not samples in columns")
    return table.columns["node"]
