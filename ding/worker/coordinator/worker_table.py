"""The workers of a coordinator: those that are connected, and those that were lost."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from ding.worker.coordinator.resource_manager import NaiveResourceManager
from ding.worker.transport.link import Link

if TYPE_CHECKING:
    from ding.worker.coordinator.task_run import Task, TaskRun

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
