"""Locks with one face: threads, processes, and files shared between processes."""

from __future__ import annotations

import contextlib
import errno
import multiprocessing
import os
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from enum import Enum, unique
from typing import IO, Any

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]
try:
    import msvcrt
except ImportError:  # any other system
    msvcrt = None  # type: ignore[assignment]


@unique
class LockContextType(Enum):
    """What a `LockContext` keeps apart."""

    THREAD_LOCK = 1
    PROCESS_LOCK = 2


class LockContext:
    """A lock as a context manager, or by `acquire` and `release`. It is not reentrant.

    Example:
        >>> lock = LockContext(LockContextType.THREAD_LOCK)
        >>> with lock:
        ...     pass
    """

    def __init__(self, lock_type: LockContextType = LockContextType.THREAD_LOCK) -> None:
        if lock_type not in (LockContextType.THREAD_LOCK, LockContextType.PROCESS_LOCK):
            raise ValueError(f"lock_type = {lock_type!r} is not allowed; it must be a member of LockContextType")
        self._lock: Any = threading.Lock() if lock_type is LockContextType.THREAD_LOCK else multiprocessing.Lock()

    def acquire(self) -> None:
        """Wait until the lock is free and take it."""
        self._lock.acquire()

    def release(self) -> None:
        """Give the lock back."""
        self._lock.release()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *exc_info: object) -> None:
        self._lock.release()


class FairRWLock:
    """Many readers or one writer, served in the order of arrival, so that neither side starves. Not reentrant."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._queue: deque[object] = deque()
        self._readers = 0
        self._has_writer = False

    @contextlib.contextmanager
    def read(self) -> Iterator[None]:
        """Hold the lock together with other readers."""
        with self._turn():
            self._condition.wait_for(lambda: not self._has_writer)
            self._readers += 1
        try:
            yield
        finally:
            with self._condition:
                self._readers -= 1
                self._condition.notify_all()

    @contextlib.contextmanager
    def write(self) -> Iterator[None]:
        """Hold the lock alone."""
        with self._turn():
            self._condition.wait_for(lambda: not self._has_writer and not self._readers)
            self._has_writer = True
        try:
            yield
        finally:
            with self._condition:
                self._has_writer = False
                self._condition.notify_all()

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """Hold the condition while at the head of the queue: whoever waits inside keeps later arrivals behind it."""
        ticket = object()
        with self._condition:
            self._queue.append(ticket)
            try:
                self._condition.wait_for(lambda: self._queue[0] is ticket)
                yield
            finally:
                self._queue.remove(ticket)
                self._condition.notify_all()


_rw_locks: weakref.WeakValueDictionary[str, FairRWLock] = weakref.WeakValueDictionary()
_rw_locks_guard = threading.Lock()


class _Held:
    """One side of a lock as a context manager with `acquire` and `release`; holds the lock itself alive."""

    def __init__(self, lock: Any, enter: Any) -> None:
        self._lock = lock
        self._enter = enter
        self._local = threading.local()

    def acquire(self) -> None:
        context = self._enter()
        context.__enter__()
        self._stack().append(context)

    def release(self) -> None:
        if not self._stack():
            raise RuntimeError("release of a lock that this thread does not hold")
        self._stack().pop().__exit__(None, None, None)

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *exc_info: object) -> None:
        self.release()

    def _stack(self) -> list[Any]:
        if not hasattr(self._local, "stack"):
            self._local.stack = []
        stack: list[Any] = self._local.stack
        return stack


def get_rw_file_lock(name: str, op: str) -> _Held:
    """The reading (`op='read'`) or writing (`'write'`) side of the lock called `name`, within this process.

    Raises:
        AssertionError: `op` is neither.
    """
    _check_op(op)
    with _rw_locks_guard:
        lock = _rw_locks.get(name)
        if lock is None:
            lock = _rw_locks[name] = FairRWLock()
    return _Held(lock, lock.read if op == "read" else lock.write)


def get_file_lock(name: str, op: str) -> _Held:
    """The lock of the file `name`, between processes; readers exclude each other too.

    It locks `<name>.lock`, which is left behind. Where the platform has no `flock`, it is `get_rw_file_lock(name, op)`.

    Raises:
        AssertionError: `op` is neither `read` nor `write`.
    """
    _check_op(op)
    if fcntl is None:
        return get_rw_file_lock(name, op)
    return _Held(None, lambda: _flock(f"{name}.lock"))


def hold_file(path: str) -> IO[bytes] | None:
    """Lock the file `path`, made where it is missing, for this process until the result is closed or the process ends.

    Forked processes do not hold it. None where the file cannot be made, or the platform or file system has no locks.

    Raises:
        BlockingIOError: another process holds it.
    """
    if fcntl is None and msvcrt is None:
        return None
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        file = open(path, "ab")  # noqa: SIM115
    except OSError:
        return None
    try:
        _lock_now(file)
    except OSError as e:
        file.close()
        if e.errno in (errno.EACCES, errno.EAGAIN):
            raise BlockingIOError(e.errno, f"another process holds {path}") from e
        return None
    return file


def _lock_now(file: IO[bytes]) -> None:
    if fcntl is not None:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    else:
        file.seek(0)  # it locks one byte from here, which need not be there
        windows: Any = msvcrt
        windows.locking(file.fileno(), windows.LK_NBLCK, 1)


@contextlib.contextmanager
def _flock(path: str) -> Iterator[None]:
    folder = os.path.dirname(path)
    if folder:
        os.makedirs(folder, exist_ok=True)
    # A new open file each time: flock excludes by open file, so threads of one process exclude each other as well.
    with open(path, "ab") as file:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX)
        yield


def _check_op(op: str) -> None:
    if op not in ("read", "write"):
        raise AssertionError(f"op = {op!r} is not allowed; it must be 'read' or 'write'")
