"""A worker of parallel training in a process of its own: what runs there, and what the process that started it sees.

Between the two stands the *fork server* of the worker, a process without threads. The caller starts it before it has
threads itself. It forks the worker, tells of its end, and forks it again when it is asked to: always from a process
that is as it was at first.

What a worker leaves behind may hold its pipes open, the processes of its envs for instance. So the end of a process is
told by its descriptor, never by the end of a pipe, and messages are datagrams, which arrive whole or not at all.
"""

from __future__ import annotations

import contextlib
import json
import logging
import multiprocessing
import os
import signal
import socket
import traceback
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import wait
from time import monotonic
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

# How long a worker may take to close: a learner saves a checkpoint.
CLOSE_S = 20.0
# How long a process may take to die that was killed. One that waits for a disk or a driver takes longer.
KILL_S = 5.0
# How much longer than its worker a fork server may take to end.
_SERVER_S = 2.0
# What a datagram may hold, at the most; of a longer traceback the end is told.
_MAX_BYTES = 1 << 16
_MAX_TEXT = 10_000

Report = Callable[[int], Any]


class WorkerDied(RuntimeError):
    """The process of a worker has ended by itself.

    Attributes:
        worker: its name.
        exitcode: its exit code, negative for a signal.
    """

    def __init__(self, worker: str, exitcode: int | None, failure: str = "") -> None:
        self.worker, self.exitcode = worker, exitcode
        text = f"the process of {worker} {_how(exitcode)}"
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


@dataclass(frozen=True)
class WorkerPlan:
    """What a worker is started with.

    Attributes:
        run: `run_learner` or `run_collector`; or something else that takes the same.
        config: the worker's section of the system config.
        seed: of the package in that process; a worker that is started again gets another.
        is_quiet: whether servers and interaction log errors only.
    """

    name: str
    run: Callable[..., Any]
    config: EasyDict
    seed: int
    is_quiet: bool = True


