"""A worker of a run on Ray: the actor that it runs in, and the coordinator's link to it."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, InvalidStateError
from concurrent.futures import TimeoutError as FutureTimeout
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import RayError

from ding.worker.transport.http_transport import HttpHub
from ding.worker.transport.link import Task, TaskFailed, WorkerLost
from ding.worker.transport.local_transport import LocalHub, LocalLink

if TYPE_CHECKING:
    from ding.utils.page import Page

_logger = logging.getLogger("ding")
# How many calls may be at work in an actor: a task, who watches it, the end, and questions.
_CONCURRENCY = 8
# Ray tells at once of a process that has died. One that was stopped does not answer questions, which are asked every
# so many seconds while it has a task; it is lost after so many seconds without an answer.
_ASK_S, _TOLERANCE_S = 3.0, 15.0


def actor_name(worker: str, life: int) -> str:
    """The name of the actor that a worker runs in the `life`-th time, within the namespace of the run."""
    return f"{worker}:{life}"


class WorkerActor:
    """What runs in the actor of a worker. Its methods may be called at the same time.

    Args:
        make: makes the comm worker, prepares this process for it and starts it.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._worker: Any = make()
        self._ended = threading.Event()
        self._link: LocalLink = LocalHub().link("worker", "", self._worker.port)
        self._link.connect(0.0)

    def place(self) -> dict[str, Any]:
        """Where it is: `pid` and `host`."""
        return {"pid": os.getpid(), "host": str(ray.util.get_node_ip_address())}  # type: ignore[no-untyped-call]

    def run(self, task: str, timeout_s: float) -> str:
        """Run a task, as JSON; the answer has its `result`, or what it has `failed` with, or that it is `lost`."""
        try:
            return json.dumps({"result": self._link.run(json.loads(task), timeout_s)})
        except TaskFailed as e:
            if e.result.get("exception") == WorkerLost.__name__:  # it is one of several ranks, and others are lost
                return json.dumps({"lost": e.result["message"]})
            return json.dumps({"failed": e.result})
        except WorkerLost as e:
            return json.dumps({"lost": str(e)})

    def leave(self) -> None:
        """The coordinator has gone: end its task."""
        self._worker.deal_with_lost_coordinator()

    def watch(self) -> None:
        """Return when the worker is closed; until then whoever waits for this learns at once when the process dies."""
        self._ended.wait()

    def close(self) -> None:
        """End the worker: its task, with a last checkpoint. Idempotent."""
        try:
            self._worker.close()
        finally:
            self._ended.set()


def actor_class() -> Any:
    """The class of actors for workers."""
    decorate: Any = ray.remote(max_concurrency=_CONCURRENCY)  # type: ignore[call-overload]
    return decorate(WorkerActor)


class RayLink:
    """See `Link`.

    Args:
        life: of the worker: an actor that is started in the place of a lost one has a later life, and another link.
        in_use: where it is from `connect` on, until it is closed.
    """

    def __init__(self, worker: str, life: int, in_use: set[RayLink]) -> None:
        self.name = worker
        self._actor_name = actor_name(worker, life)
        self._in_use = in_use
        self._actor: Any = None
        self._lock = threading.Lock()
        self._answer: Future[str] | None = None  # of the task that runs
        self._loss: str | None = None  # the reason
        self._on_lost: Callable[[str], Any] | None = None
        self._last_seen: float | None = None

    def connect(self, timeout_s: float) -> None:
        try:
            self._actor = ray.get_actor(self._actor_name)
            ray.get(self._actor.place.remote(), timeout=max(0.0, timeout_s))
        except (ValueError, RayError) as e:
            raise WorkerLost(f"there is no actor {self._actor_name}: {e}") from e
        self._in_use.add(self)
        self._see()
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
                self._tell(on_lost, str(reason))

    def run(self, task: Task, timeout_s: float) -> dict[str, Any]:
        name, answer = str(task.get("name")), Future[str]()
        text = json.dumps(task)
        if self._actor is None:
            raise WorkerLost(f"worker {self.name} is not connected")
        with self._lock:
            self._answer, loss = answer, self._loss
        if loss is not None:
            raise WorkerLost(f"worker {self.name} is lost: {loss}")
        when_done(self._actor.run.remote(text, timeout_s), partial(_settle, answer), partial(_break, answer))
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
        return dict(reply["result"])

    def _wait_for(self, answer: Future[str], timeout_s: float) -> str:
        """The answer, as long as the worker shows signs of life.

        Raises:
            FutureTimeout: there is none in time.
            ConnectionError: the worker has ended, or does not live.
        """
        begin, deadline = monotonic(), monotonic() + timeout_s
        while True:
            with contextlib.suppress(FutureTimeout):
                text = answer.result(max(0.0, min(_ASK_S, deadline - monotonic())))
                self._see()
                return text
            if monotonic() >= deadline:
                raise FutureTimeout
            silence_s = monotonic() - max(begin, self._last_seen or begin)
            if silence_s > _TOLERANCE_S:
                raise ConnectionError(f"no sign of life for {silence_s:.0f} s")
            when_done(self._actor.place.remote(), lambda _: self._see(), self._lose)

    def _see(self) -> None:
        self._last_seen = monotonic()

    def watch(self, on_lost: Callable[[str], Any]) -> None:
        with self._lock:
            self._on_lost, loss = on_lost, self._loss
        if loss is not None:
            self._tell(on_lost, loss)

    def _tell(self, on_lost: Callable[[str], Any], reason: str) -> None:
        # In a thread: whoever is told may wait for locks, and Ray waits for its callbacks.
        threading.Thread(target=on_lost, args=(reason,), name=f"loss_of_{self.name}", daemon=True).start()

    def silence_s(self) -> float | None:
        return None if self._last_seen is None else max(0.0, monotonic() - self._last_seen)

    def drop(self, reason: str) -> None:
        self._in_use.discard(self)
        self._on_lost = None
        self._lose(reason)

    def close(self) -> None:
        if self in self._in_use:
            self._actor.leave.remote()
        self.drop(f"worker {self.name} was disconnected")


def when_done(reference: Any, done: Callable[[Any], Any], failed: Callable[[object], Any]) -> None:
    """Call `done` with the value of a reference, or `failed` with the error, when it is there."""

    def tell(future: Future[Any]) -> None:
        error = future.exception()
        if error is None:
            done(future.result())
        else:
            failed(error)

    reference.future().add_done_callback(tell)


def _settle(answer: Future[str], value: str) -> None:
    with contextlib.suppress(InvalidStateError):
        answer.set_result(value)


def _break(answer: Future[str], reason: object) -> None:
    with contextlib.suppress(InvalidStateError):
        answer.set_exception(ConnectionError(str(reason)))


class RayHub:
    """See `Hub`. The pages are served over HTTP.

    Args:
        cfg: `host` and `port` for the pages.
    """

    def __init__(self, cfg: Mapping[str, Any]) -> None:
        self._pages = HttpHub(cfg.get("host"), cfg.get("port", 0))
        self._links: set[RayLink] = set()

    @property
    def url(self) -> str | None:
        return self._pages.url

    def serve_page(self, path: str, page: Page) -> None:
        self._pages.serve_page(path, page)

    def start(self) -> None:
        self._pages.start()

    def link(self, name: str, host: str, port: int) -> RayLink:
        return RayLink(name, port, self._links)

    def close(self) -> None:
        for link in self._links.copy():
            link.close()
        self._pages.close()
