"""The interface of replay buffers, and their common parts: states, files, memory."""

from __future__ import annotations

import logging
import sys
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch

from ding.data.column_store import ColumnStore
from ding.utils.config_helper import Configurable
from ding.utils.data.samples import Items, Kind, columns_of, part_of, rows_of, table_of
from ding.utils.segment_tree import IntArray


class IBuffer(Configurable, ABC):
    """A bounded store of training data between a collector and a learner.

    A subclass sets `settings`, or `config` to its default configuration.
    """

    @abstractmethod
    def push(self, data: list[Any] | Any, cur_collector_envstep: int) -> int:
        """Store one item, or each item of a list.

        Args:
            data: an item, or a list of items.
            cur_collector_envstep: number of env steps collected so far, for the logs; -1 if unknown.

        Returns:
            The number of accepted items, since a buffer may refuse some. None, as buffers of users may return, means
            all.
        """
        raise NotImplementedError

    @abstractmethod
    def update(self, info: dict[str, list[Any]]) -> None:
        """Update sampled items with results of the learner, such as new priorities."""
        raise NotImplementedError

    @abstractmethod
    def sample(self, batch_size: int, cur_learner_iter: int) -> list[Any] | None:
        """Sample `batch_size` items; return None if this is currently not possible."""
        raise NotImplementedError

    @abstractmethod
    def clear(self) -> None:
        """Remove all items."""
        raise NotImplementedError

    @abstractmethod
    def count(self) -> int:
        """Return the number of items that can be sampled."""
        raise NotImplementedError

    @abstractmethod
    def save_data(self, file_name: str) -> None:
        """Write the items to a file, creating parent folders."""
        raise NotImplementedError

    @abstractmethod
    def load_data(self, file_name: str) -> None:
        """Load the items of a file that `save_data` wrote."""
        raise NotImplementedError

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return the full state of the buffer, in plain containers and arrays."""
        raise NotImplementedError

    @abstractmethod
    def load_state_dict(self, _state_dict: dict[str, Any]) -> None:
        """Restore a state that `state_dict` returned."""
        raise NotImplementedError


class StatefulBuffer(IBuffer):
    """A replay buffer on a column store, whose state is saved and restored under its lock."""

    _store: ColumnStore

    def __init__(self) -> None:
        self._lock = threading.RLock()

    @property
    def on_dropped(self) -> Callable[[list[Any]], None] | None:
        """A function that is called, under the buffer's lock, with a list of the items that left it.

        It is called when all counts of the buffer are right. The property may be set.
        """
        return self._store.on_dropped

    @on_dropped.setter
    def on_dropped(self, on_dropped: Callable[[list[Any]], None] | None) -> None:
        self._store.on_dropped = on_dropped

    @property
    def replay_buffer_size(self) -> int:
        """Capacity, in items."""
        return self._store.size

    @property
    def push_count(self) -> int:
        """Number of items stored so far."""
        return self._store.push_count

    def discard(self, is_unwanted: Callable[[Any], bool]) -> int:
        """Remove the items for which `is_unwanted` returns true, and return their number."""
        with self._lock:
            slots = self._store.occupied()
            items = rows_of(self._store.read(slots))
            unwanted = slots[np.fromiter(map(is_unwanted, items), dtype=np.bool_, count=len(items))]
            if unwanted.size:
                self._remove(unwanted)
                self._store.report_dropped()
            return len(unwanted)

    @abstractmethod
    def _remove(self, slots: IntArray) -> None:
        """Remove the items in `slots` [n >= 1] and update all counts."""

    def state_dict(self) -> dict[str, Any]:
        """Return the items, counters and random states, in plain values and arrays."""
        with self._lock:
            return self._state(is_copied=True)

    def freeze(self) -> dict[str, Any]:
        """Return a state for `load_state_dict` that later calls do not change."""
        return self.state_dict()

    def live_state(self) -> dict[str, Any]:
        """Return the state like `state_dict`, but arrays may share memory; use it before the buffer changes."""
        with self._lock:
            return self._state(is_copied=False)

    def load_state_dict(self, _state_dict: dict[str, Any]) -> None:
        """Replace the contents by a state; if it has only the key `data`, push this list of items instead.

        Raises:
            AssertionError: `data` is missing.
            ValueError: the state does not fit this buffer.
        """
        if "data" not in _state_dict:
            raise AssertionError(f"a buffer state needs the key 'data'; it has {sorted(_state_dict)}")
        with self._lock:
            if set(_state_dict) == {"data"}:
                self._insert([item for item in _state_dict["data"] if item is not None])
                self._store.report_dropped()
            else:
                self._restore(_state_dict)

    @abstractmethod
    def _state(self, is_copied: bool) -> dict[str, Any]:
        """Return the state; called under the lock, like the other private methods."""

    @abstractmethod
    def _restore(self, state: dict[str, Any]) -> None:
        """Replace the contents by a state."""

    @abstractmethod
    def _insert(self, items: list[Any]) -> int:
        """Store `items`, and return the number of accepted items."""


# ---- a warning if a buffer will not fit into memory

# Memory of a tensor without its elements: the Python object and torch's metadata. Measured.
_TENSOR_BYTES = 400
# Maximum number of items that the estimate is based on.
_MAX_ITEMS = 256


class MemoryCheck:
    """Estimate of the memory of a full buffer from its first items, with a warning if less is free.

    Each GPU is estimated separately. Views of one array count each, the same object counts once.

    Args:
        logger: the logger of the estimate and the warning.

    Attributes:
        is_done: whether the estimate was made.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self.is_done = False

    def estimate(self, items: Items, capacity: int, column_bytes: int = 0) -> None:
        """Log the estimated memory of `capacity` items like `items`; only the first call with items has an effect.

        Args:
            items: the first items.
            capacity: number of items of a full buffer.
            column_bytes: memory of the full columns, in bytes. For items in columns, only objects are added to it.
        """
        if self.is_done or not items:
            return
        self.is_done = True
        known = part_of(items, 0, _MAX_ITEMS)
        sizes = {device: size * capacity // len(known) for device, size in memory_of(_objects_of(known)).items()}
        sizes["cpu"] += column_bytes
        for device, full_bytes in sizes.items():
            self._logger.info(
                "a full buffer, %d items like the first %d, takes up to about %s of %s",
                capacity,
                len(known),
                _readable(full_bytes),
                _name_of(device),
            )
            free_bytes = _free_on(device)
            if free_bytes is not None and full_bytes > free_bytes:
                self._warn(device, full_bytes, free_bytes, capacity)

    def _warn(self, device: str, full_bytes: float, free_bytes: int, capacity: int) -> None:
        self._logger.warning(
            "the buffer will not fit into %s: its %d items take up to about %s, but only %s are free; "
            "reduce replay_buffer_size to about %d",
            _name_of(device),
            capacity,
            _readable(full_bytes),
            _readable(free_bytes),
            int(capacity * (free_bytes / full_bytes)),
        )


def memory_of(items: Iterable[Any]) -> dict[str, int]:
    """Return the approximate memory of `items` and their contents in bytes, by device ("cpu", "cuda:0", ...)."""
    todo, seen = list(items), set[int]()
    sizes = Counter({"cpu": 0})
    while todo:
        item = todo.pop()
        if item is None or id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, torch.Tensor):
            sizes["cpu"] += _TENSOR_BYTES
            if item.layout is torch.strided:
                sizes[str(item.device)] += item.numel() * item.element_size()
        elif isinstance(item, np.ndarray):
            sizes["cpu"] += sys.getsizeof(item) + (item.nbytes if item.base is not None else 0)
            todo.extend(item.ravel().tolist() if item.dtype.hasobject else ())
        elif (table := table_of(item)) is not None:
            arrays = {id(column.data): column.data for column in columns_of(table.columns)}
            todo.extend(arrays.values())
        else:
            sizes["cpu"] += sys.getsizeof(item)
            if isinstance(item, (Mapping, list, tuple)):
                todo.extend(item.values() if isinstance(item, Mapping) else item)
    return dict(sizes)


