"""The interface of replay buffers, and their common parts: states, and files of items."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ding.utils.config_helper import Configurable


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


_STATE_VERSION = 2


class StatefulBuffer(IBuffer):
    """A replay buffer whose state is saved and restored under its lock.

    Attributes:
        on_dropped: called with a list of the items that left the buffer: overwritten, used up, stale or removed. It is
            called under the buffer's lock, when all counts are right, and may be set.
    """

    on_dropped: Callable[[list[Any]], None] | None

    def __init__(self) -> None:
        self._lock = threading.RLock()

    @abstractmethod
    def discard(self, is_unwanted: Callable[[Any], bool]) -> int:
        """Remove the items for which `is_unwanted` returns true, and return their number."""

    def state_dict(self) -> dict[str, Any]:
        """Return the items, counters and random states, in plain values and arrays."""
        with self._lock:
            return {"version": _STATE_VERSION, **self._state(is_copied=True)}

    def freeze(self) -> dict[str, Any]:
        """Return a state for `load_state_dict` that later calls do not change."""
        return self.state_dict()

    def live_state(self) -> dict[str, Any]:
        """Return the state like `state_dict`, but arrays may share memory; use it before the buffer changes."""
        with self._lock:
            return {"version": _STATE_VERSION, **self._state(is_copied=False)}

    def load_state_dict(self, _state_dict: dict[str, Any]) -> None:
        """Replace the contents by a state; if it has only the key `data`, push this list of items instead.

        Raises:
            AssertionError: `data` is missing.
            ValueError: the state does not fit this buffer, or is of another version.
        """
        if "data" not in _state_dict:
            raise AssertionError(f"a buffer state needs the key 'data'; it has {sorted(_state_dict)}")
        with self._lock:
            if set(_state_dict) == {"data"}:
                self._insert([item for item in _state_dict["data"] if item is not None])
                return
            if _state_dict.get("version") != _STATE_VERSION:
                raise ValueError("the state of the buffer is of another version, and cannot be loaded")
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
