"""What fits into columns: items with the same keys, and values of the same kind, dtype and shape."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from ding.utils.data.samples import Column, Kind, Node, Samples


def columns_of_items(items: Sequence[Any]) -> dict[str, Node] | None:
    """The columns of dicts with the same keys, but for end flags that some lack; None for other items."""
    samples = Samples.of(items)
    if samples is None and all(type(item) is dict and item for item in items):
        groups = [list(group) for _, group in itertools.groupby(items, dict.keys)]
        parts = [Samples.of(group) for group in groups]
        samples = Samples.joined([part for part in parts if part is not None])
    return None if samples is None else samples.columns


def can_share(obs: Column, next_obs: Column, by_frames: bool = False) -> bool:
    """Whether the two can be stored once: as rows of one array, or `by_frames` that they may have in common."""
    if obs.kind is Kind.OBJECT or obs.steps or obs is next_obs or not fits(obs, next_obs):
        return False
    return by_frames or (obs.data is next_obs.data and obs.rows is not None and next_obs.rows is not None)


def fits(stored: Column, column: Column) -> bool:
    """Whether values of `column` can be written to `stored`."""
    if stored.kind is not column.kind or stored.steps is not column.steps:
        return False
    if stored.kind is Kind.OBJECT:
        return True
    return bool(stored.data.dtype == column.data.dtype and shape_of(stored) == shape_of(column))


def shape_of(column: Column) -> tuple[int, ...]:
    """The shape of one value; that of its frames, too, where it refers to several."""
    frames: tuple[int, ...] = () if column.rows is None else column.rows.shape[1:]
    shape: tuple[int, ...] = column.data.shape[1:]
    return frames + shape


def described(node: Node) -> str:
    """What a node is, in words for a warning."""
    if not isinstance(node, Column):
        return f"a {type(node).__name__} of {sorted(map(str, node)) if isinstance(node, dict) else len(node)}"
    if node.kind is Kind.OBJECT:
        return "an object"
    shape = f"of shape {list(shape_of(node))}" if shape_of(node) else ""
    return " ".join(filter(None, (node.kind.value, str(node.data.dtype), shape)))
