"""The transport 'ray': workers and shards of replay buffers are actors."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any

try:
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
except ImportError as e:
    raise ImportError("the transport 'ray' needs the package ray: pip install 'ding-worker[ray]'") from e

from ding.utils.registry_factory import TRANSPORT_REGISTRY
from ding.worker.coordinator.sharded_buffers import OpenShard, ShardedBufferSet
from ding.worker.transport.local_transport import LocalStation
from ding.worker.transport.ray.config import actor_options, ray_section
from ding.worker.transport.ray.shard import ClosedShard, ReplayShard, Shard, ShardClosed, ShardLost
from ding.worker.transport.ray.weights import RayPolicyStore
from ding.worker.transport.ray.worker import RayHub
from ding.worker.transport.stores import MemorySampleStore
from ding.worker.transport.transport import Launch, Serve, Transport


@TRANSPORT_REGISTRY.register("ray")
class RayTransport(Transport):
    """Tasks are calls of actors, samples are pushed to shards of the replay buffer, weights are in the object store."""

    name = "ray"
    launch = Launch.ACTOR
    needs_addresses = workers_return = has_weight_files = False

    def hub(self, cfg: Mapping[str, Any]) -> RayHub:
        return RayHub(cfg)

    def station(self, serve: Serve, cfg: Mapping[str, Any], on_lost: Callable[[], Any]) -> LocalStation:
        """A station in the process of the actor, which passes tasks to it."""
        return LocalStation(serve, close_timeout_s=cfg.get("close_timeout_s", 10.0))

    def sample_store(self, root: str) -> MemorySampleStore:
        """Not used for samples in shards."""
        return MemorySampleStore(root)

    def policy_store(self, root: str, trust_pickle: bool = False) -> RayPolicyStore:
        return RayPolicyStore(root, trust_pickle)

    def shards(self, where: Mapping[str, Any]) -> list[Shard]:
        return find_shards(where)

    def replay(self, exp_name: str, cfg: Mapping[str, Any], logger: Any) -> ShardedBufferSet:
        section = cfg.get("ray") or ray_section({})
        opener = shard_opener(f"replay:{secrets.token_hex(4)}", actor_options(section, "replay"))
        ranks = int(section["learner"].get("ranks", 1))
        return ShardedBufferSet(exp_name, logger, int(cfg["replay_shards"]), opener, close_shard, ranks)


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
