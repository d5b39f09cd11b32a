"""A training whose roles run on several machines: its config file, and its roles in their processes."""

from __future__ import annotations

import atexit
import math
import os
import threading
import uuid
import zlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from time import monotonic
from typing import Any

from easydict import EasyDict

from ding.config.read import read_packed_config
from ding.config.utils import (
    AGGREGATOR_PORT,
    COLLECTOR_PORT,
    COORDINATOR_PORT,
    LEARNER_PORT,
    Several,
    each_of,
    workers_of,
)
from ding.entry.parallel_run import ParallelRun
from ding.utils.config_helper import NO_DEFAULT, ConfigError, Setting, Settings, check_config, instance_of, number
from ding.utils.default_helper import derive_seed
from ding.utils.state_folder import hold_run
from ding.worker.transport.transport import Launch, comm_class, get_transport, transport_of

_DIST_SETTINGS = Settings(
    {
        "coordinator_wait_s": Setting(3600.0, number(0), "Seconds that a worker waits for its first coordinator."),
        "coordinator_lost_s": Setting(
            60.0, number(0), "Seconds that a worker waits for another coordinator after the loss of its own."
        ),
        "mark": Setting(
            NO_DEFAULT, instance_of(str), "Mark by which machines recognise shared folders; set by preparation."
        ),
    }
)
_PATHS = ("path_data", "path_policy")


def check_dist(given: Mapping[str, Any]) -> EasyDict:
    """Return the section `dist` of a system config with defaults: how long workers wait for a coordinator, in seconds.

    Raises:
        ConfigError: a value is not allowed.
    """
    dist = EasyDict({**_DIST_SETTINGS.config(), **given})
    check_config(dist, "system_config.dist", _DIST_SETTINGS.rules())
    return dist


def give_ports(system: EasyDict, coordinator_port: int | None, learner_port: Several, collector_port: Several) -> None:
    """Assign a port to each role of a system config, in place, and give the coordinator the addresses of its workers.

    A list contains a port for each worker. A single port is for the first worker on a host; further workers on that
    host get the next ports. The default ports begin with 22273 for the coordinator, 22271 for learners and 22270 for
    collectors. A learner with several ranks gets a port for each rank, and an aggregator on the same host, named
    `learner_aggregator<i>`.

    Raises:
        ConfigError: a port is given twice or out of range, or there are too few ports.
        TypeError: a port argument is neither a port nor a list.
    """
    owners: dict[tuple[str, int], str] = {}

    def take(name: str, host: str, port: int, is_first: bool = True) -> int:
        """Assign this port or, if `is_first`, the first free one from it on."""
        while is_first and (host, port) in owners:
            port += 1
        if not 1 <= port <= 65535:
            raise ConfigError(
                f"port {port!r} of {name} is not allowed; it must be in [1, 65535], as the other roles must know it"
            )
        owner = owners.setdefault((host, port), name)
        if owner != name:
            raise ConfigError(f"{owner} and {name} would both listen at {host}:{port}; give them different ports")
        return port

    coordinator = system.coordinator
    fixed_port = coordinator_port or coordinator.port
    coordinator.port = take("coordinator", coordinator.host, fixed_port or COORDINATOR_PORT, not fixed_port)
    for kind, first, asked in (("learner", LEARNER_PORT, learner_port), ("collector", COLLECTOR_PORT, collector_port)):
        names, coordinator[kind] = workers_of(system, kind), EasyDict()
        is_first, ports = asked is None or isinstance(asked, int), each_of(f"{kind}_port", asked, int, len(names))
        for index, name in enumerate(names):
            section = system[name]
            section.port = take(name, section.host, (ports[index] or first) if is_first else ports[index], is_first)
            coordinator[kind][name] = [name, section.host, section.port]
            if section.get("multi_gpu", False):
                _aggregate(system, name, index, take)


def _aggregate(system: EasyDict, name: str, index: int, take: Callable[[str, str, int], int]) -> None:
    """Add an aggregator for the ranks of a learner; the first rank keeps the learner's port."""
    section, host = system[name], system[name].host
    others = [take(f"{name} rank {rank}", host, section.port) for rank in range(1, section.gpu_num)]
    section.update(port=[section.port, *others], aggregator=True)
    aggregator = f"learner_aggregator{index}"
    ends = {
        end: {"host": host, "port": take(f"{aggregator} ({end})", host, AGGREGATOR_PORT)} for end in ("slave", "master")
    }
    ranks = {str(rank): [str(rank), host, port] for rank, port in enumerate(section.port)}
    system[aggregator] = EasyDict({**ends, "learner": ranks})
    system.coordinator.learner[name] = [name, host, ends["slave"]["port"]]


def write_mark(section: Mapping[str, Any]) -> str:
    """Write a file by which all machines recognise the shared folders, and return its name."""
    mark = f".ding_{uuid.uuid4().hex}"
    for key in _PATHS:
        os.makedirs(section[key], exist_ok=True)
        with open(os.path.join(section[key], mark), "wb"):
            pass
    return mark


def check_shared_folders(cfg: Mapping[str, Any], section: Mapping[str, Any]) -> None:
    """Check that the shared folders are the ones for which the config was prepared.

    Raises:
        ConfigError: the folders are other ones, or missing.
    """
    mark = cfg["system"].get("dist", {}).get("mark")
    for key in _PATHS:
        if mark is not None and key in section and not os.path.exists(os.path.join(section[key], mark)):
            raise ConfigError(
                f"{key} = {section[key]!r} is not the folder for which the config was prepared: the file {mark} is "
                "missing. Mount the shared folder at the same path on every machine, or prepare the config again"
            )


