"""Locks between threads, between processes, and on files."""

from __future__ import annotations

import errno
import multiprocessing
import os
import threading
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
        self.acquire()

    def __exit__(self, *exc_info: object) -> None:
        self.release()


class _RWLock:
    """A lock for many readers or one writer, which readers that come later do not overtake; it is not reentrant."""

    def __init__(self) -> None:
        self.condition = threading.Condition()
        self.readers = 0
        self.has_writer = False  # that writes, or waits for the readers


class _Side(LockContext):
    """The side of a lock that readers share, or that one writer holds."""

    def __init__(self, lock: _RWLock, is_read: bool) -> None:
        self._lock, self._is_read = lock, is_read

    def acquire(self) -> None:
        with self._lock.condition:
            self._lock.condition.wait_for(lambda: not self._lock.has_writer)
            if self._is_read:
                self._lock.readers += 1
            else:
                self._lock.has_writer = True
                self._lock.condition.wait_for(lambda: not self._lock.readers)

    def release(self) -> None:
        with self._lock.condition:
            if self._is_read:
                self._lock.readers -= 1
            else:
                self._lock.has_writer = False
            self._lock.condition.notify_all()


class _FileLock(LockContext):
    """An exclusive lock on a file, between processes, and between the threads of one."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._held: list[IO[bytes]] = []

    def acquire(self) -> None:
        os.makedirs(os.path.dirname(self._path) or ".", exist_ok=True)
        # flock applies to open files, so a new one also locks other threads of this process. It waits in the kernel,
        # where the package filelock asks again every 50 ms.
        file = open(self._path, "ab")  # noqa: SIM115
        fcntl.flock(file.fileno(), fcntl.LOCK_EX)
        self._held.append(file)

    def release(self) -> None:
        self._held.pop().close()


_rw_locks: dict[str, _RWLock] = {}


def get_rw_file_lock(name: str, op: str) -> LockContext:
    """Return the read (`op='read'`) or write (`'write'`) side of the lock `name` of this process.

    Raises:
        AssertionError: `op` is neither.
    """
    _check_op(op)
    return _Side(_rw_locks.setdefault(name, _RWLock()), op == "read")


def get_file_lock(name: str, op: str) -> LockContext:
    """Return an exclusive lock, for readers too, on the file `name` between processes.

    The file `<name>.lock` is locked and not deleted. On platforms without `flock`, this is
    `get_rw_file_lock(name, op)`.

    Raises:
        AssertionError: `op` is neither `read` nor `write`.
    """
    _check_op(op)
    if fcntl is None:
        return get_rw_file_lock(name, op)
    return _FileLock(f"{name}.lock")


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


def _check_op(op: str) -> None:
    if op not in ("read", "write"):
        raise AssertionError(f"op = {op!r} is not allowed; it must be 'read' or 'write'")
