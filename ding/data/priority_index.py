"""Drawing of slots with probability proportional to priority ** alpha (https://arxiv.org/abs/1511.05952)."""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ding.data.ring import Slots
from ding.utils.data.samples import Items, values_of
from ding.utils.segment_tree import FloatArray, IntArray, SumSegmentTree

# Added to updated priorities, and used instead of a pushed 0, so that every stored item can be drawn.
PRIORITY_EPS = 1e-5
_MAX_PRIORITY = 1e100
# Slots per block, whose weights fill two lines of the cache, and the maximum number of blocks that are searched
# without another level above them. Measured for draws and updates of 256: binary trees take three times as long.
_BLOCK = 16
_BLOCK_BYTES = 128
_MAX_TOP = 8192
# Number of writes after which sums are computed even if they are not read.
_MAX_CHANGED = 256
# The product with this matrix is the running sums of blocks, several times faster than `cumsum` along rows.
_RUNNING = np.tril(np.ones((_BLOCK, _BLOCK)))
# Single precision within a block takes half the time. It is used if the total is in this range.
_RUNNING_SINGLE = _RUNNING.astype(np.float32)
_SINGLE_TOTALS = (1e-16, 1e30)


class PriorityError(ValueError, AssertionError):
    """A priority is negative or not finite."""


def as_priorities(values: Any, default: float | None = None) -> FloatArray:
    """Convert numbers, arrays or tensors (on any device) to one float64 array [n].

    Args:
        values: the priorities.
        default: the replacement of each None in a sequence.

    Raises:
        PriorityError: a value is negative, NaN, infinite, or so large that sums of weights would overflow.
        TypeError: a value is not a number.
    """
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu().numpy()
    try:
        priorities = np.asarray(values, dtype=np.float64)  # None becomes NaN
    except (RuntimeError, TypeError, ValueError):  # tensors on a GPU, or what is no number
        priorities = np.array([_as_float(value) for value in values])
    if not isinstance(values, np.ndarray) and priorities.size != len(values):
        raise TypeError(f"priority of shape {list(priorities.shape[1:])} is not allowed; it must be one number")
    priorities = priorities.reshape(-1)
    # `argmin` and `argmax` take a quarter of the time of `min` and `max`, for which numpy sets up a reduction.
    if priorities.size and not (
        priorities[priorities.argmin()] >= 0 and priorities[priorities.argmax()] <= _MAX_PRIORITY
    ):
        if not isinstance(values, np.ndarray) and None in values:
            return as_priorities([_as_float(default if value is None else value) for value in values])
        wrong = priorities[~((priorities >= 0) & (priorities <= _MAX_PRIORITY))][0]
        allowed = f"at most {_MAX_PRIORITY:g}" if _MAX_PRIORITY < wrong < math.inf else "finite and >= 0"
        raise PriorityError(f"priority = {wrong} is not allowed; it must be {allowed}")
    return priorities


def priorities_of(items: Items, default: float) -> FloatArray:
    """Return the `priority` [n] of each of `items`, or `default` for an item without it.

    Raises:
        PriorityError: a priority is negative, NaN or infinite.
        TypeError: a priority is not one number.
    """
    given = values_of(items, "priority")
    if given is None:
        return np.full(len(items), default)
    priorities = as_priorities(given, default)
    if len(priorities) != len(items):
        raise TypeError(f"priority of shape {list(np.shape(given[0]))} is not allowed; it must be one number")
    return priorities


def _as_float(value: Any) -> float:
    if isinstance(value, numbers.Real):
        return float(value)
    if isinstance(value, (torch.Tensor, np.ndarray)) and math.prod(value.shape) == 1:
        return float(value.item())
    raise TypeError(f"priority = {value!r} is not allowed; it must be one number")


