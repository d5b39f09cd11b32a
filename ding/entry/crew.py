"""The workers of a parallel training on this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, Protocol

from easydict import EasyDict

from ding.config.utils import workers_of
from ding.entry.keeper import WorkerPlan, run_worker
from ding.entry.supervisor import Supervisor
from ding.entry.worker_process import WorkerProcess, close_all, wait_until_up
from ding.utils.config_helper import ConfigError
from ding.worker.collector.comm.base_comm_collector import create_comm_collector
from ding.worker.coordinator.coordinator import Coordinator
from ding.worker.learner.comm.base_comm_learner import create_comm_learner
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
        kinds = {name: kind for kind in _CREATE for name in workers_of(self._system, kind)}
        self._supervisor = Supervisor(
            self._workers,
            kinds.__getitem__,
            lambda name: str(self._system[name].host),
            coordinator,
            *(
                self._system.coordinator.get(key, Coordinator.config[key])
                for key in ("max_restarts", "restart_window_s")
            ),
        )
        coordinator.worker_keeper = self._supervisor
        self._supervisor.start()

    def close(self) -> None:
        if self._supervisor is not None:
            self._supervisor.close()
        close_all(self._workers)
        self._workers = []


class LocalCrew:
    """Workers in threads of this process; see `Crew`."""

    def __init__(self, system: EasyDict) -> None:
        self._system = system
        self._workers = ExitStack()

    def start(self) -> None:
        for kind, create in _CREATE.items():
            for name in workers_of(self._system, kind):
                section = self._system[name]
                for path in (section.path_data, section.path_policy):
                    self._workers.callback(forget_memory_stores, path)
                worker = create(section)
                self._workers.callback(worker.close)
                worker.start()
                _write_port(self._system, name, worker.port)

    def supervise(self, coordinator: Coordinator) -> None:
        """Threads do not die; what fails in them fails the task."""

    def close(self) -> None:
        self._workers.close()


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
    return ProcessCrew(system, [make_worker(kind, name, system, is_quiet) for name, kind in kinds.items()])


_CREWS: dict[Launch, Callable[[EasyDict, bool], Crew]] = {
    Launch.PROCESS: _make_processes,
    Launch.THREAD: lambda system, is_quiet: LocalCrew(system),
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
