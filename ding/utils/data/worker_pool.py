"""A few threads that run jobs, and whose end nobody has to wait for without limit."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from typing import Any

from ding.utils.data.prefetch import join_or_warn

_Job = tuple["Future[Any]", Callable[[], Any]]


class WorkerPool:
    """`size` daemon threads that run callables.

    Unlike `concurrent.futures.ThreadPoolExecutor` it ends within a bounded time although a job is stuck, and such a job
    does not keep the interpreter from exiting.
    """

    def __init__(self, size: int, name: str) -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._pending: set[Future[Any]] = set()
        self._lock = threading.RLock()  # reentrant: the garbage collector may close the pool from within run
        self._closed = False
        self._threads = [
            threading.Thread(target=_work, args=(self._jobs,), name=f"{name}_{i}", daemon=True) for i in range(size)
        ]
        for thread in self._threads:
            thread.start()

    def run(self, jobs: Sequence[Callable[[], Any]]) -> list[Any]:
        """The results of `jobs`, in their order; the first error in that order is raised, and no further job started.

        Raises:
            CancelledError: the pool is closed, or was before the jobs ended.
        """
        futures: list[Future[Any]] = [Future() for _ in jobs]
        with self._lock:
            if self._closed:
                raise CancelledError("the pool is closed")
            self._pending.update(futures)
        try:
            for future, job in zip(futures, jobs, strict=True):
                self._jobs.put((future, job))
            return [future.result() for future in futures]
        finally:
            for future in reversed(futures):  # backwards, so that no job starts while those before it are cancelled
                future.cancel()
            with self._lock:
                self._pending.difference_update(futures)

    def stop(self) -> None:
        """Cancel the jobs that wait, and let the threads end after those that run; do not wait for them."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            pending = list(self._pending)
        for future in pending:
            future.cancel()
        for _ in self._threads:
            self._jobs.put(None)

    def close(self) -> None:
        """Stop, and wait for the threads to end. May be called any number of times."""
        self.stop()
        join_or_warn(*self._threads)


def _work(jobs: queue.SimpleQueue[_Job | None]) -> None:
    while True:
        entry = jobs.get()
        if entry is None:
            return
        future, job = entry
        if not future.set_running_or_notify_cancel():
            continue
        try:
            future.set_result(job())
        except BaseException as error:  # it belongs to the caller of run, whatever it is
            future.set_exception(error)
        del entry, future, job  # nothing of a job that is done should live on while the next one is awaited
