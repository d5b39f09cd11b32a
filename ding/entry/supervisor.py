"""Monitoring the processes of workers, and restarting those that have died."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import wait
from time import monotonic
from typing import TYPE_CHECKING

from ding.entry.worker_process import KILL_S, WorkerDied, WorkerProcess
from ding.worker.transport.transport import WorkerReleased

if TYPE_CHECKING:
    from ding.worker.coordinator.coordinator import Coordinator

# How long `end` waits for the threads, which should end soon.
_JOIN_S = 5.0
# How long the death of a killed process may take to be reported.
_DEATH_S = 2 * KILL_S


class RestartLimit:
    """Allows each worker `max_restarts` restarts within `window_s` seconds. Thread-safe.

    A worker that fails immediately after each restart is given up; a long run survives any number of losses.

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
        """Whether the worker of that name may be restarted; if so, the restart counts."""
        with self._lock:
            last = self._restarted_at[name]  # as many as are allowed within the window
            if len(last) == self._max_restarts and (not last or monotonic() - last[0] < self._window_s):
                return False
            last.append(monotonic())
            return True


class Supervisor:
    """Restarts a worker when its process has died; see `WorkerSupervisor`.

    A worker that dies more often than `limit` allows ends the run. One thread waits for the messages of all workers,
    without polling. A killed worker must die, and a restarted one must accept tasks, within a deadline.

    Args:
        workers: started workers.
        places: the kind and host of each worker, by name.
        run: is informed of workers that die and return.
        start_s: how long a worker may take to restart.

    Attributes:
        restarts: the number of restarts of each worker.
    """

    def __init__(
        self,
        workers: Sequence[WorkerProcess],
        places: Mapping[str, tuple[str, str]],
        run: Coordinator,
        limit: RestartLimit,
        start_s: float = 120.0,
    ) -> None:
        self.restarts: Counter[str] = Counter()
        self._workers = {worker.name: worker for worker in workers}
        self._places, self._run, self._limit, self._start_s = places, run, limit, start_s
        self._watched = dict(self._workers)
        self._due: dict[str, float] = {}  # by when a worker must report
        self._killed: dict[str, Exception] = {}  # why each worker was killed whose death is expected by then
        self._lock = threading.Lock()
        self._is_closed = self._is_ended = False
        self._woken, self._wake = Pipe(duplex=False)
        self._joining: list[threading.Thread] = []
        self._thread = threading.Thread(target=self._watch, name="worker_supervisor", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def lost(self, kind: str, name: str, error: Exception) -> bool:
        """Take note of a worker that the coordinator has lost; returns True: it will be restarted, or end the run.

        A process that still runs hangs or was stopped, and is killed, unless the coordinator had released the worker
        before: then it has died, and the process is its successor.
        """
        with self._lock:
            worker = self._workers.get(name)
            if worker is None or self._is_closed:
                return False
            if worker.pid is not None and not isinstance(error, WorkerReleased):
                self._kill(worker, error)
                self._wake.send_bytes(b"there is a deadline")
            return True

    def _kill(self, worker: WorkerProcess, reason: Exception) -> None:
        worker.kill()
        if worker.name not in self._killed:
            self._killed[worker.name] = reason
            self._due[worker.name] = monotonic() + _DEATH_S

    def close(self) -> None:
        """Stop restarting and connecting workers. Deaths are still reported: no ending task waits for a dead worker."""
        with self._lock:
            self._is_closed = True
            joining = list(self._joining)
        _join(joining)

    def end(self) -> None:
        """Stop monitoring. Idempotent."""
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
                    self._read(worker)
                self._check_deadlines()
        except Exception as e:
            self._run.deal_with_error(e)

    def _read(self, worker: WorkerProcess) -> None:
        name, (kind, host) = worker.name, self._places[worker.name]
        try:
            with self._lock:
                if not worker.read():
                    return
                self._forget_deadline(name)
        except WorkerDied as e:
            reason = self._killed.get(name)
            error = e if reason is None else WorkerDied(name, e.exitcode, text=f"{name} was killed: {reason}")
            if not (worker.is_alive() and self._restart(worker)):
                self._give_up(worker, error)
            self._run.deal_with_worker_gone(kind, name, error)
            return
        assert worker.port is not None  # it has just reported it
        joining = partial(self._run.deal_with_worker_back, kind, name, host, worker.port)
        thread = threading.Thread(target=joining, name=f"join_{name}", daemon=True)
        with self._lock:
            if self._is_closed:
                return
            self._joining = [*(thread for thread in self._joining if thread.is_alive()), thread]
            thread.start()

    def _check_deadlines(self) -> None:
        with self._lock:
            silent = [self._workers[name] for name, due in self._due.items() if due <= monotonic()]
            lost = [worker for worker in silent if worker.name in self._killed]
            for worker in silent:  # otherwise it could start forever
                self._kill(worker, TimeoutError(f"it has not started within {self._start_s:g} s"))
        for worker in lost:
            reason = self._killed[worker.name]
            error = TimeoutError(
                f"the process of {worker.name} has not ended within {_DEATH_S:g} s of SIGKILL: {reason}"
            )
            self._give_up(worker, error)
            self._run.deal_with_worker_gone(self._places[worker.name][0], worker.name, error)

    def _give_up(self, worker: WorkerProcess, error: Exception) -> None:
        with self._lock:
            self._forget_deadline(worker.name)
            del self._watched[worker.name]
            is_closed = self._is_closed
        if not is_closed:
            self._run.deal_with_error(error)

    def _forget_deadline(self, name: str) -> None:
        self._due.pop(name, None)
        self._killed.pop(name, None)

    def _restart(self, worker: WorkerProcess) -> bool:
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
