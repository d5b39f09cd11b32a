"""The threads for requests that may wait or run user code."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable


class RequestThreads:
    """A bounded pool of threads, started on demand.

    Args:
        name: the prefix of the names of the threads.
        limit: the most threads.
    """

    def __init__(self, name: str, limit: int = 8) -> None:
        self._name = name
        self._limit = limit
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._unfinished = 0
        self._threads: list[threading.Thread] = []
        self._is_stopped = False

    def submit(self, job: Callable[[], None]) -> None:
        """Run `job` in a thread; ignored after `stop`."""
        with self._lock:
            if self._is_stopped:
                return
            self._unfinished += 1
            if min(self._unfinished, self._limit) > len(self._threads):
                name = f"{self._name}_{len(self._threads)}"
                thread = threading.Thread(target=self._work, name=name, daemon=True)
                thread.start()
                self._threads.append(thread)
            self._queue.put(job)

    def stop(self) -> None:
        """End the threads after the submitted jobs, without waiting for them."""
        with self._lock:
            self._is_stopped = True
            for _ in self._threads:
                self._queue.put(None)

    def join(self, deadline: float) -> list[threading.Thread]:
        """Wait for the threads until `time.monotonic()` is `deadline`; return those that have not ended."""
        own = threading.current_thread()
        for thread in self._threads:
            if thread is not own:
                thread.join(max(0.0, deadline - time.monotonic()))
        return [thread for thread in self._threads if thread is not own and thread.is_alive()]

    def _work(self) -> None:
        while (job := self._queue.get()) is not None:
            try:
                job()
            except BaseException:  # of any kind: the thread must continue
                logging.getLogger("ding.interaction").exception("a request could not be served")
            with self._lock:
                self._unfinished -= 1
            del job  # do not keep a closed connection alive while waiting for the next job
