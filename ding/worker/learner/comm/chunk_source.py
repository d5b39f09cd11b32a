"""Reading the batches of a learner task from chunks in a store, and handling chunks that cannot be read."""

from __future__ import annotations

import itertools
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any, TypeVar

import numpy as np

from ding.data.column_store import ColumnStore
from ding.utils.data.samples import (
    Column,
    Items,
    Kind,
    Samples,
    Table,
    columns_of,
    node_items,
    rows_of,
    table_of,
)
from ding.worker.transport.chunk import DATA_ID, DATA_INDEX, chunks_of, decode_chunk, pick_sample
from ding.worker.transport.stores import SampleStore

T = TypeVar("T")

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.01, 0.2


def read_patiently(
    read: Callable[[], T], what: str, timeout_s: float, wait: Callable[[float], bool], since_s: float | None = None
) -> T:
    """Return the result of `read`, which is called repeatedly while the file is missing or damaged.

    Args:
        what: name of the file for the error.
        timeout_s: how long to try, in seconds.
        wait: waits for a number of seconds; returns True if the caller should give up.
        since_s: when the time begins, by `time.monotonic`; by default, with this call.

    Raises:
        FileNotFoundError: the file is still missing.
        ValueError: the file is still damaged, or has invalid content.
    """
    deadline, wait_s = (monotonic() if since_s is None else since_s) + timeout_s, _FIRST_WAIT_S
    while True:
        try:
            return read()
        except (FileNotFoundError, ValueError) as e:
            if monotonic() + wait_s > deadline or wait(wait_s):
                reason = f"the samples {what} could not be read within {timeout_s:g} s: {e}"
                raise (FileNotFoundError if isinstance(e, FileNotFoundError) else ValueError)(reason) from e
        wait_s = min(2 * wait_s, _LONGEST_WAIT_S)


# When the cached chunks have become this many times as many, and a few more, the store is asked which of them still
# exist: a deleted chunk has left the buffer, and no batch needs it.
_GROWTH, _FEW_CHUNKS = 1.5, 8
# The slots of the smallest column store, and the bytes that they may take if samples are large.
_LEAST_SLOTS, _LEAST_BYTES = 1024, 64 * 2**20

_logger = logging.getLogger("ding")


@dataclass(slots=True)
class _CachedChunk:
    """A cached chunk, in the column store (its first slot, number of slots) or, if it does not fit, in a list."""

    samples: list[Any] | None
    span: tuple[int, int]
    size_bytes: int


