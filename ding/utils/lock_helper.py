"""Locks between threads, between processes, and on files."""

from __future__ import annotations

import contextlib
import errno
import functools
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from enum import Enum, unique
from typing import IO, Any

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


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


class _LockHandle:
    """A lock with `acquire` and `release`, also a context manager, around each context that `enter` makes."""

    def __init__(self, enter: Callable[[], AbstractContextManager[None]]) -> None:
        self._enter = enter
        self._held: list[AbstractContextManager[None]] = []

    def acquire(self) -> None:
        """Wait until the lock is free, and acquire it."""
        context = self._enter()
        context.__enter__()
        self._held.append(context)

    def release(self) -> None:
        """Release the lock."""
        self._held.pop().__exit__(None, None, None)

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *exc_info: object) -> None:
        self.release()


class RWLock:
    """A lock for many readers or one writer, which readers that come later do not overtake; it is not reentrant."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._readers = 0
        self._has_writer = False  # that writes, or waits for the readers

    @contextlib.contextmanager
    def read(self) -> Iterator[None]:
        """Hold the lock, shared with other readers."""
        with self._condition:
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
        with self._condition:
            self._condition.wait_for(lambda: not self._has_writer)
            self._has_writer = True
            self._condition.wait_for(lambda: not self._readers)
        try:
            yield
        finally:
            with self._condition:
                self._has_writer = False
                self._condition.notify_all()


_rw_locks: dict[str, RWLock] = {}


def get_rw_file_lock(name: str, op: str) -> _LockHandle:
    """Return the read (`op='read'`) or write (`'write'`) side of the lock `name` of this process.

    Raises:
        AssertionError: `op` is neither.
    """
    _check_op(op)
    lock = _rw_locks.setdefault(name, RWLock())
    return _LockHandle(lock.read if op == "read" else lock.write)


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
    return _LockHandle(functools.partial(_flock, f"{name}.lock"))


def hold_file(path: str) -> IO[bytes] | None:
    """Lock the file `path`, created if missing, until the returned file is closed or this process ends.

    Forked processes do not hold the lock. The result is None if the file cannot be created, or the platform or file
    system has no locks.

    Raises:
        BlockingIOError: another process holds the lock.
    """
    if fcntl is None:
        return None
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        file = open(path, "ab")  # noqa: SIM115
    except OSError:
        return None
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as e:
        file.close()
        if e.errno in (errno.EACCES, errno.EAGAIN):
            raise BlockingIOError(e.errno, f"another process holds {path}") from e
        return None
    return file


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
