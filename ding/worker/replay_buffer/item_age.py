"""How old the items of a buffer are, in iterations of the learner."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ding.data.column_store import ColumnStore
from ding.utils.data.samples import Column, Kind, Node
from ding.utils.segment_tree import IntArray

# Stands for "the item has no collect_iter"; its staleness is -1.
_NO_ITER = np.iinfo(np.int64).min


class ItemAges:
    """The staleness of the items of a store: learner iterations since their `collect_iter`. Not thread-safe.

    Args:
        store: holds the items.
        max_staleness: an item is stale from then on; may be infinite.
    """

    def __init__(self, store: ColumnStore, max_staleness: float) -> None:
        self._store, self._max_staleness = store, max_staleness
        self._odd_iters: IntArray | None = None  # `collect_iter` where the column of that name has no plain ints
        self._oldest_iter = math.inf  # no item was collected before

    def note(self, slots: IntArray | slice, items: Sequence[Any]) -> None:
        """Take note of the `collect_iter` of items that were just written to `slots`."""
        columns = self._store.columns
        if columns is not None and "collect_iter" not in columns:
            return
        collected = _plain_collect_iters(columns)
        if collected is None:
            if self._odd_iters is None:
                slots = np.flatnonzero(self._store.held)
                items = self._store.read(slots)
                self._odd_iters = np.full(self._store.size, _NO_ITER)
            collected = self._odd_iters
            collected[slots] = [_least(item.get("collect_iter")) for item in items]
        if math.isinf(self._max_staleness):
            return
        known = collected[slots]
        self._oldest_iter = min(self._oldest_iter, known.min(initial=np.iinfo(np.int64).max, where=known != _NO_ITER))

    def forget(self) -> None:
        """Forget all items."""
        self._odd_iters, self._oldest_iter = None, math.inf

    def staleness(self, slots: IntArray, columns: dict[str, Node] | None, cur_learner_iter: int) -> IntArray:
        """The staleness [n] of the items in `slots`, -1 where it is not known; `columns` [n] are theirs, if any."""
        return self._staleness(slots, _plain_collect_iters(columns), cur_learner_iter)

    def _staleness(self, slots: IntArray, collected: IntArray | None, cur_learner_iter: int) -> IntArray:
        """The same; `collected` [n] are their `collect_iter`, where a column of the store holds them as plain ints."""
        if collected is not None:
            return cur_learner_iter - collected
        if self._odd_iters is None:
            return np.full(len(slots), -1)
        iters = self._odd_iters[slots]
        return np.where(iters == _NO_ITER, -1, cur_learner_iter - iters)

    def stale_slots(self, cur_learner_iter: int) -> IntArray:
        """The slots of all stale items."""
        if cur_learner_iter - self._oldest_iter < self._max_staleness:
            return np.arange(0)
        slots = np.flatnonzero(self._store.held)
        collected = _plain_collect_iters(self._store.columns)
        staleness = self._staleness(slots, None if collected is None else collected[slots], cur_learner_iter)
        is_stale = staleness >= self._max_staleness
        self._oldest_iter = cur_learner_iter - int(staleness[~is_stale].max(initial=-1))
        stale: IntArray = slots[is_stale]
        return stale


def _plain_collect_iters(columns: dict[str, Node] | None) -> IntArray | None:
    """The values of the column `collect_iter` where they are plain ints."""
    column = None if columns is None else columns.get("collect_iter")
    if isinstance(column, Column) and column.kind is Kind.INT and not column.steps:
        data: IntArray = column.data
        return data
    return None


def _least(collect_iter: Any) -> int:
    """The `collect_iter` of an item; the smallest of several, and a marker where there is none."""
    return _NO_ITER if collect_iter is None else int(np.min(np.asarray(collect_iter)))
