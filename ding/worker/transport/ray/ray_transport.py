"""The transport 'ray', where workers, shards of replay buffers and the store of weights are actors."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import secrets
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from functools import partial
from time import monotonic
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

from ding.interaction.exception import TaskFail
from ding.utils.file_helper import atomic_write
from ding.utils.registry_factory import TRANSPORT_REGISTRY
from ding.worker.coordinator.buffer_set import OpenShard, ShardedBufferSet
from ding.worker.transport.http_transport import HttpConnector
from ding.worker.transport.local_transport import LocalWorkerServer, local_server
from ding.worker.transport.ray.ray_settings import actor_options, ray_section
from ding.worker.transport.ray.shard import ClosedShard, ReplayShard, Shard, ShardClosed, ShardLost
from ding.worker.transport.stores import (
    WEIGHTS_BYTES,
    MemorySampleStore,
    PolicyVersion,
    Token,
    Versions,
    iteration_of,
    load_weights,
    name_under,
    opened_safely,
)
from ding.worker.transport.transport import (
    Answer,
    Launch,
    Serve,
    Task,
    TaskFailed,
    Transport,
    WorkerClient,
    WorkerLost,
    result_of,
)


@TRANSPORT_REGISTRY.register("ray")
class RayTransport(Transport):
    """The transport with tasks as calls of actors, samples in shards of the replay buffer, and weights as objects."""

    name = "ray"
    launch = Launch.ACTOR
    needs_addresses = workers_return = has_weight_files = False

    def connector(self, cfg: Mapping[str, Any]) -> RayConnector:
        return RayConnector(cfg)

    def worker_server(self, serve: Serve, cfg: Mapping[str, Any], on_lost: Callable[[], Any]) -> LocalWorkerServer:
        """Return a server in the process of the actor, which passes tasks to it."""
        return LocalWorkerServer(serve, close_timeout_s=cfg.get("close_timeout_s", 10.0))

    def sample_store(self, root: str) -> MemorySampleStore:
        """Return a store in memory, which is not used for samples in shards."""
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
    """The `Shard` client of an actor.

    Args:
        actor: the handle of an actor that runs a `ReplayShard`.
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
    """Return Ray's message about a dead actor, without the indented lines of ids; its first line alone says little."""
    return " ".join(line for line in str(error).splitlines() if line and not line[0].isspace())


def shard_opener(prefix: str, options: Mapping[str, Any] | None = None) -> OpenShard:
    """Return a function that makes shards as actors; Ray restarts a lost actor with an empty shard.

    Args:
        prefix: prefix of the names of the actors; it must be unique in the namespace.
        options: options of the actors, such as `num_cpus` and `memory`; see `ray.actor.ActorClass.options`.
    """

    def open_shard(buffer_id: str, cfg: Mapping[str, Any], exp_name: str, index: int, shards: int) -> Shard:
        name = f"{prefix}/{buffer_id}/{index}"
        actor = _ShardActor.options(
            **{"num_cpus": 0, **(options or {})}, name=name, max_restarts=-1, max_task_retries=0
        ).remote(dict(cfg), exp_name, index, shards)
        return RayShard(name, actor)

    return open_shard


def find_shards(where: Mapping[str, Any]) -> list[Shard]:
    """Return the shards of a replay buffer; see `ShardedBufferSet.where`."""
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
    """The newest weights by name, each a list of one reference to bytes in the object store. This class is thread-safe.

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
        """Return the id of this process."""
        return os.getpid()

    def _find(self, name: str) -> tuple[Token, Any] | None:
        """Return the weights under `name`, read from their file if necessary; those of a file count as the oldest."""
        if name not in self._kept:
            path = os.path.join(self.root, name_under(self.root, name))
            with (
                contextlib.suppress(FileNotFoundError),
                opened_safely(path, "weights", WEIGHTS_BYTES) as (file, status),
            ):
                self._keep(name, [ray.put(file.read(status.st_size))], -1)
        return super()._find(name)


def server_name(root: str) -> str:
    """Return the name, within the namespace of the run, of the actor for the weights of `root`."""
    return f"weights:{os.path.abspath(root)}"


def start_server(root: str, options: dict[str, Any]) -> Any:
    """Start the actor for the weights of `root`, and return its handle; it ends when the last handle is gone."""
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
        trust_pickle: whether to read also weights with objects other than numbers, strings, containers, arrays and
            tensors, which may run code.
    """

    def __init__(self, root: str, trust_pickle: bool = False) -> None:
        self.root, self.limit_bytes = os.path.abspath(root), WEIGHTS_BYTES
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
        content: bytes = self._get(reference)
        path = os.path.join(self.root, name)
        if len(content) > self.limit_bytes:
            raise ValueError(f"the weights {path} are too large: {len(content)} bytes of {self.limit_bytes}")
        return PolicyVersion(load_weights(io.BytesIO(content), path, self._trust_pickle), token)

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


