"""The factories of buffers, and their base class: columns under a lock, logs, files, deletion of used data."""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import index
from types import TracebackType
from typing import Any, TypeVar, overload

import numpy as np
from easydict import EasyDict

from ding.data.buffer_interface import (
    IBuffer,
    MemoryCheck,
    StatefulBuffer,
    read_data_file,
    write_data_file,
)
from ding.data.column_store import ColumnStore
from ding.data.ring import Slots
from ding.utils.config_helper import (
    ConfigError,
    Setting,
    Settings,
    boolean,
    check_section,
    instance_of,
    integer,
    one_of,
)
from ding.utils.data.samples import Items, Table, rows_of
from ding.utils.default_helper import deep_merge_dicts, new_generator
from ding.utils.import_helper import import_module
from ding.utils.object_state import generator_state, set_generator_state
from ding.utils.pytorch_ddp_dist_helper import get_rank
from ding.utils.registry_factory import BUFFER_REGISTRY
from ding.worker.replay_buffer.utils import PeriodicThruputMonitor, UsedDataRemover
from ding.worker.worker_log import WorkerLog

__all__ = [
    "STORAGE_SETTINGS",
    "ColumnBuffer",
    "IBuffer",
    "check_prefetching",
    "create_buffer",
    "create_training_buffer",
    "get_buffer_cls",
]

# The settings that all buffers have; some buffers have other defaults.
STORAGE_SETTINGS = Settings(
    {
        "replay_buffer_size": Setting(10000, integer(1), "Capacity, in samples."),
        "deepcopy": Setting(False, boolean, "Whether to return deep copies of samples."),
        "enable_track_used_data": Setting(
            False, boolean, "Whether to delete the file `data_id` of each sample that leaves the buffer."
        ),
        "share_frames": Setting(
            False,
            boolean,
            "Whether to store frames that successive image observations [C, ...] share, as with stacked frames, once.",
        ),
        "storage": Setting(
            "memory",
            one_of("memory", "memmap"),
            "Storage of the columns; `memmap` maps them to files, so that the buffer may exceed the memory.",
        ),
        "storage_path": Setting(
            None,
            instance_of(str, optional=True),
            "Folder of the files with `memmap`, which are deleted with the buffer.",
        ),
    }
)


def create_buffer(cfg: Mapping[str, Any], *args: Any, **kwargs: Any) -> IBuffer:
    """Import `cfg['import_names']`, then create the buffer `cfg['type']` with `cfg` and the other arguments.

    The keyword `tb_logger` is not passed to a `naive` buffer, which creates its own writer.

    Raises:
        KeyError: If no buffer of this type is registered.
    """
    buffer_cls: Any = get_buffer_cls(cfg)
    if cfg["type"] == "naive":
        kwargs.pop("tb_logger", None)
    buffer: IBuffer = buffer_cls(cfg, *args, **kwargs)
    return buffer


def get_buffer_cls(cfg: Mapping[str, Any]) -> type[IBuffer]:
    """Import `cfg['import_names']`, then return the class registered for `cfg['type']`.

    Raises:
        KeyError: If no buffer of this type is registered.
    """
    import_module(cfg.get("import_names", []))
    buffer_cls: type[IBuffer] = BUFFER_REGISTRY.get(cfg["type"])
    return buffer_cls


def check_prefetching(cfg: Mapping[str, Any]) -> None:
    """Check that a buffer fits a learner that prefetches batches, as in parallel training.

    Raises:
        ConfigError: the buffer accepts priorities only for its newest batch.
    """
    if cfg.get("type") == "deque" and cfg.get("priority"):
        raise ConfigError(
            "replay_buffer: type = 'deque' with priority = True is not allowed here: it accepts priorities only "
            "for its newest batch, but the learner prefetches several; use type = 'advanced'"
        )


def create_training_buffer(cfg: Mapping[str, Any], **kwargs: Any) -> Any:
    """Create, start and return a buffer for parallel training, whose samples have no files that it could delete.

    Raises:
        ConfigError: see `check_prefetching`.
        KeyError: see `create_buffer`.
    """
    check_prefetching(cfg)
    own = EasyDict(cfg)
    if own.get("enable_track_used_data"):
        own.enable_track_used_data = False
    buffer: Any = create_buffer(own, **kwargs)
    buffer.start()
    return buffer


Self = TypeVar("Self", bound="ColumnBuffer")


