"""The process of one env as the manager's process sees it: requests, replies, time limits, its end."""

from __future__ import annotations

import logging
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Collection, Iterable
from multiprocessing import connection
from multiprocessing.context import BaseContext
from typing import Any, NamedTuple

import numpy as np

from ding.envs.env_manager.env_child import (
    ChildPlan,
    EnvDiedError,
    EnvProcessError,
    Failure,
    encode,
    run_child,
)
from ding.utils.child_helper import ProcessEnd, from_lasting_thread

_logger = logging.getLogger("ding")
# How processes of envs start if the config does not state it; macOS has `fork`, but its libraries do not survive it.
DEFAULT_CONTEXT = (
    "fork" if sys.platform.startswith("linux") and "fork" in multiprocessing.get_all_start_methods() else "spawn"
)
# Seconds for all envs to close and their processes to end, and then for each signal to one that still runs.
_CLOSE_S = 5.0
_END_S = 1.0
# A signal that comes just before a wait begins does not end it; so none is longer than this.
_TICK_S = 0.5
# A connection closes a moment before its process ends.
_EXIT_S = 1.0
# A longer request may have to wait for the process to read.
_PIPE_BYTES = 1 << 15
_CUT_OFF = "an interrupt came while it was written to or read from, so its process was killed"
_HINTS = {
    "SIGKILL": "unless it was killed on purpose, it ran out of memory: see dmesg, and use fewer or smaller envs",
    "SIGSEGV": "native code of the env, or of a library it uses, crashed",
    "SIGABRT": "native code of the env, or of a library it uses, gave up",
    "SIGBUS": "native code crashed, or shared memory is used up: see df /dev/shm",
}


class Limit(NamedTuple):
    """Time limit of a request, and a description of the config value that sets it."""

    seconds: float
    words: str


class Reply(NamedTuple):
    """The outcome of a request.

    Attributes:
        method: the requested method: `make`, `reset`, `step`, `close`, or another one of `EnvServer` or the env.
        error: the reason why there is no `value`, else None.
        failed: the method that failed, which may differ from the requested one.
        reset_follows: whether the process now works on a reset, after a step that ended an episode.
    """

    env_id: int
    method: str
    value: Any = None
    error: Exception | None = None
    failed: str = ""
    reset_follows: bool = False


class _Work(NamedTuple):
    """A pending request.

    Attributes:
        deadline: the end of its time (of the monotonic clock), None for no limit.
    """

    method: str
    limit: Limit | None
    deadline: float | None
    reset_limit: Limit | None = None

    @classmethod
    def begun(cls, method: str, limit: Limit | None, reset_limit: Limit | None = None) -> _Work:
        deadline = None if limit is None else time.monotonic() + limit.seconds
        return cls(method, limit, deadline, reset_limit)


