"""A worker of parallel training in a process of its own: the code in that process, and its handle in the parent.

The first process of a worker is forked from the caller, which has no threads then, where that is possible. Later ones
are new interpreters, as a process with threads cannot fork safely; so they are where a process has asked CUDA anything.

Child processes of a dead worker, such as those of its envs, may hold its pipes open. So the end of a process is
detected by its descriptor, never by the end of a pipe.
"""

from __future__ import annotations

import contextlib
import json
import logging
import multiprocessing
import os
import signal
import traceback
import warnings
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from easydict import EasyDict

from ding.utils.child_helper import (
    ProcessEnd,
    ProcessEvent,
    be_killed_with,
    deferred_signals,
    from_lasting_thread,
    reset_inherited,
)
from ding.utils.default_helper import derive_seed, set_pkg_seed
from ding.worker.collector.comm.base_comm_collector import create_comm_collector
from ding.worker.learner.comm.base_comm_learner import create_comm_learner

CREATE: dict[str, Callable[[EasyDict], Any]] = {"learner": create_comm_learner, "collector": create_comm_collector}
# Compute threads if a worker has its machine for itself: a learner uses all cores, collectors share them.
THREADS = {"learner": None, "collector": 1}
# All collectors wait for a learner that lacks CPU time, so collectors yield to it.
COLLECTOR_NICE = 10
# How long a worker may take to end its task, and then to close: a learner may have a large checkpoint to write.
END_S = {"learner": 60.0, "collector": 8.0}
# How long a killed process may take to die, which is longer while it waits for a disk or a driver.
KILL_S = 5.0
# Only the end of a longer traceback is sent.
_MAX_TEXT = 10_000
# Marks a new interpreter until its main module is imported; see `refuse_in_main_of_worker`.
_MARK = "DING_STARTS_A_WORKER"

Report = Callable[[int], Any]


class WorkerDied(RuntimeError):
    """The error that the process of a worker has ended unexpectedly.

    Attributes:
        worker: name of the worker.
        exitcode: exit code of the process, negative for a signal.
    """

    def __init__(self, worker: str, exitcode: int | None, failure: str = "", text: str = "") -> None:
        self.worker, self.exitcode = worker, exitcode
        text = text or f"the process of {worker} {_how(exitcode)}"
        super().__init__(f"{text}:\n{failure}" if failure else text)


def _how(exitcode: int | None) -> str:
    if exitcode is None:
        return "is gone"
    if exitcode >= 0:
        return f"has ended with exit code {exitcode}"
    try:
        return f"was ended by {signal.Signals(-exitcode).name}"
    except ValueError:
        return f"was ended by signal {-exitcode}"


class Started(NamedTuple):
    """The event that a worker accepts tasks, at the host of its section unless another one is given."""

    name: str
    port: int
    host: str | None = None


class Ended(NamedTuple):
    """The event that a worker has ended, or has failed to start; the error is None if it was abandoned on purpose."""

    name: str
    error: Exception | None


@dataclass(frozen=True)
class WorkerPlan:
    """The arguments of a worker process.

    Attributes:
        run: `run_learner`, `run_collector`, or another function with the same parameters.
        config: the worker's section of the system config.
        seed: seed of the package in that process; a restarted worker gets another one.
        is_quiet: whether servers and interaction log errors only.
        close_s: how long the worker may take to close.
    """

    name: str
    run: Callable[..., Any]
    config: EasyDict
    seed: int
    is_quiet: bool = True
    close_s: float = END_S["learner"]


