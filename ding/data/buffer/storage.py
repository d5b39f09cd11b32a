"""Storage of records in order of arrival, with access by position and by id."""

from __future__ import annotations

import secrets
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, overload

import numpy as np

from ding.data.buffer.buffer import BufferedData
from ding.data.buffer.record_columns import RecordColumns, StoredRow, data_of, make_data_of, max_rows_of
from ding.utils.data.samples import Samples
from ding.utils.segment_tree import IntArray

_NUMBER_DIGITS = 16


class RecordRing(Sequence[BufferedData]):
    """At most `maxlen` records. Appending to a full ring removes the oldest one. Access by position is O(1).

    An id is a random prefix and a number that counts up, so that positions follow from ids without a table. Data in
    columns takes two integers per record; the record object is created on first access and then kept.

    Attributes:
        version: Changes with every change of the contents.
        on_dropped: Called with the records that left the ring. May be set.
    """

    def __init__(self, maxlen: int) -> None:
        self.maxlen = maxlen
        self.version = 0
        self.on_dropped: Callable[[list[BufferedData]], None] | None = None
        self._start = 0
        self._records: list[BufferedData | None] = []
        # By index in the list: the number in the id, and the row of the columns, -1 for other data.
        self._numbers: IntArray = np.empty(0, np.int64)
        self._rows: IntArray = np.empty(0, np.int64)
        self._columns: RecordColumns | None = None
        self._owners: IntArray = np.empty(0, np.int64)  # number of the record of each row; -1 for none
        self._prefix = secrets.token_hex(8)
        self._next_number = 0

    def __len__(self) -> int:
        return len(self._records)

    @overload
    def __getitem__(self, position: int) -> BufferedData: ...
    @overload
    def __getitem__(self, position: slice) -> list[BufferedData]: ...
    def __getitem__(self, position: int | slice) -> BufferedData | list[BufferedData]:
        count = len(self._records)
        if isinstance(position, slice):
            return self.take(list(range(count)[position]))
        if not -count <= position < count:
            raise IndexError(f"position = {position} is not allowed; it must be in [-{count}, {count})")
        place = (position % count + self._start) % count
        return self._records[place] or self._record(place)

    def __iter__(self) -> Iterator[BufferedData]:
        return iter(self[:])

    def __getstate__(self) -> dict[str, Any]:
        """Returns the attributes, with records that own their data instead of columns."""
        records = [held or self._new_record(place) for place, held in enumerate(self._records)]
        make_data_of(records)
        rows = np.full(len(records), -1)
        return {**vars(self), "_records": records, "_rows": rows, "_columns": None, "_owners": np.empty(0, np.int64)}

    @property
    def nbytes(self) -> int:
        """Memory of the columns and of the index of a full ring, without record objects."""
        per_record = self._numbers.itemsize + self._rows.itemsize + 8
        return per_record * self.maxlen + self._owners.nbytes + (0 if self._columns is None else self._columns.nbytes)

    def write(self, samples: Samples) -> list[StoredRow]:
        """Store at most `max_rows` samples in columns, and return their rows for `append` or `extend`."""
        columns = self._columns
        if columns is None or columns.size != self.maxlen:
            for place in range(len(self)):
                self._record(place)
            self._rows.fill(-1)
            columns = self._columns = RecordColumns(self.maxlen)
            self._owners = np.full(columns.row_count, -1)
        rows = columns.next_rows(len(samples))
        self._release_rows(rows)
        columns.write(samples)
        return [StoredRow(columns, row) for row in rows.tolist()]

    def _release_rows(self, rows: IntArray) -> None:
        """Create the record objects of `rows`, which read their data before the rows are overwritten."""
        owners, oldest = self._owners[rows], self._numbers[self._start] if self._records else self._next_number
        self._owners[rows] = -1
        for i in np.flatnonzero(owners >= oldest).tolist():
            place = self._place_of(int(owners[i]))
            if place is not None and self._rows[place] == rows[i]:
                self._record(place)
                self._rows[place] = -1

    @property
    def max_rows(self) -> int:
        """Maximum number of samples of one `write`."""
        return max_rows_of(self.maxlen)

    def append(self, data: Any, meta: dict[str, Any] | None) -> BufferedData:
        """Append a record of `data`, which may be a `StoredRow`, and return it."""
        number, row = self._next_number, -1
        index = self._id(number)
        if type(data) is StoredRow:
            record = data.columns.record(data.row, index, meta)
            if data.columns is self._columns:
                row = data.row
                self._owners[row] = number
        else:
            record = BufferedData(data, index, meta)
        place, replaced = self._start, None
        if len(self._records) < self.maxlen:
            place = self._reserve(1)
            self._records.append(record)
        else:
            if self.on_dropped is not None:
                replaced = self._record(place)
            self._records[place] = record
            self._start = (place + 1) % len(self._records)
        self._numbers[place], self._rows[place] = number, row
        self._next_number += 1
        self.version += 1
        if replaced is not None and self.on_dropped is not None:
            self.on_dropped([replaced])
        return record

    def extend(self, rows: Sequence[StoredRow]) -> None:
        """Append records of rows that were just written. The record objects are created on access."""
        numbers = np.array([stored.row for stored in rows])
        for start in range(0, len(rows), self.maxlen):
            self._extend(numbers[start : start + self.maxlen])

    def _extend(self, rows: IntArray) -> None:
        free = min(max(self.maxlen - len(self._records), 0), len(rows))
        places: list[int] = []
        if free:
            first = self._reserve(free)
            places += range(first, first + free)
            self._records += [None] * free
        replaced = [(self._start + i) % len(self._records) for i in range(len(rows) - free)]
        dropped = [] if self.on_dropped is None else [self._record(place) for place in replaced]
        for place in replaced:
            self._records[place] = None
        self._start = (self._start + len(replaced)) % len(self._records)
        places += replaced
        numbers = self._next_number + np.arange(len(rows))
        self._numbers[places], self._rows[places], self._owners[rows] = numbers, rows, numbers
        self._next_number += len(rows)
        self.version += 1
        if dropped and self.on_dropped is not None:
            self.on_dropped(dropped)

    def _reserve(self, added: int) -> int:
        """Extend the arrays for `added` records at the end of the list. Returns the index of the first."""
        if self._start:
            self._straighten()
        count = len(self._records)
        if count + added > len(self._numbers):
            size = min(self.maxlen, max(64, 2 * (count + added)))
            self._numbers, self._rows = np.resize(self._numbers, size), np.resize(self._rows, size)
        return count

    def _id(self, number: int) -> str:
        return f"{self._prefix}{number:0{_NUMBER_DIGITS}x}"

    def _record(self, place: int) -> BufferedData:
        """Returns the record at index `place` of the list; creates it if necessary."""
        record = self._records[place]
        if record is None:
            assert self._columns is not None
            record = self._columns.record(int(self._rows[place]), self._id(int(self._numbers[place])), None)
            self._records[place] = record
        return record

    def _new_record(self, place: int) -> BufferedData:
        """Returns a temporary record for an index without a record object."""
        assert self._columns is not None
        index = self._id(int(self._numbers[place]))
        return BufferedData.deferred(self._columns, int(self._rows[place]), index, None)

    def _place_of(self, number: int) -> int | None:
        """Returns the index in the list of the record with this number, or None."""
        count, start = len(self._records), self._start
        if not count:
            return None
        # Without deletions, the numbers are consecutive.
        position = number - int(self._numbers[start])
        if not (0 <= position < count and self._numbers[(position + start) % count] == number):
            position = bisect_left(range(count), number, key=lambda i: int(self._numbers[(i + start) % count]))
        place = (position + start) % count
        return place if position < count and self._numbers[place] == number else None

    def position(self, index: Any) -> int | None:
        """Returns the position of the record with the id `index`, or None."""
        number = _number_of(index)
        place = None if number is None else self._place_of(number)
        return None if place is None or self._id_at(place) != index else (place - self._start) % len(self._records)

    def _id_at(self, place: int) -> str:
        record = self._records[place]
        return self._id(int(self._numbers[place])) if record is None else record.index

    def take(self, positions: list[int]) -> list[BufferedData]:
        """Returns the records at `positions`, which must not be negative."""
        start, count = self._start, len(self._records)
        return [self._record((position + start) % count) for position in positions]

    def find(self, indices: Iterable[Any]) -> list[BufferedData | None]:
        """Returns the records with the ids `indices`, None for an unknown id."""
        records, start, count = self._records, self._start, len(self._records)
        first = int(self._numbers[start]) if count else 0
        found: list[BufferedData | None] = []
        for index in indices:
            number = _number_of(index)
            record = records[(number - first + start) % count] if count and number is not None else None
            if record is None or record.index != index:
                position = self.position(index)
                record = None if position is None else self[position]
            found.append(record)
        return found

    # ---- without record objects

    def samples_at(self, positions: IntArray) -> Samples | None:
        """Returns the data at `positions` from the columns; None if some data is not, or no longer, in columns."""
        if not len(positions):
            return None
        places = (positions + self._start) % len(self._records)
        rows, records = self._rows[places], self._records
        if self._columns is None or rows.min() < 0:
            return None
        held = [record for record in map(records.__getitem__, places.tolist()) if record is not None]
        if any(record.source is None for record in held):
            return None
        data = self._columns.read_rows(rows)
        return data if isinstance(data, Samples) else None

    def data(self) -> Sequence[Any]:
        """Returns the data of all records, oldest first. Data in columns stays there."""
        samples = self.samples_at(np.arange(len(self)))
        if samples is not None:
            return samples
        return data_of([self._records[place] or self._new_record(place) for place in self._places()])

    def ids(self) -> list[str]:
        """Returns the ids of all records, oldest first."""
        return [self._id_at(place) for place in self._places()]

    def metas(self) -> list[dict[str, Any] | None]:
        """Returns the metadata of all records, oldest first."""
        return [None if record is None else record.meta for record in map(self._records.__getitem__, self._places())]

    def _places(self) -> list[int]:
        return [*range(self._start, len(self._records)), *range(self._start)]

    # ---- removal

    def delete(self, positions: set[int]) -> None:
        """Remove the records at `positions`."""
        if not positions:
            return
        self.version += 1
        self._straighten()
        dropped = [] if self.on_dropped is None else [self._record(position) for position in sorted(positions)]
        count, gone = len(self._records), np.array(sorted(positions))
        if len(positions) <= 16:
            for position in sorted(positions, reverse=True):
                del self._records[position]
        else:
            self._records = [record for i, record in enumerate(self._records) if i not in positions]
        self._numbers, self._rows = (np.delete(kept[:count], gone) for kept in (self._numbers, self._rows))
        if self.on_dropped is not None:
            self.on_dropped(dropped)

    def replace(self, records: Sequence[BufferedData], maxlen: int) -> None:
        """Replace all records by `records`, whose ids must ascend."""
        self.clear()
        self.maxlen = maxlen
        self._records = list(records)
        self._numbers = np.array([_number_of_record(record) for record in records], np.int64)
        self._rows = np.full(len(records), -1)
        if records:
            self._next_number = max(self._next_number, int(self._numbers[-1]) + 1)

    def clear(self) -> None:
        """Remove all records."""
        dropped = [] if self.on_dropped is None else list(self)
        self._records, self._start, self._columns = [], 0, None
        self._numbers = self._rows = self._owners = np.empty(0, np.int64)
        self.version += 1
        if dropped and self.on_dropped is not None:
            self.on_dropped(dropped)

    def touch(self) -> None:
        """Mark the contents as changed, after a record was changed in place."""
        self.version += 1

    def _straighten(self) -> None:
        start, count = self._start, len(self._records)
        if start:
            self._records = self._records[start:] + self._records[:start]
            self._numbers, self._rows = (np.roll(kept[:count], -start) for kept in (self._numbers, self._rows))
            self._start = 0


