"""Records in order of arrival, found by position or by id without a table."""

from __future__ import annotations

import secrets
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, overload

from ding.data.buffer.buffer import BufferedData
from ding.data.buffer.record_columns import RecordColumns, StoredRow

_NUMBER_DIGITS = 16


class RecordRing(Sequence[BufferedData]):
    """At most `maxlen` records; appending to a full ring drops the oldest. Any position is reached in constant time.

    Ids are numbered in order of arrival behind a random prefix, so a position follows from the number.

    Attributes:
        version: changes with every change of the contents.
        on_dropped: given the records that have left the ring; may be set.
    """

    def __init__(self, maxlen: int) -> None:
        self.maxlen = maxlen
        self.version = 0
        self.on_dropped: Callable[[list[BufferedData]], None] | None = None
        self._records: list[BufferedData] = []
        self._columns: RecordColumns | None = None
        self._start = 0
        self._prefix = secrets.token_hex(8)
        self._next_number = 0

    def __len__(self) -> int:
        return len(self._records)

    @overload
    def __getitem__(self, position: int) -> BufferedData: ...
    @overload
    def __getitem__(self, position: slice) -> list[BufferedData]: ...
    def __getitem__(self, position: int | slice) -> BufferedData | list[BufferedData]:
        records = self._records
        if isinstance(position, slice):
            return [self[i] for i in range(len(records))[position]]
        count = len(records)
        if not -count <= position < count:
            raise IndexError(f"position {position} is not allowed; the buffer holds {count} records")
        return records[(position % count + self._start) % count]

    def __iter__(self) -> Iterator[BufferedData]:
        return iter(self._records[self._start :] + self._records[: self._start])

    @property
    def columns(self) -> RecordColumns:
        """Where data that comes in columns is kept."""
        if self._columns is None or self._columns.size != self.maxlen:
            self._columns = RecordColumns(self.maxlen)
        return self._columns

    def append(self, data: Any, meta: dict[str, Any] | None) -> BufferedData:
        """Add a record of `data`, or of a row of `columns`, at the newest end and return it."""
        index = f"{self._prefix}{self._next_number:0{_NUMBER_DIGITS}x}"
        if type(data) is StoredRow:
            record = data.columns.record(data.slot, index, meta)
        else:
            record = BufferedData(data, index, meta)
        self._next_number += 1
        self.version += 1
        if len(self._records) < self.maxlen:
            self._records.append(record)
        else:
            replaced, self._records[self._start] = self._records[self._start], record
            self._start = (self._start + 1) % self.maxlen
            if self.on_dropped is not None:
                self.on_dropped([replaced])
        return record

    def position(self, index: Any) -> int | None:
        """The position of the record with the id `index`, None when there is none."""
        number = _number_of(index)
        if number is None or not self._records:
            return None
        # Without deletions the numbers follow each other.
        guess = number - _number_of_record(self[0])
        if not (0 <= guess < len(self) and self[guess].index == index):
            guess = bisect_left(self, number, key=_number_of_record)
        return guess if guess < len(self) and self[guess].index == index else None

    def take(self, positions: list[int]) -> list[BufferedData]:
        """The records at `positions`, none of them negative."""
        records, start, count = self._records, self._start, len(self._records)
        return [records[(position + start) % count] for position in positions]

    def find(self, indices: Iterable[Any]) -> list[BufferedData | None]:
        """The records with the ids `indices`, None for an unknown id."""
        if not self._records:
            return [None for _ in indices]
        records, start, count = self._records, self._start, len(self._records)
        first = _number_of_record(records[start])
        found: list[BufferedData | None] = []
        for index in indices:
            number = _number_of(index)
            record = records[(number - first + start) % count] if number is not None else None
            if record is None or record.index != index:
                position = self.position(index)
                record = None if position is None else self[position]
            found.append(record)
        return found

    def delete(self, positions: set[int]) -> None:
        """Remove the records at `positions`."""
        if not positions:
            return
        self.version += 1
        self._straighten()
        dropped = [self._records[position] for position in sorted(positions)]
        if len(positions) <= 16:
            for position in sorted(positions, reverse=True):
                del self._records[position]
        else:
            self._records = [record for i, record in enumerate(self._records) if i not in positions]
        if self.on_dropped is not None:
            self.on_dropped(dropped)

    def replace(self, records: Sequence[BufferedData], maxlen: int) -> None:
        """Hold `records`, whose ids must ascend, and no others."""
        self.clear()
        self.maxlen = maxlen
        self._records = list(records)
        if records:
            self._next_number = max(self._next_number, _number_of_record(records[-1]) + 1)

    def clear(self) -> None:
        """Remove all records."""
        dropped, self._records, self._start = list(self), [], 0
        self._columns = None
        self.version += 1
        if dropped and self.on_dropped is not None:
            self.on_dropped(dropped)

    def touch(self) -> None:
        """Note that a record was changed in place."""
        self.version += 1

    def _straighten(self) -> None:
        self._records = self._records[self._start :] + self._records[: self._start]
        self._start = 0


class BufferIndex:
    """Ids to positions, derived from the records."""

    def __init__(self, storage: RecordRing) -> None:
        self._storage = storage

    def get(self, index: str) -> int | None:
        """The position of the record with that id, None when there is none."""
        return self._storage.position(index)

    def __contains__(self, index: str) -> bool:
        return self.get(index) is not None

    def __len__(self) -> int:
        return len(self._storage)


class MetaIndex(Mapping[str, Any]):
    """For each meta key that was used for grouping: the values of all records in order, None where missing."""

    def __init__(self, storage: RecordRing, used: Iterable[str] = ()) -> None:
        self._storage = storage
        self._used: set[str] = set(used)
        self._groups: dict[str, tuple[int, dict[Any, list[int]]]] = {}

    def groups(self, key: str) -> dict[Any, list[int]]:
        """The positions of the records of each value of `key`; records without the key are in no group."""
        self._used.add(key)
        version, groups = self._groups.get(key, (None, {}))
        if version != self._storage.version:
            groups = {}
            for position, record in enumerate(self._storage):
                if record.meta is not None and key in record.meta:
                    groups.setdefault(record.meta[key], []).append(position)
            self._groups[key] = (self._storage.version, groups)
        return groups

    def __getitem__(self, key: str) -> deque[Any]:
        if key not in self._used:
            raise KeyError(f"no sample was grouped by {key!r} yet")
        return deque((record.meta or {}).get(key) for record in self._storage)

    def __iter__(self) -> Iterator[str]:
        return iter(self._used)

    def __len__(self) -> int:
        return len(self._used)

    def clear(self) -> None:
        """Forget which keys were used."""
        self._used.clear()
        self._groups.clear()


def _number_of(index: Any) -> int | None:
    try:
        return int(index[-_NUMBER_DIGITS:], 16)
    except (ValueError, TypeError):
        return None


def _number_of_record(record: BufferedData) -> int:
    return int(record.index[-_NUMBER_DIGITS:], 16)
