"""The coordinator's side of sharded replay buffers: it opens, saves and closes shards, and sees no samples."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from easydict import EasyDict

from ding.worker.coordinator.buffer_set import BufferSet
from ding.worker.transport.ray.shard import Shard, Split, annealed_by_rank, call_all, split_of

# How long shards may take to start, and to write or read their samples.
_OPEN_S, _SAVE_S = 120.0, 60.0
# How many generations of files are kept: the last saved state of the coordinator may still name the second newest.
_KEPT_GENERATIONS = 2

# Opens the shard `index` of `shards`: (buffer_id, cfg, exp_name, index, shards) -> shard.
OpenShard = Callable[[str, Mapping[str, Any], str, int, int], Shard]


class ShardedBuffer:
    """A sharded buffer as its coordinator sees it. Collectors push to the shards, and learners draw from them.

    Args:
        path: prefix of the files to which the shards save their samples.
        logger: a text logger.

    Attributes:
        level: number of items, as a learner last reported it.
    """

    def __init__(
        self, shards: Sequence[Shard], split: Split, close_shard: Callable[[Shard], None], path: str, logger: Any
    ) -> None:
        self.level = 0
        self.shards, self.split = list(shards), split
        self._close_shard, self._path, self._logger = close_shard, path, logger
        self._generation = self._lost = 0

    @property
    def replay_buffer_size(self) -> int:
        """The capacity of all shards together."""
        return self.split.capacity

    def count(self) -> int:
        """Return `level`."""
        return self.level

    def update(self, info: Mapping[str, Any]) -> None:
        """Do nothing: learners send priorities to the shards."""

    def freeze(self) -> dict[str, Any]:
        """Have the shards write their samples to files, and return what `load_state_dict` needs.

        Samples of a shard that is lost meanwhile, or cannot write, are not saved; this is logged.
        """
        self._generation += 1
        counts = self._ask_all("save", "the samples of a shard could not be saved to %s: %s")
        for path in self._paths(self._generation - _KEPT_GENERATIONS):
            with contextlib.suppress(FileNotFoundError):
                os.remove(path)
        return {"generation": self._generation, "counts": counts}

    def load_state_dict(self, content: Mapping[str, Any]) -> None:
        """Have the shards read the samples that they have saved; `discard` then returns how many are lost."""
        self._generation = content["generation"]
        self.level = sum(self._ask_all("load", "the samples in %s are lost: %s"))
        self._lost = sum(content["counts"]) - self.level

    def discard(self, is_unwanted: Callable[[Any], bool]) -> int:
        """Return the number of samples that the last `load_state_dict` has not found; all others are kept."""
        return self._lost

    def _ask_all(self, method: str, problem: str) -> list[int]:
        """Have each shard save or load its file, and return the numbers of samples; an error is logged and gives 0."""
        paths, counts = self._paths(self._generation), []
        for path, answer in zip(
            paths, call_all(self.shards, method, [(path,) for path in paths], _SAVE_S), strict=True
        ):
            if isinstance(answer, BaseException):
                self._logger.error(problem, path, answer)
            counts.append(0 if isinstance(answer, BaseException) else int(answer))
        return counts

    def _paths(self, generation: int) -> list[str]:
        return [f"{self._path}.{index}.{generation}" for index in range(len(self.shards))]

    def close(self) -> None:
        """Close the shards. Further calls do nothing."""
        while self.shards:
            self._close_shard(self.shards.pop())


class ShardedBufferSet(BufferSet):
    """Sharded replay buffers; see `BufferSet`.

    Args:
        exp_name: folder of the experiment. Shards save their samples to its subfolder `replay`, which their processes
            must be able to write to.
        logger: a text logger.
        shards: number of shards of each buffer; a restored buffer has as many as before.
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
        self._shards, self._open_shard, self._close_shard, self._ranks = shards, open_shard, close_shard, ranks
        self._folder = os.path.abspath(os.path.join(exp_name, "replay"))

    def _make_buffer(self, buffer_id: str, cfg: EasyDict, content: Any) -> ShardedBuffer:
        count = self._shards if content is None else len(content["counts"])
        own, exp_name = annealed_by_rank(cfg, self._ranks), os.path.abspath(self._exp_name)
        path = os.path.join(self._folder, buffer_id)
        buffer = ShardedBuffer([], split_of(own, count), self._close_shard, path, self._logger)
        try:
            for index in range(count):
                buffer.shards.append(self._open_shard(buffer_id, own, exp_name, index, count))
            for answer in call_all(buffer.shards, "open", [()] * count, _OPEN_S):
                if isinstance(answer, BaseException):
                    raise answer
        except BaseException:
            buffer.close()
            raise
        return buffer

    def where(self, buffer_id: str) -> dict[str, Any] | None:
        buffer = self.buffers.get(buffer_id)
        if buffer is None:
            return None
        return {"shards": [shard.name for shard in buffer.shards], "split": buffer.split._asdict()}

    def note_level(self, buffer_id: str, level: int) -> None:
        if buffer_id in self.buffers:
            self.buffers[buffer_id].level = level

    def close_buffer(self, buffer_id: str) -> None:
        super().close_buffer(buffer_id)
        self._delete_files(f"{buffer_id}.")

    def close(self) -> None:
        super().close()
        self._delete_files("")

    def _delete_files(self, prefix: str) -> None:
        """Delete the sample files whose names begin with `prefix`, unless they are kept for another coordinator."""
        if not self.is_deleting:
            return
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(self._folder):
                if name.startswith(prefix):
                    os.remove(os.path.join(self._folder, name))
            if not os.listdir(self._folder):
                os.rmdir(self._folder)