# Concurrent calls of an actor: a task, `watch` of several processes, `close`, and `place` as a heartbeat.
_CONCURRENCY = 8
# Ray reports the death of a process at once, but not that it was stopped or hangs. So while a worker runs a task, it is
# asked for a heartbeat at this interval, and is lost after this time without one.
_ASK_S, _TOLERANCE_S = 3.0, 15.0


def actor_name(worker: str, life: int) -> str:
    """Return the name of a worker's actor in the namespace of the run; each restart has another `life`."""
    return f"{worker}:{life}"


class WorkerActor:
    """The actor of a worker. This class is thread-safe.

    Args:
        make: prepares this process, and returns a comm worker that has started.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._worker: Any = make()
        self._ended = threading.Event()
        self._server = local_server(self._worker.port)

    def place(self) -> dict[str, Any]:
        """Return the process and the node of the actor, as `pid` and `host`; this also serves as a heartbeat."""
        return {"pid": os.getpid(), "host": str(ray.util.get_node_ip_address())}  # type: ignore[no-untyped-call]

    def run(self, task: str, timeout_s: float) -> str:
        """Run a task.

        Args:
            task: the task as JSON.
            timeout_s: how many seconds a caller waits. A while later, this call ends, too.

        Returns:
            JSON with the `result` of the task, with the result it has `failed` with, or the reason why it is `lost`.
        """
        assert self._server is not None
        try:
            return f'{{"result": {self._server.submit(task).result(timeout_s + _TOLERANCE_S)}}}'
        except TaskFail as e:
            if e.result.get("exception") == WorkerLost.__name__:  # the other ranks of a learner are lost
                return json.dumps({"lost": e.result["message"]})
            return json.dumps({"failed": e.result})
        except (WorkerLost, FutureTimeout) as e:
            return json.dumps({"lost": str(e)})

    def leave(self) -> None:
        """End the task of a coordinator that has disconnected."""
        self._worker.deal_with_lost_coordinator()

    def watch(self) -> None:
        """Return when the worker is closed. A caller that waits for this is notified at once if the process dies."""
        self._ended.wait()

    def close(self) -> None:
        """End the task, with a final checkpoint, and the worker. Further calls do nothing."""
        try:
            self._worker.close()
        finally:
            self._ended.set()


def actor_class() -> Any:
    """Return `WorkerActor` as a class of actors."""
    decorate: Any = ray.remote(max_concurrency=_CONCURRENCY)  # type: ignore[call-overload]
    return decorate(WorkerActor)


class RayWorkerClient(WorkerClient):
    """The `WorkerClient` of a worker in an actor.

    Args:
        life: the life of the worker, see `actor_name`. The actor that replaces a lost one has a client of its own.
    """

    def __init__(self, name: str, life: int, in_use: set[WorkerClient]) -> None:
        super().__init__(name, in_use)
        self._actor_name = actor_name(name, life)
        self._actor: Any = None
        self._lock = threading.Lock()
        self._answer: Answer | None = None  # to the current task
        self._loss: str | None = None  # the reason, once the worker is lost
        self._on_lost: Callable[[str], Any] | None = None

    def connect(self, timeout_s: float) -> None:
        try:
            self._actor = ray.get_actor(self._actor_name)
            ray.get(self._actor.place.remote(), timeout=max(0.0, timeout_s))
        except (ValueError, RayError) as e:
            raise WorkerLost(f"there is no actor {self._actor_name}: {e}") from e
        self._in_use.add(self)
        self._note_heartbeat()
        when_done(self._actor.watch.remote(), lambda _: self._lose("its actor has ended"), self._lose)

    def _lose(self, reason: object) -> None:
        with self._lock:
            is_first = self._loss is None
            if is_first:
                self._loss = str(reason)
            answer, on_lost = self._answer, self._on_lost
        if is_first:
            if answer is not None:
                _break(answer, reason)
            if on_lost is not None:
                self._report_loss(on_lost, str(reason))

    def run(self, task: Task, timeout_s: float) -> dict[str, Any]:
        name, answer = str(task.get("name")), Answer()
        text = json.dumps(task)
        if self._actor is None:
            raise WorkerLost(f"worker {self.name} is not connected")
        with self._lock:
            self._answer, loss = answer, self._loss
        if loss is not None:
            raise WorkerLost(f"worker {self.name} is lost: {loss}")
        when_done(self._actor.run.remote(text, timeout_s), answer.succeed, partial(_break, answer))
        try:
            reply = json.loads(self._wait_for(answer, timeout_s))
        except FutureTimeout as e:
            raise WorkerLost(f"worker {self.name} has not answered the task {name} within {timeout_s:g} s") from e
        except ConnectionError as e:
            raise WorkerLost(f"worker {self.name} was lost during the task {name}: {e}") from e
        if "failed" in reply:
            raise TaskFailed(self.name, name, reply["failed"])
        if "lost" in reply:
            raise WorkerLost(reply["lost"])
        return result_of(reply["result"])

    def _wait_for(self, answer: Answer, timeout_s: float) -> str:
        """Return the answer of the worker.

        Raises:
            FutureTimeout: there is none in time.
            ConnectionError: the worker has ended, or sends no heartbeat.
        """
        begin, deadline = monotonic(), monotonic() + timeout_s
        while True:
            with contextlib.suppress(FutureTimeout):
                text = answer.result(max(0.0, min(_ASK_S, deadline - monotonic())))
                self._note_heartbeat()
                return text
            if monotonic() >= deadline:
                raise FutureTimeout
            silence_s = monotonic() - max(begin, self._last_seen or begin)
            if silence_s > _TOLERANCE_S:
                raise ConnectionError(f"no sign of life for {silence_s:.0f} s")
            when_done(self._actor.place.remote(), lambda _: self._note_heartbeat(), self._lose)

    def _note_heartbeat(self) -> None:
        self._last_seen = monotonic()

    def watch(self, on_lost: Callable[[str], Any]) -> None:
        with self._lock:
            self._on_lost, loss = on_lost, self._loss
        if loss is not None:
            self._report_loss(on_lost, loss)

    def _report_loss(self, on_lost: Callable[[str], Any], reason: str) -> None:
        # In a thread: the callback may wait for locks, and Ray waits for callbacks.
        threading.Thread(target=on_lost, args=(reason,), name=f"loss_of_{self.name}", daemon=True).start()

    def drop(self, reason: str) -> None:
        self._in_use.discard(self)
        self._on_lost = None
        self._lose(reason)

    def close(self) -> None:
        if self in self._in_use:
            self._actor.leave.remote()
        super().close()


def when_done(reference: Any, done: Callable[[Any], Any], failed: Callable[[object], Any]) -> None:
    """Call `done` with the value of a reference once it is available, or `failed` with its error."""

    def settle(future: Future[Any]) -> None:
        error = future.exception()
        if error is None:
            done(future.result())
        else:
            failed(error)

    reference.future().add_done_callback(settle)


def _break(answer: Answer, reason: object) -> None:
    answer.fail(ConnectionError(str(reason)))


class RayConnector(HttpConnector):
    """The `Connector` to workers in actors; only the pages are served over HTTP.

    Args:
        cfg: `host` and `port` for the pages.
    """

    def __init__(self, cfg: Mapping[str, Any]) -> None:
        super().__init__(cfg.get("host"), cfg.get("port", 0))

    def client(self, name: str, host: str, port: int) -> RayWorkerClient:
        return RayWorkerClient(name, port, self._clients)