class BufferIndex:
    """Maps ids of records to positions."""

    def __init__(self, storage: RecordRing) -> None:
        self._storage = storage

    def get(self, index: str) -> int | None:
        """Returns the position of the record with the id `index`, or None."""
        return self._storage.position(index)

    def __contains__(self, index: str) -> bool:
        return self.get(index) is not None

    def __len__(self) -> int:
        return len(self._storage)


class MetaIndex(Mapping[str, Any]):
    """Maps each meta key that was used for grouping to the values of all records in order, None if missing."""

    def __init__(self, storage: RecordRing, used: Iterable[str] = ()) -> None:
        self._storage = storage
        self._used: set[str] = set(used)
        self._groups: dict[str, tuple[int, dict[Any, list[int]]]] = {}

    def groups(self, key: str) -> dict[Any, list[int]]:
        """Returns the positions of the records by their value of `key`. Records without the key are left out."""
        self._used.add(key)
        version, groups = self._groups.get(key, (None, {}))
        if version != self._storage.version:
            groups = {}
            for position, meta in enumerate(self._storage.metas()):
                if meta is not None and key in meta:
                    groups.setdefault(meta[key], []).append(position)
            self._groups[key] = (self._storage.version, groups)
        return groups

    def __getitem__(self, key: str) -> deque[Any]:
        if key not in self._used:
            raise KeyError(f"no sample was grouped by {key!r}; call sample with groupby={key!r} first")
        return deque((meta or {}).get(key) for meta in self._storage.metas())

    def __iter__(self) -> Iterator[str]:
        return iter(self._used)

    def __len__(self) -> int:
        return len(self._used)

    def clear(self) -> None:
        """Remove all keys."""
        self._used.clear()
        self._groups.clear()


def _number_of(index: Any) -> int | None:
    try:
        return int(index[-_NUMBER_DIGITS:], 16)
    except (ValueError, TypeError):
        return None


def _number_of_record(record: BufferedData) -> int:
    return int(record.index[-_NUMBER_DIGITS:], 16)
