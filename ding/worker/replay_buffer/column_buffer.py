"""What the buffers of the worker layer have in common: columns under a lock, logs, files, used data."""

from __future__ import annotations

import copy
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import index
from types import TracebackType
from typing import Any, TypeVar, overload

import numpy as np
from easydict import EasyDict

from ding.data.buffer_interface import IBuffer
from ding.data.column_store import ColumnStore
from ding.data.data_file import read_data_file, write_data_file
from ding.data.memory_check import MemoryCheck
from ding.data.random_source import generator_state, new_generator, set_generator_state
from ding.utils.config_helper import Rule, boolean, check_config, instance_of, one_of
from ding.utils.data.samples import Samples
from ding.utils.dict_helper import deep_merge_dicts
from ding.utils.pytorch_ddp_dist_helper import get_rank
from ding.utils.segment_tree import IntArray
from ding.worker.replay_buffer.utils import PeriodicThruputMonitor, UsedDataRemover
from ding.worker.worker_log import WorkerLog

# How and where the columns are stored.
STORAGE_CONFIG: dict[str, Any] = {
    # Where successive image observations [C, ...] have frames in common, as with frame stacking, store these once. So
    # do a fragment and the one of the same env in a recent push, where it goes on.
    "share_frames": False,
    # 'memmap' maps the columns to files in the folder storage_path, for buffers larger than the memory. The files are
    # deleted when the buffer is closed.
    "storage": "memory",
    "storage_path": None,
}
STORAGE_RULES: dict[str, Rule] = {
    "share_frames": boolean,
    "storage": one_of("memory", "memmap"),
    "storage_path": instance_of(str, optional=True),
}

Self = TypeVar("Self", bound="ColumnBuffer")


