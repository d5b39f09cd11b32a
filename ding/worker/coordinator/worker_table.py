"""The workers of a coordinator: free, connected and lost ones, and how lost ones return."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any, Literal, Protocol

from ding.utils.system_helper import DaemonThreads
from ding.worker.transport.transport import LEARNER, WorkerClient, WorkerGone, WorkerLost

_KINDS = ("collector", "learner")


class NaiveResourceManager:
    """The set of free workers, of which one is assigned at random. This class is thread-safe.

    Example:
        >>> manager = NaiveResourceManager()
        >>> manager.update("learner", "learner0", {"gpu": 1})
        >>> manager.assign_learner({"task_id": "t"})
        {'learner_id': 'learner0', 'resource_info': {'gpu': 1}}
        >>> manager.assign_learner({"task_id": "t"}) is None
        True
    """

    def __init__(self) -> None:
        self._free: dict[str, dict[str, Any]] = {kind: {} for kind in _KINDS}
        self._lock = threading.Lock()
        # Not the global generator: the choice must neither depend on nor change the experiment's random state.
        self._random = random.SystemRandom()

    def assign_collector(self, collector_task: dict[str, Any]) -> dict[str, Any] | None:
        """Remove a free collector and return `{'collector_id', 'resource_info'}`; None if none is free."""
        return self._assign("collector")

    def assign_learner(self, learner_task: dict[str, Any]) -> dict[str, Any] | None:
        """Remove a free learner and return `{'learner_id', 'resource_info'}`; None if none is free."""
        return self._assign("learner")

    def _assign(self, kind: str) -> dict[str, Any] | None:
        with self._lock:
            free = self._free[kind]
            if not free:
                return None
            worker_id = self._random.choice(list(free))
            return {f"{kind}_id": worker_id, "resource_info": free.pop(worker_id)}

    def have_assigned(self, name: str, worker_id: str) -> bool:
        """Return whether the worker is among the free ones (the name says the opposite)."""
        with self._lock:
            return worker_id in self._of(name)

    def delete(self, name: str, worker_id: str) -> bool:
        """Remove a free worker; return False if it is not free."""
        with self._lock:
            return self._of(name).pop(worker_id, _MISSING) is not _MISSING

    def update(self, name: str, worker_id: str, resource_info: dict[str, Any]) -> None:
        """Add a free worker with its resources.

        Raises:
            AssertionError: `name` is neither 'collector' nor 'learner'; all methods with `name` may raise this.
        """
        with self._lock:
            self._of(name)[worker_id] = resource_info

    def count(self, name: str) -> int:
        """Return the number of free workers of this kind."""
        with self._lock:
            return len(self._of(name))

    def _of(self, name: str) -> dict[str, Any]:
        if name not in _KINDS:
            raise AssertionError(f"the kind of worker {name!r} is not allowed; it must be one of {', '.join(_KINDS)}")
        return self._free[name]


_MISSING = object()


# Beyond this number of lost workers, the oldest ones are forgotten: an operator gives each worker a new name.
_MAX_LOST = 50
# How long `close` waits for attempts to connect, all together.
CLOSE_S = 5.0


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """The status of a worker.

    Attributes:
        address: its last address, as `host:port`.
        task_id: the task it runs, or None.
        silence_s: seconds since its last sign of life: an answer or, over HTTP, a heartbeat.
        restarts: how often it has returned.
    """

    kind: str
    name: str
    address: str
    state: Literal["free", "busy", "lost"]
    task_id: str | None
    silence_s: float | None
    restarts: int


@dataclass(slots=True, eq=False)
class Worker:
    """A worker, from its connection to its loss; a worker that returns is a new object with the same name.

    Attributes:
        resource: its answer to the request for its resources.
        restarts: how often a worker of this name has returned.
        task: the task it runs, or None.
        is_lost: whether it is no longer connected.
    """

    kind: str
    worker_id: str
    client: WorkerClient
    resource: dict[str, Any]
    address: str = ""
    restarts: int = 0
    task: dict[str, Any] | None = None
    is_lost: bool = False


class WorkerTable:
    """The workers by name. This class is thread-safe.

    A worker is free, busy from `take` to `set_free`, or lost. A `NaiveResourceManager` chooses among the free ones.
    """

    def __init__(self) -> None:
        self._workers: dict[str, Worker] = {}
        self._free = NaiveResourceManager()
        self._lock = threading.Lock()

    def join(self, worker: Worker) -> None:
        """Add a connected worker, new or returned, as a free one."""
        with self._lock:
            before = self._workers.get(worker.worker_id)
            if before is not None:
                before.is_lost = True
                worker.restarts = before.restarts + 1
            self._workers[worker.worker_id] = worker
            self._free.update(worker.kind, worker.worker_id, worker.resource)

    def leave(self, worker: Worker, only_if_free: bool = False) -> bool:
        """Mark the worker as lost; return False if it already is, or if it is not free and `only_if_free` is set."""
        with self._lock:
            if worker.is_lost or (only_if_free and not self._free.have_assigned(worker.kind, worker.worker_id)):
                return False
            worker.is_lost, worker.task = True, None
            self._free.delete(worker.kind, worker.worker_id)
            lost = [name for name, other in self._workers.items() if other.is_lost]
            for name in lost[:-_MAX_LOST]:
                del self._workers[name]
            return True

    def take(self, kind: str, task: dict[str, Any]) -> Worker | None:
        """Return a free worker for the task and mark it as busy; None if there is none."""
        with self._lock:
            assign = self._free.assign_learner if kind == LEARNER else self._free.assign_collector
            chosen = assign(task)
            if chosen is None:
                return None
            worker = self._workers[chosen[f"{kind}_id"]]
            worker.task = task
            return worker

    def set_free(self, worker: Worker) -> bool:
        """Make the worker available for another task; return False if it is lost."""
        with self._lock:
            worker.task = None
            if not worker.is_lost:
                self._free.update(worker.kind, worker.worker_id, worker.resource)
            return not worker.is_lost

    def find(self, name: str) -> Worker | None:
        """Return the connected worker of that name, or None."""
        with self._lock:
            worker = self._workers.get(name)
            return None if worker is None or worker.is_lost else worker

    def busy(self) -> list[tuple[Worker, dict[str, Any]]]:
        """Return the workers that run tasks, with their tasks."""
        with self._lock:
            return [(worker, worker.task) for worker in self._workers.values() if worker.task is not None]

    def count(self, kind: str) -> int:
        """Return the number of connected workers of this kind."""
        with self._lock:
            return sum(worker.kind == kind and not worker.is_lost for worker in self._workers.values())

    def free_count(self, kind: str) -> int:
        """Return the number of free workers of this kind."""
        with self._lock:
            return self._free.count(kind)

    def statuses(self) -> tuple[WorkerStatus, ...]:
        """Return the status of each worker, learners first."""
        with self._lock:
            workers = sorted(self._workers.values(), key=lambda w: (w.kind != LEARNER, len(w.worker_id), w.worker_id))
            return tuple(self._status(worker) for worker in workers)

    def _status(self, worker: Worker) -> WorkerStatus:
        is_free = self._free.have_assigned(worker.kind, worker.worker_id)
        state: Literal["free", "busy", "lost"] = "lost" if worker.is_lost else "free" if is_free else "busy"
        return WorkerStatus(
            kind=worker.kind,
            name=worker.worker_id,
            address=worker.address,
            state=state,
            task_id=None if worker.task is None else worker.task["task_id"],
            silence_s=worker.client.silence_s(),
            restarts=worker.restarts,
        )


class WorkerSupervisor(Protocol):
    """A supervisor that brings back lost workers, and has the coordinator connect them again."""

    def lost(self, kind: str, name: str, error: Exception) -> bool:
        """Handle the loss of a worker; return whether it will be brought back."""

    def close(self) -> None:
        """Stop bringing workers back, in bounded time. Further calls do nothing."""


class ReconnectSupervisor:
    """A `WorkerSupervisor` that waits for lost workers at their old addresses, where another program may restart them.

    Args:
        join: connects the worker of a kind and name, within a number of seconds; raises `WorkerLost` if it cannot.
        give_up: called with a worker that has not returned, and the error of its loss.
        timeout_s: seconds to wait for each worker; 0 disables the wait.
    """

    def __init__(
        self,
        join: Callable[[str, str, float], Any],
        give_up: Callable[[str, str, Exception], Any],
        timeout_s: float,
    ) -> None:
        self._join, self._give_up, self._timeout_s = join, give_up, timeout_s
        self._closed = threading.Event()
        self._threads = DaemonThreads()

    def lost(self, kind: str, name: str, error: Exception) -> bool:
        if self._closed.is_set() or not self._timeout_s:
            return False
        self._threads.start(f"return_of_{name}", self._wait, kind, name, error)
        return True

    def _wait(self, kind: str, name: str, error: Exception) -> None:
        deadline = monotonic() + self._timeout_s
        while not self._closed.is_set():
            try:
                self._join(kind, name, max(0.1, deadline - monotonic()))
                return
            except WorkerLost as e:
                if isinstance(e, WorkerGone) or monotonic() >= deadline:
                    self._give_up(kind, name, error)
                    return
                self._closed.wait(0.1)  # it has refused: it may still be ending its previous task
            except Exception as e:  # the thread has no caller: whoever waits for the worker is told
                self._give_up(kind, name, e)
                return

    def close(self) -> None:
        self._closed.set()
        self._threads.join(CLOSE_S)
