"""Buffers that outlive their coordinator: their content as plain values, and what becomes of the chunks."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from ding.worker.coordinator.buffer_room import BufferRoom, Rows
from ding.worker.transport.ledger import DATA_ID

# What the names of chunks begin with that our collectors write; then comes that of the collector, and a number.
_CHUNK_PREFIX = "env_"


class KeptBufferRoom(BufferRoom):
    """A room whose buffers another room can have, with their content. See `BufferRoom`."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._collectors: set[str] = set()  # those of the samples that were restored, and those that were lost

    def freeze(self, buffer_id: str, cfg: Mapping[str, Any]) -> dict[str, Any]:
        """What `restore` needs for a buffer, besides its id.

        The content is None where the buffer is not open, and for types of buffers that cannot be kept, which have no
        `freeze` and `discard`. Functions in the config are left out.

        Args:
            cfg: of a buffer that is not open yet.
        """
        buffer, content = self.buffers.get(buffer_id), None
        if buffer is not None and hasattr(buffer, "freeze") and hasattr(buffer, "discard"):
            content = buffer.freeze()
        return {"cfg": without_functions(self._cfgs.get(buffer_id, cfg)), "content": content}

    def restore(self, buffer_id: str, cfg: Mapping[str, Any], content: dict[str, Any] | None) -> tuple[int, int]:
        """Open a buffer with what it had in it, but for samples whose chunks are not there any more.

        Returns:
            how many samples it holds, and how many were dropped.

        Raises:
            ConfigError: see `open`.
        """
        self.open(buffer_id, cfg)
        if content is None:
            return 0, 0
        buffer, held = self.buffers[buffer_id], []
        there = None if self._store is None else self._store.names()

        def is_unwanted(row: Any) -> bool:
            held.append(row)
            return there is not None and isinstance(row, Mapping) and _chunk_of(row) not in there

        with self._dropping():
            buffer.load_state_dict(content)
            dropped: int = buffer.discard(is_unwanted)
            self._ledger.add(held)
        self._collectors.update(_collector_of(str(name)) for name in _chunks_of(held))
        return len(held) - dropped, dropped

    def delete_unneeded(self) -> int:
        """Delete the chunks that nobody needs: those that came after the content of the buffers was kept, and those
        that lost collectors had not told of.

        In a folder outside that of the experiment, where other runs may have theirs, these are only the chunks of
        collectors which are known from samples that were restored, or that they had told of before they were lost.

        Returns:
            how many.
        """
        if self._store is None:
            return 0
        is_own = _lies_in(self._store.root, self._exp_name)
        return self._delete_unused(lambda collector: is_own or collector in self._collectors)

    def abandon(self, chunk: Any) -> None:
        """The collector that has told of this chunk is lost: those that it has not told of go.

        As the name is one that a worker has told, it may be anything.
        """
        lost = _collector_of(os.path.basename(chunk)) if isinstance(chunk, str) else ""
        if self._store is None or not lost.startswith(_CHUNK_PREFIX):
            return
        self._collectors.add(lost)  # it may still be writing
        try:
            self._delete_unused(lambda collector: collector == lost)
        except OSError as e:  # they are looked for once more at the end
            self._logger.warning("chunks of the lost collector %s are left where they are: %s", lost, e)

    def _delete_unused(self, is_meant: Callable[[str], bool]) -> int:
        assert self._store is not None
        names = [
            name
            for name in self._store.names()
            if name.startswith(_CHUNK_PREFIX) and name not in self._ledger and is_meant(_collector_of(name))
        ]
        for name in names:
            self._delete(name)
        return len(names)


def _chunk_of(row: Mapping[str, Any]) -> str | None:
    """The plain name of the chunk that a sample lies in."""
    return os.path.basename(row[DATA_ID]) if DATA_ID in row else None


def _chunks_of(rows: Rows) -> set[str | None]:
    return {_chunk_of(row) for row in rows if isinstance(row, Mapping)} - {None}


def _collector_of(name: str) -> str:
    return name.rpartition("_")[0]


def _lies_in(path: str, folder: str) -> bool:
    return os.path.abspath(path).startswith(os.path.abspath(folder) + os.sep)


def without_functions(cfg: Mapping[str, Any]) -> dict[str, Any]:
    """A config without what no file can hold."""
    return {
        key: without_functions(value) if isinstance(value, Mapping) else value
        for key, value in cfg.items()
        if not callable(value)
    }