class WorkerProcess:
    """The process of a worker, which can be started, and restarted if it has died.

    It is killed as soon as this process ends, and all that it has started is killed when it ends.

    Args:
        start_method: how the first process starts: 'fork', 'spawn' or 'forkserver'. None stands for 'fork' if the
            system has it and this process has asked CUDA nothing, else for 'spawn'.

    Attributes:
        name: the worker's name.
        start_method: start method of the first process.
        pid: process id of the worker; None until it has reported.
        port: the port at which it accepts tasks; None until it has reported.

    Example:
        >>> def run(config, seed, start_event, close_event, report):
        ...     report(7236)
        ...     start_event.set()
        ...     close_event.wait()
        >>> worker = WorkerProcess(WorkerPlan("collector0", run, EasyDict(), seed=0), "fork")
        >>> worker.start()
        >>> from multiprocessing.connection import wait
        >>> while not worker.read():
        ...     ready = wait(worker.sources, timeout=60)
        >>> worker.port
        7236
        >>> worker.close()
        True
    """

    def __init__(self, plan: WorkerPlan, start_method: str | None = None) -> None:
        self.name = plan.name
        self.start_event, self.close_event = ProcessEvent(), ProcessEvent()
        self.pid: int | None = None
        self.port: int | None = None
        self.start_method = start_method or default_start_method()
        self._plan, self._failure = plan, ""
        self._life = 0  # how often the worker was restarted
        self._is_over = False
        self._finalizer: Any = None

    def start(self) -> None:
        """Start the process; it reports later that the worker accepts tasks."""
        self._start(self.start_method)

    def start_again(self) -> None:
        """Restart the worker after it has died, in a new interpreter; it reports as it did after `start`."""
        self._life += 1
        self._finalizer.detach()
        _release(self._process, self._end, self._reports)
        self._start("spawn" if self.start_method == "fork" else self.start_method)

    @deferred_signals()  # until `_finish` would end the process
    def _start(self, method: str) -> None:
        context: Any = multiprocessing.get_context(method)
        reports, child_end = context.Pipe(duplex=False)
        with child_end, contextlib.ExitStack() as on_error:
            on_error.callback(reports.close)
            args = self._plan, child_end, self.start_event, self.close_event, os.getpid(), self._life
            process = context.Process(target=_work, args=args, name=self.name)
            with warnings.catch_warnings():  # `reset_inherited` undoes what could harm a forked process
                warnings.filterwarnings("ignore", message=".*multi-threaded.*fork", category=DeprecationWarning)
                if method != "fork":
                    os.environ[_MARK] = "1"
                try:
                    from_lasting_thread(process.start)
                finally:
                    os.environ.pop(_MARK, None)
            on_error.pop_all()
        self._process, self._end, self._reports = process, ProcessEnd(process), reports
        self._failure, self._is_over = "", False
        # Runs before the exit handler of multiprocessing, which would wait for the process.
        self._finalizer = weakref.finalize(self, _finish, process, self._end, reports, self.close_event, self._plan)

    @property
    def is_started(self) -> bool:
        """Whether `start` was called."""
        return self._finalizer is not None

    @property
    def sources(self) -> list[Any]:
        """The objects for `multiprocessing.connection.wait`, readable when there is a message for `read`."""
        return [] if self._is_over or not self.is_started else [self._reports, self._end.descriptor]

    @property
    def exitcode(self) -> int | None:
        """The exit code of the process; None while it runs."""
        code: int | None = self._process.exitcode
        return code

    def is_alive(self) -> bool:
        """Return whether the process runs."""
        return bool(self._process.is_alive())

    def join(self, timeout: float | None = None) -> None:
        """Wait for the process to end."""
        self._end.wait(timeout)

    def terminate(self) -> None:
        """Terminate the process at once."""
        self._process.terminate()

    def kill(self) -> None:
        """Kill the process, if it runs, and all that it has started; `read` then reports its death."""
        if self.is_started:
            with contextlib.suppress(ValueError):  # it has ended and was closed
                self._process.kill()
                _signal_group(self._process.pid, signal.SIGKILL)

    def read(self) -> Started | Ended | None:
        """Read messages without waiting, and return the start or the end of the worker, if it has come."""
        has_ended = self._end.wait(0)
        with contextlib.suppress(EOFError):
            while self._reports.poll():
                report = json.loads(self._reports.recv_bytes())
                if "port" in report:
                    self.pid, self.port = self._process.pid, report["port"]
                    return Started(self.name, report["port"])
                self._failure = report["failure"]
        if not has_ended:
            return None
        _signal_group(self._process.pid, signal.SIGKILL)
        self._process.join(KILL_S)  # a fork server tells the exit code after the end
        text = ""
        if self.port is None and not self._failure and self.exitcode:
            how = f"{_how(self.exitcode)} before it had started"
            text = f"the process of {self.name} {how}: see its output, which says why if it could not be set up"
        self.pid = self.port = None
        self._is_over = True
        return Ended(self.name, WorkerDied(self.name, self.exitcode, self._failure, text))

    def close(self) -> bool:
        """End the worker gracefully, or by force if it takes too long; return whether it has ended by itself.

        This method is idempotent, and bounded in time.
        """
        outcome = None if self._finalizer is None else self._finalizer()
        return outcome is not False


def refuse_in_main_of_worker() -> None:
    """Check that this code does not run because the new interpreter of a worker imports the main module.

    Raises:
        RuntimeError: it does; the module would start the same run once more, and again in each of its workers.
    """
    if _MARK in os.environ:
        raise RuntimeError(
            "a worker is being started by importing the main module, which must not train then; put the call into "
            'a block `if __name__ == "__main__":`'
        )


