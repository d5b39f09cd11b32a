"""One shard of a replay buffer, which holds the samples; `ShardedReplay` draws from all shards."""

from __future__ import annotations

import math
import os
import secrets
import struct
import threading
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from easydict import EasyDict

from ding.data.buffer.deque_buffer_wrapper import DequeBufferWrapper
from ding.utils.config_helper import ConfigError, of_compiled_config
from ding.utils.data.samples import Items, Table, columns_of, listed, part_of, rows_of, table_of, whole_of
from ding.utils.default_helper import deep_merge_dicts
from ding.utils.file_helper import atomic_write
from ding.utils.msgpack_helper import pack, unpack
from ding.worker.replay_buffer.advanced_buffer import AdvancedReplayBuffer
from ding.worker.replay_buffer.base_buffer import check_prefetching, create_training_buffer, get_buffer_cls
from ding.worker.replay_buffer.naive_buffer import NaiveReplayBuffer
from ding.worker.transport.chunk import DATA_INDEX, decode_chunk, encode_chunk, pick_sample

# The key under which a sample that is a list of steps is stored, beside its metadata.
STEPS = "__steps__"
# How many samples are pushed at once to a buffer that limits the rate: it accepts all of them or none.
_LIMITED_PUSH = 64
# The header of a file: the format with its version, and the checksum of the rest.
_HEAD, _MAGIC = struct.Struct("<16sI"), b"ding-replay-v001"


class ShardLost(ConnectionError):
    """The error that a shard's process has died and its samples are lost; the next call may reach its replacement."""


class ShardClosed(ConnectionError):
    """The error that the buffer is closed, and its shards with it."""


class Shard(Protocol):
    """A client of one shard."""

    @property
    def name(self) -> str:
        """The name of the shard, for messages."""

    def call(self, method: str, *args: Any) -> Future[Any]:
        """Call a method of `ReplayShard`, and return a future of its result.

        The future raises `ShardLost`, `ShardClosed`, or what the method raises.
        """


def call_all(
    shards: Sequence[Shard], method: str, arguments: Sequence[tuple[Any, ...] | None], timeout_s: float
) -> list[Any]:
    """Call a method of all shards at the same time, and return the results.

    The exception of a failed call takes the place of its result, and None that of a shard whose arguments are None.

    Raises:
        TimeoutError: a shard does not answer in time.
    """
    calls = [None if own is None else shard.call(method, *own) for shard, own in zip(shards, arguments, strict=True)]
    wait([call for call in calls if call is not None], timeout_s)
    for shard, call in zip(shards, calls, strict=True):
        if call is not None and not call.done():
            raise TimeoutError(f"the shard {shard.name} did not answer {method!r} within {timeout_s:g} s")
    return [None if call is None else call.exception() or call.result() for call in calls]


