"""A worker of parallel training in a process of its own: the code in that process, and its handle in the parent.

Each worker has a *fork server*, a process without threads, which the caller starts before it has threads itself. The
fork server forks the worker, reports its end, and forks it again on request, always from the same initial state. A
fork server that has ended is replaced by a new interpreter, as a process with threads cannot fork safely. Where a
process has asked CUDA anything, new interpreters take the place of forks, which could not use CUDA.

Child processes of a dead worker, such as those of its envs, may hold its pipes open. So the end of a process is
detected by its descriptor, never by the end of a pipe, and messages are datagrams, which arrive whole or not at all.
"""

from __future__ import annotations

import contextlib
import glob
import json
import logging
import multiprocessing
import os
import signal
import socket
import sys
import traceback
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import wait
from time import time
from types import FrameType
from typing import Any, NamedTuple

from easydict import EasyDict

from ding.utils.child_helper import (
    ProcessEnd,
    ProcessEvent,
    be_killed_with,
    descriptor_of,
    forget_secrets,
    reset_inherited,
    without_secrets,
)
from ding.utils.default_helper import derive_seed, set_pkg_seed
from ding.worker.collector.comm.base_comm_collector import create_comm_collector
from ding.worker.learner.comm.base_comm_learner import create_comm_learner

CREATE: dict[str, Callable[[EasyDict], Any]] = {"learner": create_comm_learner, "collector": create_comm_collector}
# Compute threads if a worker has its machine for itself: a learner uses all cores, collectors share them.
THREADS = {"learner": None, "collector": 1}
# All collectors wait for a learner that lacks CPU time, so collectors yield to it.
COLLECTOR_NICE = 10
# How long a worker may take to close. It gets more time while it writes a checkpoint, which is looked at every
# `_LOOK_S` seconds, and given up when it has not grown for `_STALL_S`.
CLOSE_S = 5.0
_LOOK_S, _STALL_S = 2.0, 10.0
# How long a killed process may take to die, which is longer while it waits for a disk or a driver.
KILL_S = 5.0
# How much longer than its worker the fork server may take to end.
_SERVER_S = 2.0
# The size of a datagram; only the end of a longer traceback is sent.
_MAX_BYTES = 1 << 16
_MAX_TEXT = 10_000
# The exit code of a fork server that had to kill its worker when it was closed.
_LATE = 75
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
        close_s: how long the worker may take to close, apart from writing a checkpoint.
    """

    name: str
    run: Callable[..., Any]
    config: EasyDict
    seed: int
    is_quiet: bool = True
    close_s: float = CLOSE_S


class WorkerProcess:
    """The process of a worker, which can be started, and restarted if it has died, without threads.

    Args:
        start_method: how the fork server starts: 'fork', 'spawn' or 'forkserver'. None stands for 'fork' if the system
            has it and this process has asked CUDA nothing, else for 'spawn'.

    Attributes:
        name: the worker's name.
        start_method: start method of the fork server.
        pid: process id of the worker; None until it has reported.
        port: the port at which it accepts tasks; None until it has reported.

    Example:
        >>> def run(config, seed, start_event, close_event, report):
        ...     report(7236)
        ...     start_event.set()
        ...     close_event.wait()
        >>> worker = WorkerProcess(WorkerPlan("collector0", run, EasyDict(), seed=0), "fork")
        >>> worker.start()
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
        self._has_reported = self._is_over = False  # the fork server: whether its worker has been up, whether it ended
        self._finalizer: Any = None

    def start(self) -> None:
        """Start the process; it reports later that the worker accepts tasks."""
        self._start_server(self.start_method)

    def _start_server(self, method: str) -> None:
        channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        with theirs, contextlib.ExitStack() as on_error:
            on_error.callback(channel.close)
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MAX_BYTES)
            ends = _Ends(theirs, self.start_event, self.close_event)
            context: Any = multiprocessing.get_context(method)
            args = self._plan, ends, os.getpid(), self._life, method
            server = context.Process(target=_serve_forks, args=args, name=f"fork_server_{self.name}")
            with _starting(method):
                server.start()
            on_error.pop_all()
        self._server: Any = server
        self._end, self._channel = ProcessEnd(server), channel
        self._has_reported = self._is_over = False
        # Runs before the exit handler of multiprocessing, which would wait for the process.
        handles = self._server, self._end, self._channel
        self._finalizer = weakref.finalize(self, _finish, *handles, self.close_event, self._plan)

    @property
    def is_started(self) -> bool:
        """Whether `start` was called."""
        return self._finalizer is not None

    @property
    def sources(self) -> list[Any]:
        """The objects for `multiprocessing.connection.wait`, readable when there is a message for `read`."""
        return [] if self._is_over or not self.is_started else [self._channel, self._end.descriptor]

    @property
    def server_pid(self) -> int:
        """The process id of the fork server."""
        pid: int = self._server.pid
        return pid

    @property
    def exitcode(self) -> int | None:
        """The exit code of the fork server; None while it runs."""
        code: int | None = self._server.exitcode
        return code

    def is_alive(self) -> bool:
        """Return whether the fork server runs."""
        return bool(self._server.is_alive())

    def join(self, timeout: float | None = None) -> None:
        """Wait for the fork server to end."""
        self._end.wait(timeout)

    def terminate(self) -> None:
        """Terminate fork server and worker at once."""
        self._server.terminate()

    def read(self) -> Started | Ended | None:
        """Read messages without waiting, and return the first event of a start or end of the worker, if any."""
        has_ended = self._end.wait(0)
        while (told := _receive(self._channel)) is not None:
            if "port" in told:
                self.pid, self.port, self._failure, self._has_reported = told["pid"], told["port"], "", True
                return Started(self.name, told["port"])
            self._failure = told.get("failure", self._failure)
            if "exitcode" in told:
                return self._ended(WorkerDied(self.name, told["exitcode"], self._failure))
        if not has_ended:
            return None
        self._kill_rest()
        self._is_over = True
        return self._ended(WorkerDied(self.name, self.exitcode, text=self._how_server_ended()))

    def _ended(self, error: WorkerDied) -> Ended:
        self.pid = self.port = None
        return Ended(self.name, error)

    def _how_server_ended(self) -> str:
        text = f"the fork server of {self.name} {_how(self.exitcode)}"
        if self._has_reported:
            return text
        return f"{text}, before {self.name} had started: see its output, which says why if it could not be set up"

    def start_again(self) -> None:
        """Restart the worker after it has died; it reports as it did after `start`.

        Raises:
            WorkerDied: the fork server has ended, and cannot be replaced.
        """
        self._life += 1
        if self.is_alive():
            self._order({"again": self._life})
            return
        text = self._how_server_ended()
        self._finalizer.detach()
        self._finalizer = None
        _release(self._server, self._end, self._channel)
        try:
            self._start_server("spawn")
        except Exception as e:  # such as a config that cannot be pickled
            raise WorkerDied(self.name, None, text=f"{text}; without it {self.name} cannot restart: {e!r}") from e

    def kill(self) -> None:
        """Kill the worker whose `pid` is known, or the one that is starting; `read` then reports its death."""
        self._order({"kill": self.pid})

    def _order(self, order: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # a dead fork server is detected elsewhere
            _send(self._channel, order, socket.MSG_DONTWAIT)
        _wake_up(self._server)

    def close(self) -> bool:
        """End the worker gracefully, or by force if it takes too long; return whether it has ended by itself.

        This method is idempotent, and bounded in time unless a checkpoint is being written.
        """
        outcome = None if self._finalizer is None else self._finalizer()
        if outcome is False:
            self._kill_rest()
        return outcome is not False

    def _kill_rest(self) -> None:
        """Kill the worker's process group in place of its fork server, which has ended."""
        if self.pid is not None:
            _signal_group(self.pid, signal.SIGKILL)


@contextlib.contextmanager
def _starting(method: str) -> Iterator[None]:
    """Prepare the start of a fork server in the `with` block."""
    with without_secrets(), contextlib.ExitStack() as stack:
        if method == "fork":
            # `reset_inherited` undoes what could harm a forked process; the fork server computes nothing.
            stack.enter_context(warnings.catch_warnings())
            warnings.filterwarnings("ignore", message=".*multi-threaded.*fork", category=DeprecationWarning)
        else:
            os.environ[_MARK] = "1"
            stack.callback(os.environ.pop, _MARK, None)
        yield


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


def _finish(server: Any, end: ProcessEnd, channel: socket.socket, close_event: ProcessEvent, plan: WorkerPlan) -> bool:
    """End the fork server, and return whether its worker has ended by itself."""
    close_event.set()
    _wake_up(server)
    is_killed = not wait_while_saving(end.wait, plan.close_s + _SERVER_S, plan.config)
    if is_killed:
        server.kill()
        end.wait(KILL_S)
    is_late = is_killed or server.exitcode == _LATE
    _release(server, end, channel)
    return not is_late


def _release(server: Any, end: ProcessEnd, channel: socket.socket) -> None:
    if server.exitcode is not None:
        server.close()
    end.close()
    channel.close()


def wait_while_saving(wait_for: Callable[[float], bool], limit_s: float, section: Mapping[str, Any]) -> bool:
    """Wait for the end of a worker, for `limit_s` and while it writes a checkpoint; return whether it has ended.

    Args:
        wait_for: takes a number of seconds, waits for the end, and returns whether it has come.
        section: the section of the worker.
    """
    while not wait_for(limit_s):
        if not is_saving(section):
            return False
        limit_s = _LOOK_S
    return True


def is_saving(section: Mapping[str, Any]) -> bool:
    """Return whether a checkpoint is being written, which means that its temporary file has grown recently."""
    for path in glob.iglob(os.path.join(glob.escape(section.get("exp_name") or ""), "ckpt*", ".*.tmp")):
        with contextlib.suppress(OSError):  # it was renamed meanwhile
            if time() - os.stat(path).st_mtime < _STALL_S:
                return True
    return False


def _wake_up(server: Any) -> None:
    """Continue a fork server that a signal has stopped, as it could neither end nor restart its worker."""
    with contextlib.suppress(OSError):
        os.kill(server.pid, signal.SIGCONT)


def close_all(workers: Iterable[WorkerProcess]) -> list[str]:
    """Close all workers at the same time, and return the names of those that had to be killed."""
    for worker in workers:
        worker.close_event.set()
    return [worker.name for worker in workers if not worker.close()]


def default_start_method() -> str:
    """Return 'fork' if possible, otherwise 'spawn'.

    A process cannot use CUDA if it was forked from one that has asked CUDA anything, if only whether there is a GPU.
    """
    return "fork" if "fork" in multiprocessing.get_all_start_methods() and not _has_asked_cuda() else "spawn"


def _has_asked_cuda() -> bool:
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


class _Ends(NamedTuple):
    """The connections that fork server and worker share."""

    channel: socket.socket
    start_event: ProcessEvent
    close_event: ProcessEvent


def _serve_forks(plan: WorkerPlan, ends: _Ends, parent_pid: int, life: int, start_method: str) -> None:
    """Run the fork server of a worker, until it is closed or the process `parent_pid` ends.

    It sends `{"exitcode": ...}` when the worker has ended without having been closed, and accepts the orders
    `{"kill": pid}` and `{"again": life}`. The worker itself sends `{"port": ..., "pid": ...}` when it accepts tasks,
    and `{"failure": traceback}` when it fails.
    """
    os.environ.pop(_MARK, None)
    reset_inherited()
    forget_secrets()  # the worker is forked from here, and has the token in its config
    # A signal to the group of the caller, by `timeout` or a closed terminal, must not end this process before it has
    # ended its worker.
    os.setpgid(0, 0)
    parent: Any = descriptor_of(parent_pid)
    if parent is None:
        process = multiprocessing.parent_process()
        assert process is not None
        parent = process.sentinel
    # A new interpreter has imported the main module, which may have asked CUDA something.
    method = start_method if start_method == "fork" else default_start_method()
    while _run_once(plan, ends, parent, life, method):
        while (again := (_receive(ends.channel) or {}).get("again")) is None:
            if ends.channel not in wait([ends.channel, ends.close_event.reader, parent]):
                return
        life = again


def _run_once(plan: WorkerPlan, ends: _Ends, parent: int, life: int, method: str) -> bool:
    """Run the worker until it ends, and return False if it was closed."""
    context: Any = multiprocessing.get_context(method)
    worker = context.Process(target=_work, args=(plan, ends, life, os.getpid()), name=plan.name)
    with _starting(method):
        worker.start()
    signal.signal(signal.SIGTERM, partial(_end_with, worker.pid))
    end, is_closed, is_late = ProcessEnd(worker), False, False
    while True:
        ready = wait([end.descriptor, ends.channel, ends.close_event.reader, parent])
        if end.descriptor in ready:
            break
        if ready == [ends.channel]:
            order = _receive(ends.channel) or {}
            if order.get("kill", -1) not in (None, worker.pid):
                continue  # the order is for an earlier worker
        else:
            is_closed = True
            ends.close_event.set()
            _signal_group(worker.pid, signal.SIGCONT)  # one that was stopped could not end
            is_late = not wait_while_saving(end.wait, plan.close_s, plan.config)
        worker.kill()
        end.wait(KILL_S)
        break
    # End all that it has started. Until `exitcode` is read, its id cannot be reused for another group.
    _signal_group(worker.pid, signal.SIGKILL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    exitcode = worker.exitcode
    end.close()
    if not is_closed:
        _send(ends.channel, {"exitcode": exitcode})
    if is_late:
        sys.exit(_LATE)
    return not is_closed


def _end_with(worker_pid: int, signum: int, frame: FrameType | None) -> None:
    """Handle a signal: end this process, and kill the worker with all that it has started."""
    with contextlib.suppress(OSError):
        os.kill(worker_pid, signal.SIGKILL)  # it may not have a group yet
    _signal_group(worker_pid, signal.SIGKILL)
    signal.signal(signum, signal.SIG_DFL)
    signal.raise_signal(signum)


def _signal_group(worker_pid: int, signum: signal.Signals) -> None:
    with contextlib.suppress(OSError):
        os.killpg(worker_pid, signum)


def quiet_flask() -> None:
    """Make Flask's development server, which user code may run in this process, log errors only."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)


def _work(plan: WorkerPlan, ends: _Ends, life: int, server_pid: int) -> None:
    """Run a worker, as the main function of its process."""
    os.environ.pop(_MARK, None)
    reset_inherited()
    be_killed_with(server_pid)
    os.setpgid(0, 0)
    if plan.is_quiet:
        quiet_flask()

    def tell_port(port: int) -> None:
        _send(ends.channel, {"port": port, "pid": os.getpid()})

    try:
        config = EasyDict(plan.config)
        if config.get("seed") is not None:
            config.seed = later_seed(config.seed, life)
        plan.run(config, later_seed(plan.seed, life), ends.start_event, ends.close_event, tell_port)
    except BaseException as e:
        _send(ends.channel, {"failure": "".join(traceback.format_exception(e))[-_MAX_TEXT:]})
        raise SystemExit(1) from None


def _send(channel: socket.socket, message: Mapping[str, Any], flags: int = 0) -> None:
    channel.send(json.dumps(message).encode(), flags)


def _receive(channel: socket.socket) -> dict[str, Any] | None:
    """Return the next message, or None."""
    try:
        message: dict[str, Any] = json.loads(channel.recv(_MAX_BYTES, socket.MSG_DONTWAIT))
    except BlockingIOError:
        return None
    return message


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
