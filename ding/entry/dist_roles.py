"""The roles of a training on several machines, each in its own process."""

from __future__ import annotations

import atexit
import math
import os
import threading
import zlib
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext
from time import monotonic
from typing import Any

from easydict import EasyDict

from ding.entry.parallel_run import ParallelRun
from ding.utils.config_helper import ConfigError
from ding.utils.default_helper import derive_seed
from ding.utils.run_states import hold_run
from ding.worker.collector.comm.base_comm_collector import comm_collector_class
from ding.worker.learner.comm.base_comm_learner import comm_learner_class
from ding.worker.transport.transport import DEFAULT_TRANSPORT, Launch, get_transport

_CLASS_OF = {"learner": comm_learner_class, "collector": comm_collector_class}


# The longest single wait, because a signal just before a wait does not end it.
_TICK_S = 0.5


class Presence:
    """A record of whether a worker has a coordinator. This class is thread-safe.

    Example:
        >>> presence = Presence()
        >>> presence.came()
        >>> presence.left()
        >>> presence.wait_until_gone(wait_s=60, lost_s=0)
        True
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._is_there = self._has_come = self._is_over = False

    def came(self) -> None:
        """Record that the coordinator is connected."""
        if self._is_there:  # called for each task
            return
        with self._changed:
            self._is_there = self._has_come = True
            self._changed.notify_all()

    def left(self) -> None:
        """Record that the coordinator is lost."""
        with self._changed:
            self._is_there = False
            self._changed.notify_all()

    def end(self) -> None:
        """End all waits."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def wait_until_gone(self, wait_s: float, lost_s: float) -> bool:
        """Wait until the coordinator is lost for `lost_s`, or `end`; return False if none comes within `wait_s`."""
        with self._changed:
            if not self._wait_for(lambda: self._has_come, wait_s):
                return False
            while True:
                self._wait_for(lambda: not self._is_there)
                if self._is_over or not self._wait_for(lambda: self._is_there, lost_s):
                    return True

    def _wait_for(self, predicate: Callable[[], bool], timeout_s: float = math.inf) -> bool:
        deadline = monotonic() + timeout_s
        while not self._changed.wait_for(lambda: self._is_over or predicate(), min(_TICK_S, deadline - monotonic())):
            if monotonic() >= deadline:
                return False
        return True


class _Watched:
    """A mixin for the class of a worker, which records the presence of its coordinator."""

    presence: Presence

    def serve(self, task: dict[str, Any]) -> Any:
        self.presence.came()
        return super().serve(task)  # type: ignore[misc]

    def deal_with_lost_coordinator(self) -> None:
        self.presence.left()
        super().deal_with_lost_coordinator()  # type: ignore[misc]


class DistWorker:
    """A worker that runs in threads of this process, until `close` or the end of the program.

    Args:
        name: the name of the worker in the config.
        cls: the class; without `serve` and `deal_with_lost_coordinator`, the loss of the coordinator is not noticed.
        cfg: the config of the worker.
        dist: see `check_dist`.
    """

    def __init__(self, name: str, cls: type, cfg: EasyDict, dist: Mapping[str, Any]) -> None:
        self.name = name
        self._dist = dist
        self._presence = Presence()
        if hasattr(cls, "serve") and hasattr(cls, "deal_with_lost_coordinator"):
            cls = type(cls.__name__, (_Watched, cls), {"presence": self._presence, "__module__": cls.__module__})
        else:
            self._presence.came()
        self.worker: Any = cls(cfg)
        atexit.register(self.close)
        try:
            self.worker.start()
        except BaseException:
            self.close()
            raise

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
        wait_s, lost_s = self._dist["coordinator_wait_s"], self._dist["coordinator_lost_s"]
        if not self._presence.wait_until_gone(wait_s, lost_s):
            raise TimeoutError(f"no coordinator has come to {self.name} at port {self.port} within {wait_s:g} s")

    def close(self) -> None:
        """End a running task, and accept no more. Further calls do nothing."""
        atexit.unregister(self.close)
        self._presence.end()
        self.worker.close()

    def __enter__(self) -> DistWorker:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class DistCoordinator:
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

    def __enter__(self) -> DistCoordinator:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def worker_class(kind: str, section: Mapping[str, Any]) -> type:
    """Return the class for the type in a worker's section.

    Raises:
        ConfigError: workers of that type cannot be reached from other processes.
        KeyError: the type is unknown.
    """
    cls: Any = _CLASS_OF[kind](section)
    launch = get_transport(getattr(cls, "transport", DEFAULT_TRANSPORT)).launch
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
