"""The supervisor of the workers of a parallel training, with its back ends: processes and threads."""

from __future__ import annotations

import logging
import math
import queue
import threading
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import wait
from time import monotonic
from typing import Any

from easydict import EasyDict

from ding.entry.worker_process import (
    CREATE,
    END_S,
    Ended,
    Started,
    WorkerDied,
    WorkerProcess,
)
from ding.worker.coordinator.coordinator import Coordinator
from ding.worker.transport.transport import WorkerReleased

# How long the workers may take to start, with all imports.
START_S = 120.0
# How long `end` waits for the threads, which should end soon.
_JOIN_S = 5.0

_logger = logging.getLogger("ding")


class Backend(ABC):
    """The place in which the workers of a run live; it starts, watches and ends them, and decides nothing.

    Attributes:
        start_s: how long workers may take to start.
        waits: whether workers that take longer may wait for capacity, and deaths may be noticed late, as in a cluster.
    """

    waits = False

    def __init__(self, start_s: float = START_S) -> None:
        self.start_s = start_s
        self._reports: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def open(self) -> None:  # noqa: B027
        """Prepare what the workers share, if anything."""

    @abstractmethod
    def start(self, name: str, life: int) -> None:
        """Start a worker that does not run; `life` is how often it was restarted. An event reports the rest."""

    @abstractmethod
    def kill(self, name: str) -> None:
        """Kill a worker; an event reports its end."""

    def events(self, timeout_s: float | None) -> Sequence[Started | Ended]:
        """Wait for events, or for `wake`, and return the events that have come; for one thread at a time."""
        try:
            report = self._reports.get(timeout=timeout_s)
        except queue.Empty:
            return []
        event = None if report is None else self._event(report)
        return [] if event is None else [event]

    def _event(self, report: Any) -> Started | Ended | None:
        """Return the event of a report in the queue; None if the report is about an earlier life."""
        event: Started | Ended = report
        return event

    def wake(self) -> None:
        """End the wait for events."""
        self._reports.put(None)

    def not_started(self, names: Sequence[str]) -> Exception:
        """Return the error that workers have not started within `start_s`."""
        return TimeoutError(f"workers have not started within {self.start_s:g} s: {', '.join(sorted(names))}")

    def pids(self) -> dict[str, int]:
        """Return the process ids of the running workers, if they have processes of their own."""
        return {}

    @abstractmethod
    def close(self) -> list[str]:
        """End all workers within `END_S`, and return the names of late ones.

        This method is idempotent.
        """


@dataclass(slots=True)
class _Worker:
    """The state of a worker.

    Attributes:
        is_up: whether it accepts tasks.
        due: the time by which it must have started.
        killed: why it was killed, until it has died.
        is_given_up: whether its further events are ignored.
        restarted_at: the times of the last restarts, as many as are allowed within the window.
    """

    kind: str
    restarted_at: deque[float]
    is_up: bool = False
    due: float = math.inf
    killed: Exception | None = None
    is_given_up: bool = False


