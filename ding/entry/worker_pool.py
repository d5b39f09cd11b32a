"""The workers of a parallel training on this machine."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from easydict import EasyDict

from ding.config.utils import workers_of
from ding.entry.supervisor import RestartLimit, Supervisor
from ding.entry.worker_process import CLOSE_S, WorkerPlan, WorkerProcess, close_all, run_worker, wait_until_up
from ding.interaction.server.access import draw_run_token
from ding.utils.config_helper import ConfigError
from ding.worker.collector.comm.base_comm_collector import create_comm_collector
from ding.worker.coordinator.coordinator import Coordinator
from ding.worker.learner.comm.base_comm_learner import create_comm_learner
from ding.worker.transport.stores import forget_memory_stores
from ding.worker.transport.transport import Launch, WorkerReleased, get_transport

# How long the workers may take to start, with all imports.
START_S = 120.0
# All collectors wait for a learner that lacks CPU time, so collectors yield to it.
COLLECTOR_NICE = 10

_CREATE: dict[str, Callable[[EasyDict], Any]] = {"learner": create_comm_learner, "collector": create_comm_collector}
# A learner saves a checkpoint when it closes, a collector has only its envs to close.
CLOSE_LIMITS_S = {"learner": CLOSE_S, "collector": 5.0}
_logger = logging.getLogger("ding")

# The mains of worker processes: called with config, seed, start_event, close_event and report, see `run_worker`.
run_learner = partial(run_worker, create_comm_learner)
run_collector = partial(run_worker, create_comm_collector)
_RUN: dict[str, Callable[..., Any]] = {"learner": run_learner, "collector": run_collector}


class WorkerPool(Protocol):
    """Starts and ends the workers of a compiled config."""

    def start(self) -> None:
        """Start them all, and write their addresses into the system config.

        Raises:
            WorkerDied: one could not start; with its traceback.
            TimeoutError: they take too long.
        """

    def supervise(self, coordinator: Coordinator) -> None:
        """Restart workers that die, and inform the coordinator."""

    def close(self) -> None:
        """End them. Bounded in time; idempotent."""


def _kinds(system: EasyDict) -> dict[str, str]:
    """The kind of each worker, by name."""
    return {name: kind for kind in _CREATE for name in workers_of(system, kind)}


def _restart_limit(system: EasyDict) -> RestartLimit:
    cfg = {**Coordinator.config, **system.coordinator}
    return RestartLimit(cfg["max_restarts"], cfg["restart_window_s"])


class ProcessWorkers:
    """Workers in processes; see `WorkerPool`.

    Args:
        system: the compiled system config.
        workers: their processes; `start` starts those that do not run yet.
    """

    def __init__(self, system: EasyDict, workers: Sequence[WorkerProcess]) -> None:
        self._system, self._workers = system, list(workers)
        self._supervisor: Supervisor | None = None

    def start(self) -> None:
        _import_workers()
        for worker in self._workers:
            if not worker.is_started:
                worker.start()
        wait_until_up(self._workers, START_S)
        for worker in self._workers:
            _write_port(self._system, worker.name, worker.port)

    def pids(self) -> dict[str, int]:
        """The process ids of the running workers."""
        return {worker.name: worker.pid for worker in self._workers if worker.pid is not None}

    def supervise(self, coordinator: Coordinator) -> None:
        places = {name: (kind, str(self._system[name].host)) for name, kind in _kinds(self._system).items()}
        self._supervisor = Supervisor(self._workers, places, coordinator, _restart_limit(self._system))
        coordinator.supervisor = self._supervisor
        self._supervisor.start()

    def close(self) -> None:
        if self._supervisor is not None:
            self._supervisor.end()
        close_all(self._workers)
        self._workers = []


class ThreadWorkers:
    """Workers in threads of this process; see `WorkerPool`."""

    def __init__(self, system: EasyDict) -> None:
        self._system = system
        self._workers: dict[str, Any] = {}
        self._replaced: ThreadSupervisor | None = None

    def start(self) -> None:
        for name, kind in _kinds(self._system).items():
            self._start_worker(kind, name)
            _write_port(self._system, name, self._workers[name].port)

    def _start_worker(self, kind: str, name: str, **changes: Any) -> None:
        worker = self._workers[name] = _CREATE[kind](EasyDict({**self._system[name], **changes}))
        worker.start()

    def _replace(self, kind: str, name: str) -> tuple[str, int]:
        """Abandon a worker that hangs; returns host and port of its replacement."""
        threading.Thread(target=_close, args=(self._workers[name],), name=f"close_{name}", daemon=True).start()
        self._start_worker(kind, name, port=0)  # the old port is in use until the old worker has ended
        return str(self._system[name].host), int(self._workers[name].port)

    def supervise(self, coordinator: Coordinator) -> None:
        limit = _restart_limit(self._system)
        self._replaced = coordinator.supervisor = ThreadSupervisor(self._replace, coordinator, limit)

    def close(self) -> None:
        if self._replaced is not None:
            self._replaced.close()
        for worker in reversed(self._workers.values()):
            _close(worker)
        for name in self._workers:
            for path in (self._system[name].path_data, self._system[name].path_policy):
                forget_memory_stores(path)
        self._workers = {}


def _close(worker: Any) -> None:
    """Close a worker; one that hangs cannot be killed, as it is a thread of this process."""
    try:
        worker.close()
    except TimeoutError as e:
        _logger.error("%s", e)


class ThreadSupervisor:
    """Replaces workers whose tasks hang; see `WorkerSupervisor`.

    Args:
        replace: starts another worker of a kind and name; returns its host and port.
        run: is informed of replacements.
    """

    def __init__(self, replace: Callable[[str, str], tuple[str, int]], run: Coordinator, limit: RestartLimit) -> None:
        self._replace, self._run, self._limit = replace, run, limit
        self._lock = threading.Lock()
        self._is_closed = False

    def lost(self, kind: str, name: str, error: Exception) -> bool:
        """Replace a lost worker; returns False if it was replaced too often."""
        if isinstance(error, WorkerReleased):  # it has been replaced
            return True
        if not self._limit.take(name):
            return False
        threading.Thread(target=self._work, args=(kind, name), name=f"replace_{name}", daemon=True).start()
        return True

    def _work(self, kind: str, name: str) -> None:
        try:
            with self._lock:
                if self._is_closed:
                    return
                host, port = self._replace(kind, name)
        except Exception as e:
            self._run.deal_with_error(e)
        else:
            self._run.deal_with_worker_back(kind, name, host, port)

    def close(self) -> None:
        """Stop replacing workers. Idempotent."""
        with self._lock:
            self._is_closed = True


def make_worker(kind: str, name: str, system: EasyDict, is_quiet: bool = True) -> WorkerProcess:
    """The process of the worker `name` of the system config; it is not started.

    Raises:
        ConfigError: it would compute with several threads in a forked process.
    """
    section = system[name]
    if kind == "collector":
        section.setdefault("nice", COLLECTOR_NICE)
    plan = WorkerPlan(name, _RUN[kind], section, section.get("seed", 0), is_quiet, CLOSE_LIMITS_S[kind])
    worker = WorkerProcess(plan, system.get("start_method"))
    if section.get("torch_threads", 1) > 1 and worker.start_method == "fork":
        raise ConfigError(
            f"{name}.torch_threads = {section.torch_threads} is not allowed in a forked process, which could wait for "
            "threads of its parent forever; set system_config.start_method = 'spawn'"
        )
    return worker


def make_workers(system: EasyDict, is_quiet: bool = True) -> WorkerPool:
    """The workers of a compiled system config, in processes, threads or actors as its transport requires.

    Args:
        is_quiet: whether their servers log errors only.

    Raises:
        ConfigError: the transport is unknown; or see `make_worker`.
    """
    return _POOLS[get_transport(system.coordinator.transport).launch](system, is_quiet)


def _make_processes(system: EasyDict, is_quiet: bool) -> ProcessWorkers:
    kinds = _kinds(system)
    # Passed in memory only: arguments and variables of a process are readable to others, and are inherited.
    token = draw_run_token()
    for section in (system.coordinator, *(system[name] for name in kinds)):
        section.run_token = token
    return ProcessWorkers(system, [make_worker(kind, name, system, is_quiet) for name, kind in kinds.items()])


def _make_actors(system: EasyDict, is_quiet: bool) -> WorkerPool:
    from ding.entry.ray_workers import RayWorkers  # it needs Ray

    return RayWorkers(system, is_quiet)


_POOLS: dict[Launch, Callable[[EasyDict, bool], WorkerPool]] = {
    Launch.PROCESS: _make_processes,
    Launch.THREAD: lambda system, is_quiet: ThreadWorkers(system),
    Launch.ACTOR: _make_actors,
}


def _write_port(system: EasyDict, name: str, port: int | None) -> None:
    system[name].port = port
    for kind in _CREATE:
        if name in system.coordinator.get(kind, {}):
            system.coordinator[kind][name] = [name, system[name].host, port]


def _import_workers() -> None:
    """Import once, rather than in each forked process."""
    import ding.worker.collector.comm.flask_fs_collector
    import ding.worker.collector.marine_parallel_collector
    import ding.worker.collector.zergling_parallel_collector
    import ding.worker.learner.comm.flask_fs_learner
    import ding.worker.transport.http_transport  # noqa: F401
