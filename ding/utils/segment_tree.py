"""Segment trees for range sums, minima and maxima, by single index or in batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_OPERATIONS: dict[str, tuple[Callable[..., Any], float]] = {
    "sum": (np.add, 0.0),
    "min": (np.minimum, np.inf),
    "max": (np.maximum, -np.inf),
}
# Up to this width, recomputing a whole level is faster than gathering indices (measured).
_DENSE_WIDTH = 1024


class SegmentTree:
    """A complete binary tree whose inner nodes hold the `operation` (`sum`, `min` or `max`) of their two children.

    Each write recomputes all ancestors from their children in float64, so inner nodes never drift. Trees are not
    thread-safe.

    Attributes:
        capacity: number of leaves, a power of two.
        operation: `'sum'`, `'min'` or `'max'`.
        neutral_element: value of an unset leaf.
        value: float64 [2 * capacity]: the root at 1, leaf i at `capacity + i`. Index 0 is unused.

    Raises:
        AssertionError: `capacity` is not a positive power of two.
        ValueError: `operation` has another value.

    Example:
        >>> tree = SegmentTree(4, "max")
        >>> tree.set_batch([0, 3], [2.0, 5.0])
        >>> float(tree.reduce()), float(tree.reduce(0, 2))
        (5.0, 2.0)
    """

    def __init__(self, capacity: int, operation: str, neutral_element: float | None = None) -> None:
        if capacity < 1 or capacity & (capacity - 1):
            raise AssertionError(f"capacity = {capacity!r} is not allowed; it must be a positive power of two")
        if operation not in _OPERATIONS:
            raise ValueError(f"operation = {operation!r} is not allowed; it must be one of {', '.join(_OPERATIONS)}")
        self.capacity = capacity
        self.operation = operation
        self._combine, default = _OPERATIONS[operation]
        self.neutral_element = default if neutral_element is None else neutral_element
        if self.neutral_element == 0.0:
            self.value: FloatArray = np.zeros(2 * capacity)  # memory is committed when it is written
        else:
            self.value = np.full(2 * capacity, self.neutral_element, dtype=np.float64)

    @property
    def leaves(self) -> FloatArray:
        """A view [capacity] of the leaves; after writing to it, call `refresh_ancestors`."""
        return self.value[self.capacity :]

    def __setitem__(self, idx: int, val: float) -> None:
        self.set_batch([idx], [val])

    def __getitem__(self, idx: int) -> np.float64:
        result: np.float64 = self.value[self._check_index(idx) + self.capacity]
        return result

    def set_batch(self, indices: npt.ArrayLike, values: npt.ArrayLike) -> None:
        """Set many leaves; for a repeated index, the last value counts.

        Raises:
            AssertionError: an index is outside [0, capacity).
        """
        index = np.asarray(indices, dtype=np.int64).reshape(-1)
        if index.size == 0:
            return
        self._check_index(int(index.min()))
        self._check_index(int(index.max()))
        self.leaves[index] = values
        refresh_ancestors([self], index)

    def reduce(self, start: int = 0, end: int | None = None) -> np.float64:
        """Return the `operation` over the leaves [start, end); `end` defaults to the capacity.

        Raises:
            AssertionError: the range is empty or not within [0, capacity].
        """
        end = self.capacity if end is None else end
        if not 0 <= start < end <= self.capacity:
            raise AssertionError(
                f"range [{start}, {end}) is not allowed; it must be 0 <= start < end <= {self.capacity}"
            )
        left, right = start + self.capacity, end + self.capacity
        result: np.float64 = np.float64(self.neutral_element)
        while left < right:
            if left & 1:
                result = self._combine(result, self.value[left])
                left += 1
            if right & 1:
                right -= 1
                result = self._combine(result, self.value[right])
            left >>= 1
            right >>= 1
        return result

    def clear(self) -> None:
        """Reset every leaf to the neutral element."""
        self.value.fill(self.neutral_element)

    def _check_index(self, idx: int) -> int:
        if not 0 <= idx < self.capacity:
            raise AssertionError(f"leaf index {idx!r} is not allowed; it must be in [0, {self.capacity})")
        return idx


class SumSegmentTree(SegmentTree):
    """A sum tree that can find the leaf at which the running sum exceeds a value.

    Example:
        >>> tree = SumSegmentTree(4)
        >>> tree.set_batch(range(4), [1.0, 0.0, 2.0, 1.0])
        >>> tree.find_prefixsum_idx(1.5), tree.find_prefixsum_batch([0.0, 1.0, 3.0]).tolist()
        (2, [0, 2, 3])
    """

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity, "sum")

    def find_prefixsum_idx(self, prefixsum: float, trust_caller: bool = True) -> int:
        """Return the leaf i with `sum(leaves[:i]) <= prefixsum < sum(leaves[:i + 1])`.

        A `prefixsum` on a boundary selects the next non-zero leaf, the total the last non-zero one.
        `trust_caller=False` checks the range first.

        Raises:
            AssertionError: all leaves are 0, or `prefixsum` is outside [0, total + 1e-5] (if checked).
        """
        if not trust_caller and not 0 <= prefixsum <= self.value[1] + 1e-5:
            raise AssertionError(f"prefixsum = {prefixsum!r} is not allowed; it must be in [0, {self.value[1]}]")
        return int(self.find_prefixsum_batch([prefixsum])[0])

    def find_prefixsum_batch(self, masses: npt.ArrayLike) -> IntArray:
        """Return the results of `find_prefixsum_idx` for each of `masses` [n], int64 [n]."""
        rest = np.array(masses, dtype=np.float64).reshape(-1)
        node = np.ones(rest.size, dtype=np.int64)
        for _ in range(self.capacity.bit_length() - 1):
            node += node
            left = self.value.take(node)
            goes_right = left <= rest
            left *= goes_right
            rest -= left
            node += goes_right
        leaf = node - self.capacity
        weights = self.value.take(node)
        if not weights.all():
            for i in np.flatnonzero(weights == 0):
                leaf[i] = self._last_weight_before(int(leaf[i]))
        return leaf

    def _last_weight_before(self, leaf: int) -> int:
        """Return the last non-zero leaf before a zero leaf that was found by rounding or `prefixsum == total`."""
        weighted = np.flatnonzero(self.leaves[:leaf])
        if weighted.size == 0:
            raise AssertionError(
                f"all leaves up to {leaf} are 0 (the total is {self.value[1]}); "
                "set a positive leaf first, and search for a prefixsum in [0, total]"
            )
        return int(weighted[-1])


class MinSegmentTree(SegmentTree):
    """A segment tree of minima; unset leaves are infinite.

    Example:
        >>> tree = MinSegmentTree(2)
        >>> tree[1] = 3.0
        >>> float(tree.reduce())
        3.0
    """

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity, "min")


def refresh_ancestors(trees: Sequence[SegmentTree], indices: IntArray) -> None:
    """Recompute all ancestors of the leaves `indices` in each of `trees`, which must have the same capacity.

    Indices may repeat. Node indices are computed once for all trees.

    Raises:
        AssertionError: the capacities differ.
    """
    width = trees[0].capacity
    if any(tree.capacity != width for tree in trees):
        raise AssertionError(f"capacities {[tree.capacity for tree in trees]} are not allowed; they must be equal")
    dense_width = max(_DENSE_WIDTH, 4 * len(indices))
    node = indices + width
    while width // 2 > dense_width:
        width //= 2
        node = node >> 1
        for tree in trees:
            children = tree.value.reshape(-1, 2).take(node, axis=0)
            tree.value[node] = tree._combine(children[:, 0], children[:, 1])
    while width > 1:
        width //= 2
        for tree in trees:
            value = tree.value
            tree._combine(
                value[2 * width : 4 * width : 2], value[2 * width + 1 : 4 * width : 2], out=value[width : 2 * width]
            )
