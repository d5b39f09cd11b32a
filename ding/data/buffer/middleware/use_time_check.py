"""A limit on how often a record is sampled."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ding.data.buffer.buffer import Buffer, BufferedData, Middleware, each_record


def use_time_check(buffer_: Buffer, max_use: float = math.inf) -> Middleware:
    """Middleware that deletes a record after it was sampled `max_use` times.

    Sampled records have the number of uses so far in `meta['use_count']`.
    """
    return _UseTimeCheck(buffer_, max_use)


class _UseTimeCheck:
    def __init__(self, buffer: Buffer, max_use: float) -> None:
        self._buffer, self._max_use = buffer, max_use
        self._uses = _UseCounts(buffer)

    def __call__(self, action: str, chain: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        result, uses = chain(*args, **kwargs), self._uses
        if action == "clear":
            uses.clear()
        elif action == "sample":
            records = list(each_record(result))
            uses.add(records)
            used_up = {record.index for record in records if uses[record.index] >= self._max_use}
            if used_up:
                self._buffer.delete(list(used_up))
            uses.forget(used_up)
        return result

    def rebuild(self) -> None:
        """Read the counts from the metadata of the current records."""
        counts = {record.index: (record.meta or {}).get("use_count") for record in self._buffer}
        self._uses.clear()
        self._uses.update({index: count for index, count in counts.items() if count})


class _UseCounts(dict[str, int]):
    """Maps ids of records to the number of times they were sampled."""

    def __init__(self, buffer: Buffer) -> None:
        super().__init__()
        self._buffer = buffer

    def add(self, records: list[BufferedData]) -> None:
        """Count one use of each record and write the total to its metadata.

        The total is also written to the stored record, because other middleware may have returned a copy.
        """
        for record in records:
            self[record.index] = self.get(record.index, 0) + 1
        stored = self._buffer.find([record.index for record in records])
        for record in [*records, *(record for record in stored if record is not None)]:
            if record.meta is None:
                record.meta = {}
            record.meta["use_count"] = self[record.index]

    def forget(self, ids: set[str]) -> None:
        """Remove `ids`, and periodically all records that left the buffer."""
        for index in ids:
            del self[index]
        if len(self) > 2 * self._buffer.size:
            kept = {record.index: self[record.index] for record in self._buffer if record.index in self}
            self.clear()
            self.update(kept)
