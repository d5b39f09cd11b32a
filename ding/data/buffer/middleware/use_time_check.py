"""A bound on how often a record is used."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ding.data.buffer.buffer import Buffer, BufferedData, Middleware
from ding.data.buffer.middleware.flat import each_record


def use_time_check(buffer_: Buffer, max_use: float = math.inf) -> Middleware:
    """Middleware that deletes a record once it was sampled `max_use` times.

    The number of uses so far is in `meta['use_count']` of what is sampled.
    """
    uses = _UseCounts(buffer_)

    def handle(action: str, chain: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        result = chain(*args, **kwargs)
        if action == "clear":
            uses.clear()
        elif action == "sample":
            records = list(each_record(result))
            uses.add(records)
            used_up = {record.index for record in records if uses[record.index] >= max_use}
            if used_up:
                buffer_.delete(list(used_up))
            uses.forget(used_up)
        return result

    return handle


class _UseCounts(dict[str, int]):
    """Id of a record -> how often it was sampled."""

    def __init__(self, buffer: Buffer) -> None:
        super().__init__()
        self._buffer = buffer

    def add(self, records: list[BufferedData]) -> None:
        """Count one use of each record and tell it the total."""
        for record in records:
            self[record.index] = self.get(record.index, 0) + 1
        for record in records:
            if record.meta is None:
                record.meta = {}
            record.meta["use_count"] = self[record.index]

    def forget(self, ids: set[str]) -> None:
        """Drop `ids`, and now and then the records that left the buffer by themselves."""
        for index in ids:
            del self[index]
        if len(self) > 2 * self._buffer.size:
            kept = {record.index: self[record.index] for record in self._buffer if record.index in self}
            self.clear()
            self.update(kept)