class WorkerProcess:
    """Starts the process of a worker, and again where it has ended by itself. Nothing here needs a thread.

    Args:
        start_method: how the fork server starts: 'fork', 'spawn' or 'forkserver'. None: 'fork' where that is possible,
            that is if the system has it and CUDA is not in use in this process.

    Attributes:
        name: the worker's name.
        start_method: that of its fork server.
        pid: the process id of the worker; None before it has told.
        port: the port where it takes tasks; None before it has told.

    Example:
        >>> def run(config, seed, start_event, close_event, report):
        ...     report(7236)
        ...     start_event.set()
        ...     close_event.wait()
        >>> worker = WorkerProcess(WorkerPlan("collector0", run, EasyDict(), seed=0), "fork")
        >>> worker.start()
        >>> wait_until_up([worker], timeout_s=60)
        >>> worker.port
        7236
        >>> worker.close()
    """

    def __init__(self, plan: WorkerPlan, start_method: str | None = None) -> None:
        self.name = plan.name
        self.start_event, self.close_event = ProcessEvent(), ProcessEvent()
        self.pid: int | None = None
        self.port: int | None = None
        self.start_method = start_method or default_start_method()
        self._plan, self._failure = plan, ""
        self._finalizer: Any = None

    def start(self) -> None:
        """Start the process; it tells later that the worker takes tasks."""
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        with theirs, warnings.catch_warnings(), without_secrets():
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MAX_BYTES)
            ends = _Ends(theirs, self.start_event, self.close_event)
            context: Any = multiprocessing.get_context(self.start_method)
            args = self._plan, ends, os.getpid()
            self._server: Any = context.Process(target=_serve_forks, args=args, name=f"fork_server_{self.name}")
            # What could harm a forked process is undone in `reset_inherited`; the fork server computes nothing.
            warnings.filterwarnings("ignore", message=".*multi-threaded.*fork", category=DeprecationWarning)
            self._server.start()
        self._end = ProcessEnd(self._server)
        # Before that of multiprocessing at exit, which would wait for the process.
        self._finalizer = weakref.finalize(self, _finish, self._server, self._end, self._channel, self.close_event)

    @property
    def is_started(self) -> bool:
        """Whether `start` was called."""
        return self._finalizer is not None

    @property
    def sources(self) -> list[Any]:
        """What becomes readable when there is something to `read`; for `multiprocessing.connection.wait`."""
        return [self._channel, self._end.descriptor]

    @property
    def server_pid(self) -> int:
        """The process id of the fork server."""
        pid: int = self._server.pid
        return pid

    @property
    def exitcode(self) -> int | None:
        """That of the fork server; None while it runs."""
        code: int | None = self._server.exitcode
        return code

    def is_alive(self) -> bool:
        """Whether the fork server runs."""
        return bool(self._server.is_alive())

    def join(self, timeout: float | None = None) -> None:
        """Wait for the fork server to end."""
        self._end.wait(timeout)

    def terminate(self) -> None:
        """End fork server and worker at once."""
        self._server.terminate()

    def read(self) -> bool:
        """Take in what there is to know, without waiting; whether the worker has just told where it takes tasks.

        Raises:
            WorkerDied: the worker has ended, or even its fork server.
        """
        has_ended = self._end.wait(0)
        while (told := _receive(self._channel)) is not None:
            if "port" in told:
                self.pid, self.port, self._failure = told["pid"], told["port"], ""
                return True
            self._failure = told.get("failure", self._failure)
            if "exitcode" in told:
                self.pid = self.port = None
                raise WorkerDied(self.name, told["exitcode"], self._failure)
        if has_ended:
            self._kill_rest()
            self.pid = self.port = None
            raise WorkerDied(self.name, self._server.exitcode)
        return False

    def start_again(self) -> None:
        """Start the worker again, after it has died; it tells as at first."""
        self._order({"again": True})

    def kill(self) -> None:
        """Kill the worker whose `pid` is known, or the one that is starting; `read` tells of its death."""
        self._order({"kill": self.pid})

    def _order(self, order: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # a fork server that is stopped, or has gone, is noticed by other means
            _send(self._channel, order, socket.MSG_DONTWAIT)

    def close(self) -> None:
        """End the worker as it should end, or by force where it takes too long. Bounded in time; idempotent."""
        if self._finalizer is not None and self._finalizer():
            self._kill_rest()

    def _kill_rest(self) -> None:
        """Its fork server has just ended, and could not see to what the worker has started."""
        if self.pid is not None:
            _kill_group(self.pid)


def _finish(server: Any, end: ProcessEnd, channel: socket.socket, close_event: ProcessEvent) -> bool:
    """End the fork server; returns whether it had to be killed."""
    close_event.set()
    is_killed = not end.wait(CLOSE_S + _SERVER_S)
    if is_killed:
        server.kill()
        end.wait(KILL_S)
    if server.exitcode is not None:
        server.close()
    end.close()
    channel.close()
    return is_killed


def close_all(workers: Iterable[WorkerProcess]) -> None:
    """Close them at the same time."""
    for worker in workers:
        worker.close_event.set()
    for worker in workers:
        worker.close()


def default_start_method() -> str:
    """'fork' where that is possible, else 'spawn'."""
    import torch

    has_fork = "fork" in multiprocessing.get_all_start_methods()
    is_cuda_used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return "fork" if has_fork and not is_cuda_used else "spawn"


def wait_until_up(workers: Iterable[WorkerProcess], timeout_s: float) -> None:
    """Wait until all have started.

    Raises:
        WorkerDied: one of them has not.
        TimeoutError: they take too long; it names those.
    """
    deadline = monotonic() + timeout_s
    missing = {worker.name: worker for worker in workers if worker.port is None}
    while missing:
        owners = {source: worker for worker in missing.values() for source in worker.sources}
        ready = wait(list(owners), max(0.0, deadline - monotonic()))
        if not ready:
            raise TimeoutError(f"workers have not started within {timeout_s:g} s: {', '.join(sorted(missing))}")
        for worker in {owners[source] for source in ready}:
            if worker.read():
                del missing[worker.name]


# What runs in the processes.


class _Ends(NamedTuple):
    """What fork server and worker share."""

    channel: socket.socket
    start_event: ProcessEvent
    close_event: ProcessEvent


def _serve_forks(plan: WorkerPlan, ends: _Ends, parent_pid: int) -> None:
    """Be the fork server of a worker, until it is closed or the process `parent_pid` ends.

    It tells `{"exitcode": ...}` when the worker has ended without having been closed, and takes the orders
    `{"kill": pid}` and `{"again": True}`. The worker itself tells `{"port": ..., "pid": ...}` when it takes tasks, and
    `{"failure": traceback}` when it fails.
    """
    reset_inherited()
    forget_secrets()  # the worker is forked from here, and has the token in its config
    # What ends the group of the caller, as `timeout` and a closed terminal do, must not end this process before it has
    # seen to its worker.
    os.setpgid(0, 0)
    parent: Any = descriptor_of(parent_pid)
    if parent is None:
        process = multiprocessing.parent_process()
        assert process is not None
        parent = process.sentinel
    life = 0
    while _see_through(plan, ends, parent, life):
        while not (_receive(ends.channel) or {}).get("again"):
            if ends.channel not in wait([ends.channel, ends.close_event.reader, parent]):
                return
        life += 1


def _see_through(plan: WorkerPlan, ends: _Ends, parent: int, life: int) -> bool:
    """Run the worker until it ends; False if it was closed."""
    context: Any = multiprocessing.get_context("fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn")
    worker = context.Process(target=_work, args=(plan, ends, life, os.getpid()), name=plan.name)
    worker.start()
    signal.signal(signal.SIGTERM, partial(_end_with, worker.pid))
    end, is_closed = ProcessEnd(worker), False
    while True:
        ready = wait([end.descriptor, ends.channel, ends.close_event.reader, parent])
        if end.descriptor in ready:
            break
        if ready == [ends.channel]:
            order = _receive(ends.channel) or {}
            if order.get("kill", -1) not in (None, worker.pid):
                continue  # it is about an earlier worker
        else:
            is_closed = True
            ends.close_event.set()
            end.wait(CLOSE_S)
        worker.kill()
        end.wait(KILL_S)
        break
    # What it has started, and could not end. Until `exitcode` is asked for, its id can be that of no other group.
    _kill_group(worker.pid)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    exitcode = worker.exitcode
    end.close()
    if not is_closed:
        _send(ends.channel, {"exitcode": exitcode})
    return not is_closed


def _end_with(worker_pid: int, signum: int, frame: FrameType | None) -> None:
    """End this process, and the worker at once with all that it has started; a handler of signals."""
    with contextlib.suppress(OSError):
        os.kill(worker_pid, signal.SIGKILL)  # it may not have a group yet
    _kill_group(worker_pid)
    signal.signal(signum, signal.SIG_DFL)
    signal.raise_signal(signum)


def _kill_group(worker_pid: int) -> None:
    with contextlib.suppress(OSError):
        os.killpg(worker_pid, signal.SIGKILL)


def quiet_flask() -> None:
    """Make Flask's development server, which user code may run in this process, log errors only."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)


def _work(plan: WorkerPlan, ends: _Ends, life: int, server_pid: int) -> None:
    """Be the process of a worker."""
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
    """The next message; None where there is none yet."""
    try:
        message: dict[str, Any] = json.loads(channel.recv(_MAX_BYTES, socket.MSG_DONTWAIT))
    except BlockingIOError:
        return None
    return message


def later_seed(seed: int, life: int) -> int:
    """The seed of a worker that was started again `life` times; the first time it is `seed` itself."""
    return seed if life == 0 else derive_seed(seed, 3, life)


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
        create: makes the worker.
        config: its section of the system config. `nice` lowers its share of busy cores, `torch_threads` (1) is how many
            it computes with.
        seed: of the global generators.
        start_event: is set when the worker takes tasks.
        report: called then with its port.
    """
    import torch

    section = EasyDict(config)
    if section.get("nice") and hasattr(os, "nice"):
        os.nice(section.nice)
    torch.set_num_threads(section.get("torch_threads", 1))
    set_pkg_seed(seed)
    worker = create(section)
    try:
        worker.start()
        if report is not None:
            report(getattr(worker, "port", section.get("port", 0)))
        start_event.set()
        close_event.wait()
    finally:
        worker.close()
