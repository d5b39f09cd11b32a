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
import psutil
from easydict import EasyDict

from ding.data.buffer_interface import (
    IBuffer,
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
from ding.utils.segment_tree import IntArray
from ding.worker.replay_buffer.utils import PeriodicThruputMonitor, UsedDataRemover
from ding.worker.worker_log import WorkerLog

__all__ = [
    "STORAGE_SETTINGS",
    "ColumnBuffer",
    "IBuffer",
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
            "Whether to store frames of stacked images [C, ...] once, where the env manager knows the stack.",
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


def create_training_buffer(cfg: Mapping[str, Any], **kwargs: Any) -> Any:
    """Create, start and return a buffer for parallel training, whose samples have no files that it could delete.

    Raises:
        ConfigError: the buffer accepts priorities only for its newest batch, but the learner prefetches several.
        KeyError: see `create_buffer`.
    """
    if cfg.get("type") == "deque" and cfg.get("priority"):
        raise ConfigError(
            "replay_buffer: type = 'deque' with priority = True is not allowed here: it accepts priorities only "
            "for its newest batch, but the learner prefetches several; use type = 'advanced'"
        )
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
    """

    _store: ColumnStore
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
        folder = self._cfg.storage_path or os.path.join(self._log.path, "columns")
        self._store = ColumnStore(
            int(self._cfg.replay_buffer_size),
            self._logger,
            None if self._cfg.storage == "memory" else folder,
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
        self.on_dropped = None
        self._closed = False
        self._begin()

    @classmethod
    def _check_cfg(cls, cfg: Mapping[str, Any]) -> None:
        """Check the configuration, before anything else is done."""
        check_section(cfg, cls)

    def _begin(self) -> None:
        """Complete the construction, in a subclass; called at the end of the constructor."""

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
        finally:  # an item may lack the name of its file
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
    def replay_buffer_size(self) -> int:
        """Capacity, in items."""
        return self._store.size

    @property
    def push_count(self) -> int:
        """Number of items stored so far."""
        return self._store.push_count

    def discard(self, is_unwanted: Callable[[Any], bool]) -> int:
        with self._lock:
            slots = self._store.occupied()
            items = rows_of(self._store.read(slots))
            unwanted = slots[np.fromiter(map(is_unwanted, items), dtype=np.bool_, count=len(items))]
            if unwanted.size:
                self._remove(unwanted)
                self._store.report_dropped()
            return len(unwanted)

    def _remove(self, slots: IntArray) -> None:
        """Remove the items in `slots` [n >= 1] and update all counts."""
        raise NotImplementedError

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
        }

    def _restore(self, state: dict[str, Any]) -> None:
        self._store.load(state["data"])
        set_generator_state(self._rng, state["rng"])

    def load_state_dict(self, _state_dict: dict[str, Any]) -> None:
        super().load_state_dict(_state_dict)
        with self._lock:
            self._store.report_dropped()

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
        is_first = self._store.columns is None
        written = self._store.put(items)
        if is_first and self._cfg.storage == "memory":
            full_bytes, free_bytes = self._store.nbytes, psutil.virtual_memory().available
            if full_bytes > free_bytes:
                self._logger.warning(
                    "the buffer will not fit into memory: its %d items take up to %.1f GiB, but only %.1f GiB are "
                    "free; reduce replay_buffer_size to about %d",
                    self._store.size,
                    full_bytes / 2**30,
                    free_bytes / 2**30,
                    int(self._store.size * free_bytes / full_bytes),
                )
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
    if on_dropped is not None:
        on_dropped(items)
    for item in items:
        remover.add_used_data(item)
