"""The coordinator's side of sharded replay buffers: it opens, saves and closes shards, and sees no samples."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any

from easydict import EasyDict

from ding.worker.coordinator.buffers import BufferSet, without_functions
from ding.worker.transport.ray.shard import Shard, Split, annealed_by_rank, call_all, split_of

# How long shards may take to start, and to write or read their samples.
_OPEN_S, _SAVE_S = 120.0, 60.0
# How many generations of files stay: the last saved state of the coordinator may still name the one before the newest.
_KEPT_GENERATIONS = 2

# Opens the shard `index` of `shards`: (buffer_id, cfg, exp_name, index, shards) -> shard.
OpenShard = Callable[[str, Mapping[str, Any], str, int, int], Shard]


class ShardedBuffer:
    """A sharded buffer as its coordinator sees it.

    Attributes:
        level: number of items, as a learner last reported it.
    """

    def __init__(self, shards: list[Shard], split: Split, close_shard: Callable[[Shard], None]) -> None:
        self.level = 0
        self.shards, self.split = shards, split
        self._close_shard = close_shard

    @property
    def replay_buffer_size(self) -> int:
        """The capacity of all shards together."""
        return self.split.capacity

    def count(self) -> int:
        """See `level`."""
        return self.level

    def update(self, info: Mapping[str, Any]) -> None:
        """Do nothing: learners send priorities to the shards."""

    def close(self) -> None:
        """Close the shards. Idempotent."""
        while self.shards:
            self._close_shard(self.shards.pop())


class ShardedBufferSet(BufferSet):
    """Sharded replay buffers; see `BufferSet`. Collectors push to the shards, and learners draw from them.

    Args:
        exp_name: folder of the experiment. Shards save their samples to its subfolder `replay`, which their processes
            must be able to write to.
        logger: a text logger.
        shards: number of shards of each buffer.
        open_shard, close_shard: open and close one shard.
        ranks: number of learner ranks that draw batches in each iteration.
    """

    def __init__(
        self,
        exp_name: str,
        logger: Any,
        shards: int,
        open_shard: OpenShard,
        close_shard: Callable[[Shard], None],
        ranks: int = 1,
    ) -> None:
        super().__init__(exp_name, None, logger)
        self._ranks = ranks
        self._shards, self._open_shard, self._close_shard = shards, open_shard, close_shard
        self._opening = threading.Lock()
        self._folder = os.path.abspath(os.path.join(exp_name, "replay"))
        self._generation = 0

    def open(self, buffer_id: str, cfg: Mapping[str, Any]) -> None:
        """Open the shards of a buffer, unless they are open.

        Raises:
            ConfigError: the config is wrong, or the buffer cannot be split.
            TimeoutError: the shards do not start in time.
        """
        self._open(buffer_id, cfg, self._shards)

    def _open(self, buffer_id: str, cfg: Mapping[str, Any], count: int) -> None:
        with self._opening:  # not the lock of the other methods: starting actors takes seconds
            if buffer_id in self.buffers:
                return
            own = annealed_by_rank(cfg, self._ranks)
            split, exp_name = split_of(own, count), os.path.abspath(self._exp_name)
            buffer = ShardedBuffer([], split, self._close_shard)
            try:
                for index in range(count):
                    buffer.shards.append(self._open_shard(buffer_id, own, exp_name, index, count))
                for answer in call_all(buffer.shards, "open", [()] * count, _OPEN_S):
                    if isinstance(answer, BaseException):
                        raise answer
            except BaseException:
                buffer.close()
                raise
            self._cfgs[buffer_id] = EasyDict(cfg)
            self.buffers[buffer_id] = buffer

    def where(self, buffer_id: str) -> dict[str, Any] | None:
        buffer = self.buffers.get(buffer_id)
        if buffer is None:
            return None
        return {"shards": [shard.name for shard in buffer.shards], "split": buffer.split._asdict()}

    def note_level(self, buffer_id: str, level: int) -> None:
        if buffer_id in self.buffers:
            self.buffers[buffer_id].level = level

    def levels(self) -> list[tuple[str, int, int]]:
        return [(name, buffer.level, buffer.replay_buffer_size) for name, buffer in self.buffers.copy().items()]

    def freeze(self, buffer_id: str, cfg: Mapping[str, Any]) -> dict[str, Any]:
        """Save a buffer; returns what `restore` needs. The shards write the samples to files.

        Samples of a shard that is lost meanwhile, or cannot write, are not saved; this is logged.
        """
        buffer, content = self.buffers.get(buffer_id), None
        if buffer is not None:
            self._generation += 1
            paths = [self._path(buffer_id, index, self._generation) for index in range(len(buffer.shards))]
            answers = call_all(buffer.shards, "save", [(path,) for path in paths], _SAVE_S)
            for path, answer in zip(paths, answers, strict=True):
                if isinstance(answer, BaseException):
                    self._logger.error("the samples of a shard could not be saved to %s: %s", path, answer)
            counts = [0 if isinstance(answer, BaseException) else answer for answer in answers]
            content = {"generation": self._generation, "counts": counts}
            for index in range(len(paths)):
                self._remove(buffer_id, index, self._generation - _KEPT_GENERATIONS)
        return {"cfg": without_functions(self._cfgs.get(buffer_id, cfg)), "content": content}

    def _path(self, buffer_id: str, index: int, generation: int) -> str:
        return os.path.join(self._folder, f"{buffer_id}.{index}.{generation}")

    def _remove(self, buffer_id: str, index: int, generation: int) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.remove(self._path(buffer_id, index, generation))

    def restore(self, buffer_id: str, cfg: Mapping[str, Any], content: dict[str, Any] | None) -> tuple[int, int]:
        """Open a buffer with its saved samples, in as many shards as it had.

        Returns:
            the number of samples it holds, and the number of samples that are lost.

        Raises:
            ConfigError, TimeoutError: see `open`.
        """
        if content is None:
            self.open(buffer_id, cfg)
            return 0, 0
        counts = list(content["counts"])
        self._open(buffer_id, cfg, len(counts))
        self._generation = max(self._generation, content["generation"])
        paths = [(self._path(buffer_id, index, content["generation"]),) for index in range(len(counts))]
        answers = call_all(self.buffers[buffer_id].shards, "load", paths, _SAVE_S)
        for (path,), answer in zip(paths, answers, strict=True):
            if isinstance(answer, BaseException):
                self._logger.error("the samples in %s are lost: %s", path, answer)
        held = sum(0 if isinstance(answer, BaseException) else answer for answer in answers)
        self.buffers[buffer_id].level = held
        return held, sum(counts) - held

    def close_buffer(self, buffer_id: str) -> None:
        super().close_buffer(buffer_id)
        if self.is_deleting:
            self._sweep(f"{buffer_id}.")

    def close(self) -> None:
        super().close()
        if self.is_deleting:
            self._sweep("")

    def _sweep(self, prefix: str) -> None:
        """Remove the files of samples whose names begin with `prefix`."""
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(self._folder):
                if name.startswith(prefix):
                    os.remove(os.path.join(self._folder, name))
            if not os.listdir(self._folder):
                os.rmdir(self._folder)
