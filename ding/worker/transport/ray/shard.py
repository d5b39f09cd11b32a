"""One shard of a replay buffer, which holds the samples; `ShardedReplay` draws from all shards."""

from __future__ import annotations

import secrets
import struct
import threading
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ding.data.buffer.deque_buffer_wrapper import DequeBufferWrapper
from ding.utils.config_helper import of_compiled_config
from ding.utils.data.samples import Items, Table, columns_of, listed, part_of, table_of, whole_of
from ding.utils.file_helper import atomic_write
from ding.utils.msgpack_helper import pack, unpack
from ding.worker.replay_buffer.base_buffer import create_buffer
from ding.worker.transport.chunk import decode_chunk, encode_chunk
from ding.worker.transport.chunk_reader import DATA_INDEX, pick_sample
from ding.worker.transport.ray.split import PRIORITIZED, limits_pushes, shard_config, split_of

# The key under which a sample that is a list of steps is stored, beside its metadata.
STEPS = "__steps__"
# Samples that are pushed at once to a buffer that limits the rate: it accepts all of them or none.
_LIMITED_PUSH = 64
# The header of a file: the format with its version, and the checksum of the rest.
_HEAD, _MAGIC = struct.Struct("<16sI"), b"ding-replay-v001"


class ShardLost(ConnectionError):
    """The process of a shard has died, and its samples are lost. The next call may reach its replacement."""


class ShardClosed(ConnectionError):
    """The buffer is closed, and its shards with it."""


class Shard(Protocol):
    """A client of one shard."""

    @property
    def name(self) -> str:
        """The name of the shard, for messages."""

    def call(self, method: str, *args: Any) -> Future[Any]:
        """Call a method of `ReplayShard`, without waiting for the result.

        The future raises ShardLost, ShardClosed, or what the method raises.
        """


