"""The threads that answer requests."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Any


class RequestThreads:
    """A bounded number of threads, each of which serves one request at a time; what waitress calls a task dispatcher.

    Args:
        name: what the names of the threads begin with.
        on_idle: called when the last request that was waiting or being served has been.
    """

    def __init__(self, name: str, on_idle: Callable[[], None]) -> None:
        self._name = name
        self._on_idle = on_idle
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._pending = 0
        self._threads: list[threading.Thread] = []
        self._is_stopped = False

    def set_thread_count(self, count: int) -> None:
        """Have at least `count` threads."""
        with self._lock:
            while not self._is_stopped and len(self._threads) < count:
                name = f"{self._name}_{len(self._threads)}"
                thread = threading.Thread(target=self._work, name=name, daemon=True)
                thread.start()
                self._threads.append(thread)

    def add_task(self, task: Any) -> None:
        """Queue a connection with a request to be served; called by waitress."""
        with self._lock:
            self._pending += 1
        self._queue.put(task)

    @property
    def is_idle(self) -> bool:
        """Whether no request is waiting or being served."""
        return self._pending == 0

    def stop(self) -> None:
        """Let the threads end once they have served what they are at; do not wait for them."""
        with self._lock:
            self._is_stopped = True
            for _ in self._threads:
                self._queue.put(None)

    def join(self, deadline: float) -> list[threading.Thread]:
        """Wait for the threads to end, until `time.monotonic()` is `deadline`; those that have not."""
        own = threading.current_thread()
        for thread in self._threads:
            if thread is not own:
                thread.join(max(0.0, deadline - time.monotonic()))
        return [thread for thread in self._threads if thread is not own and thread.is_alive()]

    def _work(self) -> None:
        while (task := self._queue.get()) is not None:
            try:
                task.service()
            except BaseException:  # whatever a view raises, the thread has more requests to serve
                logging.getLogger("ding.interaction").exception("a request could not be served")
            with self._lock:
                self._pending -= 1
                is_idle = self._pending == 0
            if is_idle:
                self._on_idle()
            del task  # a connection that is gone should not live on while the next request is awaited
