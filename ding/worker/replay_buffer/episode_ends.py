"""Where the episodes in a ring end, and windows of items in a row that lie within one episode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ding.data.ring import BoolArray, Ring
from ding.utils.data.samples import Column, Kind, Samples, node_items
from ding.utils.segment_tree import IntArray


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
        >>> for done in (np.zeros(4, np.bool_), np.ones(1, np.bool_)):
        ...     ends.expect(done)
        ...     ring.advance(len(done))
        >>> [length.tolist() for length in ends.episodes()]
        [[0, 3, 5], [3, 2, 0]]
    """

    def __init__(self, ring: Ring, max_length: int | None) -> None:
        self._ring, self._max_length = ring, max_length
        self.is_last: BoolArray = np.zeros(ring.size, dtype=np.bool_)
        self.steps = 0

    def expect(self, done: BoolArray) -> None:
        """Mark the slots that the ring writes next, for items of which `done` [n] says whether their episode ends."""
        self.is_last[self._ring.next_slots(len(done))] = self._find(done)

    def mark_all(self, done: BoolArray) -> None:
        """Mark the occupied slots anew, for items of which `done` [n] says whether their episode ends."""
        self.clear()
        if len(done):
            self.is_last[self._ring.occupied()] = self._find(done)

    def _find(self, done: BoolArray) -> BoolArray:
        """Which of n items, that follow on those before, are the last of an episode."""
        max_length, order = self._max_length, np.arange(len(done))
        begins = np.where(np.concatenate(([False], done[:-1])), order, -self.steps)
        lengths = order - np.maximum.accumulate(begins) + 1  # of each item's episode, up to this item
        self.steps = 0 if done[-1] else int(lengths[-1])
        is_last: BoolArray = done.copy()
        if max_length is not None:
            self.steps %= max_length
            is_last |= lengths % max_length == 0
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
        slots = ring.positions_to_slots(np.arange(ring.filled))
        is_empty = ~ring.held[slots]
        is_last = self.is_last[slots] | is_empty
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


def done_flags(items: Sequence[Any]) -> BoolArray:
    """Whether each of `items` [n] ends an episode; see `ends_episode`."""
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
    """Whether `item` is a dict with a true `done`; with a flag for each player, whether all are."""
    done = item.get("done") if isinstance(item, Mapping) else None
    return bool(done) if done is None or type(done) is bool else bool(torch.as_tensor(done).all())
