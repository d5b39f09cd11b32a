"""The two threads of a slave: one runs tasks and reports their results, one shows the master that it lives."""

from __future__ import annotations

import logging
import queue
import time
from typing import TYPE_CHECKING, Any

from ding.interaction.base.common import in_session
from ding.interaction.base.engine import transport_errors
from ding.interaction.exception.base import ResponseException
from ding.interaction.exception.master import MasterTaskDataInvalid
from ding.interaction.exception.refusal import TaskFail, failure_for, failure_of
from ding.interaction.server.service import GRACE_S
from ding.interaction.slave.session import Link, MasterSession, Order

if TYPE_CHECKING:
    from ding.interaction.slave.service import SlaveService
    from ding.interaction.slave.slave import Slave

_DELIVERY_DEADLINE_S = 30.0  # how long the delivery of a result is tried
_FIRST_WAIT_S = 0.05  # between the tries; it doubles
_REPORT_TIMEOUT_S = (5.0, 10.0)
_LAST_WORD_TIMEOUT_S = (1.0, 1.0)
_log = logging.getLogger("ding.interaction")


class TaskRunner:
    """Runs tasks by `slave._process_task`, one after the other, and delivers their results.

    A result counts as delivered when the master has acknowledged it; until then it is sent again, as long as the
    connection stands. After a while the connection is given up: then the master, which would wait for the result for
    ever, notices that the slave is silent.
    """

    def __init__(self, service: SlaveService, link: Link, slave: Slave, longest_wait_s: float) -> None:
        self._service = service
        self._link = link
        self._slave = slave
        self._longest_wait_s = longest_wait_s
        self._orders: queue.SimpleQueue[Order | None] = queue.SimpleQueue()

    def put(self, order: Order) -> None:
        """Have the order run."""
        self._orders.put(order)

    def stop(self) -> None:
        """Let `run` return after the orders that it has."""
        self._orders.put(None)

    def run(self) -> None:
        """The body of the thread."""
        while (order := self._orders.get()) is not None:
            kind, result = self._outcome(order)
            if self._link.release(order):
                self._deliver(order, kind, result)
                self._link.reported()
            del order, result  # they should not live on while the next order is awaited

    def _outcome(self, order: Order) -> tuple[str, Any]:
        if self._service.is_closing or order.session.ended.is_set():
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
        except Exception as error:  # whatever it is, there are more tasks to run
            self._service.lose(order.session, error)

    def _send(self, order: Order, kind: str, result: Any) -> None:
        """Send the result until it arrives, or nobody waits for it any more.

        Raises:
            ResponseException: the master does not accept it.
            requests.RequestException: it has not arrived in time.
        """
        wait_s, deadline = _FIRST_WAIT_S, time.monotonic() + _DELIVERY_DEADLINE_S
        while not order.session.ended.is_set():
            try:
                report(order, kind, result, _REPORT_TIMEOUT_S)
                return
            except Exception as error:
                if not _may_pass(error) or time.monotonic() + wait_s > deadline:
                    raise
            order.session.ended.wait(wait_s)
            wait_s = min(2 * wait_s, self._longest_wait_s)
        _log.info("the result of a task is dropped: its master is not connected any more")


class Heart:
    """Keeps the connection: beats while it stands, and has the last word when the slave is closed."""

    def __init__(self, service: SlaveService, link: Link, span_s: float) -> None:
        self._service = service
        self._link = link
        self._span_s = span_s

    def run(self) -> None:
        """The body of the thread."""
        service, link = self._service, self._link
        while not service.is_closing:
            session = link.session
            if session is None:
                link.wait_for(lambda: service.is_closing or link.session is not None)
            else:
                self._keep(session)
        self._last_word()

    def _keep(self, session: MasterSession) -> None:
        """Beat until the connection ends."""
        due = time.monotonic()
        while True:
            due = max(due + self._span_s, time.monotonic())
            if self._link.wait_for(lambda: self._is_over(session), due - time.monotonic()):
                return
            try:
                self._service.beat(session)
            except Exception as error:  # whatever it is, a slave without a heart must not seem connected
                if not self._is_over(session):
                    self._service.lose(session, error)
                return

    def _is_over(self, session: MasterSession) -> bool:
        return self._service.is_closing or self._link.session is not session

    def _last_word(self) -> None:
        """Give a task that is being run a moment to end, else report that it never will; then let the master go."""
        link = self._link
        link.wait_for(lambda: link.is_quiet, GRACE_S)
        order = link.order
        if order is not None and link.release(order) and not order.session.ended.is_set():
            # The runner, whose task may end after all, is not given this order any more.
            try:
                reason = failure_for("the slave was closed while it ran the task", "SlaveClosed")
                report(order, "fail", reason, _LAST_WORD_TIMEOUT_S)
            except Exception as error:  # nobody is left to be told
                _log.info("the master was not told that its task has ended: %s", error)
        session = link.session
        if session is not None:
            link.end(session)


def _may_pass(error: Exception) -> bool:
    if isinstance(error, ResponseException):
        return error.status_code >= 500
    return isinstance(error, transport_errors())


def report(order: Order, kind: str, result: Any, timeout: tuple[float, float]) -> None:
    """Tell the master the result of a task: `kind` is `complete` or `fail`."""
    body = {"task": {"id": order.task_id}, "result": result}
    order.session.engine.request_once("PUT", f"slave/task/{kind}", body, timeout=timeout)