class EnvProcess:
    """The process of an env, which works on one request at a time, first on `make`.

    Each request has one reply. It is an error if the process ends, or if the time is over: then the process is killed.
    `wait_for_replies` waits; other methods block only for the start, the end, and a large request to a process that
    does not read.

    An exception of a signal handler, such as KeyboardInterrupt, that would leave half a message in a pipe kills the
    process.

    Args:
        limit: the time limit for making the env.
        others: processes whose connections a forked process must not hold open.

    Attributes:
        is_dead: whether the process is known to have ended.
        pid: the process id.

    Raises:
        TypeError: the env's function cannot be sent to a new interpreter.
    """

    def __init__(self, plan: ChildPlan, context: BaseContext, limit: Limit, others: Iterable[EnvProcess] = ()) -> None:
        self.env_id = plan.env_id
        self.is_dead = False
        self._death = ""
        self._owner_pid = plan.parent_pid
        if context.get_start_method() == "forkserver":
            preload_fork_server()
        their_source, self._sink = context.Pipe(duplex=False)
        self._source, their_sink = context.Pipe(duplex=False)
        ours = self._source, self._sink
        inherited = [end for other in others if not other.is_dead for end in (other._source, other._sink)]
        inherited = [*inherited, *ours] if context.get_start_method() == "fork" else []
        self._process: Any = context.Process(  # type: ignore[attr-defined]
            target=run_child,
            args=(plan, their_source, their_sink, inherited),
            name=f"subprocess_env_manager{plan.env_id}_{time.time()}",
            daemon=True,
        )
        try:
            with warnings.catch_warnings():
                # `fork` is a choice of the config; `reset_inherited` undoes what could harm the child.
                warnings.filterwarnings("ignore", message=".*multi-threaded.*fork", category=DeprecationWarning)
                from_lasting_thread(self._process.start)
        except BaseException:
            for end in ours:
                end.close()
            raise
        finally:
            their_source.close()
            their_sink.close()
        self.pid: int = self._process.pid
        self._end = ProcessEnd(self._process)
        self._work: _Work | None = _Work.begun("make", limit)

    @property
    def request(self) -> str | None:
        """The requested method that the process works on; None for none."""
        work = self._work
        return None if work is None else work.method

    def send(self, method: str, *args: Any, limit: Limit | None = None, reset_limit: Limit | None = None) -> None:
        """Send a request to the process, which must be idle.

        Args:
            limit: the time limit of the request; None for no limit.
            reset_limit: the time limit of the reset that may follow it.

        Raises:
            Exception: an argument cannot be pickled; nothing was sent.
        """
        assert self._work is None, f"env {self.env_id} cannot {method}: it has yet to answer to {self._work.method}"
        data = encode((method, args))
        self._work = work = _Work.begun(method, limit, reset_limit)
        if self.is_dead:  # which the reply will say
            return
        killer = None
        try:
            if work.deadline is not None and len(data) > _PIPE_BYTES:
                killer = threading.Timer(max(0.0, work.deadline - time.monotonic()), self._process.kill)
                killer.start()
            self._sink.send_bytes(data)
        except OSError as e:  # the process has ended, which its reply will say
            _logger.debug("the request %s cannot be sent to env %s: %r", method, self.env_id, e)
        except BaseException:  # of a signal handler
            self._kill(_CUT_OFF)
            raise
        finally:
            if killer is not None:
                killer.cancel()

    def set_limit(self, limit: Limit) -> None:
        """Set a time limit, counted from this call, for the pending request, unless it has one."""
        if self._work is not None and self._work.limit is None:
            self._work = self._work._replace(limit=limit, deadline=time.monotonic() + limit.seconds)

    def __reduce__(self) -> Any:
        # A copy would close the connections of this one with its own.
        raise TypeError(f"the process of env {self.env_id} can be neither copied nor pickled; close the manager first")

    def end(self, at_once: bool = False) -> None:
        """End the process; the env is closed first, unless `at_once` is set or the process is busy."""
        if self.is_dead:
            return
        if not at_once and self.request is None:
            self.send("close")
            if wait_for_end([self], _END_S):
                self._release(describe_exit(self._exitcode()))
                return
        self._kill("its process was killed after a request that failed or took too long")

    def _is_overdue(self) -> bool:
        deadline = None if self._work is None else self._work.deadline
        return deadline is not None and deadline <= time.monotonic()

    def _receive(self) -> Reply:
        """Return the reply, whose beginning, or the end of the process, has been seen; the request is over then."""
        try:
            data = self._source.recv_bytes()
        except (EOFError, OSError):
            return self._handle_exit()
        except BaseException:  # of a signal handler
            self._kill(_CUT_OFF)
            raise
        try:
            is_good, value, reset_follows = pickle.loads(data)
        except Exception as e:  # classes of the env run their own code
            work = self._end_work()
            text = f"the answer of env {self.env_id} to {work.method} cannot be read: {e!r}"
            error = EnvProcessError(text, self.env_id, work.method)
            error.__cause__ = e
            return Reply(self.env_id, work.method, error=error, failed=work.method)
        work = self._end_work()
        if not is_good:
            failure: Failure = value
            return Reply(self.env_id, work.method, error=failure.to_exception(self.env_id), failed=failure.method)
        if reset_follows:
            self._work = _Work.begun("reset", work.reset_limit)
        return Reply(self.env_id, work.method, value, reset_follows=reset_follows)

    def _end_work(self) -> _Work:
        work, self._work = self._work, None
        assert work is not None, "a process answers only requests"
        return work

    def _handle_exit(self) -> Reply:
        """Return the error reply of a process that has ended or closed its connection; end it if necessary."""
        if not wait_for_end([self], _EXIT_S):
            self._kill(describe_exit(None))
        elif self._is_overdue():
            return self._expire()
        else:
            self._release(describe_exit(self._exitcode()))
        return self._reply_of_death()

    def _reply_of_death(self) -> Reply:
        work = self._end_work()
        error = EnvDiedError(f"env {self.env_id} died in {work.method}: {self._death}", self.env_id, work.method)
        return Reply(self.env_id, work.method, error=error, failed=work.method)

    def _expire(self) -> Reply:
        self.end(at_once=True)
        work = self._end_work()
        assert work.limit is not None, "only a request with a limit is overdue"
        text = f"env {self.env_id}: {work.method} did not end within {work.limit.words}; its process was killed"
        return Reply(self.env_id, work.method, error=TimeoutError(text), failed=work.method)

    def _exitcode(self) -> int | None:
        """Return the exit code, negative for a signal, of the ended process; None if the system does not report it."""
        if self._process.exitcode is None:
            self._process.join(_EXIT_S)  # a fork server reports it a little later
        code: int | None = self._process.exitcode
        return code

    def _kill(self, death: str) -> None:
        self._process.kill()
        wait_for_end([self], _EXIT_S)
        self._release(death)

    def _release(self, death: str) -> None:
        """Release the resources of the process, which has ended."""
        self.is_dead, self._death = True, death
        self._source.close()
        self._sink.close()
        self._end.close()
        if self._exitcode() is not None:
            self._process.close()


