"""A slave's link to its master: the session, the task that runs, and the two threads that report to the master."""

from __future__ import annotations

import itertools
import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ding.interaction.base.common import RecentIds, in_session
from ding.interaction.base.engine import may_pass
from ding.interaction.exception.base import MasterTaskDataInvalid, ResponseException
from ding.interaction.exception.refusal import TaskFail, failure_for, failure_of
from ding.interaction.server.access import same_secret
from ding.interaction.server.role import GRACE_S

if TYPE_CHECKING:
    from ding.interaction.server.client import PeerEngine
    from ding.interaction.slave.slave import Slave

_MOST_BEAT_TIMEOUT_S = 10.0
_DELIVERY_DEADLINE_S = 30.0  # how long the delivery of a result is retried
_FIRST_WAIT_S = 0.05  # between the tries; it doubles
_REPORT_TIMEOUT_S = (5.0, 10.0)
_LAST_REPORT_TIMEOUT_S = (1.0, 1.0)
_numbers = itertools.count(1)
_log = logging.getLogger("ding.interaction")


class MasterSession:
    """One session with a master, from `/connect` until it ends; a later one is another object.

    Args:
        token: the token that both sides send.
        address: where the master listens.
        engine: makes requests to it.
        request_id: of the request that connected, which may arrive twice.

    Attributes:
        number: see `session_number`.
        tasks: the ids of the accepted tasks.
        ended: set when the session has ended.
    """

    def __init__(self, token: str, address: str, engine: PeerEngine, request_id: str) -> None:
        self.number = next(_numbers)
        self.token = token
        self.address = address
        self.engine = engine
        self.request_id = request_id
        self.tasks = RecentIds()
        self.ended = threading.Event()

    def end(self) -> None:
        """End the session; threads that wait to retry a request give up."""
        self.ended.set()
        self.engine.close()


class Order(NamedTuple):
    """An accepted task."""

    session: MasterSession
    task_id: str
    data: Any

    def report(self, kind: str, result: Any, timeout: tuple[float, float]) -> None:
        """Send the result of the task to the master: `kind` is `complete` or `fail`."""
        body = {"task": {"id": self.task_id}, "result": result}
        self.session.engine.request_once("PUT", f"slave/task/{kind}", body, timeout=timeout)


class Link:
    """The current session of a slave, if any, and the task that it runs. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._session: MasterSession | None = None
        self._order: Order | None = None
        self._is_reporting = False

    @property
    def session(self) -> MasterSession | None:
        """The current session."""
        return self._session

    @property
    def order(self) -> Order | None:
        """The task that waits or runs."""
        return self._order

    @property
    def is_idle(self) -> bool:
        """Whether there is neither a task nor a result to report."""
        return self._order is None and not self._is_reporting

    def matches(self, token: str) -> MasterSession | None:
        """Return the current session if `token` is its token."""
        session = self._session
        return session if session is not None and same_secret(token, session.token) else None

    def open(self, session: MasterSession) -> None:
        """Make `session` the current one."""
        with self._changed:
            self._session = session
            self._changed.notify_all()

    def end(self, session: MasterSession) -> bool:
        """End `session`; return false if it was not the current one."""
        with self._changed:
            if self._session is not session:
                return False
            self._session = None
            self._changed.notify_all()
        session.end()
        return True

    def take(self, order: Order) -> None:
        """Make `order` the current task."""
        with self._changed:
            self._order = order
            order.session.tasks.add(order.task_id)

    def release(self, order: Order) -> bool:
        """Free the slave before the result of `order` is reported; return false if another thread reports it."""
        with self._changed:
            if self._order is not order:
                return False
            self._order = None
            self._is_reporting = True
            self._changed.notify_all()
            return True

    def reported(self) -> None:
        """End the report that `release` began."""
        with self._changed:
            self._is_reporting = False
            self._changed.notify_all()

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until `predicate` is true; it is evaluated after each change and each `wake`."""
        with self._changed:
            return self._changed.wait_for(predicate, timeout)

    def wake(self) -> None:
        """Make waiting threads evaluate their predicates again."""
        with self._changed:
            self._changed.notify_all()


