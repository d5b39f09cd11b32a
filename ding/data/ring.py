"""The order of the slots of a ring buffer, and the episodes in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ding.utils.data.samples import Column, Items, Kind, node_items, rows_of, table_of
from ding.utils.segment_tree import IntArray

BoolArray = npt.NDArray[np.bool_]


class Ring:
    """Tracks which of `size` slots hold an item, and their order. Slots are written at `tail`, which wraps around.

    Position 0 is the oldest written slot, the highest position the newest one. A slot that is emptied keeps its
    position. Not thread-safe.

    Attributes:
        held: bool [size], whether a slot holds an item.
        tail: The slot that is written next.
        head: The oldest slot that holds an item; `tail` if the ring is empty.
        filled: Number of slots written since the ring was empty, at most `size`.
        valid_count: Number of items that can be sampled. Set by the owner.
        push_count: Number of items written so far.

    Example:
        >>> ring = Ring(3)
        >>> ring.advance(4 - 1)
        >>> ring.advance(1)
        >>> ring.tail, ring.head, ring.positions_to_slots(np.arange(3)).tolist()
        (1, 1, [1, 2, 0])
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.held: BoolArray = np.zeros(size, np.bool_)
        self.tail = self.head = self.filled = self.valid_count = self.push_count = 0

    def next_slots(self, count: int) -> IntArray | slice:
        """Returns the next `count` slots: a slice, or slot numbers [count] if they wrap around."""
        if self.tail + count <= self.size:
            return slice(self.tail, self.tail + count)
        return (self.tail + np.arange(count)) % self.size

    def advance(self, count: int) -> None:
        """Mark the next `count` <= `size` slots as written."""
        head_position = (self.head - self.tail + self.filled) % self.size
        is_head_replaced = self.filled + count - self.size > head_position
        self.held[self.next_slots(count)] = True
        self.tail = (self.tail + count) % self.size
        self.filled = min(self.size, self.filled + count)
        self.push_count += count
        if is_head_replaced:
            self.head = self.tail
            self.skip_empty_head()

    def release(self, slots: IntArray) -> None:
        """Mark `slots` as empty."""
        self.held[slots] = False
        self.skip_empty_head()

    def skip_empty_head(self) -> None:
        """Advance `head` to the next slot that holds an item. Without one, the ring is empty and restarts at `tail`."""
        while self.filled and not self.held[self.head]:
            self.head = (self.head + 1) % self.size
            if self.head == self.tail:
                self.filled = 0

    def positions_to_slots(self, positions: IntArray) -> IntArray:
        """Returns the slots at `positions`."""
        return (self.tail - self.filled + positions) % self.size

    def occupied(self) -> IntArray:
        """Returns the slots that hold an item, oldest first."""
        runs = [start + np.flatnonzero(self.held[start:stop]) for start, stop in self.ranges(slice(None))]
        return np.concatenate(runs) if runs else np.arange(0)

    def ranges(self, sample_range: slice) -> list[tuple[int, int]]:
        """Returns the half-open slot ranges, oldest first, that a slice of positions covers. Its step is ignored."""
        start, stop, _ = sample_range.indices(self.filled)
        if start >= stop:
            return []
        first, last = self.positions_to_slots(np.array([start, stop - 1])).tolist()
        return [(first, last + 1)] if first <= last else [(first, self.size), (0, last + 1)]

    def reset(self) -> None:
        """Empty all slots. `push_count` does not change."""
        self.held.fill(False)
        self.tail = self.head = self.filled = self.valid_count = 0

    def counters(self) -> dict[str, int]:
        """Returns the counters for `restore`."""
        return {name: getattr(self, name) for name in ("tail", "head", "filled", "valid_count", "push_count")}

    def restore(self, occupied: IntArray, counters: Mapping[str, Any]) -> None:
        """Set the occupied slots [n] and the counters to those of a ring of the same size.

        `filled` and `head` are derived from the others if missing.
        """
        self.held.fill(False)
        self.held[occupied] = True
        self.tail, self.valid_count, self.push_count = (
            counters[name] for name in ("tail", "valid_count", "push_count")
        )
        filled, head = counters.get("filled"), counters.get("head")
        self.filled = (self.size if self.held[self.tail :].any() else self.tail) if filled is None else filled
        self.head = (self.tail - self.filled) % self.size if head is None else head


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


def done_flags(items: Items) -> BoolArray:
    """Returns bool [n]: whether each of `items` ends an episode, see `ends_episode`."""
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
    """Returns whether `item` is a dict with a true `done`. If `done` has one flag per player, all must be true."""
    done = item.get("done") if isinstance(item, Mapping) else None
    return bool(done) if done is None or type(done) is bool else bool(torch.as_tensor(done).all())