def wait_for_replies(processes: Iterable[EnvProcess], timeout_s: float | None) -> list[Reply]:
    """Wait up to `timeout_s` seconds until there are replies, and return them.

    There may be none, so a caller that needs one must call again; with None this function decides how long to wait.
    """
    busy = [process for process in processes if process._work is not None]
    living = [process for process in busy if not process.is_dead]
    wait_s = _TICK_S if timeout_s is None else min(timeout_s, _TICK_S)
    deadlines = [work.deadline for process in busy if (work := process._work) and work.deadline is not None]
    if deadlines:
        wait_s = min(wait_s, min(deadlines) - time.monotonic())
    if len(living) < len(busy):
        wait_s = 0
    sources: list[Any] = [process._source for process in living]
    came = connection.wait(sources, max(0.0, wait_s))
    replies = []
    for process in busy:
        if process.is_dead:
            replies.append(process._reply_of_death())
        elif process._source in came:
            replies.append(process._receive())
        elif process._is_overdue():
            replies.append(process._expire())
    if not replies and wait_s >= _TICK_S:
        # Processes that have ended while their children hold the connections open.
        for process in wait_for_end(living, 0):
            replies.append(process._receive() if process._source.poll() else process._handle_exit())
    return replies


def close_all(processes: Collection[EnvProcess]) -> list[Exception]:
    """Close the envs and end all processes within a few seconds, and return the errors of envs that failed to close."""
    # A process that was forked from the owner's has inherited the processes, but must not end them.
    running = [process for process in processes if not process.is_dead and process._owner_pid == os.getpid()]
    errors: list[Exception] = []
    to_close = list(running)
    deadline = time.monotonic() + _CLOSE_S
    while True:
        for process in [process for process in to_close if process.request is None]:
            to_close.remove(process)
            if not process.is_dead:
                process.send("close")
        left = deadline - time.monotonic()
        if left <= 0 or all(process.request is None for process in running):
            break
        for reply in wait_for_replies(running, left):
            if isinstance(reply.error, EnvDiedError):
                _logger.warning("%s", reply.error)
            elif reply.error is not None and reply.method == "close":
                errors.append(reply.error)
    running = [process for process in running if not process.is_dead]
    for process in _end_all(running, deadline):
        _logger.error("the process %s of env %s does not end", process.pid, process.env_id)
    for process in running:
        process._release("it was closed")
    return errors


def wait_for_end(processes: Iterable[EnvProcess], timeout_s: float) -> list[EnvProcess]:
    """Return the processes that have ended, as soon as there are any, or after `timeout_s` seconds."""
    waitable = {process._end.descriptor: process for process in processes}
    ended: list[Any] = connection.wait(list(waitable), timeout_s)
    return [waitable[each] for each in ended]


def _end_all(processes: Iterable[EnvProcess], until: float) -> list[EnvProcess]:
    """Let the processes end by themselves until a time (of the monotonic clock), then kill them.

    Processes that are still running are returned.
    """
    running = list(processes)
    for kills in (False, True):
        if kills:
            until = time.monotonic() + _END_S
            for process in running:
                process._process.kill()
        while running and (ended := wait_for_end(running, max(0.0, until - time.monotonic()))):
            for process in ended:
                running.remove(process)
    return running


def describe_exit(exitcode: int | None) -> str:
    """Return how a process ended, in words: the name of the signal, or the exit code."""
    if exitcode is None:
        return "its process has closed its connection"
    if exitcode >= 0:
        return f"its process ended with exit code {exitcode}"
    try:
        name = signal.Signals(-exitcode).name
    except ValueError:
        name = f"signal {-exitcode}"
    hint = _HINTS.get(name)
    return f"its process was ended by {name}" + (f" ({hint})" if hint else "")


def portable(env_fn: Callable[[], Any], env_id: int) -> bytes:
    """Return a function as bytes that another interpreter can load, lambdas and closures included.

    Raises:
        TypeError: it refers to something that cannot be pickled.
    """
    import cloudpickle

    try:
        data: bytes = cloudpickle.dumps(env_fn)
    except Exception as e:  # a function may hold anything
        raise TypeError(
            f"env_fn[{env_id}] cannot be sent to a new process: {e!r}; "
            "use the context 'fork', or create its objects when it is called"
        ) from e
    return data


def words_of_numpy() -> tuple[int, ...]:
    """Return numbers derived from the state of numpy's global generator, which is not advanced."""
    generator = np.random.RandomState()
    generator.set_state(np.random.get_state())
    return tuple(generator.randint(0, 2**32, 4, dtype=np.uint32).tolist())


def preload_fork_server() -> None:
    """Let the fork server import the modules that each child needs once, instead of once in each child.

    This has no effect if the program has set its own preloads, or has started the server.
    """
    import multiprocessing.forkserver

    server = multiprocessing.forkserver._forkserver
    if getattr(server, "_preload_modules", None) == ["__main__"]:
        multiprocessing.set_forkserver_preload(["__main__", run_child.__module__])