def section_of(cfg: Mapping[str, Any], kind: str, name: str | None) -> tuple[str, EasyDict]:
    """Return the name and the section of a role in a compiled config.

    Args:
        name: name of the role; None for the role named `kind`, or the only one of that kind.

    Raises:
        ConfigError: there is no such role, or several match.
    """
    system = cfg["system"]
    names = workers_of(system, kind)
    if name is None:
        name = kind if kind in system or len(names) != 1 else names[0]
    if name not in system or name not in (kind, *names):
        existing = ", ".join(names) or "none"
        raise ConfigError(f"there is no {kind} named {name!r} in the config; use one of these names: {existing}")
    return name, system[name]


def read_dist_config(filename: str) -> EasyDict:
    """Read the config that `dist_prepare_config` has written; nothing in the file is executed."""
    cfg = read_packed_config(filename)
    cfg.system.dist = check_dist(cfg.system.get("dist", {}))
    return cfg


# The longest single wait, because a signal just before a wait does not end it.
_TICK_S = 0.5


class DistWorker(AbstractContextManager["DistWorker"]):
    """A worker that runs in threads of this process, until `close` or the end of the program.

    Args:
        name: the name of the worker in the config.
        cls: the class; without `on_presence` (see `CommWorker`), the loss of the coordinator is not noticed.
        cfg: the config of the worker.
        dist: see `check_dist`.
    """

    def __init__(self, name: str, cls: type, cfg: EasyDict, dist: Mapping[str, Any]) -> None:
        self.name = name
        self._dist = dist
        self._changed = threading.Condition()
        self._has_come = self._is_over = False
        self._lost_at: float | None = None  # None while there is a coordinator
        self.worker: Any = cls(cfg)
        if hasattr(self.worker, "on_presence"):
            self.worker.on_presence = self._note_coordinator
        else:
            self._note_coordinator(True)
        atexit.register(self.close)
        try:
            self.worker.start()
        except BaseException:
            self.close()
            raise

    def _note_coordinator(self, is_present: bool) -> None:
        with self._changed:
            self._has_come, self._lost_at = True, None if is_present else monotonic()
            self._changed.notify_all()

    @property
    def port(self) -> int | None:
        """The port at which the worker accepts tasks."""
        port: int | None = getattr(self.worker, "port", None)
        return port

    def wait(self) -> None:
        """Wait until the coordinator is lost and does not return, or until `close`.

        Raises:
            TimeoutError: no coordinator has connected.
        """
        wait_s, lost_s, begin = self._dist["coordinator_wait_s"], self._dist["coordinator_lost_s"], monotonic()
        with self._changed:
            while not self._is_over:
                due = math.inf if self._lost_at is None else self._lost_at + lost_s
                left_s = (due if self._has_come else begin + wait_s) - monotonic()
                if left_s <= 0 and self._has_come:
                    return
                if left_s <= 0:
                    where = f"{self.name} at port {self.port}"
                    raise TimeoutError(f"no coordinator has connected to {where} within {wait_s:g} s")
                self._changed.wait(min(_TICK_S, left_s))

    def close(self) -> None:
        """End a running task, and accept no more. Further calls do nothing."""
        atexit.unregister(self.close)
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        self.worker.close()

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class DistCoordinator(AbstractContextManager["DistCoordinator"]):
    """A coordinator that runs in threads of this process, until `close` or the end of the program."""

    def __init__(self, cfg: EasyDict) -> None:
        with ExitStack() as stack:
            stack.enter_context(hold_run(cfg.main.exp_name) or nullcontext())
            self._run = ParallelRun(cfg, monotonic())
            self.coordinator = self._run.coordinator
            self._run.start()
            self._held = stack.pop_all()
        atexit.register(self.close)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the run is over, then end all tasks; return False if `timeout_s` has passed first.

        Raises:
            Exception: the failure of the run.
        """
        if not self._run.wait(math.inf if timeout_s is None else monotonic() + timeout_s):
            return False
        atexit.unregister(self.close)
        with self._held:
            self._run.end()
            self._run.outcome()
        return True

    def close(self) -> None:
        """End all tasks and disconnect the workers. Further calls do nothing."""
        atexit.unregister(self.close)
        with self._held:
            self._run.close()

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def worker_class(kind: str, section: Mapping[str, Any]) -> type:
    """Return the class for the type in a worker's section.

    Raises:
        ConfigError: workers of that type cannot be reached from other processes.
        KeyError: the type is unknown.
    """
    cls: Any = comm_class(kind, section)
    launch = get_transport(transport_of(kind, section)).launch
    if launch is not Launch.PROCESS:
        raise ConfigError(
            f"a {kind} of the type {section['type']!r} runs in {launch.value}, and cannot be started alone: set "
            f"comm_{kind} to 'flask_fs'"
        )
    found: type = cls
    return found


def seed_at(seed: int, place: str) -> int:
    """Return a seed, below 2^31, for the worker at `place`; at other places it differs with the same `seed`."""
    return derive_seed(seed, 4, zlib.crc32(place.encode()))


def port_from(argument: int | None, variable: str, configured: Any) -> Any:
    """Return a port: the argument, else the number in the environment variable, else the configured port."""
    if argument is not None:
        return argument
    text = os.environ.get(variable, "")
    # Kubernetes sets such a variable to a URL if a service has that name.
    return int(text) if text.isascii() and text.isdigit() else configured
