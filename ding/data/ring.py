"""The order of the slots of a ring buffer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

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
