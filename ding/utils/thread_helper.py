"""Groups of daemon threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from typing import Any


class DaemonThreads:
    """A thread-safe group of daemon threads that end by themselves, and can be waited for together.

    Example:
        >>> threads = DaemonThreads()
        >>> threads.start("greeter", print, "hello")
        hello
        >>> threads.join(timeout_s=1.0)
        True
    """

    def __init__(self) -> None:
        self._threads: set[threading.Thread] = set()
        self._lock = threading.Lock()

    def start(self, name: str, act: Callable[..., Any], *args: Any) -> None:
        """Call `act(*args)` in a thread of that name."""

        def run() -> None:
            try:
                act(*args)
            finally:
                with self._lock:
                    self._threads.discard(threading.current_thread())

        thread = threading.Thread(target=run, name=name, daemon=True)
        with self._lock:
            self._threads.add(thread)
            thread.start()

    def join(self, timeout_s: float) -> bool:
        """Wait at most `timeout_s` seconds for all threads but the caller's, and return whether they have ended."""
        deadline = monotonic() + timeout_s
        with self._lock:
            others = self._threads - {threading.current_thread()}
        for thread in others:
            thread.join(max(0.0, deadline - monotonic()))
        return not any(thread.is_alive() for thread in others)