class ClosedShard:
    """A client of a shard that is closed: all calls raise ShardClosed."""

    def __init__(self, name: str) -> None:
        self.name = name

    def call(self, method: str, *args: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_exception(ShardClosed(f"the shard {self.name} of a replay buffer is closed"))
        return future


class ReplayShard:
    """A replay buffer, or one part of it, which stores samples with their metadata. Thread-safe.

    Arguments and results are bytes and plain values. Nothing in them is executed.

    Args:
        cfg: config of the whole buffer.
        exp_name: folder of the experiment, for the logs.
        index, shards: the number of this shard, and how many there are.

    Attributes:
        life: a random id. A shard that replaces a lost one has another.
    """

    def __init__(self, cfg: Mapping[str, Any], exp_name: str, index: int, shards: int) -> None:
        self.life = secrets.token_hex(4)
        self._cfg, self._exp_name = cfg, exp_name
        self._index, self._shards = index, shards
        self._is_prioritized = split_of(cfg, shards).kind == PRIORITIZED
        self._limits_pushes = limits_pushes(cfg)
        self._buffer: Any = None
        self._changed = threading.Condition(threading.RLock())
        self._pushes = 0
        self._is_closed = False

    def open(self) -> str:
        """Create the buffer, unless it exists; returns `life`.

        Raises:
            ConfigError: the config of the buffer is wrong.
            ShardClosed: the shard is closed.
        """
        with self._changed:
            if self._is_closed:
                raise ShardClosed(f"shard {self._index} of the replay buffer is closed")
            if self._buffer is None:
                # A single shard has the name of a buffer without shards.
                name = {} if self._shards == 1 else {"instance_name": f"buffer_shard{self._index}"}
                cfg = shard_config(self._cfg, self._index, self._shards)
                with of_compiled_config():
                    self._buffer = create_buffer(cfg, exp_name=self._exp_name, **name)
                self._buffer.start()
        return self.life

    def push(self, parts: Sequence[tuple[bytes, bytes, str]]) -> int:
        """Store samples.

        Args:
            parts: for each chunk its samples and their metadata, both encoded by `encode_chunk`, and the compressor of
                the samples; metadata are not compressed.

        Returns:
            the number of samples that were stored. A buffer that limits the rate of pushes may refuse some.

        Raises:
            ValueError: the bytes are damaged, or samples are missing; nothing is stored.
        """
        self.open()
        items = listed(whole_of([_decoded(*part) for part in parts]))
        step = _LIMITED_PUSH if self._limits_pushes else len(items)
        taken = 0
        with self._changed:
            for start in range(0, len(items), step):
                taken += self._push(part_of(items, start, start + step))
            self._pushes += 1
            self._changed.notify_all()
        return taken

    def _push(self, items: list[Any]) -> int:
        taken: int | None = self._buffer.push(items, -1)
        return len(items) if taken is None else taken  # buffers of users may return nothing

    def wait(self, pushes: int, timeout_s: float) -> int:
        """Wait for more than `pushes` pushes, or for `close`; returns the number of pushes so far."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._pushes > pushes, timeout_s)
            return self._pushes

    def plan(self, cur_learner_iter: int, max_priority: float, updates: Sequence[bytes]) -> dict[str, Any]:
        """Set priorities and remove stale items; returns what there is to draw from.

        Args:
            max_priority: the largest priority that was set in any shard. Items that are pushed without one get it.
            updates: each `pack({'life', 'info'})`. Updates of another life are ignored: their items are lost.
        """
        self.open()
        buffer = self._buffer
        with self._changed:
            for update in map(unpack, updates):
                if update["life"] == self.life:
                    buffer.update(update["info"])
            facts = {"life": self.life, "pushes": self._pushes}
            if not self._is_prioritized:
                return {**facts, "count": buffer.count()}
            buffer.max_priority = max(buffer.max_priority, max_priority)
            stock = buffer.stock(cur_learner_iter)._asdict()
            return {**facts, **stock, "count": stock["size"], "beta": buffer.beta}

    def draw(
        self, sizes: Sequence[int], cur_learner_iter: int, betas: Sequence[float], least_weight: float
    ) -> dict[str, Any]:
        """Draw parts of several batches, without checking any limit.

        Args:
            sizes: the size of each part.
            betas: the exponent of the importance weights of each part.
            least_weight: the smallest weight in all shards.

        Returns:
            `life`; the `sizes` that were drawn, smaller if there are too few items; and `samples`, see `encode_chunk`.
        """
        self.open()
        parts = []
        with self._changed:
            for size, beta in zip(sizes, betas, strict=True):
                parts.append(self._draw(size, cur_learner_iter, beta, least_weight))
        return self._reply(parts)

    def _draw(self, size: int, cur_learner_iter: int, beta: float, least_weight: float) -> list[Any]:
        count = self._buffer.count()
        if not (size and count):
            return []
        if self._is_prioritized:
            self._buffer.beta = beta
            drawn: list[Any] = self._buffer.draw(size, cur_learner_iter, least_weight)
        else:
            drawn = self._buffer.sample(min(size, count), cur_learner_iter)
        return drawn

    def sample(
        self, batch_size: int, count: int, cur_learner_iter: int, max_priority: float, updates: Sequence[bytes]
    ) -> dict[str, Any]:
        """Draw up to `count` batches from a single shard, as its buffer does; several shards use `draw`."""
        facts = self.plan(cur_learner_iter, max_priority, updates)
        batches: list[list[Any]] = []
        with self._changed:
            while len(batches) < count and (batch := self._sample(batch_size, cur_learner_iter)) is not None:
                batches.append(batch)
            facts["count"] = self._buffer.count()
        return {**facts, **self._reply(batches)}

    def _sample(self, batch_size: int, cur_learner_iter: int) -> list[Any] | None:
        buffer = self._buffer
        if isinstance(buffer, DequeBufferWrapper) and buffer.count() < batch_size:
            return None  # the buffer would warn each time
        batch: list[Any] | None = buffer.sample(batch_size, cur_learner_iter)
        return batch

    def _reply(self, parts: Sequence[list[Any]]) -> dict[str, Any]:
        samples = whole_of([part for part in parts if part])
        encoded = encode_chunk(samples, "none") if samples else b""
        return {"life": self.life, "sizes": [len(part) for part in parts], "samples": encoded}

    def save(self, path: str) -> int:
        """Write the buffer to a file atomically; returns the number of samples.

        Raises:
            OSError: the file cannot be written.
            TypeError: buffers of this type cannot be saved.
        """
        self.open()
        if not hasattr(self._buffer, "freeze"):
            raise TypeError(f"a {type(self._buffer).__name__} cannot be saved: it has no method freeze")
        with self._changed:
            content, count = self._buffer.freeze(), int(self._buffer.count())
        body = zlib.compress(pack(content), 1)
        with atomic_write(path) as file:
            file.write(_HEAD.pack(_MAGIC, zlib.crc32(body)))
            file.write(body)
        return count

    def load(self, path: str) -> int:
        """Replace the content of the buffer by that of a file that `save` wrote; returns the number of samples.

        Raises:
            FileNotFoundError: the file does not exist.
            ValueError: it is damaged, or does not match the config.
        """
        self.open()
        content = memoryview(Path(path).read_bytes())
        head, body = content[: _HEAD.size], content[_HEAD.size :]
        if len(head) < _HEAD.size or _HEAD.unpack(head) != (_MAGIC, zlib.crc32(body)):
            raise ValueError(f"{path} is damaged, or is not a saved shard of a replay buffer")
        state = unpack(zlib.decompress(body))
        with self._changed:
            self._buffer.load_state_dict(state)
            self._pushes += 1
            self._changed.notify_all()
            return int(self._buffer.count())

    def close(self) -> None:
        """Close the buffer and end all waits. Idempotent."""
        with self._changed:
            self._is_closed = True
            if self._buffer is not None:
                self._buffer.close()
            self._changed.notify_all()


def _decoded(data: bytes, rows: bytes, compressor: str) -> Items:
    return with_metadata(decode_chunk(data, compressor), decode_chunk(rows, "none"))


def with_metadata(samples: list[Any], rows: list[Any]) -> Items:
    """The samples that `rows` name, with their metadata except for `data_index`, as buffers store them.

    Raises:
        ValueError: the chunk has no such samples.
    """
    table, meta = table_of(samples), table_of(rows)
    if (
        table is None
        or meta is None
        or "unroll_split_begin" in meta.columns
        or not _is_in_order(meta.columns, len(table), len(meta))
    ):
        return [_storable(pick_sample(samples, row)) for row in rows]
    return Table({**table.columns, **meta.without(DATA_INDEX).columns}, size=len(table))


def _is_in_order(meta: Mapping[str, Any], samples: int, rows: int) -> bool:
    """Whether the rows describe all samples of a chunk in order."""
    if samples != rows or DATA_INDEX not in meta:
        return samples == rows == 1
    (column,) = columns_of(meta[DATA_INDEX])
    return bool(np.array_equal(column.values(), np.arange(rows)))


def _storable(sample: Any) -> dict[str, Any]:
    if isinstance(sample, list):
        return {**{key: value for key, value in sample[0].items() if key in _OF_LISTS}, STEPS: sample}
    return {key: value for key, value in sample.items() if key != DATA_INDEX}


# The metadata of a list of steps that buffers read.
_OF_LISTS = ("priority", "collect_iter")
