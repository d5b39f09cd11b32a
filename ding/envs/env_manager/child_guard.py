"""What keeps the process of an env to its place: signals, threads, random numbers, time limits, its parent's death."""

from __future__ import annotations

import faulthandler
import gc
import multiprocessing
import os
import random
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

# How long an env may take to close once its manager's process is gone.
_FAREWELL_S = 2.0


def settle_in() -> None:
    """Drop what a forked process has from its parent: signal handlers, and garbage that is not its own.

    Ctrl-C reaches every process of a terminal. It is for the manager's process to react to, so it is ignored here, and
    so is any other signal that the parent has a handler for, but for SIGTERM, which ends this process.
    """
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if hasattr(signal, "SIGCHLD"):
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if sys.__stderr__ is not None:
        faulthandler.enable(sys.__stderr__)  # where native code crashes, this says what the env was doing
    # Or the first full collection would go through all of the parent's objects, and copy their pages.
    gc.freeze()


def use_one_thread() -> None:
    """Leave the other cores to the other envs; to be called again after imports."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)


def seed_globals(words: Sequence[int]) -> None:
    """Seed the global generators from `words`: forked processes would all go on with the same numbers."""
    state = np.random.SeedSequence(words).generate_state(8)
    np.random.seed(state)
    random.seed(state.tobytes())
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(int(state[0]))


def die_with(parent_pid: int) -> None:
    """End this process soon after the process `parent_pid`, whatever it does then; it may end by itself before."""
    wait = _death_of(parent_pid)

    def watch() -> None:
        wait()
        time.sleep(_FAREWELL_S)
        os._exit(1)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def _death_of(pid: int) -> Callable[[], Any]:
    """A function that returns when the process has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return lambda: None
    except (AttributeError, OSError):  # the system has no such thing, or forbids it
        parent = multiprocessing.parent_process()
        assert parent is not None
        return parent.join
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return poller.poll


class Alarm:
    """Breaks off calls in the main thread after a time.

    It has the process's alarm timer to itself. Where there is none, nothing is broken off.
    """

    def __init__(self) -> None:
        self._text = ""
        self._is_able = hasattr(signal, "setitimer")
        if self._is_able:
            signal.signal(signal.SIGALRM, self._ring)

    def call(self, timeout_s: float, key: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """`function(*args, **kwargs)`.

        Raises:
            TimeoutError: it took longer than `timeout_s`, which the config key `key` says.
        """
        if not self._is_able:
            return function(*args, **kwargs)
        self._text = f"it took longer than {key} = {timeout_s} s"
        signal.setitimer(signal.ITIMER_REAL, timeout_s)
        try:
            return function(*args, **kwargs)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _ring(self, signum: int, frame: Any) -> NoReturn:
        raise TimeoutError(self._text)
