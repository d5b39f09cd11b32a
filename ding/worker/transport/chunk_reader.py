"""Samples by their metadata: each chunk is read and decoded once, as long as a byte budget lasts."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ding.data.column_store import ColumnStore
from ding.utils.data.samples import Column, Kind, Node, Samples, columns_of
from ding.utils.segment_tree import IntArray
from ding.worker.transport.chunk import decode_chunk
from ding.worker.transport.ledger import DATA_ID, chunks_of
from ding.worker.transport.stores import SampleStore

DATA_INDEX = "data_index"
# A chunk that was not asked for while each of the others could have been so many times is not in the buffer any more:
# of one that is, a uniform draw misses so many times in a row with a chance of e^-8.
_MISSED_TURNS = 8
_FEW_CHUNKS = 8
# Of the smallest column store: slots, and bytes that these may take where samples are large.
_LEAST_SLOTS, _LEAST_BYTES = 1024, 64 * 2**20

_logger = logging.getLogger("ding")


@dataclass(slots=True)
class _Kept:
    """A chunk: `count` slots of the column store from `start` on; or a list, where it does not fit there."""

    samples: list[Any] | None
    start: int
    count: int
    size_bytes: int
    last_use: int


class ChunkReader:
    """Reads samples out of a store. Thread-safe.

    Chunks in columns that are alike share one column store, so that a batch is one gather for each column.

    Args:
        store: where the chunks lie.
        budget_bytes: encoded size of the chunks that are kept decoded after a call of `sample` or `trim`; the least
            recently used ones go first, and the newest stays however large it is. Chunks that nobody has asked for in a
            long time go in any case. The column store has at most twice as many slots as there were samples to keep.
    """

    def __init__(self, store: SampleStore, budget_bytes: int = 256 * 2**20) -> None:
        if budget_bytes < 0:
            raise ValueError(f"budget_bytes = {budget_bytes} is not allowed; it must be at least 0")
        self._store = store
        self._budget_bytes = budget_bytes
        self._chunks: OrderedDict[str, _Kept] = OrderedDict()
        self._size_bytes = self._uses = 0
        self._columns: ColumnStore | None = None
        self._end = 0  # the slot of `_columns` that is written next; what was written before is not written again
        self._lock = threading.Lock()

    @property
    def size_bytes(self) -> int:
        """Encoded size of what is kept."""
        return self._size_bytes

    def sample(self, meta: Mapping[str, Any]) -> Any:
        """The sample that `meta` names by `data_id` and `compressor` (`none`), and which `pick_sample` finds there.

        A dict comes as a new dict with what is in `meta` added, a list of dicts as a new list of such dicts. Their
        tensors and arrays may be shared with other calls: treat them as read-only.

        Raises:
            FileNotFoundError, OSError, KeyError: see `keep`.
            ValueError: the chunk is damaged, or has no such sample.
        """
        samples = self.samples(meta[DATA_ID], meta.get("compressor", "none"))
        self.trim()
        return pick_sample(samples, meta)

    def samples(self, name: str, compressor: str = "none") -> list[Any]:
        """All samples of a chunk, for reading only; it is kept until the next `trim` at least.

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
        return self.samples(name, compressor)  # cleared in between

    def keep(self, name: str, compressor: str = "none") -> list[Any] | None:
        """Read a chunk, unless it is kept, and keep it until the next `trim` at least.

        Returns:
            its samples, for reading only, if it was read now.

        Raises:
            FileNotFoundError: the chunk is gone.
            OSError: it cannot be read.
            KeyError: there is no such compressor.
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
                self._chunks[name] = _Kept(held, start or 0, len(samples), len(data), self._uses)
                self._size_bytes += len(data)
        return samples

    def batch(self, meta: Samples) -> Samples | None:
        """The samples that these metadata name, with the metadata added, as copies; without looking at one.

        Returns:
            None where not all of them are in the column store, or the metadata are no plain columns of names and
            numbers; `pick_sample` then finds each, or tells what is wrong with it.
        """
        columns = meta.columns
        if columns is None or "unroll_split_begin" in columns:
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
            return Samples({**self._columns.gather(spans[:, 0] + index), **columns}, size=len(meta))

    def trim(self) -> None:
        """Let go of the chunks that are too many, or forgotten."""
        with self._lock:
            while len(self._chunks) > 1 and (self._size_bytes > self._budget_bytes or self._is_oldest_forgotten()):
                _, oldest = self._chunks.popitem(last=False)
                self._size_bytes -= oldest.size_bytes
                if oldest.samples is None and self._columns is not None:
                    self._columns.remove(np.arange(oldest.start, oldest.start + oldest.count))

    def _is_oldest_forgotten(self) -> bool:
        oldest = next(iter(self._chunks.values()))
        return self._uses - oldest.last_use > _MISSED_TURNS * max(len(self._chunks), _FEW_CHUNKS)

    def clear(self) -> None:
        """Keep nothing."""
        with self._lock:
            self._chunks.clear()
            self._size_bytes = self._end = 0
            self._columns = None

    # ---- the column store, under the lock

    def _samples_of(self, kept: _Kept) -> list[Any]:
        if kept.samples is not None:
            return kept.samples
        assert self._columns is not None
        return Samples(self._columns.gather(np.arange(kept.start, kept.start + kept.count)), size=kept.count)

    def _write(self, samples: list[Any]) -> int | None:
        """Write a chunk to the column store; returns its first slot, None where it does not fit there."""
        columns = samples.columns if isinstance(samples, Samples) else None
        if columns is None:
            return None
        if not any(chunk.samples is None for chunk in self._chunks.values()):
            self._columns = None  # any columns will do
        if self._columns is not None and not self._columns.accepts(columns):
            return None
        if self._columns is None or self._end + len(samples) > self._columns.size:
            self._make_room(len(samples), sum(column.itemsize for column in columns_of(columns)))
        assert self._columns is not None
        start, self._end = self._end, self._end + len(samples)
        self._columns.put(Samples(columns, size=len(samples)))
        return start

    def _make_room(self, count: int, sample_bytes: int) -> None:
        """Move what is kept to a new store, with room for as many samples again, and `count` more."""
        old, kept = self._columns, [chunk for chunk in self._chunks.values() if chunk.samples is None]
        self._end = sum(chunk.count for chunk in kept)
        least = min(_LEAST_SLOTS, _LEAST_BYTES // max(1, sample_bytes))
        self._columns = ColumnStore(max(least, 2 * (self._end + count)), _logger)
        if old is None or not kept:
            return
        kept.sort(key=lambda chunk: chunk.start)
        self._columns.put(Samples(old.gather_shared(old.occupied()), size=self._end))
        start = 0
        for chunk in kept:
            chunk.start, start = start, start + chunk.count


def _indices(columns: Mapping[str, Node], size: int) -> IntArray | None:
    """The numbers [size] of samples in their chunks, 0 by default; None where they are no plain integers."""
    column = columns.get(DATA_INDEX)
    if column is None:
        return np.zeros(size, np.int64)
    if not isinstance(column, Column) or column.kind is not Kind.INT or column.steps:
        return None
    index: IntArray = column.values()
    return index


def pick_sample(samples: list[Any], meta: Mapping[str, Any]) -> Any:
    """The one at `data_index` (0), with `meta` added to it; or the part of a long trajectory that `meta` names.

    Such a part begins at `unroll_split_begin` and has `unroll_len` (1) steps; a single one comes as a dict.

    Raises:
        ValueError: there are not so many, `meta` has no numbers, or it is not made of dicts.
    """
    begin, length = meta.get("unroll_split_begin", meta.get(DATA_INDEX, 0)), 1
    if "unroll_split_begin" in meta:
        length = meta.get("unroll_len", 1)
    if not (isinstance(begin, int) and isinstance(length, int)):
        raise ValueError(f"{begin!r} and {length!r} do not number samples of the chunk {meta.get(DATA_ID)!r}")
    if not 0 <= begin < begin + length <= len(samples):
        raise ValueError(
            f"the chunk {meta.get(DATA_ID)!r} has {len(samples)} samples, there is no sample {begin + length - 1}"
        )
    return with_meta(samples[begin] if length == 1 else samples[begin : begin + length], meta)


def with_meta(sample: Any, meta: Mapping[str, Any]) -> Any:
    """A copy of `sample` (a dict, or a list of dicts) that also has the keys of `meta`.

    Raises:
        ValueError: it is something else.
    """
    if isinstance(sample, list):
        return [with_meta(step, meta) for step in sample]
    if not isinstance(sample, dict):
        raise ValueError(f"the chunk {meta.get(DATA_ID)!r} holds a {type(sample).__name__} in place of a sample")
    return {**sample, **meta}
