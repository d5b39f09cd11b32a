"""The order of the slots of a ring buffer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ding.utils.data.samples import Column, Items, Kind, node_items, rows_of, table_of
from ding.utils.segment_tree import IntArray

BoolArray = npt.NDArray[np.bool_]
# Slot numbers, or a slice with start and stop.
Slots = IntArray | slice


class Ring:
    """Order of `size` slots, and which of them hold an item. Slots are written at `tail`, which wraps around.

    Position 0 is the oldest written slot, the highest position the newest one. A slot that is emptied keeps its
    position, unless gaps are closed. The ring is not thread-safe.

    Attributes:
        held: bool [size], whether a slot holds an item.
        filled: number of positions: slots written since the ring was empty, at most `size`.
        valid_count: number of items that can be sampled, set by the owner.
        push_count: number of items written so far.

    Example:
        >>> ring = Ring(3)
        >>> ring.advance(3)
        >>> ring.advance(1)
        >>> ring.tail, ring.slots_at(np.arange(3)).tolist()
        (1, [1, 2, 0])
    """

    def __init__(self, size: int) -> None:
        self.size, self.push_count = size, 0
        self.reset()

    def reset(self) -> None:
        """Empty all slots, but keep `push_count`."""
        self.held: BoolArray = np.zeros(self.size, np.bool_)
        self._order: IntArray | None = None  # the slots, if they are not in their own order
        self._start = self.filled = self.valid_count = 0  # `_start` is the place of position 0 in the order

    @property
    def tail(self) -> int:
        """The slot that is written next."""
        place = (self._start + self.filled) % self.size
        return place if self._order is None else int(self._order[place])

    @property
    def head(self) -> int:
        """The oldest slot that holds an item; `tail` if the ring is empty."""
        slots = self.occupied()
        return int(slots[0]) if slots.size else self.tail

    def slots_at(self, positions: Any) -> Any:
        """Return the slots at `positions`, an array or a number; the newest is followed by those written next."""
        places = (positions + self._start) % self.size
        return places if self._order is None else self._order[places]

    def slots_in(self, sample_range: slice) -> IntArray:
        """Return the slots of a range of positions, whose step is ignored, oldest first."""
        return self._by_position()[: self.filled][sample_range.start : sample_range.stop]

    def occupied(self) -> IntArray:
        """Return the slots that hold an item, oldest first."""
        slots = self._by_position()[: self.filled]
        return slots[self.held[slots]]

    def _by_position(self) -> IntArray:
        order = np.arange(self.size) if self._order is None else self._order
        return np.roll(order, -self._start)

    def next_slots(self, count: int) -> Slots:
        """Return the next `count` slots, as a slice, which is faster, if they are easily seen to be one."""
        first = (self._start + self.filled) % self.size
        if self._order is None and first + count <= self.size:
            return slice(first, first + count)
        slots: IntArray = self.slots_at(self.filled + np.arange(count))
        return slots

    def advance(self, count: int) -> None:
        """Count the next `count` <= `size` slots as written; the owner marks them in `held`."""
        self.push_count += count
        self.filled += count
        if self.filled > self.size:
            self._start = (self._start + self.filled) % self.size
            self.filled = self.size

    def release(self, slots: IntArray, closes_gaps: bool = False) -> None:
        """Mark `slots` as empty; without any item, the ring restarts at `tail`.

        Args:
            closes_gaps: whether empty slots give up their positions, and are written next.
        """
        self.held[slots] = False
        if closes_gaps:
            by_position = self._by_position()
            written, free = by_position[: self.filled], by_position[self.filled :]
            is_held = self.held[written]
            self._order = np.concatenate([written[is_held], np.sort(written[~is_held])[::-1], free])
            self._start, self.filled = 0, int(np.count_nonzero(is_held))
        elif not self.held.any():
            self._start, self.filled = (self._start + self.filled) % self.size, 0

    def order_state(self) -> dict[str, Any]:
        """Return the order and the counters for `restore_order`."""
        counters = {"start": self._start, "filled": self.filled, "order": self._order}
        return {**counters, "valid_count": self.valid_count, "push_count": self.push_count}

    def restore_order(self, state: Mapping[str, Any]) -> None:
        """Set the order and the counters to those of a ring of the same size; `held` does not change."""
        self._start, self.filled, order = state["start"], state["filled"], state["order"]
        self._order = None if order is None else np.array(order, np.int64)
        self.valid_count, self.push_count = state["valid_count"], state["push_count"]


def done_flags(items: Items) -> BoolArray:
    """Return whether each of `items` ends an episode, bool [n]; see `ends_episode`."""
    table = table_of(items)
    if table is None:
        return np.fromiter(map(ends_episode, rows_of(items)), np.bool_, len(items))
    done = table.columns.get("done")
    if isinstance(done, Column) and done.kind is not Kind.OBJECT:
        flags: BoolArray = np.all(np.asarray(done.values(), np.bool_).reshape(len(items), -1), axis=1)
        return flags
    done_items = [None] * len(items) if done is None else node_items(done)
    return np.fromiter((ends_episode({"done": value}) for value in done_items), np.bool_, len(items))


def ends_episode(item: Any) -> bool:
    """Return whether `item` is a dict with a true `done`; if `done` has one flag per player, all must be true."""
    done = item.get("done") if isinstance(item, Mapping) else None
    return bool(done) if done is None or type(done) is bool else bool(torch.as_tensor(done).all())
