"""The thread that ends tasks and runs their callbacks."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable


class ResultThread:
    """Runs jobs in the order they were submitted; after `stop`, at once in the thread that submits them."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._is_stopped = False

    def submit(self, job: Callable[[], None]) -> None:
        """Have `job` run."""
        with self._lock:
            if not self._is_stopped:
                self._jobs.put(job)
                return
        _run(job)

    def stop(self) -> None:
        """Let `run` return after the jobs that are there."""
        with self._lock:
            if not self._is_stopped:
                self._is_stopped = True
                self._jobs.put(None)

    def run(self) -> None:
        """The body of the thread."""
        while (job := self._jobs.get()) is not None:
            _run(job)
            del job  # a task that has ended should not live on while the next result is awaited


def _run(job: Callable[[], None]) -> None:
    try:
        job()
    except BaseException:  # whatever it is, there are more tasks to end
        logging.getLogger("ding.interaction").exception("ending a task or a connection has failed")
