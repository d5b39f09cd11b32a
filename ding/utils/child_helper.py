"""Child processes: signals, the end of the parent, an event between processes, and commands to wait for.

With `set_death_signal`, the kernel kills a process when its parent ends, even if native code holds the interpreter
lock. For the kernel, the parent is the *thread* that started the process, so processes are started from the main
thread, or with `from_lasting_thread`.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import multiprocessing
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
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


def reset_inherited() -> None:
    """Reset what a forked process inherits from its parent: signal handlers and garbage.

    Ctrl-C reaches all processes of a terminal. The parent handles it, so it is ignored here, as is any other signal
    that the parent has a handler for, except for SIGTERM, which ends this process.
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
        faulthandler.enable(sys.__stderr__)  # prints a traceback if native code crashes
    # Otherwise, the first full collection would visit all objects of the parent, and copy their pages.
    gc.freeze()


def set_death_signal(signum: int) -> bool:
    """Let the kernel send a signal to this process when the thread that started it ends; 0 for none.

    Return whether the system supports it. Nothing is sent if the thread has already ended; see `os.getppid`.
    """
    return _prctl is not None and _prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signum)) == 0


def be_killed_with(parent_pid: int) -> None:
    """Let this process be killed as soon as the process `parent_pid`, which has started it, ends.

    For the kernel, the parent of a process of a fork server is that server, so such a process ends itself.
    """
    if not set_death_signal(KILL) or os.getppid() != parent_pid:
        die_with(parent_pid, farewell_s=0)


def die_with(parent_pid: int, farewell_s: float = 2.0) -> None:
    """End this process at most `farewell_s` seconds after the process `parent_pid`.

    Native code that holds the interpreter lock when the parent ends delays this.
    """
    descriptor, parent = descriptor_of(parent_pid), multiprocessing.parent_process()

    def watch() -> None:
        if descriptor is not None:
            wait([descriptor])
        elif parent is not None and parent.pid == parent_pid:
            parent.join()
        if farewell_s > 0:
            # Starts a thread that does not need the interpreter lock.
            faulthandler.dump_traceback_later(farewell_s, exit=True, file=open(os.devnull, "w"))  # noqa: SIM115
        else:
            os._exit(1)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


_parent_to_be = 0  # the process id of this process, for those that it forks


def allow_children() -> None:
    """Let this process, a daemon of `multiprocessing`, start processes; those that it forks end with it."""
    global _parent_to_be
    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]
    if hasattr(os, "register_at_fork"):
        if not _parent_to_be:  # what a process has registered, those that it forks have, too
            os.register_at_fork(after_in_child=_end_with_parent)
        _parent_to_be = os.getpid()


def leave_sigterm_to_parent() -> None:
    """Ignore SIGTERM, which `timeout` and Slurm send to all processes of a job; the parent ends this process.

    With `allow_children`, processes that this one starts do not inherit that: neither a fork nor another program.
    """
    signal.signal(signal.SIGTERM, _ignore)


def _ignore(signum: int, frame: Any) -> None:
    """Do nothing. In contrast to `SIG_IGN`, another program does not inherit a function."""


def _end_with_parent() -> None:
    global _parent_to_be
    if signal.getsignal(signal.SIGTERM) is _ignore:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    parent_pid, _parent_to_be = _parent_to_be, os.getpid()
    die_with(parent_pid, farewell_s=0)
    if os.getppid() != parent_pid:
        os._exit(1)


@contextlib.contextmanager
def deferred_signals() -> Iterator[None]:
    """Handle SIGINT and SIGTERM after the block, in which this process may fork.

    `os.fork` calls functions that take locks before, and release them after, such as that of the module `logging`. A
    handler that raises in one of them would not be noticed, and the lock stays locked.
    """
    received: list[int] = []
    handlers: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():  # no other one handles signals
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        handlers = {number: handler for number, handler in handlers.items() if callable(handler)}
    try:
        for number in handlers:
            signal.signal(number, lambda number, frame: received.append(number))
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for received_number in received:
            signal.raise_signal(received_number)