class ClosedShard:
    """A client of a shard that is closed; all calls raise `ShardClosed`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def call(self, method: str, *args: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_exception(ShardClosed(f"the shard {self.name} of a replay buffer is closed"))
        return future


class ReplayShard:
    """A replay buffer, or one part of it, which stores samples with their metadata. This class is thread-safe.

    Arguments and results are bytes and plain values; nothing in them is executed.

    Args:
        cfg: config of the whole buffer.
        exp_name: folder of the experiment, for the logs.
        index, shards: the number of this shard, and how many there are.

    Attributes:
        life: a random id; a shard that replaces a lost one has another.
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
        """Create the buffer, unless it exists, and return `life`.

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
                    self._buffer = create_training_buffer(cfg, exp_name=self._exp_name, **name)
        return self.life

    def push(self, chunks: Sequence[tuple[bytes, str]]) -> int:
        """Store samples.

        Args:
            chunks: pairs of samples with their metadata (see `with_metadata`), encoded by `encode_chunk`, and their
                compressor.

        Returns:
            The number of samples that were stored. A buffer that limits the rate of pushes may refuse some.

        Raises:
            ValueError: the bytes are damaged; nothing is stored.
        """
        self.open()
        items = listed(whole_of([decode_chunk(*chunk) for chunk in chunks]))
        step = _LIMITED_PUSH if self._limits_pushes else len(items)
        taken = 0
        with self._changed:
            for start in range(0, len(items), step):
                taken += push_to(self._buffer, part_of(items, start, start + step))
            self._pushes += 1
            self._changed.notify_all()
        return taken

    def wait(self, pushes: int, timeout_s: float) -> int:
        """Wait for more than `pushes` pushes, or for `close`, and return the number of pushes so far."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._pushes > pushes, timeout_s)
            return self._pushes

    def plan(self, cur_learner_iter: int, max_priority: float, updates: Sequence[bytes]) -> dict[str, Any]:
        """Set priorities, remove stale items, and return what there is to draw from.

        Args:
            max_priority: the largest priority that was set in any shard; items that are pushed without one get it.
            updates: updates as `pack({'life', 'info'})`. Those of another life are ignored, as their items are lost.
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
            own = buffer.sampling_facts(cur_learner_iter)._asdict()
            return {**facts, **own, "count": own["size"], "beta": buffer.beta}

    def draw(
        self, sizes: Sequence[int], cur_learner_iter: int, betas: Sequence[float], least_weight: float
    ) -> dict[str, Any]:
        """Draw parts of several batches, without checking any limit.

        Args:
            sizes: the size of each part.
            betas: the exponent of the importance weights of each part.
            least_weight: the smallest weight in all shards.

        Returns:
            A dict of `life`, of the `sizes` that were drawn, smaller if there are too few items, and of `samples`, see
            `encode_chunk`.
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
            while (
                len(batches) < count and (batch := sample_from(self._buffer, batch_size, cur_learner_iter)) is not None
            ):
                batches.append(batch)
            facts["count"] = self._buffer.count()
        return {**facts, **self._reply(batches)}

    def _reply(self, parts: Sequence[list[Any]]) -> dict[str, Any]:
        samples = whole_of([part for part in parts if part])
        encoded = encode_chunk(samples, "none") if samples else b""
        return {"life": self.life, "sizes": [len(part) for part in parts], "samples": encoded}

    def save(self, path: str) -> int:
        """Write the buffer to a file atomically, and return the number of samples.

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
        """Replace the content of the buffer by that of a file of `save`, and return the number of samples.

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
        """Close the buffer and end all waits. Further calls do nothing."""
        with self._changed:
            self._is_closed = True
            if self._buffer is not None:
                self._buffer.close()
            self._changed.notify_all()


def push_to(buffer: Any, items: list[Any]) -> int:
    """Push items, and return how many were accepted; a buffer that limits the rate accepts all or none."""
    taken: int | None = buffer.push(items, -1)
    return len(items) if taken is None else taken  # users' buffers may return None


def sample_from(buffer: Any, batch_size: int, cur_learner_iter: int) -> list[Any] | None:
    """Draw a batch and return it; None if the buffer does not have one."""
    if isinstance(buffer, DequeBufferWrapper) and buffer.count() < batch_size:
        return None  # it would log a warning each time
    batch: list[Any] | None = buffer.sample(batch_size, cur_learner_iter)
    return batch


def with_metadata(samples: Items, rows: Items) -> Items:
    """Return the samples that `rows` name, with their metadata except for `data_index`, as shards store them.

    Raises:
        ValueError: the chunk has no such samples.
    """
    table, meta = table_of(samples), table_of(rows)
    if table is None or meta is None or "unroll_split_begin" in meta.columns or not _is_in_order(meta, len(table)):
        listed_samples = listed(samples)
        return [_storable(pick_sample(listed_samples, row)) for row in rows_of(rows)]
    return Table({**table.columns, **meta.without(DATA_INDEX).columns}, size=len(table))


def _is_in_order(meta: Table, count: int) -> bool:
    """Return whether the rows describe all `count` samples of a chunk in order."""
    if len(meta) != count or DATA_INDEX not in meta.columns:
        return len(meta) == count == 1
    (column,) = columns_of(meta.columns[DATA_INDEX])
    return bool(np.array_equal(column.values(), np.arange(count)))


def _storable(sample: Any) -> dict[str, Any]:
    if isinstance(sample, list):
        return {**{key: value for key, value in sample[0].items() if key in _OF_LISTS}, STEPS: sample}
    return {key: value for key, value in sample.items() if key != DATA_INDEX}