class ChunkReader:
    """A reader of samples from a store, with a cache. This class is thread-safe.

    Chunks with equal columns share one column store, so that a batch takes one gather for each column.

    Args:
        store: the store of the chunks.
        budget_bytes: the encoded size of the chunks that stay cached after `sample` or `trim`. The least recently used
            ones are dropped first, the newest one never. Chunks that no longer exist are dropped in any case.
            The column store has at most twice as many slots as it had samples to hold.
    """

    def __init__(self, store: SampleStore, budget_bytes: int = 256 * 2**20) -> None:
        if budget_bytes < 0:
            raise ValueError(f"budget_bytes = {budget_bytes} is not allowed; it must be at least 0")
        self._store = store
        self._budget_bytes = budget_bytes
        self._chunks: OrderedDict[str, _CachedChunk] = OrderedDict()  # the least recently used first
        self._limit = float(_FEW_CHUNKS)  # the number of chunks at which the store is asked which of them exist
        self._size_bytes = 0
        self._columns: ColumnStore | None = None
        self._end = 0  # the slot of `_columns` to write next; written slots are not reused
        self._lock = threading.Lock()

    def samples(self, name: str, compressor: str = "none") -> list[Any]:
        """Return all samples of a chunk, read-only; it stays cached until the next `trim` at least.

        Raises:
            FileNotFoundError, OSError, KeyError, ValueError: see `read`.
        """
        with self._lock:
            cached = self._chunks.get(name)
            if cached is not None:
                self._chunks.move_to_end(name)
                if cached.samples is not None:
                    return cached.samples
                assert self._columns is not None
                start, count = cached.span
                return Samples(Table(self._columns.gather(np.arange(start, start + count)), size=count))
        return self.read(name, compressor)

    def missing(self, names: Iterable[str]) -> list[str]:
        """Return the chunks that are not cached; the others stay cached until the next `trim` at least."""
        chunks = self._chunks
        missing: dict[str, None] = {}
        with self._lock:
            for name in names:
                if name in chunks:
                    chunks.move_to_end(name)
                else:
                    missing[name] = None
        return list(missing)

    def read(self, name: str, compressor: str = "none") -> list[Any]:
        """Read a chunk, which stays cached until the next `trim` at least; return its samples, read-only.

        Raises:
            FileNotFoundError: the chunk was deleted.
            OSError: it cannot be read.
            KeyError: the compressor is unknown.
            ValueError: the chunk is damaged, or `name` leads out of the store.
        """
        data = self._store.read(name)
        samples = decode_chunk(data, compressor)
        with self._lock:
            if name not in self._chunks:
                span = self._write(samples)
                self._chunks[name] = _CachedChunk(samples if span is None else None, span or (0, 0), len(data))
                self._size_bytes += len(data)
        return samples

    def batch(self, meta: Table, names: Sequence[str]) -> Table | None:
        """Return copies of the samples of these metadata, with the metadata added, without a loop over samples.

        Args:
            names: the chunks of the samples.

        Returns:
            The batch. None if a sample is not in the column store, or the metadata are not columns of names and
            integers; `pick_sample` then returns each sample, or raises with the reason.
        """
        columns, index = meta.columns, np.zeros(len(meta), np.int64)
        if "unroll_split_begin" in columns:
            return None
        if DATA_INDEX in columns:
            column = columns[DATA_INDEX]
            if not isinstance(column, Column) or column.kind is not Kind.INT or column.steps:
                return None
            index = column.values()
        with self._lock:
            try:
                spans = np.array([self._chunks[name].span for name in names], np.int64)
            except KeyError:
                return None
            if self._columns is None or not ((index >= 0) & (index < spans[:, 1])).all():
                return None
            return Table({**self._columns.gather(spans[:, 0] + index), **columns}, size=len(meta))

    def trim(self) -> None:
        """Drop the chunks above the budget, and those that no longer exist."""
        with self._lock:
            if len(self._chunks) > self._limit:
                for name in self._chunks.keys() - self._store.names(self._chunks):
                    self._drop(name)
                self._limit = _GROWTH * len(self._chunks) + _FEW_CHUNKS
            while len(self._chunks) > 1 and self._size_bytes > self._budget_bytes:
                self._drop(next(iter(self._chunks)))

    def clear(self) -> None:
        """Drop all chunks."""
        with self._lock:
            self._chunks.clear()
            self._size_bytes = self._end = 0
            self._columns = None

    # ---- the column store, under the lock

    def _drop(self, name: str) -> None:
        chunk = self._chunks.pop(name)
        self._size_bytes -= chunk.size_bytes
        if chunk.samples is None and self._columns is not None:
            start, count = chunk.span
            self._columns.remove(np.arange(start, start + count))

    def _write(self, samples: list[Any]) -> tuple[int, int] | None:
        """Write a chunk to the column store; return its first slot and its size, or None if it does not fit there."""
        table = table_of(samples)
        if table is None:
            return None
        if not any(chunk.samples is None for chunk in self._chunks.values()):
            self._columns = None  # it is empty: a new one takes any columns
        if self._columns is not None and not self._columns.accepts(table.columns):
            return None
        if self._columns is None or self._end + len(samples) > self._columns.size:
            self._grow(len(samples), sum(column.itemsize for column in columns_of(table.columns)))
        assert self._columns is not None
        start, self._end = self._end, self._end + len(samples)
        self._columns.put(table)
        return start, len(samples)

    def _grow(self, count: int, sample_bytes: int) -> None:
        """Move the cached samples to a new store, with slots for as many samples again and `count` more."""
        old, kept = self._columns, [chunk for chunk in self._chunks.values() if chunk.samples is None]
        self._end = sum(chunk.span[1] for chunk in kept)
        least = min(_LEAST_SLOTS, _LEAST_BYTES // max(1, sample_bytes))
        self._columns = ColumnStore(max(least, 2 * (self._end + count)), _logger)
        if old is None or not kept:
            return
        kept.sort(key=lambda chunk: chunk.span)
        self._columns.put(Table(old.gather_shared(old.occupied()), size=self._end))
        start = 0
        for chunk in kept:
            chunk.span = start, chunk.span[1]
            start += chunk.span[1]


Rows = list[dict[str, Any]]
# Errors of a file or of its metadata; any other error is a fault of this program.
_BAD_FILE = (OSError, ValueError, KeyError, MemoryError)
# The wait for a late file, after many that did not come.
_LEAST_PATIENCE_S = 0.1


class ChunkSource:
    """The source of the samples of a learner task, which reads the batches whose metadata the coordinator sends.

    The readable samples of incomplete batches are collected until they make up a whole batch. So every batch has the
    requested size, and each readable sample is trained on as often as it was drawn. Only one thread may call `load`;
    other threads may read `bad_files` and `error`.

    Args:
        timeout_s: how long to wait for late files, for each batch. A file that was unreadable once gets no more time,
            and halves the time for others.
        wait: waits for a number of seconds; returns True if the loader should give up.
        threads: number of threads that read the files of a batch; one file at a time if it is at most 1.

    Attributes:
        bad_files: names of the chunks that could not be read, or lacked a sample.
        error: the error of the last such chunk.
        warn: called once for each such chunk.
    """

    def __init__(self, reader: ChunkReader, timeout_s: float, wait: Callable[[float], bool], threads: int = 0) -> None:
        self.bad_files: set[str] = set()
        self.error: Exception | None = None
        self.warn: Callable[[str], Any] = lambda text: None
        self._reader, self._wait, self._patience_s = reader, wait, timeout_s
        self._left_over: list[Any] = []
        self._pool = ThreadPoolExecutor(threads, "learner_reader") if threads > 1 else None

    def load(self, rows: Rows) -> tuple[list[Any] | None, int]:
        """Read the samples of a batch.

        Args:
            rows: metadata of the samples, with `data_id`.

        Returns:
            A batch of the same size, or None if there is none now; and how many of the samples were readable.

        Raises:
            ValueError: a sample has no `data_id`.
        """
        meta = Table.of(rows)
        if not (
            all(isinstance(row, dict) and DATA_ID in row for row in rows) if meta is None else DATA_ID in meta.columns
        ):
            raise ValueError(f"the coordinator has sent a batch without {DATA_ID} in each sample: {str(rows)[:200]}")
        names = chunks_of(rows if meta is None else meta)
        missing, begin_s = self._reader.missing(names), monotonic()
        compressors = dict(zip(names, _compressors(rows if meta is None else meta), strict=False)) if missing else {}
        jobs = [partial(self._read, name, compressors[name], begin_s) for name in missing]
        try:
            read = [job() for job in jobs] if self._pool is None else list(self._pool.map(partial.__call__, jobs))
        except (CancelledError, RuntimeError):
            if self._wait(0.0):  # the pool is shut down
                return None, 0
            raise
        if self._wait(0.0):  # files that were not read may be readable
            return None, 0
        errors = {name: error for name, error in zip(missing, read, strict=True) if error is not None}
        whole = None if meta is None or errors else self._reader.batch(meta, names)
        samples = self._pick(rows, errors) if whole is None else Samples(whole)
        self._reader.trim()
        if len(samples) == len(rows):
            return samples, len(rows)
        self._left_over += samples
        if len(self._left_over) < len(rows):
            return None, len(samples)
        batch, self._left_over = self._left_over[: len(rows)], self._left_over[len(rows) :]
        return batch, len(samples)

    def _read(self, name: str, compressor: str, begin_s: float) -> Exception | None:
        """Have the reader cache a chunk; return the error if it fails."""
        timeout_s = 0.0 if name in self.bad_files else self._patience_s
        try:
            read_patiently(partial(self._reader.read, name, compressor), repr(name), timeout_s, self._wait, begin_s)
        except _BAD_FILE as e:
            return e
        return None

    def _pick(self, rows: Rows, errors: Mapping[str, Exception]) -> list[Any]:
        """Return the readable samples, picked one by one."""
        chunks: dict[str, list[Any]] = {}
        samples = []
        for row in rows:
            name = row[DATA_ID]
            try:
                if name in errors:
                    raise errors[name]
                if name not in chunks:
                    chunks[name] = self._reader.samples(name, str(row.get("compressor", "none")))
                samples.append(pick_sample(chunks[name], row))
            except _BAD_FILE as e:
                self.error = e
                if name not in self.bad_files:
                    self.bad_files.add(name)
                    self._patience_s = max(self._patience_s / 2, min(self._patience_s, _LEAST_PATIENCE_S))
                    self.warn(f"the chunk {name!r} is bad, its samples are skipped: {e}")
        return samples

    def stop(self) -> None:
        """Release the samples, and end the threads. Further calls do nothing."""
        self._left_over.clear()
        self._reader.clear()
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


def _compressors(rows: Items) -> Iterable[str]:
    """Return the compressors of the chunks of these samples."""
    table = table_of(rows)
    if table is None:
        return [str(row.get("compressor", "none")) for row in rows_of(rows)]
    columns = table.columns
    return map(str, node_items(columns["compressor"])) if "compressor" in columns else itertools.repeat("none")
