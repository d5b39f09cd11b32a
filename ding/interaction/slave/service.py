"""What a slave consists of: its connection, its threads, and what its views do."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ding.interaction.base.app import ProtocolError
from ding.interaction.base.common import in_session, number_or
from ding.interaction.config import DEFAULT_HEARTBEAT_SPAN, MIN_HEARTBEAT_SPAN
from ding.interaction.exception.master import master_error
from ding.interaction.exception.slave import SlaveErrorCode, slave_error
from ding.interaction.server.credentials import same_secret
from ding.interaction.server.hosts import may_report_to, parse_address
from ding.interaction.server.service import Service
from ding.interaction.slave.reporter import Heart, TaskRunner
from ding.interaction.slave.session import Link, MasterSession, Order

if TYPE_CHECKING:
    import requests

    from ding.interaction.server.app import ProtocolApp
    from ding.interaction.slave.slave import Slave

_MOST_BEAT_TIMEOUT_S = 10.0


class SlaveService(Service):
    """The inside of `slave`, whose hooks it calls.

    Args:
        slave: the role.
        heartbeat_span: seconds between signs of life.
        settings: see `Service`.
    """

    def __init__(
        self, slave: Slave, heartbeat_span: float | None, host: str | None, port: int, **settings: Any
    ) -> None:
        super().__init__("slave", host, port, **settings)
        self._slave = slave
        self._span_s = number_or(DEFAULT_HEARTBEAT_SPAN, "heartbeat_span", heartbeat_span, MIN_HEARTBEAT_SPAN)
        self._gate = threading.Lock()
        self._disconnected_by = ("", "")
        self.link = Link()
        self.runner = TaskRunner(self, self.link, slave, self._retry_waiting)
        self._heart = Heart(self, self.link, self._span_s)

    def connect(self, token: str, request_id: str, address: str, data: Any, peer: str) -> None:
        """What `/connect` does; the same request may come twice."""
        with self._gate:
            session = self.link.session
            if session is not None:
                if request_id and session.request_id == request_id and self.link.matches(token):
                    return
                raise ProtocolError(400, SlaveErrorCode.SLAVE_ALREADY_CONNECTED, "The slave has a master.")
            parts = self._check_address(address, peer)
            _ask(self._slave._before_connection, data)
            self.link.open(MasterSession(token, address, self.engine(parts, token), request_id))

    def disconnect(self, session: MasterSession, request_id: str, data: Any) -> None:
        """What `/disconnect` does."""
        with self._gate:
            _check_stands(session)
            with in_session(session.number):
                _ask(self._slave._before_disconnection, data)
            self.link.end(session)
            self._disconnected_by = (session.token, request_id)

    def has_disconnected(self, token: str, request_id: str) -> bool:
        """Whether this request has come before, and the connection was ended by it."""
        last_token, last_id = self._disconnected_by
        return bool(request_id) and request_id == last_id and same_secret(token, last_token)

    def accept(self, session: MasterSession, task_id: str, data: Any) -> None:
        """What `/task/new` does; the same task may come twice."""
        with self._gate:
            _check_stands(session)
            if task_id in session.tasks:
                return
            if self.link.order is not None:
                raise ProtocolError(400, SlaveErrorCode.TASK_ALREADY_EXIST, "The slave has a task.")
            _ask(self._slave._before_task, data)
            order = Order(session, task_id, data)
            self.link.take(order)
            self.runner.put(order)

    def _check_address(self, address: str, peer: str) -> tuple[str, int, bool, str]:
        try:
            parts = parse_address(address)
        except ValueError as error:
            raise ProtocolError(400, 1, f"The address of the master is not usable: {error}") from None
        if not may_report_to(parts[0], parts[1], peer, self._hosts):
            raise ProtocolError(
                403,
                SlaveErrorCode.SLAVE_CONNECTION_REFUSED,
                f"The slave was called from {peer} and does not report to {parts[0]}, which is another machine; "
                "DING_HOSTS of the slave lists hosts that it may report to.",
            )
        return parts

    def beat(self, session: MasterSession) -> None:
        """Show the master that this slave lives."""
        timeout_s = min(_MOST_BEAT_TIMEOUT_S, max(1.0, 2 * self._span_s))
        session.engine.request(
            "GET",
            "slave/heartbeat",
            retries=self._retries,
            retry_waiting=self._retry_waiting,
            timeout=(timeout_s, timeout_s),
        )

    def lose(self, session: MasterSession, error: Exception) -> None:
        """Give up a connection that does not work any more."""
        if not self.link.end(session):
            return
        log = logging.getLogger("ding.interaction")
        log.warning("the slave at port %d has lost its master at %s: %s", self.port, session.address, error)
        try:
            with in_session(session.number):
                self._slave._lost_connection(session.address, error)
        except BaseException:  # it must not end the thread that noticed the loss
            log.exception("_lost_connection has failed")

    def _make_app(self) -> ProtocolApp:
        from ding.interaction.server.app import ProtocolApp
        from ding.interaction.slave.routes import SLAVE_CODES, slave_routes

        return ProtocolApp(self, SLAVE_CODES, slave_routes(self), self._body_limit)

    def _jobs(self) -> list[tuple[str, Callable[[], Any]]]:
        return [("heartbeat", self._heart.run), ("task", self.runner.run)]

    def _on_shutdown(self) -> None:
        self.runner.stop()
        self.link.wake()

    def _peer_error(self, to_itself: bool) -> Callable[[requests.HTTPError], Exception]:
        return slave_error if to_itself else master_error


def _ask(hook: Callable[[Any], Any], data: Any) -> None:
    try:
        hook(data)
    except Exception:
        raise
    except BaseException as error:  # SystemExit too: it must not end the thread that answers, without an answer
        raise RuntimeError(f"{type(error).__name__}: {error}") from error


def _check_stands(session: MasterSession) -> None:
    """Another request may have ended the connection while this one waited for its turn."""
    if session.ended.is_set():
        raise ProtocolError(403, SlaveErrorCode.MASTER_TOKEN_INVALID, "The token is not that of the master any more.")
