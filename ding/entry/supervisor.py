"""Watches over the processes of workers, and starts those again that have died."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import wait
from time import monotonic
from typing import Any, Protocol

from ding.entry.worker_process import KILL_S, WorkerDied, WorkerProcess
from ding.worker.coordinator.worker_table import RestartLimit
from ding.worker.transport.link import WorkerLetGo

# How long the end waits for the threads, all of which should be through soon.
_JOIN_S = 5.0
# How long it may take until it is known that a process has died that was killed.
_DEATH_S = 2 * KILL_S


class RunSide(Protocol):
    """Who is told of workers that go and come back; see `Coordinator`."""

    def deal_with_worker_gone(self, kind: str, name: str, error: Exception) -> None: ...

    def deal_with_worker_back(self, kind: str, name: str, host: str, port: Any) -> None: ...

    def deal_with_error(self, error: Exception) -> None: ...


class Supervisor:
    """Starts a worker again when its process has died; see `WorkerKeeper`.

    One that dies more often than `RestartLimit` allows ends the run. One thread waits for news of all of them, nothing
    is polled. What is to happen has a deadline: the death of a worker that was killed, and that it takes tasks after it
    was started again.

    Args:
        workers: those that have started.
        kind_of, host_of: what a worker is, and where it takes tasks, by its name.
        start_s: how long a worker may take to start again.

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
        start_s: float = 120.0,
    ) -> None:
        self.restarts: Counter[str] = Counter()
        self._workers = {worker.name: worker for worker in workers}
        self._kind_of, self._host_of, self._run = kind_of, host_of, run
        self._limit, self._start_s = RestartLimit(max_restarts, restart_window_s), start_s
        self._watched = dict(self._workers)
        self._due: dict[str, float] = {}  # when, at the latest, there must be news of a worker
        self._killed: set[str] = set()  # those whose death is such news
        self._lock = threading.Lock()
        self._is_closed = self._is_ended = False
        self._woken, self._wake = Pipe(duplex=False)
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
            if worker is None or self._is_closed:
                return False
            if worker.pid is not None and not isinstance(error, WorkerLetGo):
                self._kill(worker)
                self._wake.send_bytes(b"there is a deadline")
            return True

    def _kill(self, worker: WorkerProcess) -> None:
        worker.kill()
        if worker.name not in self._killed:
            self._killed.add(worker.name)
            self._due[worker.name] = monotonic() + _DEATH_S

    def close(self) -> None:
        """Start no worker again, and connect none. Who dies is still told of: the tasks that end now need not wait."""
        with self._lock:
            self._is_closed = True
            joining = list(self._joining)
        _join(joining)

    def end(self) -> None:
        """Watch no longer. Idempotent."""
        with self._lock:
            if self._is_ended:
                return
            self._is_closed = self._is_ended = True
        self._wake.send_bytes(b"end")
        _join([self._thread, *self._joining])
        if not self._thread.is_alive():
            self._wake.close()
            self._woken.close()

    def _watch(self) -> None:
        try:
            while not self._is_ended:
                sources = {source: worker for worker in self._watched.values() for source in worker.sources}
                with self._lock:
                    timeout_s = max(0.0, min(self._due.values()) - monotonic()) if self._due else None
                ready = wait([*sources, self._woken], timeout_s)
                if self._woken in ready:
                    ready.remove(self._woken)
                    self._woken.recv_bytes()
                for worker in {sources[source] for source in ready}:
                    self._take_news(worker)
                self._deal_with_silence()
        except Exception as e:
            self._run.deal_with_error(e)

    def _take_news(self, worker: WorkerProcess) -> None:
        kind, name = self._kind_of(worker.name), worker.name
        try:
            with self._lock:
                if not worker.read():
                    return
                self._forget_deadline(name)
        except WorkerDied as e:
            if not (worker.is_alive() and self._start_again(worker)):
                self._give_up(worker, e)
            self._run.deal_with_worker_gone(kind, name, e)
            return
        joining = partial(self._run.deal_with_worker_back, kind, name, self._host_of(name), worker.port)
        thread = threading.Thread(target=joining, name=f"join_{name}", daemon=True)
        with self._lock:
            if self._is_closed:
                return
            self._joining = [*(thread for thread in self._joining if thread.is_alive()), thread]
            thread.start()

    def _deal_with_silence(self) -> None:
        with self._lock:
            silent = [self._workers[name] for name, due in self._due.items() if due <= monotonic()]
            lost = [worker for worker in silent if worker.name in self._killed]
            for worker in silent:
                self._kill(worker)  # or it would start for ever
        for worker in lost:
            error = TimeoutError(f"the process of {worker.name} was killed, but has not ended within {_DEATH_S:g} s")
            self._give_up(worker, error)
            self._run.deal_with_worker_gone(self._kind_of(worker.name), worker.name, error)

    def _give_up(self, worker: WorkerProcess, error: Exception) -> None:
        with self._lock:
            self._forget_deadline(worker.name)
            del self._watched[worker.name]
            is_closed = self._is_closed
        if not is_closed:
            self._run.deal_with_error(error)

    def _forget_deadline(self, name: str) -> None:
        self._due.pop(name, None)
        self._killed.discard(name)

    def _start_again(self, worker: WorkerProcess) -> bool:
        with self._lock:
            if self._is_closed or not self._limit.take(worker.name):
                return False
            self.restarts[worker.name] += 1
            worker.start_again()
            self._forget_deadline(worker.name)
            self._due[worker.name] = monotonic() + self._start_s
        return True


def _join(threads: Sequence[threading.Thread]) -> None:
    deadline = monotonic() + _JOIN_S
    for thread in threads:
        if thread.ident is not None:
            thread.join(max(0.0, deadline - monotonic()))
