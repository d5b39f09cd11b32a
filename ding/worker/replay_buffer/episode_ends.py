"""Where the episodes in a ring end, and windows of items in a row that lie within one episode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ding.utils.segment_tree import IntArray
from ding.worker.replay_buffer.ring import Ring

BoolArray = npt.NDArray[np.bool_]


class EpisodeEnds:
    """Marks the slots of `ring` whose item is the last of its episode. Not thread-safe.

    An episode ends with an item (a dict) whose `done` is true, and after `max_length` items in any case (None: only
    `done` ends it). Items come in order, one episode after the other.

    Attributes:
        is_last: bool [size], by slot; of meaning where the slot holds an item.
        steps: items of the episode under way, whose end has not come yet.

    Example:
        >>> ring = Ring(8)
        >>> ends = EpisodeEnds(ring, max_length=3)
        >>> for items in ([{"done": False}] * 4, [{"done": True}] * 1):
        ...     ends.expect(items)
        ...     _ = ring.put(items)
        >>> [length.tolist() for length in ends.episodes()]
        [[0, 3, 5], [3, 2, 0]]
    """

    def __init__(self, ring: Ring, max_length: int | None) -> None:
        self._ring, self._max_length = ring, max_length
        self.is_last: BoolArray = np.zeros(ring.size, dtype=np.bool_)
        self.steps = 0

    def expect(self, items: list[Any]) -> None:
        """Mark the slots that the ring's next `put` will write `items` (at least one, at most its size) to."""
        self.is_last[self._ring.next_slots(len(items))] = self._find(items)

    def find_all(self) -> None:
        """Mark all slots anew, as if the ring's items were just coming."""
        self.clear()
        slots = self._ring.positions_to_slots(np.arange(self._ring.filled))
        if slots.size:
            self.is_last[slots] = self._find([self._ring.slots[slot] for slot in slots.tolist()])

    def _find(self, items: list[Any]) -> BoolArray:
        """Which of `items` [n], that follow on those before, are the last of an episode."""
        count, max_length = len(items), self._max_length
        is_last = np.fromiter(map(ends_episode, items), dtype=np.bool_, count=count)
        order = np.arange(count)
        begins = np.where(np.concatenate(([False], is_last[:-1])), order, -self.steps)
        lengths = order - np.maximum.accumulate(begins) + 1  # of each item's episode, up to this item
        self.steps = 0 if is_last[-1] else int(lengths[-1])
        if max_length is not None:
            is_last |= lengths % max_length == 0
            self.steps %= max_length
        return is_last

    def cut(self) -> None:
        """Let the episode under way, if there is one, end with the newest item."""
        if self.steps:
            self.is_last[self._ring.tail - 1] = True
            self.steps = 0

    def mark_newest(self, is_last: BoolArray) -> None:
        """Mark the newest items [n] as told; the very newest is the last of its episode."""
        count = min(len(is_last), self._ring.filled)
        if count:
            slots = (self._ring.tail - count + np.arange(count)) % self._ring.size
            self.is_last[slots] = is_last[-count:]
            self.is_last[self._ring.tail - 1] = True
            self.steps = 0

    def keep(self, slots: IntArray, is_kept: BoolArray) -> None:
        """Of the items in `slots` [n], all there are in order, only some are kept, and move to the first slots.

        An episode ends where one of its items is taken out.
        """
        is_last = self.is_last[slots] | np.append(~is_kept[1:], False)
        is_under_way = len(slots) - np.arange(len(slots)) <= self.steps
        is_last = is_last[is_kept]
        if not is_kept[is_under_way].all():
            self.steps = int(np.append(is_last[::-1], True).argmax())
        self.is_last.fill(False)
        self.is_last[: len(is_last)] = is_last

    def clear(self) -> None:
        """Forget all episodes."""
        self.is_last.fill(False)
        self.steps = 0

    def episodes(self) -> tuple[IntArray, IntArray]:
        """First positions and lengths of what the ring holds of each episode, oldest first; lengths may be 0.

        A slot that was emptied by hand parts an episode in two.
        """
        ring = self._ring
        slots = ring.ranges(slice(None))
        is_last = np.concatenate([self.is_last[start:stop] for start, stop in slots] or [self.is_last[:0]])
        is_empty = np.zeros(ring.filled, dtype=np.bool_)
        if ring.valid_count != ring.filled:
            is_empty[:] = [item is None for start, stop in slots for item in ring.slots[start:stop]]
            is_last |= is_empty
        stops = np.append(np.flatnonzero(is_last) + 1, ring.filled)
        starts = np.append(0, stops[:-1])
        lengths = stops - starts
        lengths[:-1] -= is_empty[stops[:-1] - 1]
        return starts, lengths

    def draw(self, count: int, length: int, rng: np.random.Generator) -> IntArray | None:
        """Slots [count, length] of windows: an episode uniformly, then a window within it; None where none fits."""
        starts, lengths = self.episodes()
        windows = lengths - length + 1
        long_enough = np.flatnonzero(windows > 0)
        if not long_enough.size:
            return None
        chosen = long_enough[rng.integers(0, long_enough.size, count)]
        first = starts[chosen] + rng.integers(0, windows[chosen])
        return self._ring.positions_to_slots(first[:, None] + np.arange(length))


def ends_episode(item: Any) -> bool:
    """Whether `item` is a dict with a true `done`; with a flag for each player, whether all are."""
    done = item.get("done", False) if isinstance(item, Mapping) else False
    return done if type(done) is bool else bool(torch.as_tensor(done).all())
