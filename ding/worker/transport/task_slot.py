"""The place of the one task that a worker runs at a time."""

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
    """A task at work."""

    @property
    def ids(self) -> dict[str, Any]:
        """Its `task_id` and `buffer_id`."""


class Exchange:
    """Where a worker's thread tells how it ended; those who wait for what it brings are woken. Thread-safe."""

    def __init__(self) -> None:
        self._is_closed = self._is_finished = False
        self._failure: dict[str, Any] | None = None
        self._changed = threading.Condition()

    def finish(self) -> None:
        """The thread has ended, and will tell nothing more."""
        with self._changed:
            self._is_finished = True
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """The thread has failed with `error`; all waits raise it now and later. The first failure counts."""
        with self._changed:
            if self._failure is None:
                self._failure = failure_of(error)  # as text: the error itself would keep alive what it went through
            self._changed.notify_all()

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._is_closed

    def wait_closed(self, timeout_s: float) -> bool:
        """Whether `close` was called, or is in time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._is_closed, timeout_s)

    def _is_over(self) -> bool:
        return self._is_closed or self._is_finished or self._failure is not None

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise task_fail(self._failure)


R = TypeVar("R", bound=Run)


class TaskSlot(Generic[R]):
    """Begins and ends runs, one at a time, from several threads.

    A run belongs to the session (see `session_number`) in which it began. Where `abandon` is called in another session,
    whose end was noticed late, the run stays; without a session, a run or an `abandon` counts as being of any.

    Args:
        kind: what runs here, for messages.
        end: ends a run, bounded in time, and returns what it reports; called once for each.
        timeout_s: how long one thread may wait for another that begins or ends a run, and a new run for the end of one
            that was abandoned; one that hangs is left to itself then.

    Attributes:
        run: what runs now, if anything does.
    """

    def __init__(self, kind: str, end: Callable[[R], dict[str, Any]], timeout_s: float) -> None:
        self.run: R | None = None
        self._kind, self._end, self._timeout_s = kind, end, timeout_s
        self._lock = threading.RLock()
        self._is_closed = False
        self._abandoned: list[tuple[threading.Thread, float]] = []  # ends of abandoned runs, and until when to wait
        # Guards what follows, for `abandon` does not wait until a run is made.
        self._noting = threading.Lock()
        self._session: int | None = None  # of the run, or of the one that is being made
        self._has_left = False  # whether its coordinator has gone
        self._last_left: int | None = None  # the session that was abandoned last
        self._report: dict[str, Any] = {}

    def begin(self, make: Callable[[], R]) -> R:
        """Run what `make` returns.

        Raises:
            RuntimeError: another task runs, the slot is closed, or the coordinator has gone meanwhile.
            TimeoutError: another task has been beginning or ending for too long; of `end` and `close`, too.
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
            with self._noting:
                self.run, has_left = run, self._has_left
            if has_left:
                self.end()
                raise RuntimeError("the coordinator has gone while its task began; it is ended")
            return run

    def _open_for(self, session: int | None) -> None:
        with self._noting:
            if session is not None and session == self._last_left:
                raise RuntimeError("the coordinator has gone before its task began")
            self._session, self._has_left = session, False

    def require(self) -> R:
        """What runs now.

        Raises:
            TaskFail: nothing does.
        """
        run = self.run
        if run is None:
            raise task_fail({"message": f"no {self._kind} task runs"})
        return run

    def end(self) -> dict[str, Any]:
        """End the run and return its report; without one, that of the last."""
        with self._alone():
            run = self._take()
            if run is not None:
                self._report = {**self._end(run), "task_id": run.ids["task_id"]}
            return dict(self._report)

    def abandon(self) -> None:
        """The coordinator of this session has gone: end its run, in a thread. Another coordinator may come."""
        session = session_number()
        with self._noting:
            self._last_left = session
            if None not in (session, self._session) and session != self._session:
                return
            self._has_left = True  # a run that is being made ends as soon as it is there
            run, self.run = self.run, None  # it keeps nobody from ending or closing: it may hang
            if run is None:
                return
            thread = threading.Thread(target=partial(self._end_of, run), name=f"{self._kind}_abandon", daemon=True)
            self._abandoned.append((thread, monotonic() + self._timeout_s))
            thread.start()

    def _end_of(self, run: R) -> None:
        try:
            self._end(run)
        except Exception:  # nobody is left to be told
            _logger.exception("the task of a coordinator that has gone could not be ended as it should")

    def _take(self) -> R | None:
        with self._noting:
            run, self.run = self.run, None
            return run

    def _wait_for_abandoned(self) -> None:
        with self._noting:
            abandoned, self._abandoned = self._abandoned, []
        for thread, deadline in abandoned:
            thread.join(max(0.0, deadline - monotonic()))

    def close(self) -> None:
        """End the run, and begin no other. Idempotent."""
        self._is_closed = True
        try:
            self.end()
        finally:
            self._wait_for_abandoned()

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Be the only one to begin or end a run."""
        if not self._lock.acquire(timeout=self._timeout_s):
            raise TimeoutError(f"the {self._kind} has been beginning or ending for {self._timeout_s:g} s")
        try:
            yield
        finally:
            self._lock.release()


def worker_thread(name: str, work: Callable[[], Any], exchange: Exchange) -> threading.Thread:
    """A daemon thread, not started yet, that runs `work` and tells `exchange` how it ended."""
    return threading.Thread(target=partial(_run, work, exchange), name=name, daemon=True)


def _run(work: Callable[[], Any], exchange: Exchange) -> None:
    try:
        keep_thread_count()
        work()
    except BaseException as e:  # whatever it is, the coordinator is told
        exchange.fail(e)
    else:
        exchange.finish()