class Supervisor:
    """A `WorkerSupervisor` that starts the workers of a run, restarts those that die or hang, and ends them.

    A worker that dies after `max_restarts` restarts within `restart_window_s` ends the run. So a worker that fails
    immediately after each restart is given up, but a long run survives any number of losses. One thread waits for the
    events of all workers, without polling. A restarted worker must accept tasks within a deadline.

    When the run is over, the workers have `END_S` to close. Those that hang are killed, and the log says so.

    Args:
        system: the compiled system config; `start` writes the addresses of the workers into it.
        kinds: the kind of each worker, by name.

    Attributes:
        restarts: the number of restarts of each worker.
    """

    def __init__(self, system: EasyDict, kinds: Mapping[str, str], backend: Backend) -> None:
        settings = {**Coordinator.config, **system.coordinator}
        self.restarts: Counter[str] = Counter()
        self._system, self._backend = system, backend
        self._window_s: float = settings["restart_window_s"]
        self._workers = {name: _Worker(kind, deque(maxlen=settings["max_restarts"])) for name, kind in kinds.items()}
        self._run: Coordinator
        self._lock = threading.Lock()
        self._is_closed = self._is_ended = False
        self._joining: list[threading.Thread] = []
        self._thread = threading.Thread(target=self._watch, name="worker_supervisor", daemon=True)

    def start(self) -> None:
        """Start all workers. No thread is started, as a worker could be forked from this process.

        Raises:
            WorkerDied: a worker could not start; the error has its traceback.
            TimeoutError: the workers take too long.
        """
        self._backend.open()
        for name in self._workers:
            self._backend.start(name, 0)
        deadline = monotonic() + self._backend.start_s
        while missing := [name for name, worker in self._workers.items() if not worker.is_up]:
            events = self._backend.events(max(0.0, deadline - monotonic()))
            for event in events:
                if isinstance(event, Ended):
                    assert event.error is not None  # nobody has killed it
                    raise event.error
                self._workers[event.name].is_up = True
                name, host, port = self._address(event)
                self._system[name].update(host=host, port=port)
                addresses = self._system.coordinator.get(self._workers[name].kind, {})
                if name in addresses:
                    addresses[name] = [name, host, port]
            if not events and monotonic() >= deadline:
                raise self._backend.not_started(missing)

    def _address(self, event: Started) -> tuple[str, str, int]:
        return event.name, event.host or self._system[event.name].host, event.port

    def pids(self) -> dict[str, int]:
        """Return the process ids of running workers, without threads; ranks above 0 are named `<worker>.rank<i>`."""
        return self._backend.pids()

    def supervise(self, coordinator: Coordinator) -> None:
        """Restart workers that die or hang, and inform the coordinator."""
        self._run = coordinator
        coordinator.supervisor = self
        self._thread.start()

    def lost(self, kind: str, name: str, error: Exception) -> bool:
        """Handle the loss of a worker, and return True, as it will be restarted, or end the run.

        A worker that still runs hangs or was stopped, and is killed, unless the coordinator had released it before: it
        has then died, and the one that runs is its successor.
        """
        with self._lock:
            worker = self._workers.get(name)
            if worker is None or self._is_closed:
                return False
            if worker.is_up and not isinstance(error, WorkerReleased):
                self._kill(name, error)
        self._backend.wake()
        return True

    def _kill(self, name: str, reason: Exception) -> None:
        worker = self._workers[name]
        if worker.killed is None:
            worker.killed, worker.due = reason, math.inf
        self._backend.kill(name)

    def close(self) -> None:
        """Stop restarting and connecting workers, as the run is over.

        Deaths are still reported, so that no ending task waits for a dead worker.
        """
        with self._lock:
            self._is_closed = True
            joining = list(self._joining)
        join_all(joining, _JOIN_S)

    def kill(self) -> None:
        """Kill the workers, also those for which `end` waits."""
        with self._lock:
            self._is_closed = True
            for name in self._workers:
                self._backend.kill(name)

    def end(self) -> None:
        """End the workers, in bounded time. Further calls do nothing."""
        with self._lock:
            if self._is_ended:
                return
            self._is_closed = self._is_ended = True
        self._backend.wake()
        join_all([self._thread, *self._joining], _JOIN_S)
        for name in self._backend.close():
            _logger.error("%s has not closed in time after the end of its task", name)

    def _watch(self) -> None:
        try:
            while not self._is_ended:
                with self._lock:
                    due = min((worker.due for worker in self._workers.values()), default=math.inf)
                timeout_s = None if due == math.inf else max(0.0, due - monotonic())
                for event in self._backend.events(timeout_s):
                    if not self._workers[event.name].is_given_up:
                        self._deal_with(event)
                self._check_deadlines()
        except Exception as e:  # a thread must not die unnoticed: the run ends with it
            self._run.deal_with_error(e)

    def _deal_with(self, event: Started | Ended) -> None:
        if isinstance(event, Ended):
            self._deal_with_end(event.name, event.error)
            return
        worker = self._workers[event.name]
        name, host, port = self._address(event)
        joining = partial(self._run.deal_with_worker_back, worker.kind, name, host, port)
        thread = threading.Thread(target=joining, name=f"join_{event.name}", daemon=True)
        with self._lock:
            if worker.killed is not None:  # it was killed while it reported, and its end is still to come
                return
            worker.is_up, worker.due = True, math.inf
            if self._is_closed:
                return
            self._joining = [*(thread for thread in self._joining if thread.is_alive()), thread]
            thread.start()

    def _deal_with_end(self, name: str, error: Exception | None) -> None:
        worker = self._workers[name]
        with self._lock:
            reason, is_closed = worker.killed, self._is_closed
            worker.is_up, worker.due, worker.killed = False, math.inf, None
        has_died = error is not None
        if reason is not None:
            exitcode = getattr(error, "exitcode", None)
            error = WorkerDied(name, exitcode, text=f"{name} was killed: {reason}") if has_died else reason
        assert error is not None
        try:
            is_restarted = self._restart(name)
        except Exception as e:  # whatever keeps the worker from starting is the reason to give it up
            is_restarted, error, has_died = False, e, True
        if not is_restarted:
            worker.is_given_up = True
            if not self._is_closed:
                self._run.deal_with_error(error)
        if has_died or is_closed:  # otherwise the coordinator has lost it first
            self._run.deal_with_worker_gone(worker.kind, name, error)

    def _restart(self, name: str) -> bool:
        worker = self._workers[name]
        with self._lock:
            last, now = worker.restarted_at, monotonic()
            is_too_often = len(last) == last.maxlen and (not last or now - last[0] < self._window_s)
            if self._is_closed or is_too_often:
                return False
            last.append(now)
            self.restarts[name] += 1
            self._backend.start(name, self.restarts[name])
            worker.due = now + self._backend.start_s
        return True

    def _check_deadlines(self) -> None:
        """Kill the workers that have not started in time."""
        with self._lock:
            late = {name: worker for name, worker in self._workers.items() if worker.due <= monotonic()}
        if not late:
            return
        with self._lock:
            for name, worker in late.items():
                worker.due = math.inf
                if not self._backend.waits:  # it could be starting forever
                    self._kill(name, TimeoutError(f"it has not started within {self._backend.start_s:g} s"))
        for kind in {worker.kind for worker in late.values() if worker.killed is None}:
            peers = {name: worker for name, worker in self._workers.items() if worker.kind == kind}
            if not any(worker.is_up for worker in peers.values()):
                self._run.deal_with_error(self._backend.not_started(list(peers)))


