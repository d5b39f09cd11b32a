"""Processes that others start: signals, the death of the parent, and an event between them.

The kernel kills a process when its parent has died (`set_death_signal`), also one that holds the interpreter lock in
native code and could not react to anything. To the kernel the parent is the *thread* that has started the process, so
processes are started from the main thread, or with `from_lasting_thread`.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import multiprocessing
import os
import queue
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

T = TypeVar("T")

_PR_SET_PDEATHSIG = 1
# `PyDLL` keeps the interpreter lock: an env makes two calls a step, about 2 us each on a busy machine.
_prctl: Any = getattr(ctypes.PyDLL(None), "prctl", None) if sys.platform == "linux" else None
# What ends a process at once; Windows has no such signal, and sends none at a parent's death.
KILL: int = getattr(signal, "SIGKILL", signal.SIGTERM)
_starts: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] | None = None
_starting = threading.Lock()
# Variables with the secret of a run. Env and worker processes do not need them, and other programs of the same user can
# read the environment that a process was started with.
SECRET_VARIABLES = ("DING_TOKEN", "DING_TOKEN_FILE")


@contextlib.contextmanager
def without_secrets() -> Iterator[None]:
    """Start processes in this block: a new interpreter gets no `SECRET_VARIABLES`."""
    secrets = {name: os.environ.pop(name) for name in SECRET_VARIABLES if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(secrets)


def forget_secrets() -> None:
    """Remove `SECRET_VARIABLES` from this forked process, on Linux also from its `/proc/<pid>/environ`.

    A forked process has a copy of the memory in which its parent's environment was passed.
    """
    for name in SECRET_VARIABLES:
        os.environ.pop(name, None)
    if sys.platform != "linux":
        return
    try:
        with open("/proc/self/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except FileNotFoundError:  # /proc is not mounted, so no process can read the environment there
        return
    start, end = int(fields[47]), int(fields[48])  # env_start and env_end; 0 if this process may not see them
    offset = start
    for entry in ctypes.string_at(start, end - start).split(b"\0") if start else ():
        if entry.partition(b"=")[0].decode("ascii", "replace") in SECRET_VARIABLES:
            ctypes.memset(offset, 0, len(entry))
        offset += len(entry) + 1


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


def set_death_signal(signum: int) -> bool:
    """Have the kernel send this process a signal when the thread that has started it ends; 0 for none.

    Returns False where the system cannot. Nothing is sent if the thread has ended before: see `os.getppid`.
    """
    return _prctl is not None and _prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signum)) == 0


def be_killed_with(parent_pid: int) -> None:
    """Have this process killed as soon as its parent, the process `parent_pid`, has ended."""
    if not set_death_signal(KILL):
        die_with(parent_pid, farewell_s=0)
    elif os.getppid() != parent_pid:
        os._exit(1)


def die_with(parent_pid: int, farewell_s: float = 2.0) -> None:
    """End this process `farewell_s` seconds after the process `parent_pid`; it may end by itself before.

    Only native code that holds the interpreter lock when the parent ends delays it.
    """
    wait_for_parent = death_of(parent_pid)

    def watch() -> None:
        wait_for_parent()
        if farewell_s > 0:
            # The thread that this starts needs no interpreter lock.
            faulthandler.dump_traceback_later(farewell_s, exit=True, file=open(os.devnull, "w"))  # noqa: SIM115
        else:
            os._exit(1)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def from_lasting_thread(start: Callable[[], T]) -> T:
    """What `start` returns, called in a thread that lives as long as this process: the main thread, or one for this."""
    global _starts
    if threading.current_thread() is threading.main_thread():
        return start()
    with _starting:
        if _starts is None:
            _starts = queue.SimpleQueue()
            threading.Thread(target=_start_all, args=(_starts,), name="process-starter", daemon=True).start()
        future: Future[T] = Future()
        _starts.put((start, future))
    return future.result()


def _start_all(starts: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]]) -> None:
    while True:
        start, future = starts.get()
        try:
            future.set_result(start())
        except BaseException as e:
            future.set_exception(e)
        del start, future


def _forget_thread() -> None:
    """In a forked process: the thread is the parent's."""
    global _starts, _starting
    _starts, _starting = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_thread)


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


class ProcessEnd:
    """The end of a process of `multiprocessing`.

    Unlike `Process.sentinel`, the end of a pipe, it is not put off by processes that the process has started, where the
    system has descriptors of processes.

    Attributes:
        descriptor: becomes readable when the process has ended.
    """

    def __init__(self, process: Any) -> None:
        own = descriptor_of(process.pid)
        self.descriptor: int = process.sentinel if own is None else own
        self._is_own = own is not None

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the process has ended; False when `timeout_s` seconds have passed first."""
        return bool(wait([self.descriptor], timeout_s))

    def close(self) -> None:
        """Give back the descriptor. Idempotent."""
        if self._is_own:
            self._is_own = False
            os.close(self.descriptor)


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
