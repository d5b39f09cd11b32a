"""The workers of a coordinator: connected and lost ones, and how lost ones come back."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, Protocol

from ding.worker.coordinator.resource_manager import NaiveResourceManager
from ding.worker.transport.link import Link, WorkerLost

if TYPE_CHECKING:
    from ding.worker.coordinator.comm_coordinator import Task, TaskRun

# With more workers lost than these, the first ones are forgotten: an operator gives each a new name.
_MAX_LOST = 50
_ORDER = {"learner": 0, "collector": 1}


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """How a worker is.

    Attributes:
        address: where it was connected last, as `host:port`.
        task_id: the task it runs, None where it runs none.
        silence_s: seconds since its last sign of life: an answer or, over HTTP, a heartbeat.
        restarts: how often it has come back.
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
    """A worker, from its connection to its loss; one that comes back is another object of the same name.

    Attributes:
        resource: what it answered when it was asked for its resources.
        restarts: how often one of this name has come back.
        given: how many collecting tasks (False) and evaluations (True) those of this name were given.
        run: the task it runs; None where it runs none.
        is_lost: it is connected no more.
    """

    kind: str
    worker_id: str
    link: Link
    resource: dict[str, Any]
    address: str = ""
    restarts: int = 0
    given: Counter[bool] = field(default_factory=Counter)
    run: TaskRun | None = None
    is_lost: bool = False

    @property
    def is_batched(self) -> bool:
        """Whether it takes and gives many samples, or batches, in one message."""
        return bool(self.resource.get("batched", False))


class WorkerTable:
    """The workers by name. Thread-safe.

    A worker is free, busy from `take` to `set_free`, or lost. A `NaiveResourceManager` chooses among the free ones.
    """

    def __init__(self) -> None:
        self._workers: dict[str, Worker] = {}
        self._free = NaiveResourceManager()
        self._lock = threading.Lock()

    def join(self, worker: Worker) -> None:
        """A worker is connected, for the first time or again, and free."""
        with self._lock:
            before = self._workers.get(worker.worker_id)
            if before is not None:
                before.is_lost = True
                worker.restarts, worker.given = before.restarts + 1, before.given
            self._workers[worker.worker_id] = worker
            self._free.update(worker.kind, worker.worker_id, worker.resource)

    def leave(self, worker: Worker, only_if_free: bool = False) -> bool:
        """The worker is connected no more; False where that was known, or it is not free and has to be."""
        with self._lock:
            if worker.is_lost or (only_if_free and not self._free.have_assigned(worker.kind, worker.worker_id)):
                return False
            worker.is_lost, worker.run = True, None
            self._free.delete(worker.kind, worker.worker_id)
            lost = [name for name, other in self._workers.items() if other.is_lost]
            for name in lost[:-_MAX_LOST]:
                del self._workers[name]
            return True

    def take(self, kind: str, task: Task) -> Worker | None:
        """A free worker, which is busy from now on; None where there is none."""
        with self._lock:
            assign = self._free.assign_learner if kind == "learner" else self._free.assign_collector
            chosen = assign(task)
            return None if chosen is None else self._workers[chosen[f"{kind}_id"]]

    def set_free(self, worker: Worker) -> bool:
        """The worker may have another task; False where it is lost."""
        with self._lock:
            worker.run = None
            if not worker.is_lost:
                self._free.update(worker.kind, worker.worker_id, worker.resource)
            return not worker.is_lost

    def find(self, name: str) -> Worker | None:
        """The connected worker of that name."""
        with self._lock:
            worker = self._workers.get(name)
            return None if worker is None or worker.is_lost else worker

    def count(self, kind: str) -> int:
        """How many workers of this kind are connected."""
        with self._lock:
            return sum(worker.kind == kind and not worker.is_lost for worker in self._workers.values())

    def free_count(self, kind: str) -> int:
        """How many workers of this kind are free."""
        with self._lock:
            return self._free.count(kind)

    def statuses(self) -> tuple[WorkerStatus, ...]:
        """How they all are, learners first."""
        with self._lock:
            workers = sorted(
                self._workers.values(), key=lambda w: (_ORDER.get(w.kind, 2), len(w.worker_id), w.worker_id)
            )
            return tuple(self._status(worker) for worker in workers)

    def _status(self, worker: Worker) -> WorkerStatus:
        state: Literal["free", "busy", "lost"] = "busy"
        if worker.is_lost:
            state = "lost"
        elif self._free.have_assigned(worker.kind, worker.worker_id):
            state = "free"
        task_id = worker.run.task_id if state == "busy" and worker.run is not None else None
        silence_s = worker.link.silence_s()
        return WorkerStatus(worker.kind, worker.worker_id, worker.address, state, task_id, silence_s, worker.restarts)


