"""Watches over the processes of workers, and starts those again that have died."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import wait
from time import monotonic
from typing import Any, Protocol

from ding.entry.worker_process import WorkerDied, WorkerProcess
from ding.utils.child_helper import ProcessEvent
from ding.worker.coordinator.worker_keeper import RestartLimit
from ding.worker.transport.link import WorkerLetGo

# How long the end waits for the threads, all of which should be through soon.
_JOIN_S = 5.0


class RunSide(Protocol):
    """Who is told of workers that go and come back; see `Coordinator`."""

    def deal_with_worker_gone(self, kind: str, name: str, error: Exception) -> None: ...

    def deal_with_worker_back(self, kind: str, name: str, host: str, port: Any) -> None: ...

    def deal_with_error(self, error: Exception) -> None: ...


class Supervisor:
    """Starts a worker again when its process has died; see `WorkerKeeper`.

    One that dies more often than `RestartLimit` allows ends the run.

    One thread waits for news of all of them, nothing is polled.

    Args:
        workers: those that have started.
        kind_of, host_of: what a worker is, and where it takes tasks, by its name.

    Attributes:
        restarts: how often each was started again.
    """

    def __init__(
        self,
        workers: Sequence[WorkerProcess],
        kind_of: Callable[[str], str],
        host_of: Callable[[str], str],
        run: RunSide,
        max_restarts: int,
        restart_window_s: float,
    ) -> None:
        self.restarts: Counter[str] = Counter()
        self._workers = {worker.name: worker for worker in workers}
        self._kind_of, self._host_of, self._run = kind_of, host_of, run
        self._limit = RestartLimit(max_restarts, restart_window_s)
        self._lock = threading.Lock()
        self._stop = ProcessEvent()
        self._joining: list[threading.Thread] = []
        self._thread = threading.Thread(target=self._watch, name="worker_supervisor", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def lost(self, kind: str, name: str, error: Exception) -> bool:
        """The coordinator has lost a worker. True: it will be started again, or its death will end the run.

        One whose process still runs hangs, or was stopped: it is killed. Not so where the coordinator had let go of it
        before, for then it has died, and the process is that of its next life.
        """
        with self._lock:
            worker = self._workers.get(name)
            if worker is None or self._stop.is_set():
                return False
            if worker.pid is not None and not isinstance(error, WorkerLetGo):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker.pid, signal.SIGKILL)
            return True

    def close(self) -> None:
        """Watch no longer. Idempotent."""
        self._stop.set()
        deadline = monotonic() + _JOIN_S
        for thread in [self._thread, *self._joining]:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - monotonic()))

    def _watch(self) -> None:
        try:
            sources: dict[Any, WorkerProcess] = {worker.news: worker for worker in self._workers.values()}
            sources.update({worker.sentinel: worker for worker in self._workers.values()})
            while True:
                ready = wait([*sources, self._stop.reader])
                if self._stop.reader in ready:
                    return
                for worker in {sources[source].name: sources[source] for source in ready}.values():
                    if not self._take_news(worker):
                        sources = {source: owner for source, owner in sources.items() if owner is not worker}
        except Exception as e:
            self._run.deal_with_error(e)

    def _take_news(self, worker: WorkerProcess) -> bool:
        """Deal with what the keeper of a worker says; False where it will say no more."""
        kind = self._kind_of(worker.name)
        try:
            with self._lock:
                worker.read()
        except WorkerDied as e:
            goes_on = worker.is_alive() and self._start_again(worker)
            if not goes_on:
                self._run.deal_with_error(e)
            self._run.deal_with_worker_gone(kind, worker.name, e)
            return goes_on
        joining = partial(self._run.deal_with_worker_back, kind, worker.name, self._host_of(worker.name), worker.port)
        thread = threading.Thread(target=joining, name=f"join_{worker.name}", daemon=True)
        self._joining = [*(thread for thread in self._joining if thread.is_alive()), thread]
        thread.start()
        return True

    def _start_again(self, worker: WorkerProcess) -> bool:
        with self._lock:
            if not self._limit.take(worker.name):
                return False
            self.restarts[worker.name] += 1
        worker.start_again()
        return True
