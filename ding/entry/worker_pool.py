"""The workers of a parallel training on this machine, in processes or in threads; see `Supervisor`."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import wait
from typing import Any

from easydict import EasyDict

from ding.config.utils import workers_of
from ding.entry.supervisor import START_S, Backend, Supervisor, join_all
from ding.entry.worker_process import (
    CLOSE_S,
    COLLECTOR_NICE,
    CREATE,
    RUN,
    Ended,
    Started,
    WorkerPlan,
    WorkerProcess,
    close_all,
    wait_while_saving,
)
from ding.interaction.server.access import draw_run_token
from ding.utils.config_helper import ConfigError
from ding.worker.transport.stores import forget_memory_stores
from ding.worker.transport.transport import Launch, get_transport

_logger = logging.getLogger("ding")


def make_workers(system: EasyDict, is_quiet: bool = True) -> Supervisor:
    """Return the workers of a compiled system config, in processes, threads or actors as its transport requires.

    Args:
        is_quiet: whether the servers of the workers log errors only.

    Raises:
        ConfigError: the transport is unknown, or a worker would compute with several threads in a forked process.
    """
    kinds = {name: kind for kind in CREATE for name in workers_of(system, kind)}
    launch = get_transport(system.coordinator.transport).launch
    if launch is Launch.THREAD:
        return Supervisor(system, kinds, ThreadBackend(system, kinds))
    for name, kind in kinds.items():
        if kind == "collector":
            system[name].setdefault("nice", COLLECTOR_NICE)
    if launch is Launch.ACTOR:
        from ding.entry.ray_workers import ActorBackend  # here: it needs Ray

        return Supervisor(system, kinds, ActorBackend(system, kinds, is_quiet))
    # Passed in memory only, as arguments and variables of a process are readable to others, and are inherited.
    token = draw_run_token()
    for section in (system.coordinator, *(system[name] for name in kinds)):
        section.run_token = token
    return adopt_workers(system, [_make_process(name, kind, system, is_quiet) for name, kind in kinds.items()])


def adopt_workers(system: EasyDict, workers: Sequence[WorkerProcess]) -> Supervisor:
    """Return the supervisor of workers in processes, which may have been started before."""
    kinds = {name: kind for kind in CREATE for name in workers_of(system, kind)}
    return Supervisor(system, {worker.name: kinds[worker.name] for worker in workers}, ProcessBackend(workers))


def _make_process(name: str, kind: str, system: EasyDict, is_quiet: bool) -> WorkerProcess:
    section = system[name]
    plan = WorkerPlan(name, RUN[kind], section, section.get("seed", 0), is_quiet, CLOSE_S)
    worker = WorkerProcess(plan, system.get("start_method"))
    if section.get("torch_threads", 1) > 1 and worker.start_method == "fork":
        raise ConfigError(
            f"{name}.torch_threads = {section.torch_threads} is not allowed in a forked process, which could wait for "
            "threads of its parent forever; set system_config.start_method = 'spawn'"
        )
    return worker


class ProcessBackend(Backend):
    """The `Backend` of workers in processes.

    Args:
        workers: the processes of the workers; `start` starts those that do not run yet.
    """

    def __init__(self, workers: Sequence[WorkerProcess]) -> None:
        super().__init__(START_S)
        self._workers = {worker.name: worker for worker in workers}
        self._woken, self._wake = Pipe(duplex=False)

    def open(self) -> None:
        # Import once, rather than in each forked process.
        import ding.worker.collector.comm.flask_fs_collector
        import ding.worker.collector.marine_parallel_collector
        import ding.worker.collector.zergling_parallel_collector
        import ding.worker.learner.comm.flask_fs_learner
        import ding.worker.transport.http_transport  # noqa: F401

    def start(self, name: str, life: int) -> None:
        worker = self._workers[name]
        if life:
            worker.start_again()
        elif not worker.is_started:
            worker.start()

    def kill(self, name: str) -> None:
        self._workers[name].kill()

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
        late = close_all(self._workers.values())
        self._workers.clear()
        return late


class ThreadBackend(Backend):
    """The `Backend` of workers in threads of this process; a thread that hangs cannot be killed and is left alone."""

    def __init__(self, system: EasyDict, kinds: Mapping[str, str]) -> None:
        super().__init__(START_S)
        self._system, self._kinds = system, kinds
        self._workers: dict[str, Any] = {}
        self._lives: dict[str, int] = {}
        self._lock = threading.Lock()
        self._is_closed = False

    def start(self, name: str, life: int) -> None:
        self._lives[name] = life
        start = partial(self._start, name, life)
        if life:
            threading.Thread(target=start, name=f"start_{name}", daemon=True).start()
        else:
            start()

    def _start(self, name: str, life: int) -> None:
        # The port of an old worker is in use until that worker has ended.
        section = EasyDict({**self._system[name], **({"port": 0} if life else {})})
        try:
            worker = CREATE[self._kinds[name]](section)
            worker.start()
        except Exception as e:
            self._reports.put((life, Ended(name, e)))
            return
        with self._lock:
            if not self._is_closed and self._lives[name] == life:
                self._workers[name] = worker
                self._reports.put((life, Started(name, worker.port)))
                return
        _closing(name, worker)

    def _event(self, report: tuple[int, Started | Ended]) -> Started | Ended | None:
        life, event = report
        return event if life == self._lives[event.name] else None

    def kill(self, name: str) -> None:
        worker = self._workers.pop(name, None)
        if worker is not None:
            _closing(name, worker)
        self._reports.put((self._lives[name], Ended(name, None)))

    def close(self) -> list[str]:
        with self._lock:
            self._is_closed = True
        threads = {name: _closing(name, worker) for name, worker in self._workers.items()}
        join = partial(join_all, list(threads.values()))
        wait_while_saving(join, CLOSE_S, self._system.learner0)
        for name in self._kinds:
            for path in (self._system[name].path_data, self._system[name].path_policy):
                forget_memory_stores(path)
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
