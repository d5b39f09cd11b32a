"""Columns for the data of records."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from ding.data.buffer.buffer import BufferedData
from ding.data.column_store import ColumnStore
from ding.utils.data.samples import Column, Kind, Samples
from ding.utils.fast_copy import fastcopy
from ding.utils.segment_tree import IntArray

# Minimum number of rows beyond the capacity. So many can be written before the oldest records are removed.
_SPARE_ROWS = 64


class StoredRow(NamedTuple):
    """A row of columns, which is pushed instead of data."""

    columns: RecordColumns
    row: int


def max_rows_of(size: int) -> int:
    """Returns how many rows may be written at once to the columns of `size` records."""
    return max(_SPARE_ROWS, size // 16)


class RecordColumns:
    """A ring of columns for the data of the newest records. Thread-safe.

    A record refers to its row until its data is accessed; then it owns a copy. A record that still refers to a row
    when the row is overwritten gets its copy before.

    Args:
        size: Number of records.

    Attributes:
        row_count: Number of rows.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.row_count = size + max_rows_of(size)
        self._store = ColumnStore(self.row_count, logging.getLogger("ding"))
        self._owners: list[BufferedData | None] = []  # by row; empty before the first record object
        self._copies: weakref.WeakValueDictionary[int, BufferedData] = weakref.WeakValueDictionary()
        self._lock = threading.RLock()

    def __reduce__(self) -> tuple[Any, ...]:
        return RecordColumns, (self.size,)  # copied and pickled records own their data

    @property
    def nbytes(self) -> int:
        """Memory of the columns."""
        return self._store.nbytes

    def next_rows(self, count: int) -> IntArray:
        """Returns the next `count` rows to be written."""
        rows: IntArray = (self._store.tail + np.arange(count)) % self.row_count
        return rows

    def write(self, samples: Samples) -> None:
        """Store samples in the next rows."""
        with self._lock:
            if self._owners:
                self._free(self.next_rows(len(samples)).tolist())
            self._store.put(samples)

    def _free(self, rows: list[int]) -> None:
        owners, freed = self._owners, set(rows)
        references = [weakref.ref(owner) for owner in map(owners.__getitem__, rows) if owner is not None]
        for row in rows:
            owners[row] = None
        # Only records with other references are still alive.
        held = [record for record in (reference() for reference in references) if record is not None]
        held += [record for record in list(self._copies.values()) if record.source is self and record.place in freed]
        self.make_data_of(held)

    def record(self, row: int, index: str, meta: dict[str, Any] | None) -> BufferedData:
        """Returns a new record of a written row."""
        if not self._owners:
            self._owners = [None] * self.row_count
        record = self._owners[row] = BufferedData.deferred(self, row, index, meta)
        return record

    def make_data(self, record: BufferedData) -> None:
        self.make_data_of([record])

    def make_data_of(self, records: Sequence[BufferedData]) -> None:
        """Copy the data into those of `records` that still refer to a row."""
        with self._lock:
            stored = list({id(record): record for record in records if record.source is self}.values())
            if stored:
                for record, data in zip(stored, self._read(stored), strict=True):
                    record.data = data

    def copy_of(self, record: BufferedData) -> BufferedData:
        with self._lock:
            if record.source is not self:
                return BufferedData(fastcopy.copy(record.data), record.index, fastcopy.copy(record.meta))
            copied = BufferedData.deferred(self, record.place, record.index, fastcopy.copy(record.meta))
            self._copies[id(copied)] = copied
        return copied

    def read(self, records: Sequence[Any]) -> Sequence[Any] | None:
        """Returns the data of records without changing them; None unless all refer to rows of these columns."""
        with self._lock:
            is_stored = all(isinstance(record, BufferedData) and record.source is self for record in records)
            return self._read(records) if is_stored else None

    def read_rows(self, rows: IntArray) -> Sequence[Any]:
        """Returns a copy of the data in `rows`."""
        with self._lock:
            return self._store.read(rows)

    def _read(self, records: Sequence[BufferedData]) -> Sequence[Any]:
        return self._store.read(np.array([record.place for record in records], np.int64))


class WeightedData:
    """Data source that adds the importance weight `priority_IS` to the data of a record."""

    __slots__ = ("record", "weights")

    def __init__(self, record: BufferedData, weights: torch.Tensor) -> None:
        self.record, self.weights = record, weights

    def make_data(self, record: BufferedData) -> None:
        record.data = {**self.record.data, "priority_IS": self.weights[record.place]}

    def copy_of(self, record: BufferedData) -> BufferedData:
        return BufferedData(fastcopy.copy(record.data), record.index, fastcopy.copy(record.meta))


def samples_of(records: Sequence[Any]) -> Samples | None:
    """Returns the data of `records`, gathered from columns; None if some data is not, or no longer, in columns."""
    source = _source_of(records[0]) if records else None
    if isinstance(source, WeightedData):
        return _weighted_samples_of(records, source.weights)
    data = source.read(records) if isinstance(source, RecordColumns) else None
    return data if isinstance(data, Samples) else None


def _source_of(record: Any) -> Any:
    return record.source if isinstance(record, BufferedData) else None


def _weighted_samples_of(records: Sequence[Any], weights: torch.Tensor) -> Samples | None:
    sources = [_source_of(record) for record in records]
    weighted = [source.record for source in sources if isinstance(source, WeightedData) and source.weights is weights]
    samples = samples_of(weighted) if len(weighted) == len(records) else None
    if samples is None:
        return None
    rows = [record.place for record in records]
    return samples.with_columns(priority_IS=Column(Kind.TENSOR, weights[rows].numpy()))


def data_of(records: Sequence[BufferedData]) -> Sequence[Any]:
    """Returns the data of `records`. Data in columns stays there."""
    samples = samples_of(records)
    if samples is not None:
        return samples
    data: dict[int, Any] = {}  # by the id of the record
    for source, held in _by_columns(records):
        data.update(zip(map(id, held), source.read(held) or [], strict=False))
    for record in records:
        if id(record) not in data:
            data[id(record)] = record.data
    return [data[id(record)] for record in records]


def make_data_of(records: Sequence[Any]) -> None:
    """Copy data in columns into its `records`, all at once, which is several times faster than one by one."""
    sources = [(record, _source_of(record)) for record in records]
    stored = [source.record if isinstance(source, WeightedData) else record for record, source in sources]
    for source, held in _by_columns(stored):
        source.make_data_of(held)


def _by_columns(records: Sequence[Any]) -> list[tuple[RecordColumns, list[BufferedData]]]:
    groups: dict[int, tuple[RecordColumns, list[BufferedData]]] = {}
    for record in records:
        source = _source_of(record)
        if isinstance(source, RecordColumns):
            groups.setdefault(id(source), (source, []))[1].append(record)
    return list(groups.values())
