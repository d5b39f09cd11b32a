"""The transport 'ray': shards of replay buffers, and the newest weights, are kept by actors."""

from __future__ import annotations

import contextlib
import errno
import io
import os
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

import torch

from ding.utils.file_helper import atomic_write, file_content
from ding.utils.registry_factory import TRANSPORT_REGISTRY
from ding.worker.coordinator.sharded_buffers import OpenShard, ShardedBufferSet
from ding.worker.transport.local_transport import LocalWorkerServer
from ding.worker.transport.ray.config import actor_options, ray_section
from ding.worker.transport.ray.shard import ClosedShard, ReplayShard, Shard, ShardClosed, ShardLost
from ding.worker.transport.ray.worker import RayConnector
from ding.worker.transport.stores import MemorySampleStore, PolicyVersion, Token, Versions, iteration_of, name_under
from ding.worker.transport.transport import Launch, Serve, Transport


@TRANSPORT_REGISTRY.register("ray")
class RayTransport(Transport):
    """Tasks are calls of actors, samples are pushed to shards of the replay buffer, weights are in the object store."""

    name = "ray"
    launch = Launch.ACTOR
    needs_addresses = workers_return = has_weight_files = False

    def connector(self, cfg: Mapping[str, Any]) -> RayConnector:
        return RayConnector(cfg)

    def worker_server(self, serve: Serve, cfg: Mapping[str, Any], on_lost: Callable[[], Any]) -> LocalWorkerServer:
        """A server in the process of the actor, which passes tasks to it."""
        return LocalWorkerServer(serve, close_timeout_s=cfg.get("close_timeout_s", 10.0))

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


# How long a reader or writer waits for the actor of the weights, which may be restarting.
_WEIGHTS_S = 30.0


class WeightsServer(Versions):
    """Keeps the newest weights by name, as lists of one reference to bytes in the object store. Thread-safe.

    It also writes them to files in `root`, which a restarted actor, a resumed run and evaluations read.

    Args:
        root: a folder, created with its parents.
    """

    def __init__(self, root: str) -> None:
        super().__init__(root)
        os.makedirs(root, exist_ok=True)

    def write(self, name: str, data: bytes, iteration: int, known: Token | None) -> Token | None:
        name = name_under(self.root, name)
        with self._lock:
            token = super().write(name, [ray.put(data)], iteration, known)
            if token is not None:
                with atomic_write(os.path.join(self.root, name)) as file:
                    file.write(data)
        return token

    def pid(self) -> int:
        """The id of this process."""
        return os.getpid()

    def _find(self, name: str) -> tuple[Token, Any] | None:
        """The weights under `name`, read from their file if necessary; those count as older than any others."""
        if name not in self._kept:
            path = os.path.join(self.root, name_under(self.root, name))
            with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
                self._keep(name, [ray.put(file.read())], -1)
        return super()._find(name)


def server_name(root: str) -> str:
    """The name, within the namespace of the run, of the actor for the weights of `root`."""
    return f"weights:{os.path.abspath(root)}"


def start_server(root: str, options: dict[str, Any]) -> Any:
    """Start the actor for the weights of `root`; returns its handle. The actor ends when the last handle is gone."""
    actor = ray.remote(WeightsServer).options(
        name=server_name(root),
        num_cpus=0,
        max_concurrency=8,
        max_restarts=-1,
        max_task_retries=-1,
        **options,
    )
    return actor.remote(os.path.abspath(root))


class RayPolicyStore:
    """A client of the actor for the weights of `root`; see `PolicyStore`.

    Args:
        trust_pickle: also read weights with objects other than numbers, strings, containers, arrays and tensors, which
            may run code.
    """

    def __init__(self, root: str, trust_pickle: bool = False) -> None:
        self.root = os.path.abspath(root)
        self._trust_pickle = trust_pickle
        self._actor: Any = None

    def write(self, name: str, state: dict[str, Any], known: Any = None) -> Any:
        file = io.BytesIO()
        torch.save(state, file)
        return self._ask("write", name_under(self.root, name), file.getvalue(), iteration_of(state), known)

    def read(self, name: str, known: Any = None) -> PolicyVersion | None:
        found = self._ask("read", name_under(self.root, name), known)
        if found is None:
            return None
        token, (reference,) = found
        state = file_content(self._get(reference), os.path.join(self.root, name), self._trust_pickle)
        return PolicyVersion(state, token)

    def _ask(self, method: str, *args: Any) -> Any:
        if self._actor is None:
            self._actor = self._find()
        return self._get(getattr(self._actor, method).remote(*args))

    def _find(self) -> Any:
        try:
            return ray.get_actor(server_name(self.root))
        except ValueError as e:
            raise OSError(errno.ESTALE, f"this run has no actor for the weights of {self.root}") from e

    def _get(self, reference: Any) -> Any:
        try:
            return ray.get(reference, timeout=_WEIGHTS_S)
        except RayTaskError as e:
            raise e.cause from None
        except RayError as e:
            raise OSError(errno.ETIMEDOUT, f"the weights of {self.root} cannot be reached: {e}") from e
