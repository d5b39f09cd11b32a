"""Priorities of the slots of a buffer, and draws in proportion to priority ** alpha (arXiv:1511.05952)."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ding.utils.segment_tree import FloatArray, IntArray, MinSegmentTree, SumSegmentTree

# Added to updated priorities, and in place of a pushed 0: every stored item keeps a chance to be drawn.
PRIORITY_EPS = 1e-5
# Slots to a block, whose weights are two lines of the cache, and the most blocks whose sums are searched without
# another level above them. Measured for draws and updates of 256: binary trees take three times as long.
_BLOCK = 16
_BLOCK_BYTES = 128
_MAX_TOP = 8192
# After so many writes their sums are computed, read or not.
_MAX_CHANGED = 256
# A matrix product with it gives the running sums of blocks; several times faster than `cumsum` along rows.
_RUNNING = np.tril(np.ones((_BLOCK, _BLOCK)))
# Within a block single precision takes half the time; not so where weights are close to its limits.
_RUNNING_SINGLE = _RUNNING.astype(np.float32)
_SINGLE_TOTALS = (1e-16, 1e30)

Range = tuple[int, int]
BoolArray = npt.NDArray[np.bool_]
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
    if priorities.size and not (_smallest(priorities) >= 0 and _largest(priorities) < math.inf):
        wrong = ~((priorities >= 0) & np.isfinite(priorities))
        raise PriorityError(f"priority = {priorities[wrong][0]} is not allowed; it must be finite and >= 0")
    return priorities


# `argmin` and `argmax` take a quarter of the time of `min` and `max`, for which numpy sets up a reduction.


def _smallest(values: FloatArray) -> float:
    """The smallest of at least one number; NaN where there is one."""
    return float(values[values.argmin()])


def _largest(values: FloatArray) -> float:
    """The largest of at least one number; NaN where there is one."""
    return float(values[values.argmax()])


def _as_float(value: Any) -> float:
    if isinstance(value, numbers.Real):
        return float(value)
    if isinstance(value, (torch.Tensor, np.ndarray)) and math.prod(value.shape) == 1:
        return float(value.item())
    raise TypeError(f"priority = {value!r} is not allowed; it must be one number")


class PriorityIndex:
    """Weight (priority ** alpha) of each slot; a slot without an item has weight 0.

    Weights are summed in blocks, and blocks in larger blocks, until a few thousand sums are left. A sum that changed is
    computed anew from its parts when it is next read: sums never drift, and many small writes cost one pass. Not
    thread-safe.

    Args:
        size: number of slots.
        alpha: exponent in [0, 1]; 0 draws uniformly.

    Attributes:
        weights: float64 [size]; read only.
        max_priority: the largest priority seen by updates, the default for new items.

    Example:
        >>> index = PriorityIndex(4, alpha=1.0)
        >>> _ = index.set(np.array([0, 2]), np.array([1.0, 3.0]))
        >>> index.total, index.draw(2, np.random.default_rng(0)).tolist()
        (4.0, [2, 2])
    """

    def __init__(self, size: int, alpha: float) -> None:
        self.alpha = alpha
        self.max_priority = 1.0
        # By level: the weights, then the sums of blocks of the level below.
        self._sums: list[FloatArray] = [_aligned_zeros(_padded(size))]
        while len(self._sums) == 1 or len(self._sums[-1]) > _MAX_TOP:
            self._sums.append(_aligned_zeros(_padded(len(self._sums[-1]) // _BLOCK)))
        self.weights = self._sums[0][:size]
        self._changed: list[IntArray] = []  # blocks whose sum is not computed yet
        self._running = np.zeros(len(self._sums[-1]) + 1)  # sums of the highest level before each block
        # The same memory for torch, whose running sums are those of numpy's `cumsum`, in a quarter of the time.
        self._highest, self._ends = torch.from_numpy(self._sums[-1]), torch.from_numpy(self._running[1:])
        self._strata = np.zeros(0)  # the numbers of the strata of the newest draw
        # The smallest weight above 0, None where it is not known, and a slot that has it.
        self._least: float | None = math.inf
        self._least_slot = -1

    @property
    def sum_tree(self) -> SumSegmentTree:
        """A tree of the weights, made anew."""
        tree = SumSegmentTree(_power_of_two(len(self.weights)))
        tree.set_batch(np.arange(len(self.weights)), self.weights)
        return tree

    @property
    def min_tree(self) -> MinSegmentTree:
        """A tree of the weights of the slots in use, made anew."""
        tree = MinSegmentTree(_power_of_two(len(self.weights)))
        tree.set_batch(np.arange(len(self.weights)), np.where(self.weights > 0, self.weights, np.inf))
        return tree

    @property
    def total(self) -> float:
        """Sum of all weights."""
        self._settle()
        return float(self._running[-1])

    def update(self, slots: IntArray, priorities: FloatArray, eps: float = PRIORITY_EPS) -> FloatArray:
        """Give `slots` [n] their (valid) `priorities` [n] + `eps`, and raise `max_priority` to the largest of
        them, without it. Returns what counts.
        """
        raised = priorities + eps
        self.set_weights(slots, raised**self.alpha)
        self.note_max(priorities)
        return raised

    def set(self, slots: Slots, priorities: FloatArray) -> FloatArray:
        """Give `slots` [n] their (valid) `priorities` [n]; a 0 counts as `PRIORITY_EPS`. Returns what counts."""
        if priorities.size:
            if _smallest(priorities) == 0.0:
                priorities = np.where(priorities == 0.0, PRIORITY_EPS, priorities)
            self.set_weights(slots, priorities**self.alpha)
        return priorities

    def set_weights(self, slots: Slots, weights: FloatArray) -> None:
        """Write weights [n] as they are; 0 takes a slot out of the draw."""
        self.weights[slots] = weights
        if self._least is not None:
            if weights.size and _smallest(weights) < self._least:
                self._note_least(slots)
            if self._least_slot >= 0 and self.weights[self._least_slot] != self._least:
                self._least = None
        if isinstance(slots, slice):
            self._changed.append(np.arange(slots.start // _BLOCK, (slots.stop - 1) // _BLOCK + 1))
        else:
            self._changed.append(slots // _BLOCK)
        if len(self._changed) > _MAX_CHANGED:
            self._settle()

    def _note_least(self, slots: Slots) -> None:
        """Keep the smallest weight above 0 in `slots` if it is smaller than that known so far."""
        weights = self.weights[slots]
        place = int(np.where(weights > 0, weights, np.inf).argmin())
        if 0 < weights[place] < (math.inf if self._least is None else self._least):
            self._least = float(weights[place])
            self._least_slot = slots.start + place if isinstance(slots, slice) else int(slots[place])

    def remove(self, slots: Slots) -> None:
        """Take `slots` out of the draw."""
        self.set_weights(slots, np.zeros(len(self.weights[slots])))

    def clear(self) -> None:
        """Take out all slots and forget the largest priority."""
        for sums in self._sums:
            sums.fill(0.0)
        self._changed.clear()
        self._running.fill(0.0)
        self._least, self._least_slot, self.max_priority = math.inf, -1, 1.0

    def note_max(self, priorities: FloatArray) -> None:
        """Raise `max_priority` to the largest of `priorities`."""
        if priorities.size:
            self.max_priority = max(self.max_priority, _largest(priorities))

    def draw(self, size: int, rng: np.random.Generator, ranges: Sequence[Range] | None = None) -> IntArray:
        """`size` slots, one from each of `size` equal strata of the total weight, in ascending strata.

        `ranges` limits the draw to half-open slot ranges, taken in the given order; one slot may come up repeatedly.

        Raises:
            ValueError: no slot with weight is there, or lies in `ranges`.
        """
        if size != len(self._strata):
            self._strata = np.arange(float(size))
        strata = rng.random(size)
        strata += self._strata
        if ranges is not None:
            slots = np.concatenate([np.arange(start, stop) for start, stop in ranges] or [np.arange(0)])
            return slots[_search(np.append(0.0, self.weights[slots].cumsum()), strata)[0]]
        self._settle()
        found, masses = _search(self._running, strata)
        for sums in reversed(self._sums[1:-1]):
            found, masses = _search_blocks(sums, found, masses)
        is_single = _SINGLE_TOTALS[0] < self._running[-1] < _SINGLE_TOTALS[1]
        return _search_last_blocks(self._sums[0], found, masses, is_single)

    @property
    def least_weight(self) -> float:
        """The smallest weight above 0; infinite where there is none."""
        if self._least is None:
            self._least = math.inf
            self._note_least(slice(0, len(self.weights)))
        return self._least

    def importance(self, slots: IntArray, beta: float, least_weight: float | None = None) -> FloatArray:
        """Importance weights [n]: (N P_i) ** -beta over their maximum, so (smallest weight / weight_i) ** beta.

        Args:
            least_weight: the smallest weight, where other items count, too; by default `self.least_weight`.
        """
        least = self.least_weight if least_weight is None else least_weight
        result: FloatArray = (least / self.weights.take(slots)) ** beta
        return result

    def _settle(self) -> None:
        """Compute the sums of blocks that changed."""
        if not self._changed:
            return
        # Sums that come up again are computed again, which is faster than to look for them.
        changed = self._changed[0] if len(self._changed) == 1 else np.concatenate(self._changed)
        if len(changed) > len(self._sums[1]):
            changed = np.arange(len(self._sums[0]) // _BLOCK)
        self._changed.clear()
        for level, (parts, sums) in enumerate(zip(self._sums, self._sums[1:], strict=False)):
            if level:
                changed = changed // _BLOCK
            # Each row is summed by itself, so a sum does not depend on which others are computed with it.
            sums[changed] = np.einsum("ij->i", parts.reshape(-1, _BLOCK).take(changed, axis=0))
        torch.cumsum(self._highest, 0, out=self._ends)


def _padded(count: int) -> int:
    return -(-count // _BLOCK) * _BLOCK


def _aligned_zeros(count: int) -> FloatArray:
    """Zeros whose blocks begin where lines of the cache do: a draw waits for memory once a block."""
    zeros = np.zeros(count + _BLOCK)
    start = -zeros.ctypes.data % _BLOCK_BYTES // zeros.itemsize
    return zeros[start : start + count]


def _power_of_two(count: int) -> int:
    return 1 << max(0, (count - 1).bit_length())


def _search(running: FloatArray, strata: FloatArray) -> tuple[IntArray, FloatArray]:
    """Where the masses lie that end `strata` [n] of n equal parts of the total, and what of each mass is left there.

    `running` [m + 1] are the sums of the weights before each place, and the total.
    """
    total = running[-1]
    if total == 0.0:
        raise ValueError("sample_range selects no item that can be sampled; widen it")
    masses = strata * (total / len(strata))
    found = running[1:].searchsorted(masses, side="right")
    if masses[-1] >= total:  # a mass that was rounded up to the total belongs to the last weight above 0
        found = np.minimum(found, running[1:].searchsorted(total))
    return found, masses - running.take(found)


def _search_blocks(sums: FloatArray, blocks: IntArray, masses: FloatArray) -> tuple[IntArray, FloatArray]:
    """Where within `blocks` [n] of `sums` the masses [n] lie, and what of each mass is left there."""
    rows = sums.reshape(-1, _BLOCK).take(blocks, axis=0)
    running = _RUNNING @ rows.T
    place = _places(rows, running <= masses).astype(np.int64)
    before = running.take((place - 1) * len(blocks) + np.arange(len(blocks)), mode="clip")
    return blocks * _BLOCK + place, masses - np.where(place > 0, before, 0.0)


def _search_last_blocks(weights: FloatArray, blocks: IntArray, masses: FloatArray, is_single: bool) -> IntArray:
    """Where within `blocks` [n] of `weights` the masses [n] lie, in single or in double precision."""
    rows = weights.reshape(-1, _BLOCK).take(blocks, axis=0)
    if is_single:
        is_passed = masses.astype(np.float32) >= _RUNNING_SINGLE @ rows.astype(np.float32).T
    else:
        is_passed = masses >= _RUNNING @ rows.T
    blocks *= _BLOCK
    blocks += _places(rows, is_passed)
    return blocks


def _places(rows: FloatArray, is_passed: BoolArray) -> npt.NDArray[np.uint8]:
    """How many weights of each of `rows` [n, _BLOCK] a mass has passed, by flags [_BLOCK, n]: operations along n take
    half the time.
    """
    places: npt.NDArray[np.uint8] = np.add.reduce(is_passed.view(np.uint8), axis=0, dtype=np.uint8)
    is_over = is_passed[-1]
    if np.count_nonzero(is_over):  # a mass that was rounded up to the sum of its block
        places[is_over] = _BLOCK - 1 - (rows[is_over, ::-1] > 0).argmax(axis=1)
    return places
