"""Processes that others start: signals, the death of the parent, and an event between them."""

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
from multiprocessing.connection import Connection
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


class ProcessEvent:
    """What `multiprocessing.Event` offers, made of a pipe: nobody holds a lock while waiting or setting.

    A process that is killed while it waits for a `multiprocessing.Event` takes the count of its waiters along, and the
    next `set` never returns. Here a set event is a pipe with something in it, which nobody reads.

    May be given to processes as they start, by any start method.

    Attributes:
        reader: becomes readable when the event is set; for `multiprocessing.connection.wait`.

    Example:
        >>> event = ProcessEvent()
        >>> event.wait(0), event.set(), event.wait(0), event.is_set()
        (False, None, True, True)
        >>> event.close()
    """

    def __init__(self) -> None:
        reader, writer = multiprocessing.Pipe(duplex=False)
        self.reader: Connection = reader
        self._writer: Connection = writer

    def set(self) -> None:
        """Set it, for good. Any number of times."""
        if not self.is_set():
            self._writer.send_bytes(b"1")

    def is_set(self) -> bool:
        """Whether it is set."""
        return self.reader.poll(0)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set; False when `timeout` seconds have passed first."""
        return self.reader.poll(timeout)

    def close(self) -> None:
        """Give back what this process has of it; it is of no use here afterwards. Idempotent."""
        self.reader.close()
        self._writer.close()
