"""Locks between threads, between processes, and on files."""

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
    """Kinds of `LockContext`: between threads, or between processes."""

    THREAD_LOCK = 1
    PROCESS_LOCK = 2


class LockContext:
    """A lock with `acquire` and `release` that is also a context manager; it is not reentrant.

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
        """Wait until the lock is free, and acquire it."""
        self._lock.acquire()

    def release(self) -> None:
        """Release the lock."""
        self._lock.release()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *exc_info: object) -> None:
        self._lock.release()


class FairRWLock:
    """A lock for many readers or one writer, granted in order of arrival so that none starves; it is not reentrant."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._queue: deque[object] = deque()
        self._readers = 0
        self._has_writer = False

    @contextlib.contextmanager
    def read(self) -> Iterator[None]:
        """Hold the lock, shared with other readers."""
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
        """Hold the lock exclusively."""
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
        """Wait for the head of the queue and hold the condition; later callers wait until the block ends."""
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


class _LockHandle:
    """One side of a lock, with `acquire` and `release`, also a context manager, that keeps the lock alive."""

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
            raise RuntimeError("this thread does not hold the lock; call acquire first")
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


def get_rw_file_lock(name: str, op: str) -> _LockHandle:
    """Return the read (`op='read'`) or write (`'write'`) side of the lock `name` of this process.

    Raises:
        AssertionError: `op` is neither.
    """
    _check_op(op)
    with _rw_locks_guard:
        lock = _rw_locks.get(name)
        if lock is None:
            lock = _rw_locks[name] = FairRWLock()
    return _LockHandle(lock, lock.read if op == "read" else lock.write)


def get_file_lock(name: str, op: str) -> _LockHandle:
    """Return an exclusive lock, for readers too, on the file `name` between processes.

    The file `<name>.lock` is locked and not deleted. On platforms without `flock`, this is
    `get_rw_file_lock(name, op)`.

    Raises:
        AssertionError: `op` is neither `read` nor `write`.
    """
    _check_op(op)
    if fcntl is None:
        return get_rw_file_lock(name, op)
    return _LockHandle(None, lambda: _flock(f"{name}.lock"))


def hold_file(path: str) -> IO[bytes] | None:
    """Lock the file `path`, created if missing, until the returned file is closed or this process ends.

    Forked processes do not hold the lock. The result is None if the file cannot be created, or the platform or file
    system has no locks.

    Raises:
        BlockingIOError: another process holds the lock.
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
        file.seek(0)  # it locks one byte from here, which need not exist
        windows: Any = msvcrt
        windows.locking(file.fileno(), windows.LK_NBLCK, 1)


@contextlib.contextmanager
def _flock(path: str) -> Iterator[None]:
    folder = os.path.dirname(path)
    if folder:
        os.makedirs(folder, exist_ok=True)
    # flock applies to open files, so a new one also locks other threads of this process. It waits in the kernel, where
    # the package filelock asks again every 50 ms.
    with open(path, "ab") as file:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX)
        yield


def _check_op(op: str) -> None:
    if op not in ("read", "write"):
        raise AssertionError(f"op = {op!r} is not allowed; it must be 'read' or 'write'")