class ColumnBuffer(IBuffer):
    """Base of the buffers that store columns.

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
    # Name and dtype of what a subclass keeps for each slot.
    _slot_fields: Sequence[tuple[str, Any]] = ()

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
        self._store = ColumnStore(
            int(self._cfg.replay_buffer_size),
            self._logger,
            self._storage_folder(),
            self._cfg.share_frames,
            self._slot_fields,
        )
        self._deepcopy = self._cfg.deepcopy
        self._enable_track_used_data = self._cfg.enable_track_used_data
        self._used_data_remover = UsedDataRemover()
        self._periodic_thruput_monitor = self._make_periodic_monitor() if self._is_monitor else None
        self._memory_check = MemoryCheck(self._logger)
        self.on_dropped: Callable[[list[Any]], None] | None = None
        self._closed = False

    def _storage_folder(self) -> str | None:
        if self._cfg.storage == "memory":
            return None
        return self._cfg.storage_path or os.path.join(self._log.path, "columns")

    # Names that code outside reads and writes.

    @property
    def _data(self) -> SlotView:
        return SlotView(self)

    @property
    def _tail(self) -> int:
        return self._store.tail

    @property
    def _valid_count(self) -> int:
        return self._store.valid_count

    @_valid_count.setter
    def _valid_count(self, count: int) -> None:
        self._store.valid_count = count

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
        return self._store.valid_count

    @property
    def replay_buffer_size(self) -> int:
        """Capacity, in items."""
        return self._store.size

    @property
    def push_count(self) -> int:
        """Items taken in so far."""
        return self._store.push_count

    def freeze(self) -> dict[str, Any]:
        """A state for `load_state_dict`, which stays as it is while the buffer goes on."""
        return self.state_dict()

    def state_dict(self) -> dict[str, Any]:
        """A snapshot in plain values and arrays: the items, the counters and the random state."""
        return self._state(is_copied=True)

    def live_state(self) -> dict[str, Any]:
        """As `state_dict`, but arrays may be those of the buffer: to be written to a file before the buffer goes on."""
        return self._state(is_copied=False)

    def _state(self, is_copied: bool) -> dict[str, Any]:
        with self._lock:
            monitor = self._periodic_thruput_monitor
            return {
                "data": self._store.snapshot(is_copied),
                **self._store.counters(),
                "rng": generator_state(self._rng),
                "thruput": None if monitor is None else monitor.state_dict(),
            }

    def load_state_dict(self, _state_dict: dict[str, Any]) -> None:
        """Take over a state, in place of all that is there; one with `data` alone is a list of items to push.

        Raises:
            AssertionError: `data` is missing.
            ValueError: the state is of a buffer of another size.
        """
        if "data" not in _state_dict:
            raise AssertionError(f"a buffer state needs the key 'data'; it has {sorted(_state_dict)}")
        with self._lock:
            if set(_state_dict) == {"data"}:
                self._take_in([item for item in _state_dict["data"] if item is not None])
            else:
                self._restore({**_state_dict, "data": _as_snapshot(_state_dict["data"])})

    def _restore(self, state: dict[str, Any]) -> None:
        """Take over a state, whose `data` is a snapshot of the store."""
        self._store.load(state["data"], state)
        if "rng" in state:
            set_generator_state(self._rng, state["rng"])
        if self._periodic_thruput_monitor is not None and state.get("thruput"):
            self._periodic_thruput_monitor.load_state_dict(state["thruput"])

    def discard(self, is_unwanted: Callable[[Any], bool]) -> int:
        """Drop the items for which `is_unwanted` is true; returns how many."""
        with self._lock:
            slots = self._store.occupied()
            items = self._store.read(slots)
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
        write_data_file(file_name, "items", list(items), notes)

    def load_data(self, file_name: str) -> None:
        """Push the items of a file that `save_data` wrote.

        Raises:
            ValueError: it is another kind of file.
        """
        items, notes = read_data_file(file_name, "items")
        items = [item for item in items if item is not None]
        with self._lock:
            self._take_in_saved(items, notes)

    def _notes_to_save(self) -> dict[str, Any]:
        """What a file keeps about the items as a whole."""
        return {}

    def _take_in_saved(self, items: list[Any], notes: dict[str, Any]) -> None:
        self._take_in(items)

    def _items_to_save(self) -> Sequence[Any]:
        return self._store.read(self._store.occupied())

    def _take_in(self, items: list[Any]) -> int:
        """Store `items` without asking any limiter, under the lock; returns how many were accepted."""
        raise NotImplementedError

    def _prepare(self, data: list[Any] | Any) -> list[Any]:
        """The pushed items in columns, or as a list, copied if so configured.

        Raises:
            ValueError: an item is None, which marks an empty slot.
        """
        items = data if isinstance(data, list) else [data]
        if isinstance(items, Samples) and items.columns is not None:
            return items
        samples = Samples.of(items)
        if samples is not None:
            return samples
        if any(item is None for item in items):
            raise ValueError("None cannot be pushed into a buffer: it marks an empty slot; leave it out of the data")
        return copy.deepcopy(items) if self._deepcopy else items

    def _put(self, items: list[Any]) -> tuple[int, Sequence[Any]]:
        """Write at most as many items as there are slots.

        Returns:
            how many items were in their place, and these, if there is somebody to tell of them.
        """
        store = self._store
        gone = self._occupied_among(store.next_slots(len(items)))
        dropped = store.read(gone) if gone.size and self._has_listeners() else []
        store.put(items)
        if not self._memory_check.is_done:
            is_mapped = self._storage_folder() is not None
            self._memory_check.look_at(items, store.size, 0 if is_mapped else store.nbytes)
        return len(gone), dropped

    def _occupied_among(self, slots: IntArray | slice) -> IntArray:
        numbers = np.arange(slots.start, slots.stop) if isinstance(slots, slice) else slots
        occupied: IntArray = numbers[self._store.held[slots]]
        return occupied

    def _has_listeners(self) -> bool:
        return self.on_dropped is not None or self._enable_track_used_data

    def _drop(self, items: Sequence[Any]) -> None:
        """Account for items that left the buffer."""
        if not items:
            return
        if self.on_dropped is not None:
            self.on_dropped(items if isinstance(items, list) else list(items))
        if self._enable_track_used_data:
            for item in items:
                self._used_data_remover.add_used_data(item)

    def _take_out(self, slots: IntArray) -> None:
        """Empty `slots` and drop their items."""
        dropped = self._store.read(slots) if slots.size and self._has_listeners() else []
        self._store.remove(slots)
        self._drop(dropped)

    def _show(self, slot: int) -> Any:
        """The item in `slot`, which holds one, as `_data` shows it."""
        return self._store.read(np.array([slot]))[0]

    def _set_slot(self, slot: int, item: Any) -> None:
        """Write an item to `slot`, or empty it for None; no counter changes."""
        self._store.replace(slot, item)

    def _count_thruput(self, pushed: int = 0, sampled: int = 0, removed: int = 0) -> None:
        if self._periodic_thruput_monitor is not None:
            self._periodic_thruput_monitor.add(pushed, sampled, removed, self._store.valid_count)

    def _check_size(self, size: int, can_exceed: bool = False) -> int:
        size = index(size)
        if size < 0 or (size > self._store.size and not can_exceed):
            raise ValueError(
                f"sample size = {size} is not allowed; it must be in [0, {self._store.size}], the replay_buffer_size"
            )
        return size


class SlotView(Sequence[Any]):
    """The slots of a buffer, each None or its item with the current bookkeeping, made when it is read.

    Assigning an item, or None, changes the slot and none of the counters.
    """

    def __init__(self, buffer: ColumnBuffer) -> None:
        self._buffer = buffer

    def __len__(self) -> int:
        return self._buffer.replay_buffer_size

    @overload
    def __getitem__(self, key: int) -> Any: ...
    @overload
    def __getitem__(self, key: slice) -> list[Any]: ...
    def __getitem__(self, key: int | slice) -> Any:
        if isinstance(key, slice):
            return [self[slot] for slot in range(len(self))[key]]
        buffer, slot = self._buffer, range(len(self))[key]
        with buffer._lock:
            return buffer._show(slot) if buffer._store.held[slot] else None

    def __iter__(self) -> Iterator[Any]:
        return iter(self[:])

    def __setitem__(self, key: int, item: Any) -> None:
        with self._buffer._lock:
            self._buffer._set_slot(range(len(self))[key], item)

    def __eq__(self, other: object) -> bool:
        return list(self) == (list(other) if isinstance(other, SlotView) else other)

    __hash__ = None  # type: ignore[assignment]

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Any]:
        return copy.deepcopy(list(self), memo)


def _as_snapshot(data: Any) -> dict[str, Any]:
    """What the store takes over, of a state that has the items by slot in a list, too."""
    if isinstance(data, Mapping):
        return dict(data)
    held = [(slot, item) for slot, item in enumerate(data) if item is not None]
    return {"size": len(data), "slots": [slot for slot, _ in held], "items": [item for _, item in held]}
