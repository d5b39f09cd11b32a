"""The slot of the one task that a worker runs at a time."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from functools import partial
from time import monotonic
from typing import Any, Generic, Protocol, TypeVar

from ding.interaction.base.common import session_number
from ding.interaction.exception.refusal import failure_of
from ding.torch_utils.thread_count import keep_thread_count
from ding.worker.transport.tasks import task_fail

_logger = logging.getLogger("ding")


class Run(Protocol):
    """A running task."""

    @property
    def ids(self) -> dict[str, Any]:
        """The `task_id` and `buffer_id`."""


class Exchange:
    """Reports the end of a worker's thread to the threads that wait for its data. Thread-safe."""

    def __init__(self) -> None:
        self._is_closed = self._is_finished = False
        self._failure: dict[str, Any] | None = None
        self._changed = threading.Condition()

    def finish(self) -> None:
        """Report that the thread has ended."""
        with self._changed:
            self._is_finished = True
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """Report that the thread has failed; all waits raise the first error, also later ones."""
        with self._changed:
            if self._failure is None:
                self._failure = failure_of(error)  # as text: the error itself would keep its stack frames alive
            self._changed.notify_all()

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._is_closed

    def wait_closed(self, timeout_s: float) -> bool:
        """Return whether `close` is called within `timeout_s`."""
        with self._changed:
            return self._changed.wait_for(lambda: self._is_closed, timeout_s)

    def _is_over(self) -> bool:
        return self._is_closed or self._is_finished or self._failure is not None

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise task_fail(self._failure)


R = TypeVar("R", bound=Run)


class TaskSlot(Generic[R]):
    """Starts and ends runs, one at a time. Thread-safe.

    A run belongs to the session (see `session_number`) in which it started. `abandon` in another session, whose end was
    noticed late, does not end the run; without a session number, any run matches.

    Args:
        kind: the kind of run, for messages.
        end: ends a run, bounded in time, and returns its report; called once for each run.
        timeout_s: how long a thread waits for another one that starts or ends a run, and a new run for the end of an
            abandoned one. A run that hangs is left behind then.

    Attributes:
        run: the current run, if any.
    """

    def __init__(self, kind: str, end: Callable[[R], dict[str, Any]], timeout_s: float) -> None:
        self.run: R | None = None
        self._kind, self._end, self._timeout_s = kind, end, timeout_s
        self._lock = threading.RLock()
        self._is_closed = False
        self._abandoned: list[tuple[threading.Thread, float]] = []  # threads and deadlines
        # Guards the following attributes: `abandon` does not wait until a run is made.
        self._session_lock = threading.Lock()
        self._session: int | None = None  # of the run, or of the run that is being made
        self._is_abandoned = False  # whether its coordinator has left
        self._last_abandoned: int | None = None  # the session that was abandoned last
        self._report: dict[str, Any] = {}

    def begin(self, make: Callable[[], R]) -> R:
        """Make a run and return it.

        Raises:
            RuntimeError: another task runs, the slot is closed, or the coordinator has left meanwhile.
            TimeoutError: another task takes too long to start or end; `end` and `close` raise it, too.
        """
        with self._alone():
            if self._is_closed:
                raise RuntimeError("the worker is closed; it takes no more tasks")
            if self.run is not None:
                raise RuntimeError(f"the {self._kind} is busy with the task {self.run.ids['task_id']}; close it first")
            self._report = {}
            self._wait_for_abandoned()
            self._open_for(session_number())
            run = make()
            with self._session_lock:
                self.run, is_abandoned = run, self._is_abandoned
            if is_abandoned:
                self.end()
                raise RuntimeError("the coordinator has left while its task started; the task was ended")
            return run

    def _open_for(self, session: int | None) -> None:
        with self._session_lock:
            if session is not None and session == self._last_abandoned:
                raise RuntimeError("the coordinator has left before its task started")
            self._session, self._is_abandoned = session, False

    def require(self) -> R:
        """Return the current run.

        Raises:
            TaskFail: there is none.
        """
        run = self.run
        if run is None:
            raise task_fail({"message": f"no {self._kind} task runs"})
        return run

    def end(self) -> dict[str, Any]:
        """End the current run and return its report; without a run, return the last report."""
        with self._alone():
            run = self._take()
            if run is not None:
                self._report = {**self._end(run), "task_id": run.ids["task_id"]}
            return dict(self._report)

    def abandon(self) -> None:
        """End the run of this session, whose coordinator has left, in a thread. Another coordinator may connect."""
        session = session_number()
        with self._session_lock:
            self._last_abandoned = session
            if None not in (session, self._session) and session != self._session:
                return
            self._is_abandoned = True  # a run that is being made ends as soon as it is made
            run, self.run = self.run, None  # it may hang, and must not block `end` and `close`
            if run is None:
                return
            thread = threading.Thread(target=partial(self._end_of, run), name=f"{self._kind}_abandon", daemon=True)
            self._abandoned.append((thread, monotonic() + self._timeout_s))
            thread.start()

    def _end_of(self, run: R) -> None:
        try:
            self._end(run)
        except Exception:  # no caller is left
            _logger.exception("the task of a coordinator that has left has failed to end")

    def _take(self) -> R | None:
        with self._session_lock:
            run, self.run = self.run, None
            return run

    def _wait_for_abandoned(self) -> None:
        with self._session_lock:
            abandoned, self._abandoned = self._abandoned, []
        for thread, deadline in abandoned:
            thread.join(max(0.0, deadline - monotonic()))

    def close(self) -> None:
        """End the run, and start no other. Idempotent."""
        self._is_closed = True
        try:
            self.end()
        finally:
            self._wait_for_abandoned()

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the right to start or end a run."""
        if not self._lock.acquire(timeout=self._timeout_s):
            raise TimeoutError(f"the {self._kind} has been starting or ending a task for {self._timeout_s:g} s")
        try:
            yield
        finally:
            self._lock.release()


def worker_thread(name: str, work: Callable[[], Any], exchange: Exchange) -> threading.Thread:
    """Return a daemon thread, not started yet, that runs `work` and reports its end to `exchange`."""
    return threading.Thread(target=partial(_run, work, exchange), name=name, daemon=True)


def _run(work: Callable[[], Any], exchange: Exchange) -> None:
    try:
        keep_thread_count()
        work()
    except BaseException as e:  # of any kind: it is reported to the coordinator
        exchange.fail(e)
    else:
        exchange.finish()
