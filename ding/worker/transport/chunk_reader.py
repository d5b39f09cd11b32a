"""Reads samples by their metadata, with a cache of decoded chunks that is bounded in bytes."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ding.data.column_store import ColumnStore
from ding.utils.data.samples import Column, Kind, Node, Samples, Table, columns_of, table_of
from ding.utils.segment_tree import IntArray
from ding.worker.transport.chunk import decode_chunk
from ding.worker.transport.ledger import DATA_ID, chunks_of
from ding.worker.transport.stores import SampleStore

DATA_INDEX = "data_index"
# A chunk is taken to have left the buffer when it was not read while each other chunk could have been read this often:
# uniform draws miss a chunk of the buffer that often with a probability of e^-8.
_MISSED_TURNS = 8
_FEW_CHUNKS = 8
# The slots of the smallest column store, and the bytes that they may take if samples are large.
_LEAST_SLOTS, _LEAST_BYTES = 1024, 64 * 2**20

_logger = logging.getLogger("ding")


@dataclass(slots=True)
class _CachedChunk:
    """A cached chunk: `count` slots of the column store beginning at `start`, or a list if it does not fit there."""

    samples: list[Any] | None
    start: int
    count: int
    size_bytes: int
    last_use: int


class ChunkReader:
    """Reads samples from a store. Thread-safe.

    Chunks with equal columns share one column store, so that a batch takes one gather for each column.

    Args:
        store: holds the chunks.
        budget_bytes: the encoded size of the chunks that stay cached after `sample` or `trim`. The least recently used
            ones are dropped first, the newest one never. Chunks that were not read for long are dropped in any case.
            The column store has at most twice as many slots as it had samples to hold.
    """

    def __init__(self, store: SampleStore, budget_bytes: int = 256 * 2**20) -> None:
        if budget_bytes < 0:
            raise ValueError(f"budget_bytes = {budget_bytes} is not allowed; it must be at least 0")
        self._store = store
        self._budget_bytes = budget_bytes
        self._chunks: OrderedDict[str, _CachedChunk] = OrderedDict()
        self._size_bytes = self._uses = 0
        self._columns: ColumnStore | None = None
        self._end = 0  # the slot of `_columns` to write next; written slots are not reused
        self._lock = threading.Lock()

    @property
    def size_bytes(self) -> int:
        """The encoded size of the cached chunks in bytes."""
        return self._size_bytes

    def sample(self, meta: Mapping[str, Any]) -> Any:
        """Return the sample that `meta` names by `data_id` and `compressor` (`none` by default); see `pick_sample`.

        A dict is returned as a new dict with the keys of `meta` added, a list of dicts as a new list of such dicts.
        Their tensors and arrays may be shared with other calls: treat them as read-only.

        Raises:
            FileNotFoundError, OSError, KeyError: see `keep`.
            ValueError: the chunk is damaged, or has no such sample.
        """
        samples = self.samples(meta[DATA_ID], meta.get("compressor", "none"))
        self.trim()
        return pick_sample(samples, meta)

    def samples(self, name: str, compressor: str = "none") -> list[Any]:
        """Return all samples of a chunk, read-only; it stays cached until the next `trim` at least.

        Raises:
            FileNotFoundError, OSError, KeyError, ValueError: see `keep`.
        """
        decoded = self.keep(name, compressor)
        if decoded is not None:
            return decoded
        with self._lock:
            kept = self._chunks.get(name)
            if kept is not None:
                return self._samples_of(kept)
        return self.samples(name, compressor)  # dropped by another thread in between

    def keep(self, name: str, compressor: str = "none") -> list[Any] | None:
        """Read a chunk unless it is cached; it stays cached until the next `trim` at least.

        Returns:
            Its samples, read-only, if this call has read it, else None.

        Raises:
            FileNotFoundError: the chunk was deleted.
            OSError: it cannot be read.
            KeyError: the compressor is unknown.
            ValueError: the chunk is damaged, or `name` leads out of the store.
        """
        with self._lock:
            self._uses += 1
            known = self._chunks.get(name)
            if known is not None:
                known.last_use = self._uses
                self._chunks.move_to_end(name)
                return None
        data = self._store.read(name)
        samples = decode_chunk(data, compressor)
        with self._lock:
            if name not in self._chunks:
                start = self._write(samples)
                held = samples if start is None else None
                self._chunks[name] = _CachedChunk(held, start or 0, len(samples), len(data), self._uses)
                self._size_bytes += len(data)
        return samples

    def batch(self, meta: Table) -> Table | None:
        """Return copies of the samples that these metadata name, with the metadata added, without a loop over samples.

        Returns:
            None if a sample is not in the column store, or the metadata are not columns of names and integers;
            `pick_sample` then returns each sample, or raises with the reason.
        """
        columns = meta.columns
        if "unroll_split_begin" in columns:
            return None
        index, names = _indices(columns, len(meta)), chunks_of(meta)
        if index is None or len(names) < len(meta):
            return None
        with self._lock:
            kept = [self._chunks.get(name) for name in names]
            found = [chunk for chunk in kept if chunk is not None and chunk.samples is None]
            if len(found) < len(kept) or self._columns is None:
                return None
            spans = np.array([(chunk.start, chunk.count) for chunk in found], np.int64)
            if not ((index >= 0) & (index < spans[:, 1])).all():
                return None
            return Table({**self._columns.gather(spans[:, 0] + index), **columns}, size=len(meta))

    def trim(self) -> None:
        """Drop the chunks over the budget, and those that were not read for long."""
        with self._lock:
            while len(self._chunks) > 1 and (self._size_bytes > self._budget_bytes or self._is_oldest_stale()):
                _, oldest = self._chunks.popitem(last=False)
                self._size_bytes -= oldest.size_bytes
                if oldest.samples is None and self._columns is not None:
                    self._columns.remove(np.arange(oldest.start, oldest.start + oldest.count))

    def _is_oldest_stale(self) -> bool:
        oldest = next(iter(self._chunks.values()))
        return self._uses - oldest.last_use > _MISSED_TURNS * max(len(self._chunks), _FEW_CHUNKS)

    def clear(self) -> None:
        """Drop all chunks."""
        with self._lock:
            self._chunks.clear()
            self._size_bytes = self._end = 0
            self._columns = None

    # ---- the column store, under the lock

    def _samples_of(self, kept: _CachedChunk) -> list[Any]:
        if kept.samples is not None:
            return kept.samples
        assert self._columns is not None
        return Samples(Table(self._columns.gather(np.arange(kept.start, kept.start + kept.count)), size=kept.count))

    def _write(self, samples: list[Any]) -> int | None:
        """Write a chunk to the column store; return its first slot, or None if it does not fit there."""
        table = table_of(samples)
        if table is None:
            return None
        if not any(chunk.samples is None for chunk in self._chunks.values()):
            self._columns = None  # empty: a new one takes any columns
        if self._columns is not None and not self._columns.accepts(table.columns):
            return None
        if self._columns is None or self._end + len(samples) > self._columns.size:
            self._grow(len(samples), sum(column.itemsize for column in columns_of(table.columns)))
        assert self._columns is not None
        start, self._end = self._end, self._end + len(samples)
        self._columns.put(table)
        return start

    def _grow(self, count: int, sample_bytes: int) -> None:
        """Move the cached samples to a new store, with slots for as many samples again and `count` more."""
        old, kept = self._columns, [chunk for chunk in self._chunks.values() if chunk.samples is None]
        self._end = sum(chunk.count for chunk in kept)
        least = min(_LEAST_SLOTS, _LEAST_BYTES // max(1, sample_bytes))
        self._columns = ColumnStore(max(least, 2 * (self._end + count)), _logger)
        if old is None or not kept:
            return
        kept.sort(key=lambda chunk: chunk.start)
        self._columns.put(Table(old.gather_shared(old.occupied()), size=self._end))
        start = 0
        for chunk in kept:
            chunk.start, start = start, start + chunk.count


def _indices(columns: Mapping[str, Node], size: int) -> IntArray | None:
    """Return the indices [size] of samples in their chunks, 0 by default; None if they are not plain integers."""
    column = columns.get(DATA_INDEX)
    if column is None:
        return np.zeros(size, np.int64)
    if not isinstance(column, Column) or column.kind is not Kind.INT or column.steps:
        return None
    index: IntArray = column.values()
    return index


def pick_sample(samples: list[Any], meta: Mapping[str, Any]) -> Any:
    """Return the sample at `data_index` (0 by default) with `meta` added, or a part of a long trajectory.

    Such a part begins at `unroll_split_begin` and has `unroll_len` steps (1 by default); one step is returned as a
    dict.

    Raises:
        ValueError: the indices are out of range or not integers, or the sample is not made of dicts.
    """
    begin, length = meta.get("unroll_split_begin", meta.get(DATA_INDEX, 0)), 1
    if "unroll_split_begin" in meta:
        length = meta.get("unroll_len", 1)
    if not (isinstance(begin, int) and isinstance(length, int)):
        raise ValueError(f"{begin!r} and {length!r} are not indices of samples in the chunk {meta.get(DATA_ID)!r}")
    if not 0 <= begin < begin + length <= len(samples):
        raise ValueError(
            f"the chunk {meta.get(DATA_ID)!r} has {len(samples)} samples; it has no sample {begin + length - 1}"
        )
    return with_meta(samples[begin] if length == 1 else samples[begin : begin + length], meta)


def with_meta(sample: Any, meta: Mapping[str, Any]) -> Any:
    """Return a copy of `sample` (a dict, or a list of dicts) with the keys of `meta` added.

    Raises:
        ValueError: `sample` is neither.
    """
    if isinstance(sample, list):
        return [with_meta(step, meta) for step in sample]
    if not isinstance(sample, dict):
        raise ValueError(f"the chunk {meta.get(DATA_ID)!r} holds a {type(sample).__name__} instead of a sample")
    return {**sample, **meta}
