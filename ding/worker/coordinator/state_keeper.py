"""Keeps the state of a coordinator on disk, so that another one can go on with its run."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any

from ding.worker.coordinator.state_file import RunIdentity, remove_state, write_state

# How long whoever wants to write waits for what is being written.
_PATIENCE_S = 5.0


class StateKeeper:
    """Writes a state now and then, in a thread of its own.

    Args:
        path: of the file.
        take_state: takes the state; None where there is none to be kept.
        interval_s: from the end of one writing to the beginning of the next; 0 for no writing at all.
        logger: a text logger.

    Attributes:
        is_active: whether it writes, from `start` on.
    """

    def __init__(
        self,
        path: str,
        run: RunIdentity,
        take_state: Callable[[], dict[str, Any] | None],
        interval_s: float,
        logger: Any,
    ) -> None:
        self.path, self.run = path, run
        self.is_active = False
        self._take_state, self._interval_s, self._logger = take_state, interval_s, logger
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="coordinator_state", daemon=True)
        self._writing = threading.Lock()
        self._last_problem = ""

    def start(self) -> None:
        """Begin to write, first after `interval_s`."""
        if self._interval_s and not self._closing.is_set():
            self.is_active = True
            self._thread.start()

    def _work(self) -> None:
        while not self._closing.wait(self._interval_s):
            self.write()

    def write(self) -> None:
        """Write the state, if there is one. What goes wrong is logged: the run is not ended for it."""
        begin = monotonic()
        try:
            with self._having_file():
                state = self._take_state()
                size = 0 if state is None else write_state(self.path, self.run, state)
        except Exception as e:
            problem = f"{type(e).__name__}: {e}"
            if problem != self._last_problem:  # what goes wrong once goes wrong each time
                self._logger.error("the state of the coordinator cannot be written to %s: %s", self.path, problem)
            self._last_problem = problem
            return
        self._last_problem = ""
        self._logger.debug("%d bytes of state were written in %.3f s", size, monotonic() - begin)

    def stop(self, timeout_s: float) -> None:
        """Write no more by itself; wait so long for what is being written. Idempotent."""
        self._closing.set()
        if self.is_active and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def remove(self) -> None:
        """Remove the file of a run that there is nothing to go on with."""
        if self.is_active:
            with contextlib.suppress(OSError), self._having_file():
                remove_state(self.path)

    @contextlib.contextmanager
    def _having_file(self) -> Iterator[None]:
        """Alone with the file; raises TimeoutError, an OSError, where the disk hangs."""
        if not self._writing.acquire(timeout=_PATIENCE_S):
            raise TimeoutError(f"the last writing has taken more than {_PATIENCE_S:g} s and goes on")
        try:
            yield
        finally:
            self._writing.release()
