"""The transport 'ray', where tasks are calls of actors."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures import TimeoutError as FutureTimeout
from time import monotonic
from typing import Any

try:
    import ray
    from ray.exceptions import RayError
except ImportError as e:
    raise ImportError("the transport 'ray' needs the package ray: pip install 'ding-worker[ray]'") from e

from ding.interaction.exception import TaskFail
from ding.utils.msgpack_helper import pack, unpack
from ding.utils.registry_factory import TRANSPORT_REGISTRY
from ding.worker.transport.http_transport import HttpConnector
from ding.worker.transport.local_transport import LocalWorkerServer, local_server
from ding.worker.transport.ray.policy_store import RayPolicyStore
from ding.worker.transport.ray.sample_store import RaySampleStore
from ding.worker.transport.transport import (
    Answer,
    Launch,
    Serve,
    Task,
    TaskFailed,
    Transport,
    WorkerClient,
    WorkerGone,
    WorkerLost,
    result_of,
)


@TRANSPORT_REGISTRY.register("ray")
class RayTransport(Transport):
    """The transport with tasks as calls of actors, and samples and weights as objects in the object store of Ray."""

    name = "ray"
    launch = Launch.ACTOR

    def connector(self, cfg: Mapping[str, Any]) -> RayConnector:
        return RayConnector(cfg)

    def worker_server(self, serve: Serve, cfg: Mapping[str, Any], on_lost: Callable[[], Any]) -> LocalWorkerServer:
        """Return a server in the process of the actor, which passes tasks to it."""
        return LocalWorkerServer(serve, close_timeout_s=cfg.get("close_timeout_s", 10.0))

    def sample_store(self, root: str) -> RaySampleStore:
        return RaySampleStore(root)

    def policy_store(self, root: str, trust_pickle: bool = False) -> RayPolicyStore:
        return RayPolicyStore(root, trust_pickle)


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

    def run(self, task: bytes, timeout_s: float) -> tuple[str, bytes]:
        """Run a task.

        Args:
            task: the packed task.
            timeout_s: how many seconds a caller waits. A while later, this call ends, too.

        Returns:
            `result`, `failed` or `lost`, and the packed result, or the reason why the task is lost.
        """
        assert self._server is not None
        try:
            return "result", self._server.submit(task).result(timeout_s + _TOLERANCE_S)
        except TaskFail as e:
            if e.result.get("exception") == WorkerLost.__name__:  # the other ranks of a learner are lost
                return "lost", pack(e.result["message"])
            return "failed", pack(e.result)
        except (WorkerLost, FutureTimeout) as e:
            return "lost", pack(str(e))

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
        self._loss = Answer()  # the reason, once the worker is lost or dropped
        self._on_lost: Callable[[str], Any] | None = None

    def connect(self, timeout_s: float) -> None:
        try:
            self._actor = ray.get_actor(self._actor_name)
            ray.get(self._actor.place.remote(), timeout=max(0.0, timeout_s))
        except (ValueError, RayError) as e:
            raise WorkerGone(f"there is no actor {self._actor_name}: {e}") from e
        self._in_use.add(self)
        self._last_seen = monotonic()
        when_done(self._actor.watch.remote(), lambda _: self._lose("its actor has ended"), self._lose)

    def _lose(self, reason: object) -> None:
        self._loss.succeed(str(reason))
        on_lost, self._on_lost = self._on_lost, None
        if on_lost is not None:  # in a thread: it may wait for locks, and Ray waits for callbacks
            reasons = (self._loss.result(),)
            threading.Thread(target=on_lost, args=reasons, name=f"loss_of_{self.name}", daemon=True).start()

    def _note_heartbeat(self, place: Any) -> None:
        self._last_seen = monotonic()

    def run(self, task: Task, timeout_s: float) -> dict[str, Any]:
        name, packed = str(task.get("name")), pack(task)
        if self._actor is None:
            raise WorkerLost(f"worker {self.name} is not connected")
        if self._loss.done():
            raise WorkerLost(f"worker {self.name} is lost: {self._loss.result()}")
        answer: Future[tuple[str, bytes]] = self._actor.run.remote(packed, timeout_s).future()
        self._wait_for(answer, name, timeout_s)
        error = answer.exception()
        if error is not None:
            raise WorkerLost(f"worker {self.name} was lost during the task {name}: {error}") from error
        self._last_seen = monotonic()
        outcome, content = answer.result()
        result = unpack(content)
        if outcome == "failed":
            raise TaskFailed(self.name, name, result)
        if outcome == "lost":
            raise WorkerLost(result)
        return result_of(result)

    def _wait_for(self, answer: Future[Any], name: str, timeout_s: float) -> None:
        """Wait for the answer of the worker, which sends a heartbeat meanwhile.

        Raises:
            WorkerLost: there is no answer in time, the worker has ended, or it sends no heartbeat.
        """
        begin = monotonic()
        while True:
            wait([answer, self._loss], max(0.0, min(_ASK_S, begin + timeout_s - monotonic())), FIRST_COMPLETED)
            if answer.done():
                return
            if self._loss.done():
                raise WorkerLost(f"worker {self.name} was lost during the task {name}: {self._loss.result()}")
            now = monotonic()
            if now >= begin + timeout_s:
                raise WorkerLost(f"worker {self.name} has not answered the task {name} within {timeout_s:g} s")
            silence_s = now - max(begin, self._last_seen or begin)
            if silence_s > _TOLERANCE_S:
                raise WorkerLost(f"worker {self.name} gave no sign of life for {silence_s:.0f} s in the task {name}")
            when_done(self._actor.place.remote(), self._note_heartbeat, self._lose)

    def watch(self, on_lost: Callable[[str], Any]) -> None:
        self._on_lost = on_lost
        if self._loss.done():
            self._lose(self._loss.result())

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


class RayConnector(HttpConnector):
    """The `Connector` to workers in actors; only the pages are served over HTTP.

    Args:
        cfg: `host` and `port` for the pages.
    """

    def __init__(self, cfg: Mapping[str, Any]) -> None:
        super().__init__(cfg.get("host"), cfg.get("port", 0))

    def client(self, name: str, host: str, port: int) -> RayWorkerClient:
        return RayWorkerClient(name, port, self._clients)