class TaskRunner:
    """Runs tasks by `slave._process_task`, one after the other, and delivers their results.

    A result is delivered when the master has acknowledged it; until then it is sent again while the session lasts.
    After a deadline the session is given up: the master, which would wait for the result for ever, then notices that
    the slave is silent.

    Args:
        link: of the slave.
        slave: runs the tasks.
        longest_wait_s: between two tries to deliver a result.
        lose: called with a session that has failed and the error.
    """

    def __init__(
        self, link: Link, slave: Slave, longest_wait_s: float, lose: Callable[[MasterSession, Exception], None]
    ) -> None:
        self._link = link
        self._slave = slave
        self._longest_wait_s = longest_wait_s
        self._lose = lose
        self._orders: queue.SimpleQueue[Order | None] = queue.SimpleQueue()

    def put(self, order: Order) -> None:
        """Queue a task."""
        self._orders.put(order)

    def stop(self) -> None:
        """Let `run` return after the queued tasks."""
        self._orders.put(None)

    def run(self, closing: threading.Event) -> None:
        """Run tasks until `stop`; after `closing` is set they fail."""
        while (order := self._orders.get()) is not None:
            kind, result = self._run_one(order, closing)
            if self._link.release(order):
                self._deliver(order, kind, result)
                self._link.reported()
            del order, result  # do not keep them alive while waiting for the next task

    def _run_one(self, order: Order, closing: threading.Event) -> tuple[str, Any]:
        if closing.is_set() or order.session.ended.is_set():
            return "fail", failure_for("the slave was closed before it ran the task", "SlaveClosed")
        try:
            with in_session(order.session.number):
                return "complete", self._slave._process_task(order.data) or {}
        except TaskFail as error:
            return "fail", error.result
        except BaseException as error:  # SystemExit too: nothing that a task raises may end the thread
            _log.warning("a task has failed", exc_info=error)
            return "fail", failure_of(error)

    def _deliver(self, order: Order, kind: str, result: Any) -> None:
        try:
            try:
                self._send(order, kind, result)
            except (TypeError, ValueError, RecursionError) as error:  # of the JSON encoder
                message = f"the result has no JSON form: {error}"
                self._send(order, "fail", failure_for(message, type(error).__name__))
            except ResponseException as error:
                if error.status_code != 413:
                    raise
                message = f"the result was not accepted by the master: {error}"
                self._send(order, "fail", failure_for(message, "ResultTooLarge"))
        except MasterTaskDataInvalid as error:
            _log.error("the master does not know the task whose result it gets: %s", error)
        except Exception as error:  # of any kind: further tasks must still run
            self._lose(order.session, error)

    def _send(self, order: Order, kind: str, result: Any) -> None:
        """Send the result until it arrives or the session has ended.

        Raises:
            ResponseException: the master does not accept it.
            requests.RequestException: it did not arrive in time.
        """
        wait_s, deadline = _FIRST_WAIT_S, time.monotonic() + _DELIVERY_DEADLINE_S
        while not order.session.ended.is_set():
            try:
                order.report(kind, result, _REPORT_TIMEOUT_S)
                return
            except Exception as error:
                if not _is_temporary(error) or time.monotonic() + wait_s > deadline:
                    raise
            order.session.ended.wait(wait_s)
            wait_s = min(2 * wait_s, self._longest_wait_s)
        _log.info("the result of a task is dropped: its master is not connected any more")


class Heartbeat:
    """Sends heartbeats while there is a session, and ends the session when the slave is closed.

    Args:
        link: of the slave.
        span_s: seconds between heartbeats.
        lose: called with a session that has failed and the error.
    """

    def __init__(self, link: Link, span_s: float, lose: Callable[[MasterSession, Exception], None]) -> None:
        self._link = link
        self.span_s = span_s
        self._lose = lose

    def run(self, closing: threading.Event) -> None:
        """Send heartbeats until `closing` is set."""
        link = self._link
        while not closing.is_set():
            session = link.session
            if session is None:
                link.wait_for(lambda: closing.is_set() or link.session is not None)
            else:
                self._keep(session, closing)
        self._end()

    def beat(self, session: MasterSession) -> None:
        """Send one heartbeat."""
        timeout_s = min(_MOST_BEAT_TIMEOUT_S, max(1.0, 2 * self.span_s))
        session.engine.request("GET", "slave/heartbeat", timeout=(timeout_s, timeout_s))

    def _keep(self, session: MasterSession, closing: threading.Event) -> None:
        """Send heartbeats until the session ends."""
        link = self._link

        def is_over() -> bool:
            return closing.is_set() or link.session is not session

        due = time.monotonic()
        while True:
            due = max(due + self.span_s, time.monotonic())
            if link.wait_for(is_over, due - time.monotonic()):
                return
            try:
                self.beat(session)
            except Exception as error:  # of any kind: a slave without heartbeats must not seem connected
                if not is_over():
                    self._lose(session, error)
                return

    def _end(self) -> None:
        """Give a running task a moment to end, else report its failure; then end the session."""
        link = self._link
        link.wait_for(lambda: link.is_idle, GRACE_S)
        order = link.order
        if order is not None and link.release(order) and not order.session.ended.is_set():
            # The task may end after all, but its runner can no longer release it.
            try:
                failure = failure_for("the slave was closed while it ran the task", "SlaveClosed")
                order.report("fail", failure, _LAST_REPORT_TIMEOUT_S)
            except Exception as error:  # the slave ends in any case
                _log.info("the end of the task was not reported to the master: %s", error)
        session = link.session
        if session is not None:
            link.end(session)


def _is_temporary(error: Exception) -> bool:
    if isinstance(error, ResponseException):
        return error.status_code >= 500
    return may_pass(error)