@deferred_signals()
def from_lasting_thread(start: Callable[[], T]) -> T:
    """Call `start` in a thread that lives as long as this process: the main thread, or a dedicated one."""
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
    """Reset the state in a forked process, which does not have the parent's thread."""
    global _starts, _starting
    _starts, _starting = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_thread)


def descriptor_of(pid: int) -> int | None:
    """Return a descriptor that becomes readable when the process ends, or None if not supported.

    Unlike the end of a pipe, it is not kept open by the children of the process.
    """
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


class ProcessEnd:
    """The end of a `multiprocessing` process, to wait for.

    Unlike `Process.sentinel`, the end of a pipe, it is not delayed by the children of the process, if the system
    supports process descriptors.

    Attributes:
        descriptor: a descriptor that becomes readable when the process ends.
    """

    def __init__(self, process: Any) -> None:
        descriptor = descriptor_of(process.pid)
        self.descriptor: int = process.sentinel if descriptor is None else descriptor
        self._is_own = descriptor is not None

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait at most `timeout_s` seconds for the end of the process; return False on timeout."""
        return bool(wait([self.descriptor], timeout_s))

    def close(self) -> None:
        """Close the descriptor; a second call does nothing."""
        if self._is_own:
            self._is_own = False
            os.close(self.descriptor)


class ProcessEvent:
    """An event between processes, like `multiprocessing.Event`, but without locks.

    If a process is killed while it waits for a `multiprocessing.Event`, the count of waiters stays wrong, and the next
    `set` never returns. This event is a pipe: setting it writes a message, which is never read. It can be passed to
    processes at their start, with any start method.

    Attributes:
        reader: a connection that becomes readable when the event is set, for `multiprocessing.connection.wait`.

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
        """Set the event permanently; further calls do nothing."""
        if not self.is_set():
            self._writer.send_bytes(b"1")

    def is_set(self) -> bool:
        """Return whether the event is set."""
        return self.reader.poll(0)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait at most `timeout` seconds until the event is set; return False on timeout."""
        return self.reader.poll(timeout)

    def close(self) -> None:
        """Close the pipe in this process, which cannot use the event afterwards; a second call does nothing."""
        self.reader.close()
        self._writer.close()


class Commands(contextlib.AbstractContextManager["Commands"]):
    """Commands that run at the same time; those that still run at the end of the `with` block are ended.

    They receive SIGTERM, also if this process is killed, on systems with a parent death signal.

    Args:
        end_s: how long a command may take to end before it is killed; None for as long as it takes.
    """

    def __init__(self, end_s: float | None = None) -> None:
        self._end_s = end_s
        self._running: dict[Any, subprocess.Popen[Any]] = {}
        self._watchers: list[threading.Thread] = []
        self._ended: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def __len__(self) -> int:
        return len(self._running)

    def start(self, key: Any, command: Sequence[str], on_line: Callable[[str], Any] | None = None, **how: Any) -> None:
        """Start a command, which `key` stands for; `on_line` gets its output, and `how` are arguments of `Popen`."""
        if on_line is not None:
            how |= {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
            how |= {"text": True, "errors": "replace"}
        process = self._running[key] = subprocess.Popen(command, preexec_fn=_await_sigterm, **how)
        watcher = threading.Thread(target=self._watch, args=(key, process, on_line), name=f"watch_{key}", daemon=True)
        self._watchers.append(watcher)
        watcher.start()

    def _watch(self, key: Any, process: subprocess.Popen[Any], on_line: Callable[[str], Any] | None) -> None:
        if process.stdout is not None and on_line is not None:
            with process.stdout:
                for line in process.stdout:
                    on_line(line.rstrip())
        process.wait()
        self._ended.put(key)

    def wait(self) -> tuple[Any, int]:
        """Wait for the end of a command, and return its key and its return code."""
        key = self._ended.get()
        return key, self._running.pop(key).wait()

    def __exit__(self, *exc_info: object) -> None:
        for process in self._running.values():
            process.terminate()
        for process in self._running.values():
            try:
                process.wait(self._end_s)
            except subprocess.TimeoutExpired:
                process.kill()
        for watcher in self._watchers:
            watcher.join()


def _await_sigterm() -> None:
    """Let SIGTERM end this process, also if its parent ignores that signal, and let it be sent when the parent ends."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    set_death_signal(signal.SIGTERM)
