"""Shards in this process."""

from __future__ import annotations

import json
import threading
from concurrent.futures import Future
from typing import Any

import numpy as np

from ding.utils.registry_factory import COMM_COLLECTOR_REGISTRY, COMM_LEARNER_REGISTRY, TRANSPORT_REGISTRY
from ding.worker.collector.comm.comm_collector import CommCollector
from ding.worker.coordinator.buffer_set import ShardedBufferSet
from ding.worker.learner.comm.comm_learner import CommLearner
from ding.worker.learner.comm.shard_source import ShardedReplay
from ding.worker.transport.chunk import encode_chunk
from ding.worker.transport.local_transport import LocalTransport
from ding.worker.transport.ray.shard import ClosedShard, ReplayShard, ShardLost, split_of, with_metadata


class LocalShard:
    """Runs each call at once, but waits in threads; `lose` puts an empty shard in its place, `is_down` fails all calls.

    Attributes:
        calls: names of the methods that were called.
        drawn: how many samples were given out.
    """

    def __init__(self, cfg: dict[str, Any], index: int = 0, shards: int = 1, exp_name: str = "exp") -> None:
        self.name = f"shard{index}"
        self.calls: list[str] = []
        self.drawn = 0
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
        replay = self.replay
        try:
            if self.is_down:
                raise ShardLost(f"{self.name} is down")
            result = getattr(replay, method)(*args)
            self.drawn += sum(result["sizes"]) if method in ("draw", "sample") else 0
            future.set_result(result)
        except Exception as e:
            future.set_exception(e if replay is self.replay else ShardLost(f"{self.name} has gone"))

    def lose(self) -> None:
        replay, self.replay = self.replay, ReplayShard(*self._args)
        replay.close()


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
    taken: int = push_samples(shard, samples_of(values), rows_of(len(values), **more))
    return taken


def push_samples(shard: Any, samples: list[Any], rows: list[Any]) -> int:
    taken: int = shard.call("push", [(encode_chunk(with_metadata(samples, rows)), "lz4")]).result()
    return taken


def make_shards(count: int, cfg: dict[str, Any]) -> list[LocalShard]:
    return [LocalShard(cfg, index, count) for index in range(count)]


def make_replay(shards: list[LocalShard], cfg: dict[str, Any]) -> ShardedReplay:
    return ShardedReplay(shards, split_of(cfg, len(shards)), timeout_s=10)


class LocalShards:
    """Opens, finds and closes shards in this process.

    Attributes:
        by_name: those that are open.
    """

    def __init__(self) -> None:
        self.by_name: dict[str, LocalShard] = {}

    def open(self, buffer_id: str, cfg: Any, exp_name: str, index: int, shards: int) -> LocalShard:
        shard = LocalShard(cfg, index, shards, exp_name)
        shard.name = f"{buffer_id}/{index}"
        self.by_name[shard.name] = shard
        return shard

    def close(self, shard: LocalShard) -> None:
        shard.replay.close()
        self.by_name.pop(shard.name, None)

    def find(self, where: dict[str, Any]) -> list[LocalShard | ClosedShard]:
        return [self.by_name.get(name) or ClosedShard(name) for name in where["shards"]]


SHARDS = LocalShards()


def with_split(shards: LocalShards, cfg: dict[str, Any], samples: list[dict[str, Any]]) -> dict[str, Any]:
    """Where a task finds a shard of `shards` with these samples; see `ShardedBufferSet.where`."""
    shard = shards.open("buffer", cfg, "exp", 0, 1)
    push_samples(shard, samples, rows_of(len(samples)))
    return {"shards": [shard.name], "split": split_of(cfg, 1)._asdict()}


@TRANSPORT_REGISTRY.register("sharded")
class ShardedTransport(LocalTransport):
    """Everything in this process, and samples in shards."""

    name = "sharded"

    def shards(self, where: Any) -> list[Any]:
        return list(SHARDS.find(json.loads(json.dumps(where))))

    def replay(self, exp_name: str, cfg: Any, logger: Any) -> ShardedBufferSet:
        return ShardedBufferSet(exp_name, logger, cfg["replay_shards"], SHARDS.open, SHARDS.close)


@COMM_LEARNER_REGISTRY.register("sharded")
class ShardedLearner(CommLearner):
    transport = "sharded"


@COMM_COLLECTOR_REGISTRY.register("sharded")
class ShardedCollector(CommCollector):
    transport = "sharded"
