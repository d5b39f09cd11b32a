"""Samples by their metadata: each chunk is read and decoded once, as long as a byte budget lasts."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ding.worker.transport.chunk import decode_chunk
from ding.worker.transport.ledger import DATA_ID
from ding.worker.transport.stores import SampleStore

DATA_INDEX = "data_index"
# A chunk that was not asked for while each of the others could have been so many times is not in the buffer any more:
# of one that is, a uniform draw misses so many times in a row with a chance of e^-8.
_MISSED_TURNS = 8
_FEW_CHUNKS = 8


@dataclass(slots=True)
class _Kept:
    samples: list[Any]
    size_bytes: int
    last_use: int


class ChunkReader:
    """Reads samples out of a store. Thread-safe.

    Args:
        store: where the chunks lie.
        budget_bytes: encoded size of the chunks that are kept decoded; the least recently used ones go first, and the
            newest stays however large it is. Chunks that nobody has asked for in a long time go in any case.
    """

    def __init__(self, store: SampleStore, budget_bytes: int = 256 * 2**20) -> None:
        if budget_bytes < 0:
            raise ValueError(f"budget_bytes = {budget_bytes} is not allowed; it must be at least 0")
        self._store = store
        self._budget_bytes = budget_bytes
        self._chunks: OrderedDict[str, _Kept] = OrderedDict()
        self._size_bytes = self._uses = 0
        self._lock = threading.Lock()

    @property
    def size_bytes(self) -> int:
        """Encoded size of what is kept."""
        return self._size_bytes

    def sample(self, meta: Mapping[str, Any]) -> Any:
        """The sample that `meta` names by `data_id` and `compressor` (`none`), and which `pick_sample` finds there.

        A dict comes as a new dict with what is in `meta` added, a list of dicts as a new list of such dicts. Their
        tensors and arrays are shared with other calls: treat them as read-only.

        Raises:
            FileNotFoundError, OSError, KeyError: see `samples`.
            ValueError: the chunk is damaged, or has no such sample.
        """
        return pick_sample(self.samples(meta[DATA_ID], meta.get("compressor", "none")), meta)

    def samples(self, name: str, compressor: str = "none") -> list[Any]:
        """All samples of a chunk, for reading only.

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
                return known.samples
        data = self._store.read(name)
        samples = decode_chunk(data, compressor)
        with self._lock:
            if name not in self._chunks:
                self._chunks[name] = _Kept(samples, len(data), self._uses)
                self._size_bytes += len(data)
            while len(self._chunks) > 1 and (self._size_bytes > self._budget_bytes or self._is_oldest_forgotten()):
                _, oldest = self._chunks.popitem(last=False)
                self._size_bytes -= oldest.size_bytes
        return samples

    def _is_oldest_forgotten(self) -> bool:
        oldest = next(iter(self._chunks.values()))
        return self._uses - oldest.last_use > _MISSED_TURNS * max(len(self._chunks), _FEW_CHUNKS)

    def clear(self) -> None:
        """Keep nothing."""
        with self._lock:
            self._chunks.clear()
            self._size_bytes = 0


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