def _objects_of(items: Items) -> Sequence[Any]:
    table = table_of(items)
    if table is None:
        return rows_of(items)
    columns = [column for column in columns_of(table.columns) if column.kind is Kind.OBJECT]
    return [value for column in columns for value in column.items()]


def _free_on(device: str) -> int | None:
    if device == "cpu":
        return int(psutil.virtual_memory().available)
    if device.startswith("cuda"):
        return int(torch.cuda.mem_get_info(device)[0])
    return None


def _name_of(device: str) -> str:
    return "memory" if device == "cpu" else f"memory of {device}"


def _readable(size_bytes: float) -> str:
    for unit, unit_bytes in (("GiB", 2**30), ("MiB", 2**20)):
        if size_bytes >= unit_bytes:
            return f"{size_bytes / unit_bytes:.1f} {unit}"
    return f"{size_bytes / 1024:.1f} KiB"


# ---- files of items: code-free msgpack, written atomically

_FORMAT = "ding-buffer"
_VERSION = 1


def write_data_file(file_name: str, kind: str, items: list[Any], notes: dict[str, Any] | None = None) -> None:
    """Write `items` to `file_name`, creating parent folders; an existing file is replaced atomically.

    Args:
        kind: the kind of the items; `read_data_file` requires the same.
        notes: further data about the items as a whole.
    """
    from ding.utils.file_helper import atomic_write
    from ding.utils.msgpack_helper import pack

    packed = pack({"format": _FORMAT, "version": _VERSION, "kind": kind, "items": items, "notes": notes or {}})
    with atomic_write(file_name, mode="wb") as file:
        file.write(packed)


def read_data_file(file_name: str, kind: str) -> tuple[list[Any], dict[str, Any]]:
    """Return the items and notes of a file that `write_data_file` wrote.

    Raises:
        ValueError: the file is of another kind or version, or cannot be decoded.
    """
    from ding.utils.msgpack_helper import unpack

    content = Path(file_name).read_bytes()
    try:
        data = unpack(content)
    except Exception as error:
        raise ValueError(f"{file_name!r} is not a buffer data file: it cannot be decoded as msgpack") from error
    if not isinstance(data, dict) or data.get("format") != _FORMAT or data.get("version") != _VERSION:
        raise ValueError(f"{file_name!r} is not a buffer data file of version {_VERSION}; write it with save_data")
    if data["kind"] != kind:
        raise ValueError(
            f"{file_name!r} holds {data['kind']}, not {kind}: it was saved by another type of buffer; load it there"
        )
    return data["items"], data.get("notes", {})
