"""Shards in this process."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

import numpy as np

from ding.worker.transport.chunk import encode_chunk
from ding.worker.transport.ray.shard import ReplayShard, ShardLost
from ding.worker.transport.ray.sharded import ShardedReplay
from ding.worker.transport.ray.split import split_of


class LocalShard:
    """Runs each call at once, but waits in threads; `lose` puts an empty shard in its place, `is_down` fails all calls.

    Attributes:
        calls: names of the methods that were called.
    """

    def __init__(self, cfg: dict[str, Any], index: int = 0, shards: int = 1, exp_name: str = "exp") -> None:
        self.name = f"shard{index}"
        self.calls: list[str] = []
        self.is_down = False
        self._args = cfg, exp_name, index, shards
        self.replay = ReplayShard(*self._args)

    def call(self, method: str, *args: Any) -> Future[Any]:
        self.calls.append(method)
        future: Future[Any] = Future()
        if method == "wait" and not self.is_down:
            threading.Thread(target=self._run, args=(future, method, args), daemon=True).start()
        else:
            self._run(future, method, args)
        return future

    def _run(self, future: Future[Any], method: str, args: tuple[Any, ...]) -> None:
        try:
            if self.is_down:
                raise ShardLost(f"{self.name} is down")
            future.set_result(getattr(self.replay, method)(*args))
        except Exception as e:
            future.set_exception(e)

    def lose(self) -> None:
        self.replay.close()
        self.replay = ReplayShard(*self._args)


def samples_of(values: list[Any]) -> list[dict[str, Any]]:
    return [{"obs": np.full(2, value, np.float32), "value": value} for value in values]


def rows_of(count: int, **more: Any) -> list[dict[str, Any]]:
    """The metadata of the samples of a chunk; a list in `more` has one value for each."""
    rows = [{"data_index": i, "priority": 1.0, "collect_iter": 0, "policy_iter": 0} for i in range(count)]
    for key, value in more.items():
        for i, row in enumerate(rows):
            row[key] = value[i] if isinstance(value, list) else value
    return rows


def push(shard: LocalShard, values: list[Any], **more: Any) -> int:
    data = encode_chunk(samples_of(values), "lz4"), encode_chunk(rows_of(len(values), **more), "none")
    taken: int = shard.call("push", *data, "lz4").result()
    return taken


def make_shards(count: int, cfg: dict[str, Any]) -> list[LocalShard]:
    return [LocalShard(cfg, index, count) for index in range(count)]


def make_replay(shards: list[LocalShard], cfg: dict[str, Any]) -> ShardedReplay:
    return ShardedReplay(shards, split_of(cfg, len(shards)), timeout_s=10)
