"""What the buffers of the worker layer have in common: a ring under a lock, logs, files, used data."""

from __future__ import annotations

import copy
import sys
import threading
from collections.abc import Callable, Mapping
from operator import index
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
from easydict import EasyDict

from ding.data.buffer_interface import IBuffer
from ding.data.data_file import read_data_file, write_data_file
from ding.data.memory_check import MemoryCheck
from ding.data.random_source import new_generator
from ding.utils.config_helper import Rule, check_config
from ding.utils.dict_helper import deep_merge_dicts
from ding.utils.pytorch_ddp_dist_helper import get_rank
from ding.utils.segment_tree import IntArray
from ding.worker.replay_buffer.forwarded import Forwarded
from ding.worker.replay_buffer.ring import Ring
from ding.worker.replay_buffer.utils import PeriodicThruputMonitor, UsedDataRemover
from ding.worker.worker_log import WorkerLog

Self = TypeVar("Self", bound="RingBuffer")


class RingBuffer(IBuffer):
    """Base of the buffers that keep their items in a ring.

    A subclass sets `config` and `config_rules` and implements `push`, `sample` and `update`. All public methods may be
    called from several threads.

    Args:
        cfg: the configuration; keys that are missing take their default.
        tb_logger: a shared TensorBoard writer; without one, a writer is made and closed with the buffer.
        exp_name: folder of the experiment, for the logs.
        instance_name: name of this buffer in files, tags and ids.

    Attributes:
        on_dropped: given the items that have left the buffer, when others came, by use, by age or by `clear`; called
            under the buffer's lock. May be set.
    """

    config_rules: Mapping[str, Rule] = {}

    # Names that code outside reads and writes.
    _data = Forwarded("_ring.slots")
    _tail = Forwarded("_ring.tail")
    _valid_count = Forwarded("_ring.valid_count")

    def __init__(
        self,
        cfg: Mapping[str, Any],
        tb_logger: Any = None,
        exp_name: str = "default_experiment",
        instance_name: str = "buffer",
    ) -> None:
        check_config(cfg, type(self).__name__, self.config_rules)
        self._cfg = EasyDict(deep_merge_dicts(self.default_config(), cfg))
        self._exp_name, self._instance_name = exp_name, instance_name
        self._is_monitor = get_rank() == 0
        self._log = WorkerLog(exp_name, instance_name, tb_logger, is_monitor=self._is_monitor)
        self._logger, self._tb_logger = self._log.text, self._log.tb
        self._lock = threading.RLock()
        self._rng = new_generator()
        self._ring = Ring(int(self._cfg.replay_buffer_size))
        self._deepcopy = self._cfg.deepcopy
        self._enable_track_used_data = self._cfg.enable_track_used_data
        self._used_data_remover = UsedDataRemover()
        self._periodic_thruput_monitor = self._make_periodic_monitor() if self._is_monitor else None
        self._memory_check = MemoryCheck(self._logger)
        self.on_dropped: Callable[[list[Any]], None] | None = None
        self._closed = False

    def _make_periodic_monitor(self) -> PeriodicThruputMonitor:
        cfg = EasyDict(seconds=self._periodic_seconds())
        return PeriodicThruputMonitor(self._instance_name, cfg, self._logger, self._tb_logger)

    def _periodic_seconds(self) -> float:
        seconds: float = self._cfg.periodic_thruput_seconds
        return seconds

    def start(self) -> None:
        """Start removing the files of used items, when `enable_track_used_data` is on."""
        if self._enable_track_used_data:
            self._used_data_remover.start()

    def close(self) -> None:
        """Drop all items, end what `start` began, flush the logs. May be called any number of times.

        A shared `tb_logger` stays open.
        """
        if self._closed:
            return
        self._closed = True
        self.clear()
        if self._periodic_thruput_monitor is not None:
            self._periodic_thruput_monitor.close()
        self._used_data_remover.close()
        self._log.close()

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if not sys.is_finalizing() and not getattr(self, "_closed", True):
            self.close()

    def count(self) -> int:
        """How many items can be sampled."""
        return self._ring.valid_count

    @property
    def replay_buffer_size(self) -> int:
        """Capacity, in items."""
        return self._ring.size

    @property
    def push_count(self) -> int:
        """Items taken in so far."""
        return self._ring.push_count

    def freeze(self) -> dict[str, Any]:
        """A state for `load_state_dict`, taken in a moment also from a large buffer: the items as they are stored, what
        is kept about them in arrays. It stays as it is while the buffer goes on, if nobody changes the items.
        """
        return self.state_dict()

    def discard(self, is_unwanted: Callable[[Any], bool]) -> int:
        """Drop the items for which `is_unwanted` is true; returns how many."""
        with self._lock:
            slots = self._ring.occupied()
            items = [self._ring.slots[slot] for slot in slots.tolist()]
            unwanted = slots[np.fromiter(map(is_unwanted, items), dtype=np.bool_, count=len(items))]
            if unwanted.size:
                self._remove(unwanted)
            return len(unwanted)

    def _remove(self, slots: IntArray) -> None:
        """Take out the items in `slots`, of which there is at least one, and drop them."""
        raise NotImplementedError

    def save_data(self, file_name: str) -> None:
        """Write the items that can be sampled to `file_name`, oldest first, as code-free msgpack."""
        with self._lock:
            items, notes = self._items_to_save(), self._notes_to_save()
        write_data_file(file_name, "items", items, notes)

    def load_data(self, file_name: str) -> None:
        """Push the items of a file that `save_data` wrote.

        Raises:
            ValueError: it is another kind of file.
        """
        items, notes = read_data_file(file_name, "items")
        items = [item for item in items if item is not None]
        self._memory_check.look_at(items, self._ring.size)
        with self._lock:
            self._take_in_saved(items, notes)

    def _notes_to_save(self) -> dict[str, Any]:
        """What a file keeps about the items as a whole."""
        return {}

    def _take_in_saved(self, items: list[Any], notes: dict[str, Any]) -> None:
        self._take_in(items)

    def _items_to_save(self) -> list[Any]:
        return [self._ring.slots[slot] for slot in self._ring.occupied().tolist()]

    def _take_in(self, items: list[Any]) -> int:
        """Store `items` without asking any limiter, under the lock; returns how many were accepted."""
        raise NotImplementedError

    def _prepare(self, data: list[Any] | Any) -> list[Any]:
        """The pushed items as a list, copied if so configured.

        Raises:
            ValueError: an item is None, which marks an empty slot.
        """
        items = data if isinstance(data, list) else [data]
        if any(item is None for item in items):
            raise ValueError("None cannot be pushed into a buffer: it marks an empty slot; leave it out of the data")
        if self._deepcopy:
            items = copy.deepcopy(items)
        self._memory_check.look_at(items, self._ring.size)
        return items

    def _drop(self, items: list[Any]) -> None:
        """Account for items that left the buffer."""
        if items and self.on_dropped is not None:
            self.on_dropped(items)
        if self._enable_track_used_data:
            for item in items:
                self._used_data_remover.add_used_data(item)

    def _count_thruput(self, pushed: int = 0, sampled: int = 0, removed: int = 0) -> None:
        if self._periodic_thruput_monitor is not None:
            self._periodic_thruput_monitor.add(pushed, sampled, removed, self._ring.valid_count)

    def _check_size(self, size: int, can_exceed: bool = False) -> int:
        size = index(size)
        if size < 0 or (size > self._ring.size and not can_exceed):
            raise ValueError(
                f"sample size = {size} is not allowed; it must be in [0, {self._ring.size}], the replay_buffer_size"
            )
        return size