def join_all(threads: Sequence[threading.Thread], timeout_s: float) -> bool:
    """Wait until all started threads have ended; return False if `timeout_s` has passed first."""
    deadline = monotonic() + timeout_s
    for thread in threads:
        if thread.ident is not None:
            thread.join(max(0.0, deadline - monotonic()))
    return not any(thread.is_alive() for thread in threads)


class ProcessBackend(Backend):
    """The `Backend` of workers in processes.

    Args:
        workers: the processes of the workers; `start` starts those that do not run yet.
    """

    def __init__(self, workers: Sequence[WorkerProcess]) -> None:
        super().__init__(START_S)
        self._all = {worker.name: worker for worker in workers}
        self._workers = dict(self._all)  # until `close`
        self._woken, self._wake = Pipe(duplex=False)

    def open(self) -> None:
        # Import once, rather than in each forked process.
        import ding.worker.collector.comm.flask_fs_collector
        import ding.worker.collector.marine_parallel_collector
        import ding.worker.learner.comm.flask_fs_learner
        import ding.worker.transport.http_transport  # noqa: F401

    def start(self, name: str, life: int) -> None:
        worker = self._workers[name]
        if life:
            worker.start_again()
        elif not worker.is_started:
            worker.start()

    def kill(self, name: str) -> None:
        self._all[name].kill()

    def events(self, timeout_s: float | None) -> Sequence[Started | Ended]:
        owners = {source: worker for worker in self._workers.values() for source in worker.sources}
        ready: list[Any] = wait([*owners, self._woken], timeout_s)
        if self._woken in ready:
            self._woken.recv_bytes()
        events = [worker.read() for worker in {owners[source] for source in ready if source in owners}]
        return [event for event in events if event is not None]

    def wake(self) -> None:
        self._wake.send_bytes(b"wake")

    def pids(self) -> dict[str, int]:
        return {name: worker.pid for name, worker in self._workers.items() if worker.pid is not None}

    def close(self) -> list[str]:
        workers = list(self._workers.values())
        self._workers.clear()
        for worker in workers:  # all at the same time
            worker.close_event.set()
        return [worker.name for worker in workers if not worker.close()]


class ThreadBackend(Backend):
    """The `Backend` of workers in threads of this process; a thread that hangs cannot be killed and is left alone."""

    def __init__(self, system: EasyDict, kinds: Mapping[str, str]) -> None:
        super().__init__(START_S)
        self._system, self._kinds = system, kinds
        self._workers: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._is_closed = False

    def start(self, name: str, life: int) -> None:
        section = EasyDict(self._system[name])
        if life == 0:
            self._start(name, section)
            return
        section.port = 0  # that of the old worker is in use until it has ended
        threading.Thread(target=self._start, args=(name, section), name=f"start_{name}", daemon=True).start()

    def _start(self, name: str, section: EasyDict) -> None:
        try:
            worker = CREATE[self._kinds[name]](section)
            worker.start()
        except Exception as e:  # of the worker; it is reported
            self._reports.put(Ended(name, e))
            return
        with self._lock:
            if not self._is_closed:
                self._workers[name] = worker
                self._reports.put(Started(name, worker.port))
                return
        _closing(name, worker)

    def kill(self, name: str) -> None:
        worker = self._workers.pop(name, None)
        if worker is not None:
            _closing(name, worker)
        self._reports.put(Ended(name, None))

    def close(self) -> list[str]:
        with self._lock:
            self._is_closed = True
        threads = {name: _closing(name, worker) for name, worker in self._workers.items()}
        for kind in sorted(END_S, key=END_S.__getitem__):
            join_all([thread for name, thread in threads.items() if self._kinds[name] == kind], END_S[kind])
        self._workers = {}
        return [name for name, thread in threads.items() if thread.is_alive()]


def _closing(name: str, worker: Any) -> threading.Thread:
    """Close a worker in a thread, and return the thread."""

    def close() -> None:
        try:
            worker.close()
        except TimeoutError as e:
            _logger.error("%s", e)

    thread = threading.Thread(target=close, name=f"close_{name}", daemon=True)
    thread.start()
    return thread
