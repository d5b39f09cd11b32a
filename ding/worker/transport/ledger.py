"""Reference counts of chunks, by samples in the buffer and by batches that are sent to the learner."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ding.utils.data.samples import Items, node_items, rows_of, table_of

DATA_ID = "data_id"


class ChunkLedger:
    """Counts the references to each chunk and deletes it when none is left. Thread-safe.

    The metadata of a sample names its chunk under `data_id`; samples without this key are ignored.

    Args:
        delete: called with the name of a chunk, outside the lock, in the thread that releases the last reference.

    Example:
        >>> ledger = ChunkLedger(print)
        >>> rows = [{"data_id": "a"}, {"data_id": "a"}]
        >>> ledger.add(rows)
        ['a', 'a']
        >>> ledger.release(rows[:1])
        >>> ledger.release(rows[1:])
        a
    """

    def __init__(self, delete: Callable[[str], None]) -> None:
        self._delete = delete
        self._uses: dict[str, int] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Return the number of chunks in use."""
        return len(self._uses)

    def __contains__(self, name: object) -> bool:
        """Return whether the chunk of that name is in use."""
        return name in self._uses

    def add(self, rows: Sequence[Any]) -> list[str]:
        """Add a reference for each of these samples; return their chunks, for `release_chunks`."""
        names, uses = chunks_of(rows), self._uses
        with self._lock:
            for name in names:
                uses[name] = uses.get(name, 0) + 1
        return names

    def release(self, rows: Sequence[Any]) -> None:
        """Release a reference for each of these samples; unknown chunks are ignored."""
        self.release_chunks(chunks_of(rows))

    def release_chunks(self, names: Iterable[str]) -> None:
        """Release a reference for each occurrence of a chunk in `names`; unknown chunks are ignored."""
        uses, unused = self._uses, []
        with self._lock:
            for name in names:
                left = uses.get(name, 0) - 1
                if left > 0:
                    uses[name] = left
                elif left == 0:
                    del uses[name]
                    unused.append(name)
        for name in unused:
            self._delete(name)

    def clear(self) -> None:
        """Delete every chunk."""
        with self._lock:
            names = list(self._uses)
            self._uses.clear()
        for name in names:
            self._delete(name)


def chunks_of(rows: Items) -> list[str]:
    """Return the chunk of each sample that has one."""
    table = table_of(rows)
    if table is not None:
        return node_items(table.columns[DATA_ID]) if DATA_ID in table.columns else []
    items = rows_of(rows)
    try:
        return [row[DATA_ID] for row in items]
    except (KeyError, TypeError):
        return [row[DATA_ID] for row in items if isinstance(row, Mapping) and DATA_ID in row]
