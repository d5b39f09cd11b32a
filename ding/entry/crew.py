"""The workers of a parallel training on this machine."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from easydict import EasyDict

from ding.config.utils import workers_of
from ding.entry.supervisor import RestartLimit, Supervisor
from ding.entry.worker_process import WorkerPlan, WorkerProcess, close_all, run_worker, wait_until_up
from ding.interaction.server.credentials import draw_run_token
from ding.utils.config_helper import ConfigError
from ding.worker.collector.comm.base_comm_collector import create_comm_collector
from ding.worker.coordinator.coordinator import Coordinator
from ding.worker.learner.comm.base_comm_learner import create_comm_learner
from ding.worker.transport.link import WorkerReleased
from ding.worker.transport.stores import forget_memory_stores
from ding.worker.transport.transport import Launch, get_transport

# How long the workers may take to start: each may import what its config names.
START_S = 120.0
# As seen by the scheduler: a learner that waits for its turn holds everybody up, collectors do not.
COLLECTOR_NICE = 10

_CREATE: dict[str, Callable[[EasyDict], Any]] = {"learner": create_comm_learner, "collector": create_comm_collector}


def run_learner(
    config: EasyDict, seed: int, start_event: Any, close_event: Any, report: Callable[[int], Any] | None = None
) -> None:
    """Be a learner until `close_event` is set; see `run_worker`."""
    run_worker(create_comm_learner, config, seed, start_event, close_event, report)


def run_collector(
    config: EasyDict, seed: int, start_event: Any, close_event: Any, report: Callable[[int], Any] | None = None
) -> None:
    """Be a collector until `close_event` is set; see `run_worker`."""
    run_worker(create_comm_collector, config, seed, start_event, close_event, report)


_logger = logging.getLogger("ding")


def _restart_limit(system: EasyDict) -> RestartLimit:
    cfg = {**Coordinator.config, **system.coordinator}
    return RestartLimit(cfg["max_restarts"], cfg["restart_window_s"])


_RUN = {"learner": run_learner, "collector": run_collector}


class Crew(Protocol):
    """Starts and ends the workers that a compiled config names."""

    def start(self) -> None:
        """Start them all, and write where they take tasks into the system config.

        Raises:
            WorkerDied: one could not start; with its traceback.
            TimeoutError: they take too long.
        """

    def supervise(self, coordinator: Coordinator) -> None:
        """From now on see to workers that die, and tell the coordinator."""

    def close(self) -> None:
        """End them. Bounded in time; idempotent."""


class ProcessCrew:
    """Workers in processes of their own; see `Crew`.

    Args:
        system: the compiled system config.
        workers: their processes; those that have not been started yet, `start` starts.
    """

    def __init__(self, system: EasyDict, workers: Sequence[WorkerProcess]) -> None:
        self._system, self._workers = system, list(workers)
        self._supervisor: Supervisor | None = None

    def start(self) -> None:
        _load_what_all_need()
        for worker in self._workers:
            if not worker.is_started:
                worker.start()
        wait_until_up(self._workers, START_S)
        for worker in self._workers:
            _write_port(self._system, worker.name, worker.port)

    def pids(self) -> dict[str, int]:
        """The process ids of the workers that run."""
        return {worker.name: worker.pid for worker in self._workers if worker.pid is not None}

    def supervise(self, coordinator: Coordinator) -> None:
        places = {
            name: (kind, str(self._system[name].host)) for kind in _CREATE for name in workers_of(self._system, kind)
        }
        self._supervisor = Supervisor(self._workers, places, coordinator, _restart_limit(self._system))
        coordinator.supervisor = self._supervisor
        self._supervisor.start()

    def close(self) -> None:
        if self._supervisor is not None:
            self._supervisor.end()
        close_all(self._workers)
        self._workers = []


class LocalCrew:
    """Workers in threads of this process; see `Crew`."""

    def __init__(self, system: EasyDict) -> None:
        self._system = system
        self._workers: dict[str, Any] = {}
        self._replaced: ThreadSupervisor | None = None

    def start(self) -> None:
        for kind in _CREATE:
            for name in workers_of(self._system, kind):
                self._start_worker(kind, name)
                _write_port(self._system, name, self._workers[name].port)

    def _start_worker(self, kind: str, name: str, **changes: Any) -> None:
        worker = self._workers[name] = _CREATE[kind](EasyDict({**self._system[name], **changes}))
        worker.start()

    def _replace(self, kind: str, name: str) -> tuple[str, int]:
        """Leave a worker that hangs to itself; returns host and port of the one in its place."""
        threading.Thread(target=_close, args=(self._workers[name],), name=f"close_{name}", daemon=True).start()
        self._start_worker(kind, name, port=0)  # that of the other is taken until it has ended
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
    """Close a worker; one that hangs cannot be killed, for it is a thread of this process."""
    try:
        worker.close()
    except TimeoutError as e:
        _logger.error("%s", e)


class ThreadSupervisor:
    """Puts others in the place of workers that were lost because their tasks hang; see `WorkerSupervisor`.

    Args:
        replace: makes another worker, of a kind and name, that takes tasks; returns its host and port.
        run: is told of it.
    """

    def __init__(self, replace: Callable[[str, str], tuple[str, int]], run: Coordinator, limit: RestartLimit) -> None:
        self._replace, self._run, self._limit = replace, run, limit
        self._lock = threading.Lock()
        self._is_closed = False

    def lost(self, kind: str, name: str, error: Exception) -> bool:
        """A worker is lost. True: another takes its place; False where there were too many."""
        if isinstance(error, WorkerReleased):  # another is there
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
        """Replace nobody any more. Idempotent."""
        with self._lock:
            self._is_closed = True


def make_worker(kind: str, name: str, system: EasyDict, is_quiet: bool = True) -> WorkerProcess:
    """The process, not started yet, of the worker `name` of the system config.

    Raises:
        ConfigError: it would compute with several threads in a forked process.
    """
    section = system[name]
    if kind == "collector":
        section.setdefault("nice", COLLECTOR_NICE)
    plan = WorkerPlan(name, _RUN[kind], section, section.get("seed", 0), is_quiet)
    worker = WorkerProcess(plan, system.get("start_method"))
    if section.get("torch_threads", 1) > 1 and worker.start_method == "fork":
        raise ConfigError(
            f"{name}.torch_threads = {section.torch_threads} is not allowed in a forked process, which could wait for "
            "threads of its parent for ever; set system_config.start_method = 'spawn'"
        )
    return worker


def make_crew(system: EasyDict, is_quiet: bool = True) -> Crew:
    """The workers for a compiled system config, in what its transport runs them in.

    Args:
        is_quiet: whether their servers log errors only.

    Raises:
        ConfigError: there is no such transport; or see `make_worker`.
    """
    return _CREWS[get_transport(system.coordinator.transport).launch](system, is_quiet)


def _make_processes(system: EasyDict, is_quiet: bool) -> ProcessCrew:
    kinds = {name: kind for kind in _CREATE for name in workers_of(system, kind)}
    # Handed on in memory only: arguments and variables of a process can be read by others, and are inherited.
    token = draw_run_token()
    for section in (system.coordinator, *(system[name] for name in kinds)):
        section.run_token = token
    return ProcessCrew(system, [make_worker(kind, name, system, is_quiet) for name, kind in kinds.items()])


def _make_actors(system: EasyDict, is_quiet: bool) -> Crew:
    from ding.entry.ray_crew import RayCrew  # it needs Ray

    return RayCrew(system, is_quiet)


_CREWS: dict[Launch, Callable[[EasyDict, bool], Crew]] = {
    Launch.PROCESS: _make_processes,
    Launch.THREAD: lambda system, is_quiet: LocalCrew(system),
    Launch.ACTOR: _make_actors,
}


def _write_port(system: EasyDict, name: str, port: int | None) -> None:
    system[name].port = port
    for kind in _CREATE:
        if name in system.coordinator.get(kind, {}):
            system.coordinator[kind][name] = [name, system[name].host, port]


def _load_what_all_need() -> None:
    """Import it here, once, rather than in each forked process."""
    import ding.worker.collector.comm.flask_fs_collector
    import ding.worker.collector.parallel_collectors
    import ding.worker.learner.comm.flask_fs_learner
    import ding.worker.transport.http_transport  # noqa: F401
