"""Fetches new weights in a thread; the collector loads them between two rounds."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from typing import Any

State = dict[str, Any]
# Between two looks for the first weights: there is nothing to do without them.
_FIRST_LOOK_S = 0.05


class PolicyWatch:
    """Looks for weights every `interval_s` seconds.

    Args:
        fetch: returns the newest weights, None where they are those it returned last; raises `FileNotFoundError`
            while there are none.
    """

    def __init__(self, fetch: Callable[[], State | None], interval_s: float) -> None:
        self._fetch = fetch
        self._interval_s = interval_s
        self._newest: State | None = None
        self._error: Exception | None = None
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def first(self, timeout_s: float) -> State | None:
        """Wait for the first weights; None when closed.

        Raises:
            TimeoutError: there are none in time.
        """
        deadline = monotonic() + timeout_s
        while not self._closed.is_set():
            reason = "there is nothing new"
            try:
                state = self._fetch()
            except FileNotFoundError as e:
                state, reason = None, str(e)
            if state is not None:
                return state
            if monotonic() > deadline:
                raise TimeoutError(f"no weights have come within {timeout_s:g} s: {reason}")
            self._closed.wait(_FIRST_LOOK_S)
        return None

    def start(self) -> None:
        """Begin to look for newer weights, in a thread."""
        with self._lock:
            if not self._closed.is_set() and self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="update_policy", daemon=True)
                self._thread.start()

    def _watch(self) -> None:
        while not self._closed.wait(self._interval_s):
            try:
                state = self._fetch()
            except FileNotFoundError:
                continue  # the learner has ended and its weights have gone: those we have are the newest
            except Exception as e:
                with self._lock:
                    self._error = e
                return
            if state is not None:
                with self._lock:
                    self._newest = state

    def take(self) -> State | None:
        """The newest weights that have come since the last call.

        Raises:
            Exception: what went wrong when they were fetched.
        """
        with self._lock:
            if self._error is not None:
                raise self._error
            state, self._newest = self._newest, None
        return state

    def close(self, timeout_s: float = 10.0) -> None:
        """End the wait for the first weights, and the thread. Idempotent."""
        self._closed.set()
        with self._lock:
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout_s)
