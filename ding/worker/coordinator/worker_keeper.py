"""Who brings back workers that a coordinator has lost."""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Any, Protocol

from ding.worker.transport.link import WorkerLost

# How long `close` waits for attempts to connect, all together.
_CLOSE_S = 5.0


class WorkerKeeper(Protocol):
    """Brings back lost workers; when one is back, it has it connected."""

    def lost(self, kind: str, name: str, error: Exception) -> bool:
        """A worker is lost; returns whether it is to be brought back."""

    def close(self) -> None:
        """Bring nobody back any more. Idempotent; bounded in time."""


class RestartLimit:
    """Allows each worker `max_restarts` restarts within `window_s` seconds. Thread-safe.

    One that is lost at once, again and again, is given up; a long run outlives any number of losses.

    Example:
        >>> limit = RestartLimit(max_restarts=1, window_s=600)
        >>> limit.take("collector0"), limit.take("collector0"), limit.take("collector1")
        (True, False, True)
    """

    def __init__(self, max_restarts: int, window_s: float) -> None:
        self._max_restarts, self._window_s = max_restarts, window_s
        self._restarted_at: defaultdict[str, deque[float]] = defaultdict(partial(deque, maxlen=max_restarts))
        self._lock = threading.Lock()

    def take(self, name: str) -> bool:
        """Whether the worker of that name may be started again; if so, that counts."""
        with self._lock:
            last = self._restarted_at[name]  # so many as are allowed within the window
            if len(last) == self._max_restarts and (not last or monotonic() - last[0] < self._window_s):
                return False
            last.append(monotonic())
            return True


class ReturningWorkers:
    """Waits for lost workers at their old addresses, where somebody else may start them again; see `WorkerKeeper`.

    Args:
        join: connects the worker of that kind and name, within so many seconds; raises `WorkerLost` if it cannot.
        give_up: told of a worker, and how it was lost, that has not come back.
        timeout_s: how long each is waited for; 0 for not at all.
    """

    def __init__(
        self,
        join: Callable[[str, str, float], Any],
        give_up: Callable[[str, str, Exception], Any],
        timeout_s: float,
    ) -> None:
        self._join, self._give_up, self._timeout_s = join, give_up, timeout_s
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._threads: list[threading.Thread] = []

    def lost(self, kind: str, name: str, error: Exception) -> bool:
        with self._lock:
            if self._closed.is_set() or not self._timeout_s:
                return False
            wait = partial(self._wait, kind, name, error)
            thread = threading.Thread(target=wait, name=f"return_of_{name}", daemon=True)
            self._threads = [*(thread for thread in self._threads if thread.is_alive()), thread]
            thread.start()
        return True

    def _wait(self, kind: str, name: str, error: Exception) -> None:
        deadline = monotonic() + self._timeout_s
        while not self._closed.is_set():
            try:
                self._join(kind, name, max(0.1, deadline - monotonic()))
            except WorkerLost:
                if monotonic() >= deadline:
                    self._give_up(kind, name, error)
                    return
                self._closed.wait(0.1)  # it has refused: it may be ending the task of before
            except Exception as e:
                self._give_up(kind, name, e)
                return
            else:
                return

    def close(self) -> None:
        with self._lock:
            self._closed.set()
            threads = list(self._threads)
        deadline = monotonic() + _CLOSE_S
        for thread in threads:
            thread.join(max(0.0, deadline - monotonic()))
