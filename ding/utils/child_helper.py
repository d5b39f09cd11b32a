"""What a process that was started by another does about signals, and about the other's death."""

from __future__ import annotations

import faulthandler
import gc
import multiprocessing
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any


def settle_in() -> None:
    """Drop what a forked process has from its parent: signal handlers, and garbage that is not its own.

    Ctrl-C reaches every process of a terminal. It is for the parent to react to, so it is ignored here, and so is any
    other signal that the parent has a handler for, but for SIGTERM, which ends this process.
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
        faulthandler.enable(sys.__stderr__)  # where native code crashes, this says what the process was doing
    # Or the first full collection would go through all of the parent's objects, and copy their pages.
    gc.freeze()


def die_with(parent_pid: int, farewell: Callable[[], Any] | None = None, farewell_s: float = 2.0) -> None:
    """End this process soon after the process `parent_pid`, whatever it does then; it may end by itself before.

    Args:
        farewell: called, in a thread, when the parent has ended.
        farewell_s: how long this process may then go on.
    """
    wait = death_of(parent_pid)

    def watch() -> None:
        wait()
        try:
            if farewell is not None:
                farewell()
            time.sleep(farewell_s)
        finally:
            os._exit(1)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def death_of(pid: int) -> Callable[[], Any]:
    """A function that returns when the process, which is this one's parent, has ended."""
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


def descriptor_of(pid: int) -> int | None:
    """A descriptor that becomes readable once the process has ended; None where the system has none.

    Unlike the end of a pipe it is not kept open by processes that the process starts.
    """
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None
