"""A replay buffer that keeps the newest items and samples them uniformly."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from ding.data.ring import BoolArray
from ding.utils.config_helper import Setting, Settings, number
from ding.utils.data.samples import Node, Samples, part_of
from ding.utils.registry_factory import BUFFER_REGISTRY
from ding.utils.segment_tree import IntArray
from ding.worker.replay_buffer.column_buffer import STORAGE_SETTINGS, ColumnBuffer

# Importable from here as in DI-engine. These classes extend the naive buffer, so they are imported on access.
_ELSEWHERE = {
    "ElasticReplayBuffer": "ding.worker.replay_buffer.elastic_buffer",
    "SequenceReplayBuffer": "ding.worker.replay_buffer.sequence_buffer",
}


@BUFFER_REGISTRY.register("naive")
class NaiveReplayBuffer(ColumnBuffer):
    """Replay buffer of items of any type, sampled uniformly. Thread-safe.

    Dicts are copied into columns, and sampled dicts are new objects: both belong to the caller. Items of other types
    are stored and returned as they are, unless `deepcopy` is on.

    Example:
        >>> import os, tempfile
        >>> cfg = NaiveReplayBuffer.default_config()
        >>> cfg.replay_buffer_size = 2
        >>> with NaiveReplayBuffer(cfg, exp_name=os.path.relpath(tempfile.mkdtemp())) as buffer:
        ...     buffer.push([{"obs": 0}, {"obs": 1}, {"obs": 2}], cur_collector_envstep=3)
        ...     sorted(item["obs"] for item in buffer.sample(2, cur_learner_iter=0))
        [1, 2]
    """

    settings = Settings(
        {
            "type": "naive",
            "replay_buffer_size": 10000,
            "periodic_thruput_seconds": Setting(60, number(1e-3), "Seconds between two throughput reports."),
        },
        STORAGE_SETTINGS,
    )

    def push(self, data: list[Any] | Any, cur_collector_envstep: int) -> int:
        """Store one item, or each item of a list; the oldest are overwritten when the buffer is full.

        `cur_collector_envstep` is not used.

        Returns:
            The number of items that were stored.
        """
        items, columns = self._prepare(data)
        with self._lock:
            return self._insert(items, columns)

    def _insert(self, items: list[Any], columns: dict[str, Node] | None = None) -> int:
        count, size = len(items), self._store.size
        if count > size:
            return sum(self._insert(part_of(items, start, start + size)) for start in range(0, count, size))
        if count:
            self._before_insert(items)
            _, gone, dropped = self._write(items, columns, count)
            self._store.valid_count += count - gone
            self._report_dropped(dropped)
            self._count_thruput(pushed=count, removed=gone)
        return count

    def _before_insert(self, items: list[Any]) -> None:
        """Hook of subclasses, called with the items that are inserted next."""

    def sample(
        self, size: int, cur_learner_iter: int, sample_range: slice | None = None, replace: bool = False
    ) -> list[Any] | None:
        """Sample `size` items uniformly. Returns None, and logs a line, if there are too few.

        Args:
            size: Number of items.
            cur_learner_iter: Not used.
            sample_range: Positions to sample from. Position 0 is the oldest item, so `slice(-10, None)` selects the
                ten newest.
            replace: Whether to sample with replacement. If so, a single stored item is enough.

        Raises:
            ValueError: If `size` is negative or above the capacity, or `sample_range` selects too few items.
            TypeError: If `sample_range` is not a slice.
        """
        size = self._check_size(size, can_exceed=replace)
        if size == 0:
            return []
        with self._lock:
            have = self._drawable_count()
            items: Sequence[Any] | None = None
            if have >= size or (replace and have > 0):
                items = self._store.read(self._draw(size, sample_range, replace))
                self._count_thruput(sampled=size)
        if items is None:
            self._logger.info("too few items to sample: the buffer holds %d, requested are %d", have, size)
            return None
        return self._output(items)

    def _drawable_count(self) -> int:
        """Returns the number of items that `sample` draws from without a `sample_range`."""
        return self._store.valid_count

    def _output(self, items: Sequence[Any]) -> list[Any]:
        """Return sampled items in the form the caller gets them. Called without the lock."""
        if isinstance(items, Samples):
            return items
        return copy.deepcopy(list(items)) if self._deepcopy else list(items)

    def _draw(self, size: int, sample_range: slice | None, replace: bool) -> IntArray:
        if sample_range is None:
            if self._store.valid_count == self._store.filled == self._store.size:  # any order will do
                return self._choose(self._store.size, size, slice(None), replace)
            sample_range = slice(None)
        elif not isinstance(sample_range, slice):
            raise TypeError(f"sample_range = {sample_range!r} is not allowed; it must be a slice or None")
        ring = self._store
        if ring.valid_count == ring.filled:
            positions = range(ring.filled)[sample_range]
            chosen = self._choose(len(positions), size, sample_range, replace)
            return ring.positions_to_slots(positions.start + positions.step * chosen)
        slots = ring.occupied()[sample_range]
        return slots[self._choose(len(slots), size, sample_range, replace)]

    def _choose(self, count: int, size: int, sample_range: slice, replace: bool) -> IntArray:
        if count == 0 or (count < size and not replace):
            raise ValueError(
                f"size = {size} is not allowed: sample_range = {sample_range} selects {count} items; "
                "widen it or sample fewer"
            )
        if replace:
            return self._rng.integers(0, count, size)
        return self._rng.choice(count, size, replace=False)

    def update(self, info: dict[str, list[Any]]) -> None:
        """Log a warning and ignore `info`: this buffer has no priorities."""
        self._logger.warning("a %s has nothing to update; %s is ignored", type(self).__name__, sorted(info))

    def _remove(self, slots: IntArray) -> None:
        # The remaining items are compacted: sampling from a ring with gaps is slow.
        store, occupied = self._store, self._store.occupied()
        is_kept = ~np.isin(occupied, slots)
        self._before_compaction(occupied, is_kept)
        kept, push_count = store.read(occupied[is_kept]), store.push_count
        self._evict(slots)
        store.reset()
        if kept:
            store.put(kept)
        store.valid_count, store.push_count = len(kept), push_count
        self._count_thruput(removed=len(slots))

    def _before_compaction(self, slots: IntArray, is_kept: BoolArray) -> None:
        """Hook of subclasses: of the items in `slots` [n], those that `is_kept` [n] move to the first slots."""

    def clear(self) -> None:
        """Remove all items and reset `push_count` to 0."""
        with self._lock:
            removed = self._store.occupied()
            self._evict(removed)
            self._store.reset()
            self._store.push_count = 0
            self._count_thruput(removed=len(removed))


def __getattr__(name: str) -> Any:
    if name in _ELSEWHERE:
        return getattr(import_module(_ELSEWHERE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
