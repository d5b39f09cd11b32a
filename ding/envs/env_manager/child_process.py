"""The process of one env, seen from the manager's process."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import socket
import time
import warnings
from collections import deque
from collections.abc import Iterable, Sequence
from multiprocessing.context import BaseContext
from typing import Any, NamedTuple

from ding.envs.env_manager.child_plan import ChildPlan
from ding.envs.env_manager.env_child import run_child
from ding.envs.env_manager.wire import Channel
from ding.utils.child_helper import descriptor_of

_TELL_S = 1.0


class Limit(NamedTuple):
    """How long an answer may take, and the words for what says so."""

    seconds: float
    words: str


class Request(NamedTuple):
    """What an env was asked.

    Attributes:
        follow_limit: the limit for the reset that may follow a step.
    """

    seq: int
    method: str
    limit: Limit | None
    follow_limit: Limit | None


class Answer(NamedTuple):
    """What became of a request.

    Attributes:
        error: why there is no `value`; None if there is.
        failed: the method that failed; not always the one that was asked for.
        more: whether the answer of a reset follows this one of a step.
    """

    env_id: int
    seq: int
    method: str
    value: Any = None
    error: Exception | None = None
    failed: str = ""
    more: bool = False


class ChildProcess:
    """Starts the process of an env; it lives until `end`, or until it ends by itself.

    Args:
        inherited: connections to other children, which a forked process must not hold open.

    Attributes:
        channel: the connection, which never blocks.
        requests: those that are not answered yet, in order; the first is being worked on.
        sentinel: a descriptor that becomes readable once the process has ended; None where the system has none.

    Raises:
        TypeError: the env's function cannot be sent to a new interpreter.
    """

    def __init__(self, plan: ChildPlan, context: BaseContext, inherited: Sequence[Any]) -> None:
        self.env_id = plan.env_id
        self.requests: deque[Request] = deque()
        if context.get_start_method() == "forkserver":
            _have_the_fork_server_import()
        our_source, their_sink = socket.socketpair()
        their_source, our_sink = socket.socketpair()
        is_fork = context.get_start_method() == "fork"
        args = plan, their_source, their_sink, [*inherited, our_source, our_sink] if is_fork else []
        name = f"subprocess_env_manager{plan.env_id}_{time.time()}"
        self._process: Any = context.Process(target=run_child, args=args, name=name, daemon=True)  # type: ignore[attr-defined]
        try:
            with warnings.catch_warnings():
                # Whoever sets the context to `fork` means it; what could harm the child is undone in `settle_in`.
                warnings.filterwarnings("ignore", message=".*multi-threaded.*fork", category=DeprecationWarning)
                self._process.start()
        except BaseException:
            our_source.close()
            our_sink.close()
            raise
        finally:
            their_source.close()
            their_sink.close()
        our_source.setblocking(False)
        our_sink.setblocking(False)
        self.channel = Channel(our_source, our_sink)
        self.sentinel = descriptor_of(self._process.pid)

    @property
    def pid(self) -> int:
        """Its process id."""
        pid: int = self._process.pid
        return pid

    def exitcode(self) -> int | None:
        """The exit code, negative for a signal, of a process that has ended; None where the system does not tell."""
        if self._process.exitcode is None:
            self._process.join(_TELL_S)  # a fork server tells a little later
        code: int | None = self._process.exitcode
        return code

    def terminate(self) -> None:
        """Ask the process to end."""
        self._process.terminate()

    def kill(self) -> None:
        """Make the process end."""
        self._process.kill()

    def release(self) -> None:
        """Let go of the process, which has ended."""
        self.channel.close()
        if self.sentinel is not None:
            os.close(self.sentinel)
            self.sentinel = None
        if self.exitcode() is not None:
            self._process.close()

    @property
    def waitable(self) -> Any:
        """What `multiprocessing.connection.wait` takes to wait for its end."""
        return self._process.sentinel if self.sentinel is None else self.sentinel


def wait_for_end(children: Iterable[ChildProcess], timeout_s: float) -> list[ChildProcess]:
    """Those of the processes that have ended, as soon as there are any, or after `timeout_s` seconds."""
    waitable = {child.waitable: child for child in children}
    ended: Any = multiprocessing.connection.wait(list(waitable), timeout_s)
    return [waitable[each] for each in ended]


def end_all(children: Iterable[ChildProcess], until: float, patience_s: float) -> list[ChildProcess]:
    """Let the processes end by themselves until that time (monotonic), then ask them to, then make them.

    Either of these means gets `patience_s` seconds. What even they have not ended is returned.
    """
    running = list(children)
    for stop in (None, ChildProcess.terminate, ChildProcess.kill):
        if stop is not None:
            until = time.monotonic() + patience_s
            for child in running:
                stop(child)
        while running and (ended := wait_for_end(running, max(0.0, until - time.monotonic()))):
            for child in ended:
                child.exitcode()
                running.remove(child)
    return running


def _have_the_fork_server_import() -> None:
    """Have the fork server import what each child needs: it does so once, while children would, one by one.

    A program that has told it what to import, or has started it, is left alone.
    """
    import multiprocessing.forkserver

    server = multiprocessing.forkserver._forkserver
    if getattr(server, "_preload_modules", None) == ["__main__"]:
        multiprocessing.set_forkserver_preload(["__main__", run_child.__module__])