class ColumnBuffer(StatefulBuffer):
    """Base class of the buffers that store their items in columns.

    A subclass sets `settings` and implements `push`, `sample` and `update`. All public methods are
    thread-safe.

    Args:
        cfg: The configuration. Missing keys take their default.
        tb_logger: A shared TensorBoard writer. If None, the buffer creates one and closes it.
        exp_name: Folder of the experiment, for the logs.
        instance_name: Name of this buffer in files, tags and ids.

    Attributes:
        on_dropped: Called with a list of the items that left the buffer: overwritten, used up, stale or cleared.
            It is called under the buffer's lock, when all counts are right, and may be set.
    """

    # Name and dtype of the metadata that a subclass keeps for each slot.
    _slot_fields: Sequence[tuple[str, Any]] = ()

    def __init__(
        self,
        cfg: Mapping[str, Any],
        tb_logger: Any = None,
        exp_name: str = "default_experiment",
        instance_name: str = "buffer",
    ) -> None:
        super().__init__()
        self._check_cfg(cfg)
        self._cfg = EasyDict(deep_merge_dicts(self.default_config(), cfg))
        self._exp_name, self._instance_name = exp_name, instance_name
        is_monitor = get_rank() == 0
        self._log = WorkerLog(exp_name, instance_name, tb_logger, is_monitor=is_monitor)
        self._logger, self._tb_logger = self._log.text, self._log.tb
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
        period = EasyDict(seconds=self._periodic_seconds())
        self._periodic_thruput_monitor = PeriodicThruputMonitor(instance_name, period, self._logger, self._tb_logger)
        if not is_monitor:
            self._periodic_thruput_monitor.close()
        self._memory_check = MemoryCheck(self._logger)
        self.on_dropped = None
        self._closed = False
        self._begin()

    @classmethod
    def _check_cfg(cls, cfg: Mapping[str, Any]) -> None:
        """Check the configuration, before anything else is done."""
        check_section(cfg, cls)

    def _begin(self) -> None:
        """Complete the construction, in a subclass; called at the end of the constructor."""

    def _storage_folder(self) -> str | None:
        if self._cfg.storage == "memory":
            return None
        return self._cfg.storage_path or os.path.join(self._log.path, "columns")

    # Private attributes of DI-engine that external code accesses.

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

    def _periodic_seconds(self) -> float:
        seconds: float = self._cfg.periodic_thruput_seconds
        return seconds

    def start(self) -> None:
        """Start deleting the files of used items, if `enable_track_used_data` is on."""
        if self._enable_track_used_data:
            self._used_data_remover.start()

    def close(self) -> None:
        """Remove all items, delete the files of used items and close the logs. Further calls do nothing.

        A shared `tb_logger` stays open.
        """
        if self._closed:
            return
        self._closed = True
        try:
            self.clear()
        finally:  # `on_dropped` may raise
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
        # At the end of the interpreter modules may be gone already.
        if sys is not None and not sys.is_finalizing() and not getattr(self, "_closed", True):
            self.close()

    def count(self) -> int:
        """Return the number of items that can be sampled."""
        return self._store.valid_count

    @property
    def on_dropped(self) -> Callable[[list[Any]], None] | None:
        return self._on_dropped

    @on_dropped.setter
    def on_dropped(self, on_dropped: Callable[[list[Any]], None] | None) -> None:
        self._on_dropped = on_dropped
        if self._enable_track_used_data:
            on_dropped = partial(_delete_files_too, self._used_data_remover, on_dropped)
        self._store.on_dropped = on_dropped

    def _state(self, is_copied: bool) -> dict[str, Any]:
        return {
            "data": self._store.snapshot(is_copied),
            "rng": generator_state(self._rng),
            "thruput": self._periodic_thruput_monitor.state_dict(),
        }

    def _restore(self, state: dict[str, Any]) -> None:
        if not isinstance(state["data"], Mapping):
            state = self._state_of_list(state)
        if state.get("thruput") and "push_data_count" not in state["thruput"]:
            raise ValueError("the state of the buffer is of an earlier version, and cannot be loaded")
        self._store.load(state["data"])
        if "rng" in state:
            set_generator_state(self._rng, state["rng"])
        if state.get("thruput"):
            self._periodic_thruput_monitor.load_state_dict(state["thruput"])

    def _state_of_list(self, state: dict[str, Any]) -> dict[str, Any]:
        """Convert a state whose `data` is a list of the items by slot, None for an empty one, to columns."""
        data, tail = state["data"], state["tail"]
        slots = [slot for slot, item in enumerate(data) if item is not None]
        filled = len(data) if any(slot >= tail for slot in slots) else tail
        snapshot = {"size": len(data), "start": (tail - filled) % len(data), "filled": filled, "order": None}
        snapshot |= {name: state[name] for name in ("valid_count", "push_count")}
        snapshot |= {"slots": slots, "samples": [data[slot] for slot in slots], "object_slots": [], "fields": {}}
        return {**state, "data": snapshot}

    def save_data(self, file_name: str) -> None:
        """Write the items that can be sampled to `file_name`, oldest first, as code-free msgpack."""
        with self._lock:
            items, notes = self._items_to_save(), self._extra_to_save()
        write_data_file(file_name, "items", list(rows_of(items)), notes)

    def load_data(self, file_name: str) -> None:
        """Push the items of a file that `save_data` wrote.

        Raises:
            ValueError: If the file is of another kind.
        """
        items, notes = read_data_file(file_name, "items")
        items = [item for item in items if item is not None]
        with self._lock:
            self._insert_saved(items, notes)
            self._store.report_dropped()

    def _extra_to_save(self) -> dict[str, Any]:
        """Return what `save_data` writes besides the items."""
        return {}

    def _insert_saved(self, items: list[Any], notes: dict[str, Any]) -> None:
        self._insert(items)

    def _items_to_save(self) -> Items:
        return self._store.read(self._store.occupied())

    def _insert(self, items: Items) -> int:
        """Store `items`, with the lock held, and return the number of accepted items."""
        raise NotImplementedError

    def _prepare(self, data: Items | Any) -> Items:
        """Return the pushed items as a table if they have the same form; other items are copied if `deepcopy` is on.

        Raises:
            ValueError: If an item is None, which marks an empty slot.
        """
        items: Items = data if isinstance(data, list | Table) else [data]
        table = Table.of(items)
        if table is not None:
            return table
        if any(item is None for item in rows_of(items)):
            raise ValueError("an item is None, which is not allowed: it marks an empty slot; remove it from the data")
        return copy.deepcopy(items) if self._deepcopy else items

    def _write(self, items: Items) -> tuple[Slots, int]:
        """Write at most `replay_buffer_size` items, and return their slots and the number of items overwritten."""
        written = self._store.put(items)
        if not self._memory_check.is_done:
            is_mapped = self._storage_folder() is not None
            self._memory_check.estimate(items, self._store.size, 0 if is_mapped else self._store.nbytes)
        return written

    def _item_view(self, slot: int) -> Any:
        """Return the item in an occupied `slot` as `_data` presents it."""
        return rows_of(self._store.read(np.array([slot])))[0]

    def _empty_slot(self, slot: int) -> None:
        """Remove the item in `slot`; counters do not change."""
        self._store.empty(np.array([slot]))

    def _check_size(self, size: int, can_exceed: bool = False) -> int:
        size = index(size)
        if size < 0 or (size > self._store.size and not can_exceed):
            raise ValueError(
                f"sample size = {size} is not allowed; it must be in [0, {self._store.size}] (replay_buffer_size)"
            )
        return size


class SlotView(Sequence[Any]):
    """A view of the slots of a buffer: None if empty, else a copy of the item with its current metadata.

    Assigning None empties a slot; no counter changes.
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
            return buffer._item_view(slot) if buffer._store.held[slot] else None

    def __setitem__(self, key: int, item: None) -> None:
        if item is not None:
            raise TypeError(f"_data[{key}] = {item!r:.200} is not allowed; only None, which removes an item")
        with self._buffer._lock:
            self._buffer._empty_slot(range(len(self))[key])

    def __eq__(self, other: object) -> bool:
        return list(self) == (list(other) if isinstance(other, SlotView) else other)

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Any]:
        return copy.deepcopy(list(self), memo)


def _delete_files_too(
    remover: UsedDataRemover, on_dropped: Callable[[list[Any]], None] | None, items: list[Any]
) -> None:
    """Call `on_dropped`, then queue the files of `items` for deletion."""
    try:
        if on_dropped is not None:
            on_dropped(items)
    finally:
        for item in items:
            remover.add_used_data(item)
