"""Priorities of the slots of a buffer, and draws in proportion to priority ** alpha (arXiv:1511.05952)."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ding.utils.segment_tree import FloatArray, IntArray, MinSegmentTree, SumSegmentTree, refresh_ancestors

# Added to updated priorities, and in place of a pushed 0: every stored item keeps a chance to be drawn.
PRIORITY_EPS = 1e-5
# So many slots may wait for their ancestors to be recomputed; bounds the memory of a buffer that is only written.
_MAX_PENDING = 65536

Range = tuple[int, int]
# Slot numbers, or a run of them with start and stop.
Slots = IntArray | slice


class PriorityError(ValueError, AssertionError):
    """A priority is negative or not finite."""


def as_priorities(values: Any) -> FloatArray:
    """Numbers, arrays or tensors (on any device) as one float64 array [n].

    Raises:
        PriorityError: a value is negative, NaN or infinite.
        TypeError: a value is no number.
    """
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu().numpy()
    elif not isinstance(values, np.ndarray):
        values = [v if isinstance(v, float) else _as_float(v) for v in values]
    priorities = np.asarray(values, dtype=np.float64).reshape(-1)
    wrong = ~((priorities >= 0) & np.isfinite(priorities))
    if wrong.any():
        raise PriorityError(f"priority = {priorities[wrong][0]} is not allowed; it must be finite and >= 0")
    return priorities


def _as_float(value: Any) -> float:
    if isinstance(value, numbers.Real):
        return float(value)
    if isinstance(value, (torch.Tensor, np.ndarray)) and math.prod(value.shape) == 1:
        return float(value.item())
    raise TypeError(f"priority = {value!r} is not allowed; it must be one number")


class PriorityIndex:
    """Priority and weight (priority ** alpha) of each slot; a slot without an item has weight 0.

    Weights are written at once, their ancestors in the trees are recomputed when the trees are next read: many small
    writes cost one pass. Not thread-safe.

    Args:
        size: number of slots.
        alpha: exponent in [0, 1]; 0 draws uniformly.

    Attributes:
        priorities: float64 [size]; stale where the weight is 0.
        weights: float64 [size], a view of the sum tree's leaves; read only.
        max_priority: the largest priority seen by updates, the default for new items.

    Example:
        >>> index = PriorityIndex(4, alpha=1.0)
        >>> index.set(np.array([0, 2]), np.array([1.0, 3.0]))
        >>> index.total, index.draw(2, np.random.default_rng(0)).tolist()
        (4.0, [2, 2])
    """

    def __init__(self, size: int, alpha: float) -> None:
        capacity = 1 << max(0, (size - 1).bit_length())
        self.alpha = alpha
        self.max_priority = 1.0
        self.priorities = np.zeros(size)
        self._sum, self._min = SumSegmentTree(capacity), MinSegmentTree(capacity)
        self.weights, self._min_weights = self._sum.leaves[:size], self._min.leaves[:size]
        self._pending: list[Slots] = []
        self._pending_count = 0

    @property
    def sum_tree(self) -> SumSegmentTree:
        """The tree of weights, up to date."""
        self._settle()
        return self._sum

    @property
    def min_tree(self) -> MinSegmentTree:
        """The tree of weights of the slots in use, up to date."""
        self._settle()
        return self._min

    @property
    def total(self) -> float:
        """Sum of all weights."""
        return float(self.sum_tree.value[1])

    def set(self, slots: Slots, priorities: FloatArray) -> None:
        """Give `slots` [n] their (valid) `priorities` [n]; a 0 counts as `PRIORITY_EPS`."""
        if not priorities.all():
            priorities = np.where(priorities == 0.0, PRIORITY_EPS, priorities)
        self.priorities[slots] = priorities
        weights = priorities**self.alpha
        self.weights[slots] = weights
        self._min_weights[slots] = weights
        self._touch(slots)

    def set_weights(self, slots: IntArray, weights: FloatArray) -> None:
        """Write weights as they are; 0 takes a slot out of the draw."""
        self.weights[slots] = weights
        self._min_weights[slots] = np.where(weights == 0.0, np.inf, weights)
        self._touch(slots)

    def remove(self, slots: IntArray) -> None:
        """Take `slots` out of the draw."""
        self.weights[slots] = 0.0
        self._min_weights[slots] = np.inf
        self._touch(slots)

    def clear(self) -> None:
        """Take out all slots and forget the largest priority."""
        self._sum.clear()
        self._min.clear()
        self._pending, self._pending_count = [], 0
        self.max_priority = 1.0

    def note_max(self, priorities: FloatArray) -> None:
        """Raise `max_priority` to the largest of `priorities`."""
        if priorities.size:
            self.max_priority = max(self.max_priority, float(priorities.max()))

    def draw(self, size: int, rng: np.random.Generator, ranges: Sequence[Range] | None = None) -> IntArray:
        """`size` slots, one from each of `size` equal strata of the total weight, in ascending strata.

        `ranges` limits the draw to half-open slot ranges, taken in the given order; one slot may come up repeatedly.

        Raises:
            ValueError: no slot with weight lies in `ranges`.
        """
        strata = (np.arange(size) + rng.random(size)) / size
        if ranges is None:
            return self.sum_tree.find_prefixsum_batch(strata * self.total)
        weighted = [(r, range_sum) for r in ranges if (range_sum := self._range_sum(r))]
        if not weighted:
            raise ValueError("sample_range selects no item that can be sampled; widen it")
        mass = strata * sum(range_sum for _, range_sum in weighted)
        drawn: list[IntArray] = []
        for i, (slots, range_sum) in enumerate(weighted):
            here = mass[mass < range_sum] if i + 1 < len(weighted) else mass
            mass = mass[len(here) :] - range_sum
            drawn.append(self._find_within(here, *slots))
        return np.concatenate(drawn)

    def importance(self, slots: IntArray, beta: float) -> FloatArray:
        """Importance weights [n]: (N P_i) ** -beta over their maximum, so (smallest weight / weight_i) ** beta."""
        result: FloatArray = (self.min_tree.value[1] / self.weights[slots]) ** beta
        return result

    def _range_sum(self, slots: Range) -> float:
        start, stop = slots
        return float(self.sum_tree.reduce(start, stop)) if start < stop else 0.0

    def _find_within(self, masses: FloatArray, start: int, stop: int) -> IntArray:
        before = self._range_sum((0, start))
        found = self._sum.find_prefixsum_batch(np.minimum(masses + before, self._sum.value[1]))
        outside = (found < start) | (found >= stop)
        if outside.any():  # rounding at an end of the range
            weighted = start + np.flatnonzero(self.weights[start:stop])
            found[outside] = np.clip(found[outside], weighted[0], weighted[-1])
        return found

    def _touch(self, slots: Slots) -> None:
        self._pending.append(slots)
        self._pending_count += slots.stop - slots.start if isinstance(slots, slice) else len(slots)
        if self._pending_count > _MAX_PENDING:
            self._settle()

    def _settle(self) -> None:
        if not self._pending:
            return
        slots = [np.arange(s.start, s.stop) if isinstance(s, slice) else s for s in self._pending]
        self._pending, self._pending_count = [], 0
        refresh_ancestors((self._sum, self._min), slots[0] if len(slots) == 1 else np.concatenate(slots))
