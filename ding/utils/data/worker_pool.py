"""A thread pool with a bounded shutdown time."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from typing import Any

from ding.utils.data.prefetch import join_or_warn

_Job = tuple["Future[Any]", Callable[[], Any]]


class WorkerPool:
    """A pool of `size` daemon threads that run callables.

    Unlike `concurrent.futures.ThreadPoolExecutor`, a stuck job does not block `close` or the exit of the interpreter.
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
        """Run `jobs` and return their results in order. Raises the first error in this order and cancels later jobs.

        Raises:
            CancelledError: If the pool is closed, or gets closed before the jobs end.
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
            for future in reversed(futures):  # backwards, so that no job starts while earlier ones are cancelled
                future.cancel()
            with self._lock:
                self._pending.difference_update(futures)

    def stop(self) -> None:
        """Cancel waiting jobs, and end the threads after the running ones, without waiting for them."""
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
        """Stop and wait for the threads to end. May be called any number of times."""
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
        except BaseException as error:  # raised by run
            future.set_exception(error)
        del entry, future, job  # free the job and its result while waiting for the next one