def _finish(process: Any, end: ProcessEnd, reports: Connection, close_event: ProcessEvent, plan: WorkerPlan) -> bool:
    """End the process and all that it has started; return whether it has ended by itself."""
    close_event.set()
    _signal_group(process.pid, signal.SIGCONT)  # one that was stopped could not end
    is_late = not end.wait(plan.close_s)
    if is_late:
        process.kill()
        end.wait(KILL_S)
    _signal_group(process.pid, signal.SIGKILL)
    _release(process, end, reports)
    return not is_late


def _release(process: Any, end: ProcessEnd, reports: Connection) -> None:
    if end.wait(0):
        process.join(KILL_S)  # a fork server tells the exit code after the end
        process.close()
    end.close()
    reports.close()


def default_start_method() -> str:
    """Return 'fork' if possible, otherwise 'spawn'.

    A process cannot use CUDA if it was forked from one that has asked CUDA anything, if only whether there is a GPU.
    """
    return "fork" if "fork" in multiprocessing.get_all_start_methods() and not _has_used_cuda() else "spawn"


def _has_used_cuda() -> bool:
    """Return whether CUDA's driver runs in this process, which holds a device open then that nothing else opens."""
    import torch

    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return True
    try:
        numbers = os.listdir("/proc/self/fd")
    except OSError:
        return False
    for number in numbers:
        with contextlib.suppress(OSError):  # the one that `listdir` had open
            if os.path.basename(os.readlink(f"/proc/self/fd/{number}")) == "nvidia-uvm":
                return True
    return False


# The code in the processes.


def _signal_group(worker_pid: int, signum: signal.Signals) -> None:
    with contextlib.suppress(OSError):
        os.killpg(worker_pid, signum)


def quiet_flask() -> None:
    """Make Flask's development server, which user code may run in this process, log errors only."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)


def _work(
    plan: WorkerPlan,
    reports: Connection,
    start_event: ProcessEvent,
    close_event: ProcessEvent,
    parent_pid: int,
    life: int,
) -> None:
    """Run a worker, as the main function of its process; it reports its port, or the traceback of its failure."""
    os.environ.pop(_MARK, None)
    reset_inherited()
    be_killed_with(parent_pid)
    # A signal to the group of the caller, by `timeout` or a closed terminal, is for the caller to handle.
    os.setpgid(0, 0)
    if plan.is_quiet:
        quiet_flask()
    try:
        config = EasyDict(plan.config)
        if config.get("seed") is not None:
            config.seed = later_seed(config.seed, life)
        plan.run(config, later_seed(plan.seed, life), start_event, close_event, partial(_tell, reports, "port"))
    except BaseException as e:
        _tell(reports, "failure", "".join(traceback.format_exception(e))[-_MAX_TEXT:])
        raise SystemExit(1) from None


def _tell(reports: Connection, key: str, value: Any) -> None:
    reports.send_bytes(json.dumps({key: value}).encode())


def later_seed(seed: int, life: int) -> int:
    """Return the seed of a worker that was restarted `life` times; it is `seed` itself for 0."""
    return seed if life == 0 else derive_seed(seed, 3, life)


def be_worker(section: Mapping[str, Any], seed: int | None, threads: int | None = 1) -> None:
    """Set the CPU priority, the number of compute threads and the seeds of this process for a worker.

    Args:
        section: the worker's section of the system config, with `nice`, `torch_threads` and `seed`.
        seed: the seed of the global generators, instead of that of the section.
        threads: the number of compute threads unless the section sets it; None for all cores.
    """
    import torch

    if section.get("nice") and hasattr(os, "nice"):
        os.nice(section["nice"])
    threads = section.get("torch_threads", threads)
    if threads is not None:
        torch.set_num_threads(threads)
    set_pkg_seed(section.get("seed", 0) if seed is None else seed)


def run_worker(
    create: Callable[[EasyDict], Any],
    config: Mapping[str, Any],
    seed: int,
    start_event: Any,
    close_event: Any,
    report: Report | None = None,
) -> None:
    """Serve tasks in this process until `close_event` is set.

    Args:
        create: creates the worker.
        config: the worker's section of the system config; see `be_worker`.
        seed: seed of the global generators.
        start_event: set when the worker accepts tasks.
        report: called with its port when the worker accepts tasks.
    """
    section = EasyDict(config)
    be_worker(section, seed)
    worker = create(section)
    try:
        worker.start()
        if report is not None:
            report(getattr(worker, "port", section.get("port", 0)))
        start_event.set()
        close_event.wait()
    finally:
        worker.close()


# The main functions of worker processes, called with config, seed, start_event, close_event and report, see
# `run_worker`.
RUN: dict[str, Callable[..., Any]] = {kind: partial(run_worker, create) for kind, create in CREATE.items()}
run_learner, run_collector = RUN["learner"], RUN["collector"]