# The metadata of a list of steps that buffers read.
_OF_LISTS = ("priority", "collect_iter")


WHOLE, UNIFORM, PRIORITIZED = "whole", "uniform", "prioritized"
# Exactly these classes: a subclass may draw in another way.
_KINDS = {AdvancedReplayBuffer: PRIORITIZED, NaiveReplayBuffer: UNIFORM, DequeBufferWrapper: UNIFORM}


class Split(NamedTuple):
    """The properties of a buffer that a learner must know to draw from its shards.

    Attributes:
        kind: `whole` for a single shard, which draws batches itself; `uniform`, where a batch has no item twice; or
            `prioritized`.
        capacity: the capacity of all shards together.
        least_ratio: how many times the size of a batch must be in the buffer.
        least_rate: the smallest pushed / sampled at which batches are drawn.
        beta_step: growth of the exponent of the importance weights per batch.
        has_max_use: whether items are removed after a number of draws.
    """

    kind: str
    capacity: int
    least_ratio: float = 1.0
    least_rate: float = 0.0
    beta_step: float = 0.0
    has_max_use: bool = False


def split_of(cfg: Mapping[str, Any], shards: int) -> Split:
    """Return the split of the buffer of this config into `shards`.

    Raises:
        ConfigError: batches from these shards would differ from those of one buffer.
        KeyError: no buffer of that type is registered.
    """
    cls: Any = get_buffer_cls(cfg)
    merged = EasyDict(deep_merge_dicts(cls.default_config(), cfg))
    check_prefetching(merged)
    capacity = int(merged.replay_buffer_size)
    if shards == 1:
        return Split(WHOLE, capacity)
    kind = _KINDS.get(cls)
    if kind is None:
        raise _no_split(merged, shards, "only buffers of the types naive, advanced and deque can be split")
    if capacity < shards:
        raise _no_split(merged, shards, f"replay_buffer_size = {capacity} leaves some of them without capacity")
    if kind == UNIFORM:
        return Split(kind, capacity, has_max_use=not math.isinf(merged.get("max_use", math.inf)))
    limits = merged.thruput_controller
    if not math.isinf(limits.push_sample_rate_limit.max):
        reason = "thruput_controller.push_sample_rate_limit.max refers to what all shards together have sampled"
        raise _no_split(merged, shards, reason)
    return Split(
        kind,
        capacity,
        float(limits.sample_min_limit_ratio),
        float(limits.push_sample_rate_limit.min),
        (1 - float(merged.beta)) / int(merged.anneal_step) if merged.anneal_step else 0.0,
        not math.isinf(merged.max_use),
    )


def limits_pushes(cfg: Mapping[str, Any]) -> bool:
    """Return whether the buffer of this config refuses pushes above a ratio pushed / sampled."""
    merged = EasyDict(deep_merge_dicts(get_buffer_cls(cfg).default_config(), cfg))
    limits = merged.get("thruput_controller")
    return limits is not None and not math.isinf(limits.push_sample_rate_limit.max)


def annealed_by_rank(cfg: Mapping[str, Any], ranks: int) -> Mapping[str, Any]:
    """Return the config of a buffer from which each of `ranks` ranks draws a batch in each iteration.

    The exponent of the importance weights reaches 1 after as many iterations as with one rank.
    """
    steps = cfg.get("anneal_step", get_buffer_cls(cfg).default_config().get("anneal_step"))
    return {**cfg, "anneal_step": steps * ranks} if steps and ranks > 1 else cfg


def _no_split(cfg: EasyDict, shards: int, reason: str) -> ConfigError:
    return ConfigError(
        f"replay_buffer: type = {cfg.type!r} cannot be split into coordinator.replay_shards = {shards}: {reason}; set "
        "replay_shards = 1"
    )


def shard_config(cfg: Mapping[str, Any], index: int, shards: int) -> EasyDict:
    """Return the config of the shard `index`, with its part of the capacity and a folder of its own."""
    own = EasyDict(cfg)
    if shards == 1:
        return own
    capacity = split_of(cfg, shards).capacity
    own.replay_buffer_size = capacity // shards + (index < capacity % shards)
    if own.get("storage_path"):
        own.storage_path = os.path.join(own.storage_path, f"shard{index}")
    return own
