"""Slots that are written round and round, and what is known about their order."""

from __future__ import annotations

from typing import Any

import numpy as np

from ding.utils.segment_tree import IntArray


class Ring:
    """A fixed number of slots, each holding an item or None, written at `tail` and wrapping around.

    The ring knows the order of writing: position 0 is the oldest slot that was written, the highest position the newest
    one. A slot that was emptied since keeps its position. Not thread-safe.

    Attributes:
        slots: the items, by slot number.
        tail: the slot that is written next.
        head: the oldest slot that holds an item (`tail` when none does).
        filled: how many slots were written since the ring was empty, at most `size`.
        valid_count: how many items can be sampled; kept by the owner.
        push_count: how many items were written in all.

    Example:
        >>> ring = Ring(3)
        >>> ring.put([1, 2]), ring.put([3, 4]), ring.slots
        ([], [1], [4, 2, 3])
        >>> ring.positions_to_slots(np.arange(3)).tolist()
        [1, 2, 0]
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.slots: list[Any] = [None] * size
        self.tail = self.head = self.filled = self.valid_count = self.push_count = 0

    def put(self, items: list[Any]) -> list[Any]:
        """Write at most `size` items from `tail` on; returns the items they replace, oldest first."""
        start, count = self.tail, len(items)
        first = min(count, self.size - start)
        replaced = self.slots[start : start + first] + self.slots[: count - first]
        self.slots[start : start + first] = items[:first]
        self.slots[: count - first] = items[first:]
        head_position = (self.head - start + self.filled) % self.size
        is_head_replaced = self.filled + count - self.size > head_position
        self.tail = (start + count) % self.size
        self.filled = min(self.size, self.filled + count)
        self.push_count += count
        if is_head_replaced:
            self.head = self.tail
            self.skip_empty_head()
        return [item for item in replaced if item is not None]

    def next_slots(self, count: int) -> IntArray | slice:
        """The slots that a `put` of `count` items writes: one run, or slot numbers [count] where it wraps around."""
        if self.tail + count <= self.size:
            return slice(self.tail, self.tail + count)
        return (self.tail + np.arange(count)) % self.size

    def skip_empty_head(self) -> None:
        """Move `head` on to the next slot that holds an item; when there is none, the ring starts anew at `tail`."""
        while self.filled and self.slots[self.head] is None:
            self.head = (self.head + 1) % self.size
            if self.head == self.tail:
                self.filled = 0

    def positions_to_slots(self, positions: IntArray) -> IntArray:
        """The slot numbers of `positions` in order of writing."""
        return (self.tail - self.filled + positions) % self.size

    def occupied(self) -> IntArray:
        """The slots that hold an item, in order of writing."""
        slots = self.positions_to_slots(np.arange(self.filled))
        return slots[[self.slots[slot] is not None for slot in slots.tolist()]] if self.filled else slots

    def ranges(self, sample_range: slice) -> list[tuple[int, int]]:
        """The half-open slot ranges, in order of writing, that a slice (of step 1) over the positions covers."""
        start, stop, _ = sample_range.indices(self.filled)
        if start >= stop:
            return []
        first, last = self.positions_to_slots(np.array([start, stop - 1])).tolist()
        return [(first, last + 1)] if first <= last else [(first, self.size), (0, last + 1)]

    def clear(self) -> None:
        """Empty all slots; `push_count` stays."""
        self.slots = [None] * self.size
        self.tail = self.head = self.filled = self.valid_count = 0

    def refill(self, items: list[Any]) -> None:
        """Hold `items`, at most `size`, all of which can be sampled, from the first slot on; `push_count` stays."""
        slots = items + [None] * (self.size - len(items))
        self.load(slots, len(items) % self.size, len(items), self.push_count)

    def load(self, slots: list[Any], tail: int, valid_count: int, push_count: int, head: int | None = None) -> None:
        """Take over `slots` and counters of a saved ring of the same size.

        Raises:
            ValueError: the saved ring has another size, or `tail` lies outside it.
        """
        if len(slots) != self.size or not 0 <= tail < self.size:
            raise ValueError(
                f"a state of {len(slots)} slots with tail {tail} does not fit a buffer of {self.size}; "
                "construct the buffer with the replay_buffer_size of the state"
            )
        self.slots = list(slots)
        self.tail, self.valid_count, self.push_count = tail, valid_count, push_count
        self.filled = self.size if any(item is not None for item in self.slots[tail:]) else tail
        self.head = (tail - self.filled) % self.size if head is None else head
        self.skip_empty_head()
