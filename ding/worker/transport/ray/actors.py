"""Shards of a replay buffer as actors of Ray. No other module of the replay buffer imports Ray."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any

import ray
from ray.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    NodeDiedError,
    ObjectLostError,
    RayError,
    RayTaskError,
    WorkerCrashedError,
)

from ding.worker.transport.ray.buffers import OpenShard
from ding.worker.transport.ray.shard import ClosedShard, ReplayShard, Shard, ShardClosed, ShardLost

# Groups of threads by method: pushes, waits and writes to disk do not delay the batches of a learner.
_GROUPS = {"push": "push", "wait": "wait", "save": "keep", "load": "keep"}
_GROUP_SIZES = {"push": 1, "wait": 16, "keep": 1}
_remote: Any = ray.remote  # its annotations leave these options out
_ShardActor = _remote(concurrency_groups=_GROUP_SIZES)(ReplayShard)
# Errors of calls to an actor that Ray restarts.
_LOST = (ActorUnavailableError, NodeDiedError, ObjectLostError, WorkerCrashedError)
# How long an actor may take to close its logs before it is killed.
_CLOSE_S = 2.0


class RayShard:
    """See `Shard`.

    Args:
        actor: runs a `ReplayShard`.
    """

    def __init__(self, name: str, actor: Any) -> None:
        self.name = name
        self.actor = actor

    def call(self, method: str, *args: Any) -> Future[Any]:
        answer: Future[Any] = Future()
        try:
            bound = getattr(self.actor, method)
            if method in _GROUPS:
                bound = bound.options(concurrency_group=_GROUPS[method])
            bound.remote(*args).future().add_done_callback(partial(self._settle, answer))
        except RayError as e:
            answer.set_exception(self._named(e))
        return answer

    def _settle(self, answer: Future[Any], future: Future[Any]) -> None:
        error = future.exception()
        if error is None:
            answer.set_result(future.result())
        else:
            answer.set_exception(self._named(error))

    def _named(self, error: BaseException) -> BaseException:
        if isinstance(error, _LOST):
            named: BaseException = ShardLost(f"the shard {self.name} of a replay buffer is lost: {_first_line(error)}")
        elif isinstance(error, ActorDiedError):
            named = ShardClosed(f"the shard {self.name} of a replay buffer is closed: {_death(error)}")
        elif isinstance(error, RayTaskError):
            named = error.cause
        else:
            return error
        named.__cause__ = error
        return named


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]


def _death(error: ActorDiedError) -> str:
    """What Ray says of a dead actor, without its indented lines: they give ids. The first line is always the same."""
    return " ".join(line for line in str(error).splitlines() if line and not line[0].isspace())


def shard_opener(prefix: str, options: Mapping[str, Any] | None = None) -> OpenShard:
    """Returns a function that makes shards as actors. Ray restarts an actor that is lost, with an empty shard.

    Args:
        prefix: of the names of the actors; must be unique in the namespace.
        options: of the actors, such as `num_cpus` and `memory`; see `ray.actor.ActorClass.options`.
    """

    def open_shard(buffer_id: str, cfg: Mapping[str, Any], exp_name: str, index: int, shards: int) -> Shard:
        name = f"{prefix}/{buffer_id}/{index}"
        actor = _ShardActor.options(
            **{"num_cpus": 0, **(options or {})}, name=name, max_restarts=-1, max_task_retries=0
        ).remote(dict(cfg), exp_name, index, shards)
        return RayShard(name, actor)

    return open_shard


def find_shards(where: Mapping[str, Any]) -> list[Shard]:
    """The shards of a replay buffer; see `ShardedBufferSet.where`."""
    return [_find(name) for name in where["shards"]]


def _find(name: str) -> Shard:
    try:
        return RayShard(name, ray.get_actor(name))
    except ValueError:  # there is no actor of that name
        return ClosedShard(name)


def close_shard(shard: Shard) -> None:
    """End the actor of a shard; Ray does not restart it."""
    assert isinstance(shard, RayShard)
    with contextlib.suppress(Exception):  # the actor may be lost or hang; then it is killed
        shard.call("close").result(_CLOSE_S)
    with contextlib.suppress(RayError):
        ray.kill(shard.actor, no_restart=True)
