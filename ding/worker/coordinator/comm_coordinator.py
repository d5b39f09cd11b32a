"""The coordinator's dealings with its workers: connect them, give them tasks, see the tasks to their end."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from functools import partial
from time import monotonic
from typing import Any

from ding.utils.config_helper import ConfigError
from ding.worker.coordinator.resource_manager import NaiveResourceManager
from ding.worker.coordinator.task_run import COLLECTOR, LEARNER, CoordinatorSide, Task, TaskRun, Worker
from ding.worker.transport.link import Hub, WorkerLost
from ding.worker.transport.tasks import RESOURCE


class CommCoordinator:
    """Runs tasks on workers, each in a thread of its own.

    Args:
        cfg: the coordinator section: `host`, `port`, `transport`, `task_timeout`, and `learner` and `collector`, each
            `{name: [name, host, port]}`.
        callback_fn: who is told what happens, see `Coordinator`.
        logger: a text logger.

    Raises:
        ConfigError: there is no such transport.
    """

    # Seconds within which every configured worker must be connected.
    _max_retry_second = 120.0

    def __init__(self, cfg: Mapping[str, Any], callback_fn: CoordinatorSide, logger: Any) -> None:
        self._cfg = cfg
        self._callback_fn = callback_fn
        self._logger = logger
        self._hub = make_hub(cfg)
        self._workers: dict[str, Worker] = {}
        self._resource_manager = NaiveResourceManager()
        self._running: dict[threading.Thread, TaskRun] = {}
        self._lock = threading.Lock()
        self._ending = threading.Event()

    def start(self) -> None:
        """Connect all workers of the config, at the same time.

        Raises:
            ConnectionError: some could not be reached in time; it names them all.
        """
        self._hub.start()
        failed: dict[str, str] = {}
        threads = [
            threading.Thread(
                target=self._connect, args=(kind, *address, failed), name=f"connect_{address[0]}", daemon=True
            )
            for kind in (LEARNER, COLLECTOR)
            for address in self._cfg.get(kind, {}).values()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failed:
            raise ConnectionError(
                f"no connection within {self._max_retry_second:g} s to "
                + "; ".join(f"{name}: {reason}" for name, reason in sorted(failed.items()))
            )

    def _connect(self, kind: str, name: str, host: str, port: int, failed: dict[str, str]) -> None:
        deadline = monotonic() + self._max_retry_second
        try:
            link = self._hub.link(name, host, port)
            link.connect(self._max_retry_second)
            resource = link.run({"name": RESOURCE, "batched": True}, max(0.1, deadline - monotonic()))
        except Exception as e:
            failed[name] = str(e)
            return
        with self._lock:
            self._workers[name] = Worker(kind, name, link, resource)
        self._resource_manager.update(kind, name, resource)
        self._logger.info("%s %s is connected: %s", kind, name, resource)

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
        worker = self._workers[assigned[f"{kind}_id"]]
        run = TaskRun(worker, task, self._callback_fn, self._cfg["task_timeout"], self._ending.is_set)
        # Beginning may take long: the next task must not wait for it.
        thread = threading.Thread(target=partial(self._execute, run), name=f"coordinator_{kind}_task", daemon=True)
        with self._lock:
            if self._ending.is_set():
                return False
            self._running[thread] = run
            thread.start()
        return True

    def _execute(self, run: TaskRun) -> None:
        worker, told = run.worker, self._callback_fn
        try:
            is_free = self._see_through(run)
            if is_free:
                self._resource_manager.update(worker.kind, worker.worker_id, worker.resource)
                told.deal_with_worker_free(worker.kind, worker.worker_id)
        except WorkerLost as e:
            if not self._ending.is_set():
                told.deal_with_worker_lost(worker.kind, worker.worker_id, run.task, e)
        finally:
            with self._lock:
                self._running.pop(threading.current_thread(), None)

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


def make_hub(cfg: Mapping[str, Any]) -> Hub:
    """The coordinator's side of the transport `cfg['transport']`.

    Raises:
        ConfigError: there is no such transport.
    """
    transport = cfg.get("transport", "http")
    if transport == "local":
        from ding.worker.transport.local_transport import LocalHub

        return LocalHub()
    if transport == "http":
        from ding.worker.transport.http_transport import HttpHub

        return HttpHub(cfg["host"], cfg["port"])
    raise ConfigError(f"coordinator.transport = {transport!r} is not allowed; it must be 'http' or 'local'")