class PriorityIndex:
    """The weight, priority ** alpha, of each slot; an empty slot has weight 0.

    Weights are summed by block, and these sums again by block, until at most a few thousand sums are left. Changed
    sums are recomputed from the level below when they are next read, so they never drift, and many small writes cost
    one pass. The index is not thread-safe.

    Args:
        size: number of slots.
        alpha: exponent in [0, 1]; 0 draws uniformly.

    Attributes:
        weights: float64 [size]; read only.
        max_priority: the largest updated priority, at least 1, which is the default of new items.

    Example:
        >>> index = PriorityIndex(4, alpha=1.0)
        >>> _ = index.set_priorities(np.array([0, 2]), np.array([1.0, 3.0]))
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
        self._changed: list[IntArray] = []  # blocks whose sums are out of date
        self._running = np.zeros(len(self._sums[-1]) + 1)  # running sums of the highest level
        # Tensors of the same memory: torch's `cumsum` equals numpy's and takes a quarter of the time.
        self._highest, self._ends = torch.from_numpy(self._sums[-1]), torch.from_numpy(self._running[1:])
        self._strata = np.zeros(0)  # the indices of the strata of the last draw
        # The smallest weight above 0, None if unknown, and a slot that has it.
        self._least: float | None = math.inf
        self._least_slot = -1

    def __reduce__(self) -> tuple[Any, ...]:
        # The levels and tensors are views of each other's memory, which attributes copied one by one would not be.
        return _with_weights, (self.alpha, self.max_priority, self.weights.copy())

    @property
    def sum_tree(self) -> SumSegmentTree:
        """A new tree of the weights."""
        tree = SumSegmentTree(1 << max(0, (len(self.weights) - 1).bit_length()))  # a power of two
        tree.set_batch(np.arange(len(self.weights)), self.weights)
        return tree

    @property
    def total(self) -> float:
        """The sum of all weights."""
        if self._changed:
            self._settle()
        return float(self._running[-1])

    def update(self, slots: IntArray, priorities: FloatArray, eps: float = PRIORITY_EPS) -> FloatArray:
        """Set the priorities of `slots` [n] to valid `priorities` [n] + `eps`, and return these.

        `max_priority` becomes at least the largest of `priorities`.
        """
        raised = priorities + eps
        self.set_weights(slots, raised**self.alpha)
        self.note_max(priorities)
        return raised

    def set_priorities(self, slots: Slots, priorities: FloatArray) -> FloatArray:
        """Set the priorities of `slots` [n] to valid `priorities` [n], with `PRIORITY_EPS` for 0, and return these."""
        if priorities.size:
            if priorities[priorities.argmin()] == 0.0:
                priorities = np.where(priorities == 0.0, PRIORITY_EPS, priorities)
            self.set_weights(slots, priorities**self.alpha)
        return priorities

    def set_weights(self, slots: Slots, weights: FloatArray) -> None:
        """Set weights [n]; 0 excludes a slot from the draw."""
        self.weights[slots] = weights
        if self._least is not None:
            if weights.size and weights[weights.argmin()] < self._least:
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
        """Update the smallest weight above 0 by the weights of `slots`."""
        weights = self.weights[slots]
        place = int(np.where(weights > 0, weights, np.inf).argmin())
        if 0 < weights[place] < (math.inf if self._least is None else self._least):
            self._least = float(weights[place])
            self._least_slot = slots.start + place if isinstance(slots, slice) else int(slots[place])

    def remove(self, slots: Slots) -> None:
        """Exclude `slots` from the draw."""
        self.set_weights(slots, np.zeros(len(self.weights[slots])))

    def clear(self) -> None:
        """Exclude all slots from the draw and reset `max_priority` to 1."""
        for sums in self._sums:
            sums.fill(0.0)
        self._changed.clear()
        self._running.fill(0.0)
        self._least, self._least_slot, self.max_priority = math.inf, -1, 1.0

    def note_max(self, priorities: FloatArray) -> None:
        """Raise `max_priority` to at least the largest of `priorities`."""
        if priorities.size:
            self.max_priority = max(self.max_priority, float(priorities[priorities.argmax()]))

    def draw(self, size: int, rng: np.random.Generator, slots: IntArray | None = None) -> IntArray:
        """Draw `size` slots, one from each of `size` equal strata of the total weight, in ascending order of strata.

        A slot may be drawn several times. `slots` restricts the draw to these, in their order.

        Raises:
            ValueError: no slot (in `slots`) has a weight above 0.
        """
        if size != len(self._strata):
            self._strata = np.arange(float(size))
        strata = rng.random(size)
        strata += self._strata
        if slots is not None:
            return slots[_search(np.append(0.0, self.weights[slots].cumsum()), strata)[0]]
        if self._changed:
            self._settle()
        found, masses = _search(self._running, strata)
        for level in range(len(self._sums) - 2, -1, -1):
            is_single = level == 0 and _SINGLE_TOTALS[0] < self._running[-1] < _SINGLE_TOTALS[1]
            found, masses = _search_blocks(self._sums[level], found, masses, level == 0, is_single)
        return found

    @property
    def least_weight(self) -> float:
        """The smallest weight above 0; infinite if there is none."""
        if self._least is None:
            self._least = math.inf
            self._note_least(slice(0, len(self.weights)))
        return self._least

    def importance(self, slots: IntArray, beta: float, least_weight: float | None = None) -> FloatArray:
        """Return importance weights [n]: (N P_i) ** -beta / their maximum = (smallest weight / weight_i) ** beta.

        Args:
            least_weight: the smallest weight, if items of other buffers count, too; by default `self.least_weight`.
        """
        least = self._least if least_weight is None else least_weight
        least = self.least_weight if least is None else least
        result: FloatArray = (least / self.weights.take(slots)) ** beta
        return result

    def _settle(self) -> None:
        """Recompute the sums of the changed blocks, at least one."""
        # Duplicates are computed twice, which is faster than removing them.
        changed = self._changed[0] if len(self._changed) == 1 else np.concatenate(self._changed)
        if len(changed) > len(self._sums[1]):
            changed = np.arange(len(self._sums[0]) // _BLOCK)
        self._changed.clear()
        for level, (parts, sums) in enumerate(zip(self._sums, self._sums[1:], strict=False)):
            if level:
                changed = changed // _BLOCK
            # Each row is summed separately, so that a sum does not depend on the other rows.
            sums[changed] = np.einsum("ij->i", parts.reshape(-1, _BLOCK).take(changed, axis=0))
        torch.cumsum(self._highest, 0, out=self._ends)


def _with_weights(alpha: float, max_priority: float, weights: FloatArray) -> PriorityIndex:
    index = PriorityIndex(len(weights), alpha)
    index.set_weights(slice(0, len(weights)), weights)
    index.max_priority = max_priority
    return index


def _padded(count: int) -> int:
    return -(-count // _BLOCK) * _BLOCK


def _aligned_zeros(count: int) -> FloatArray:
    """Return zeros whose blocks are aligned to lines of the cache, so that a draw has one cache miss per block."""
    zeros = np.zeros(count + _BLOCK)
    start = -zeros.ctypes.data % _BLOCK_BYTES // zeros.itemsize
    return zeros[start : start + count]


def _search(running: FloatArray, strata: FloatArray) -> tuple[IntArray, FloatArray]:
    """Find the indices of the masses at `strata` [n], in units of the total / n, and the rest of each mass there.

    `running` [m + 1] are the running sums of m weights, starting with 0.

    Raises:
        ValueError: the total is 0.
    """
    total = running[-1]
    if total == 0.0:
        raise ValueError("sample_range selects no item that can be sampled; widen it")
    masses = strata * (total / len(strata))
    found = running[1:].searchsorted(masses, side="right")
    if masses[-1] >= total:  # a mass that was rounded up to the total belongs to the last weight above 0
        found = np.minimum(found, running[1:].searchsorted(total))
    return found, masses - running.take(found)


def _search_blocks(
    sums: FloatArray, blocks: IntArray, masses: FloatArray, is_last: bool, is_single: bool
) -> tuple[IntArray, FloatArray]:
    """Find the indices of the masses [n] within `blocks` [n] of `sums`, and the rest of each mass there.

    Args:
        is_last: whether the rest of the masses is not needed.
        is_single: whether to compute in single precision.
    """
    rows = sums.reshape(-1, _BLOCK).take(blocks, axis=0)
    if is_single:
        running = _RUNNING_SINGLE @ rows.astype(np.float32).T
        is_passed = masses.astype(np.float32) >= running
    else:
        running = _RUNNING @ rows.T
        is_passed = masses >= running
    # How many sums of its block a mass exceeds. Flags [_BLOCK, n], because operations along n take half the time.
    places: npt.NDArray[np.uint8] = np.add.reduce(is_passed.view(np.uint8), axis=0, dtype=np.uint8)
    is_over = is_passed[-1]
    if np.count_nonzero(is_over):  # a mass that was rounded up to the sum of its block
        places[is_over] = _BLOCK - 1 - (rows[is_over, ::-1] > 0).argmax(axis=1)
    if not is_last:
        before = running.take((places.astype(np.int64) - 1) * len(blocks) + np.arange(len(blocks)), mode="clip")
        masses = masses - np.where(places > 0, before, 0.0)
    blocks *= _BLOCK
    blocks += places
    return blocks, masses
