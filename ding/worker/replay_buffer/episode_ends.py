"""Episode boundaries in a ring buffer, and windows of consecutive items within one episode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ding.data.ring import BoolArray, Ring
from ding.utils.data.samples import Column, Kind, Samples, node_items
from ding.utils.segment_tree import IntArray


class EpisodeEnds:
    """Marks the slots of `ring` that hold the last item of an episode. Not thread-safe.

    An episode ends with an item (a dict) whose `done` is true, and at the latest after `max_length` items (None: no
    limit). Items must arrive in order, one episode after the other.

    Attributes:
        is_last: bool [size], by slot. Undefined for empty slots.
        steps: Number of items of the current, unfinished episode.

    Example:
        >>> ring = Ring(8)
        >>> ends = EpisodeEnds(ring, max_length=3)
        >>> for done in (np.zeros(4, np.bool_), np.ones(1, np.bool_)):
        ...     ends.mark_next(done)
        ...     ring.advance(len(done))
        >>> [length.tolist() for length in ends.episodes()]
        [[0, 3, 5], [3, 2, 0]]
    """

    def __init__(self, ring: Ring, max_length: int | None) -> None:
        self._ring, self._max_length = ring, max_length
        self.is_last: BoolArray = np.zeros(ring.size, dtype=np.bool_)
        self.steps = 0

    def mark_next(self, done: BoolArray) -> None:
        """Mark the n slots that the ring writes next; `done` [n] are the flags of their items."""
        self.is_last[self._ring.next_slots(len(done))] = self._find(done)

    def mark_all(self, done: BoolArray) -> None:
        """Mark all n occupied slots anew; `done` [n] are the flags of their items, oldest first."""
        self.clear()
        if len(done):
            self.is_last[self._ring.occupied()] = self._find(done)

    def _find(self, done: BoolArray) -> BoolArray:
        """Returns which of the next n items are the last of an episode, and updates `steps`."""
        max_length, order = self._max_length, np.arange(len(done))
        begins = np.where(np.concatenate(([False], done[:-1])), order, -self.steps)
        lengths = order - np.maximum.accumulate(begins) + 1  # length of each item's episode up to this item
        self.steps = 0 if done[-1] else int(lengths[-1])
        is_last: BoolArray = done.copy()
        if max_length is not None:
            self.steps %= max_length
            is_last |= lengths % max_length == 0
        return is_last

    def end_current(self) -> None:
        """End the current episode, if any, with the newest item."""
        if self.steps:
            self.is_last[self._ring.tail - 1] = True
            self.steps = 0

    def mark_newest(self, is_last: BoolArray) -> None:
        """Set the marks of the n newest items to `is_last` [n]; the newest item always ends its episode."""
        count = min(len(is_last), self._ring.filled)
        if count:
            slots = (self._ring.tail - count + np.arange(count)) % self._ring.size
            self.is_last[slots] = is_last[-count:]
            self.is_last[self._ring.tail - 1] = True
            self.steps = 0

    def compact(self, slots: IntArray, is_kept: BoolArray) -> None:
        """Follow a compaction of the ring: of the items in `slots` [n], those that `is_kept` move to the first slots.

        `slots` are all occupied slots, oldest first. An episode is split where one of its items is removed.
        """
        is_last = self.is_last[slots] | np.append(~is_kept[1:], False)
        is_current = len(slots) - np.arange(len(slots)) <= self.steps
        is_last = is_last[is_kept]
        if not is_kept[is_current].all():
            self.steps = int(np.append(is_last[::-1], True).argmax())
        self.is_last.fill(False)
        self.is_last[: len(is_last)] = is_last

    def clear(self) -> None:
        """Remove all marks."""
        self.is_last.fill(False)
        self.steps = 0

    def episodes(self) -> tuple[IntArray, IntArray]:
        """Returns the first positions and the lengths of the stored parts of all episodes, oldest first.

        Lengths may be 0. An empty slot splits its episode.
        """
        ring = self._ring
        slots = ring.positions_to_slots(np.arange(ring.filled))
        is_empty = ~ring.held[slots]
        is_last = self.is_last[slots] | is_empty
        stops = np.append(np.flatnonzero(is_last) + 1, ring.filled)
        starts = np.append(0, stops[:-1])
        lengths = stops - starts
        lengths[:-1] -= is_empty[stops[:-1] - 1]
        return starts, lengths

    def draw(self, count: int, length: int, rng: np.random.Generator) -> IntArray | None:
        """Draw windows: an episode uniformly, then a window within it. Returns the slots [count, length].

        Returns None if no episode is long enough.
        """
        starts, lengths = self.episodes()
        windows = lengths - length + 1
        long_enough = np.flatnonzero(windows > 0)
        if not long_enough.size:
            return None
        chosen = long_enough[rng.integers(0, long_enough.size, count)]
        first = starts[chosen] + rng.integers(0, windows[chosen])
        return self._ring.positions_to_slots(first[:, None] + np.arange(length))


def done_flags(items: Sequence[Any]) -> BoolArray:
    """Returns bool [n]: whether each of `items` ends an episode, see `ends_episode`."""
    columns = items.columns if isinstance(items, Samples) else None
    if columns is None:
        return np.fromiter(map(ends_episode, items), np.bool_, len(items))
    done = columns.get("done")
    if isinstance(done, Column) and done.kind is not Kind.OBJECT:
        flags: BoolArray = np.all(np.asarray(done.values(), np.bool_).reshape(len(items), -1), axis=1)
        return flags
    done_items = [None] * len(items) if done is None else node_items(done)
    return np.fromiter((ends_episode({"done": value}) for value in done_items), np.bool_, len(items))


def ends_episode(item: Any) -> bool:
    """Returns whether `item` is a dict with a true `done`. If `done` has one flag per player, all must be true."""
    done = item.get("done") if isinstance(item, Mapping) else None
    return bool(done) if done is None or type(done) is bool else bool(torch.as_tensor(done).all())