# How long `close` waits for attempts to connect, all together.
_CLOSE_S = 5.0


class WorkerKeeper(Protocol):
    """Brings back lost workers; when one is back, it has it connected."""

    def lost(self, kind: str, name: str, error: Exception) -> bool:
        """A worker is lost; returns whether it is to be brought back."""

    def close(self) -> None:
        """Bring nobody back any more. Idempotent; bounded in time."""


class RestartLimit:
    """Allows each worker `max_restarts` restarts within `window_s` seconds. Thread-safe.

    One that is lost at once, again and again, is given up; a long run outlives any number of losses.

    Example:
        >>> limit = RestartLimit(max_restarts=1, window_s=600)
        >>> limit.take("collector0"), limit.take("collector0"), limit.take("collector1")
        (True, False, True)
    """

    def __init__(self, max_restarts: int, window_s: float) -> None:
        self._max_restarts, self._window_s = max_restarts, window_s
        self._restarted_at: defaultdict[str, deque[float]] = defaultdict(partial(deque, maxlen=max_restarts))
        self._lock = threading.Lock()

    def take(self, name: str) -> bool:
        """Whether the worker of that name may be started again; if so, that counts."""
        with self._lock:
            last = self._restarted_at[name]  # so many as are allowed within the window
            if len(last) == self._max_restarts and (not last or monotonic() - last[0] < self._window_s):
                return False
            last.append(monotonic())
            return True


class ReturningWorkers:
    """Waits for lost workers at their old addresses, where somebody else may start them again; see `WorkerKeeper`.

    Args:
        join: connects the worker of that kind and name, within so many seconds; raises `WorkerLost` if it cannot.
        give_up: told of a worker, and how it was lost, that has not come back.
        timeout_s: how long each is waited for; 0 for not at all.
    """

    def __init__(
        self,
        join: Callable[[str, str, float], Any],
        give_up: Callable[[str, str, Exception], Any],
        timeout_s: float,
    ) -> None:
        self._join, self._give_up, self._timeout_s = join, give_up, timeout_s
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._threads: list[threading.Thread] = []

    def lost(self, kind: str, name: str, error: Exception) -> bool:
        with self._lock:
            if self._closed.is_set() or not self._timeout_s:
                return False
            wait = partial(self._wait, kind, name, error)
            thread = threading.Thread(target=wait, name=f"return_of_{name}", daemon=True)
            self._threads = [*(thread for thread in self._threads if thread.is_alive()), thread]
            thread.start()
        return True

    def _wait(self, kind: str, name: str, error: Exception) -> None:
        deadline = monotonic() + self._timeout_s
        while not self._closed.is_set():
            try:
                self._join(kind, name, max(0.1, deadline - monotonic()))
            except WorkerLost:
                if monotonic() >= deadline:
                    self._give_up(kind, name, error)
                    return
                self._closed.wait(0.1)  # it has refused: it may be ending the task of before
            except Exception as e:
                self._give_up(kind, name, e)
                return
            else:
                return

    def close(self) -> None:
        with self._lock:
            self._closed.set()
            threads = list(self._threads)
        deadline = monotonic() + _CLOSE_S
        for thread in threads:
            thread.join(max(0.0, deadline - monotonic()))
