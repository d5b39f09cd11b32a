"""The coordinator's dealings with its workers: connect them, give them tasks, see the tasks to their end."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from ding.worker.coordinator.resource_manager import NaiveResourceManager
from ding.worker.coordinator.roster import Roster
from ding.worker.coordinator.task_run import COLLECTOR, LEARNER, CoordinatorSide, Task, TaskRun, TaskStalled, Worker
from ding.worker.transport.link import WorkerLetGo, WorkerLost, connect, connect_all
from ding.worker.transport.transport import DEFAULT_TRANSPORT, get_transport

if TYPE_CHECKING:
    from ding.interaction.server.pages import Page
    from ding.worker.coordinator.operator_workers import OperatorWorkers


class WorkersSide(CoordinatorSide, Protocol):
    """What is told of workers that come and go, besides their tasks; see `Coordinator`."""

    def deal_with_increase_collector(self) -> None: ...

    def deal_with_decrease_collector(self) -> None: ...

    def deal_with_error(self, error: Exception) -> None: ...


class CommCoordinator:
    """Runs tasks on workers, each in a thread of its own.

    Args:
        cfg: the coordinator section: `host`, `port`, `transport`, `task_timeout`, `task_silence_s` (0), `learner` and
            `collector`, each `{name: [name, host, port]}`; and `operator_server`, see `OperatorWorkers`, empty where
            there is none.
        callback_fn: who is told what happens, see `Coordinator`.
        logger: a text logger.

    Raises:
        ConfigError: there is no such transport, or `operator_server` is not as it should be.
    """

    # Seconds within which every configured worker must be connected.
    _max_retry_second = 120.0

    def __init__(self, cfg: Mapping[str, Any], callback_fn: WorkersSide, logger: Any) -> None:
        self._cfg = cfg
        self._callback_fn = callback_fn
        self._logger = logger
        self._hub = get_transport(cfg.get("transport", DEFAULT_TRANSPORT)).hub(cfg)
        self.roster = Roster()
        self._workers: dict[str, Worker] = {}
        self._resource_manager = NaiveResourceManager()
        self._running: dict[threading.Thread, TaskRun] = {}
        self._given: Counter[tuple[str, bool]] = Counter()  # tasks, by worker and whether they evaluate
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._operator = self._make_operator() if cfg.get("operator_server") else None

    @property
    def url(self) -> str | None:
        """Where the coordinator listens, from `start` on; None where it does not."""
        return self._hub.url

    def serve_page(self, path: str, page: Page) -> None:
        """See `Hub.serve_page`."""
        self._hub.serve_page(path, page)

    @property
    def operator(self) -> OperatorWorkers | None:
        """Who brings further workers, if somebody does."""
        return self._operator

    def _make_operator(self) -> OperatorWorkers:
        from ding.worker.coordinator.operator_workers import OperatorWorkers

        joining = partial(self.join, timeout_s=self._max_retry_second)
        return OperatorWorkers(
            self._cfg["operator_server"], joining, self.leave, self._logger, self._callback_fn.deal_with_error
        )

    def start(self) -> None:
        """Connect all workers of the config, at the same time; with an operator, have it bring more.

        Raises:
            ConnectionError: some could not be reached in time, which it names; or the operator has not brought as many
                as it should.
        """
        self._hub.start()
        attempts = {
            name: partial(self._connect, kind, name, host, port, self._max_retry_second)
            for kind in (LEARNER, COLLECTOR)
            for name, host, port in self._cfg.get(kind, {}).values()
        }
        connect_all(attempts, self._max_retry_second)
        if self._operator is not None:
            self._operator.start(self.count, self._max_retry_second)

    def _connect(self, kind: str, name: str, host: str, port: int, timeout_s: float) -> None:
        link, resource = connect(self._hub, name, host, port, timeout_s)
        self.roster.joined(kind, name, f"{host}:{port}", link)
        worker = Worker(kind, name, link, resource)
        with self._lock:
            self._workers[name] = worker
        self._resource_manager.update(kind, name, resource)
        self._logger.info("%s %s is connected: %s", kind, name, resource)
        link.watch(partial(self._deal_with_loss, worker))

    def count(self, kind: str) -> int:
        """How many workers of this kind are connected."""
        with self._lock:
            return sum(worker.kind == kind for worker in self._workers.values())

    def join(self, kind: str, name: str, host: str, port: int, timeout_s: float) -> None:
        """Connect a worker that was not in the config.

        Raises:
            WorkerLost, TaskFailed: see `connect`.
        """
        self._connect(kind, name, host, port, timeout_s)
        if kind == COLLECTOR:
            self._callback_fn.deal_with_increase_collector()
        else:
            self._callback_fn.deal_with_worker_free(kind, name)

    def rejoin(self, kind: str, name: str, timeout_s: float) -> None:
        """Connect a worker of the config, that was lost, at its old address.

        Raises:
            WorkerLost, TaskFailed: see `connect`.
        """
        _, host, port = self._cfg[kind][name]
        self.join(kind, name, host, port, timeout_s)

    def leave(self, kind: str, name: str) -> None:
        """Let go of a worker, if it is there; a task that it runs is lost."""
        worker = self._worker(name)
        if worker is not None and self._let_go(worker):
            worker.link.close()

    def drop(self, kind: str, name: str, reason: str) -> None:
        """Let go of a worker that has gone; as `leave`, but it is not told."""
        worker = self._worker(name)
        if worker is not None and self._let_go(worker):
            worker.link.drop(reason)

    def _worker(self, name: str) -> Worker | None:
        with self._lock:
            return self._workers.get(name)

    def _let_go(self, worker: Worker) -> bool:
        """Give no more tasks to a worker; False where that was done before."""
        with self._lock:
            if self._workers.get(worker.worker_id) is not worker:
                return False
            del self._workers[worker.worker_id]
        self.roster.left(worker.worker_id, worker.link)
        self._resource_manager.delete(worker.kind, worker.worker_id)
        if worker.kind == COLLECTOR:
            self._callback_fn.deal_with_decrease_collector()
        return True

    def running(self) -> list[TaskRun]:
        """The tasks that run."""
        with self._lock:
            return list(self._running.values())

    def free_count(self, kind: str) -> int:
        """How many workers of this kind wait for a task."""
        return self._resource_manager.count(kind)

    def send_collector_task(self, collector_task: Task) -> bool:
        """Give the task to a free collector; False where none is free. Whether it can begin, callbacks tell."""
        return self._send(COLLECTOR, self._resource_manager.assign_collector(collector_task), collector_task)

    def send_learner_task(self, learner_task: Task) -> bool:
        """Give the task to a free learner; False where none is free. Whether it can begin, callbacks tell."""
        return self._send(LEARNER, self._resource_manager.assign_learner(learner_task), learner_task)

    def _send(self, kind: str, assigned: dict[str, Any] | None, task: Task) -> bool:
        if assigned is None:
            return False
        with self._lock:
            worker = self._workers.get(assigned[f"{kind}_id"])
        if worker is None:  # it has left in between
            return False
        number = self._number(worker, task) if kind == COLLECTOR else None
        limits_s = self._cfg["task_timeout"], self._cfg.get("task_silence_s", 0.0)
        run = TaskRun(worker, task, self._callback_fn, limits_s[0], self._ending.is_set, number, limits_s[1])
        # Beginning may take long: the next task must not wait for it.
        thread = threading.Thread(target=partial(self._execute, run), name=f"coordinator_{kind}_task", daemon=True)
        with self._lock:
            if self._ending.is_set():
                return False
            self._running[thread] = run
            thread.start()
        return True

    def _number(self, worker: Worker, task: Task) -> int:
        """How many tasks of this kind the worker of that name was given before, in all its lives."""
        key = worker.worker_id, bool(task["collector_cfg"]["eval_flag"])
        self._given[key] += 1
        return self._given[key] - 1

    def _execute(self, run: TaskRun) -> None:
        worker, told = run.worker, self._callback_fn
        try:
            is_free = self._see_through(run)
            if is_free and self._set_free(worker):
                told.deal_with_worker_free(worker.kind, worker.worker_id)
        except WorkerLost as e:
            if not self._ending.is_set():
                told.deal_with_worker_lost(worker.kind, worker.worker_id, run.task, self._after_loss(worker, e))
        finally:
            with self._lock:
                self._running.pop(threading.current_thread(), None)

    def _set_free(self, worker: Worker) -> bool:
        """Let a worker have other tasks; False where it has left."""
        with self._lock:
            is_there = self._workers.get(worker.worker_id) is worker
            if is_there:
                self._resource_manager.update(worker.kind, worker.worker_id, worker.resource)
        if is_there:
            worker.link.watch(partial(self._deal_with_loss, worker))  # it may be lost since its last answer
        return is_there

    def _deal_with_loss(self, worker: Worker, reason: str) -> None:
        """A worker is lost. One that runs a task is left to whoever waits for the answer."""
        with self._lock:
            is_there = self._workers.get(worker.worker_id) is worker and not self._ending.is_set()
            is_free = is_there and self._resource_manager.delete(worker.kind, worker.worker_id)
        if is_free and self._let_go(worker):
            worker.link.drop(reason)
            error = WorkerLost(f"{worker.kind} {worker.worker_id} was lost while it had no task: {reason}")
            self._callback_fn.deal_with_worker_lost(worker.kind, worker.worker_id, None, error)

    def _after_loss(self, worker: Worker, error: WorkerLost) -> WorkerLost:
        """Let go of a worker that was lost; returns what to tell of the loss."""
        if self._let_go(worker):
            if isinstance(error, TaskStalled):
                worker.link.close()  # it listens: told, it abandons the task, and may be connected again
            else:
                worker.link.drop(str(error))
            return error
        return WorkerLetGo(f"{worker.kind} {worker.worker_id} was taken away from its task: {error}")

    def _see_through(self, run: TaskRun) -> bool:
        """Run the task; whatever fails in it, in the worker or in a callback, the coordinator hears of.

        Returns:
            whether the worker may have another task.

        Raises:
            WorkerLost: the worker has gone.
        """
        is_done = False
        with self._telling_errors(run):
            run.start()
            self._logger.info("%s %s runs the task %s", run.worker.kind, run.worker.worker_id, run.task_id)
            is_done = run.run()
        is_closed = False
        with self._telling_errors(run, only_if=is_done):
            finished_task = run.close()
            is_closed = True
            if is_done:
                run.finish(finished_task)
        return is_closed

    @contextlib.contextmanager
    def _telling_errors(self, run: TaskRun, only_if: bool = True) -> Iterator[None]:
        try:
            yield
        except WorkerLost:
            raise
        except Exception as e:
            if only_if and not self._ending.is_set():
                self._callback_fn.deal_with_task_error(run.worker.kind, run.task, e)

    def close(self, timeout_s: float = 15.0) -> None:
        """End all tasks, disconnect the workers and stop.

        Waits about `timeout_s` for the tasks, then a bounded time for the transport. Idempotent.
        """
        with self._lock:
            self._ending.set()
            threads = list(self._running)
        if self._operator is not None:
            self._operator.close()
        _join(threads, timeout_s)
        stuck = sorted(run.task_id for run in list(self._running.values()))
        if stuck:
            self._logger.error("tasks have not ended within %g s, they are broken off: %s", timeout_s, stuck)
        self._hub.close()
        _join(threads, 1.0)  # without their links they end at once


def _join(threads: list[threading.Thread], timeout_s: float) -> None:
    deadline = monotonic() + timeout_s
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join(max(0.0, deadline - monotonic()))
