"""What a master consists of: its connections, its threads, and what its views do."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ding.interaction.base.app import ProtocolError
from ding.interaction.base.common import checked_port, number_or
from ding.interaction.base.engine import Timeout
from ding.interaction.base.network import get_host_ip, is_wildcard, url_host
from ding.interaction.config import (
    DEFAULT_HEARTBEAT_CHECK_SPAN,
    DEFAULT_HEARTBEAT_TOLERANCE,
    DEFAULT_REQUEST_TIMEOUT,
    DEFAULT_SLAVE_PORT,
    LOCAL_HOST,
    MIN_HEARTBEAT_CHECK_SPAN,
    MIN_HEARTBEAT_TOLERANCE,
)
from ding.interaction.exception.master import MasterErrorCode, master_error
from ding.interaction.exception.refusal import failure_for
from ding.interaction.exception.slave import slave_error
from ding.interaction.master.connection import SlaveConnection
from ding.interaction.master.results import ResultThread
from ding.interaction.master.session import SlaveSession, SlaveTable
from ding.interaction.master.task import TaskResultType
from ding.interaction.server.hosts import parse_address
from ding.interaction.server.service import Service

if TYPE_CHECKING:
    import requests

    from ding.interaction.master.master import Master
    from ding.interaction.server.app import ProtocolApp


class MasterService(Service):
    """The inside of `master`, whose hooks it calls.

    Args:
        master: the role.
        heartbeat_tolerance: seconds of silence after which a slave is lost.
        heartbeat_check_span: seconds between looking for silent slaves.
        my_address: the URL at which slaves reach the master, if it is not to be made from host and port.
        settings: see `Service`.

    Raises:
        ValueError: `my_address` is no plain URL.
    """

    def __init__(
        self,
        master: Master,
        heartbeat_tolerance: float | None,
        heartbeat_check_span: float | None,
        my_address: str | None,
        host: str | None,
        port: int,
        **settings: Any,
    ) -> None:
        super().__init__("master", host, port, **settings)
        self.master = master
        self._tolerance_s = number_or(
            DEFAULT_HEARTBEAT_TOLERANCE, "heartbeat_tolerance", heartbeat_tolerance, MIN_HEARTBEAT_TOLERANCE
        )
        self._check_span_s = number_or(
            DEFAULT_HEARTBEAT_CHECK_SPAN, "heartbeat_check_span", heartbeat_check_span, MIN_HEARTBEAT_CHECK_SPAN
        )
        if my_address is not None:
            try:
                parse_address(my_address)
            except ValueError as error:
                raise ValueError(f"my_address = {my_address!r} is not allowed; {error}") from None
        self._given_address = my_address
        self.table = SlaveTable()
        self.results = ResultThread()

    @property
    def task_timeout(self) -> Timeout:
        """How long one try to give a task may take: not much longer than until the slave counts as lost."""
        return DEFAULT_REQUEST_TIMEOUT[0], max(1.0, self._tolerance_s / 5)

    @property
    def my_address(self) -> str:
        """See `Master.my_address`."""
        if self._given_address is not None:
            return self._given_address
        host = get_host_ip() if is_wildcard(self._host) else self._host
        return f"http://{url_host(host)}:{self.port}"

    def new_connection(self, name: str, host: str, port: int | None, https: bool) -> SlaveConnection:
        """See `Master.new_connection`."""
        if self.table.get(name) is not None:
            raise KeyError(f"{name!r} is the name of an active connection")
        if is_wildcard(host):  # as an address to connect to it means this machine
            host = "::1" if ":" in host else LOCAL_HOST
        return SlaveConnection(self, name, host, DEFAULT_SLAVE_PORT if port is None else checked_port(port), https)

    def check_runs(self) -> None:
        """Raise a RuntimeError unless it was started, and not asked to end."""
        if self.state != "running":
            raise RuntimeError("the master does not run, so that no slave could report to it: start it first")

    def activate(self, session: SlaveSession) -> None:
        """Count a slave as connected.

        Raises:
            RuntimeError: the master was closed meanwhile.
        """
        self.table.activate(session)
        self.check_runs()

    def end(self, session: SlaveSession, reason: str) -> bool:
        """Forget a connection, and fail its tasks; False where somebody else has done so."""
        self.table.remove(session)
        tasks = session.end()
        result = failure_for(
            f"the connection to the slave {session.connection.name!r} has ended: {reason}", "SlaveLost"
        )
        for task in tasks or ():
            self.results.submit(partial(task.finish, TaskResultType.FAILED, result, is_lost=True))
        return tasks is not None

    def finish(self, session: SlaveSession, task_id: str, kind: TaskResultType, result: Any) -> None:
        """What `/slave/task/...` does; the same result may come twice."""
        self.table.seen(session)
        task = session.take(task_id)
        if task is not None and task.has_callbacks(kind):
            self.results.submit(partial(task.finish, kind, result))
        elif task is not None:
            task.finish(kind, result)
        elif not session.has_settled(task_id):
            raise ProtocolError(400, MasterErrorCode.TASK_DATA_INVALID, "The slave has no such task.")

    def _watch(self) -> None:
        """Look for slaves that are lost."""
        checked = time.monotonic()
        while not self._closing.wait(self._check_span_s):
            now = time.monotonic()
            late_s = now - checked - self._check_span_s
            if late_s > self._tolerance_s / 2:  # the master itself was stopped, and has heard nobody in this time
                self.table.excuse(late_s)
            checked = now
            for session in self.table.silent(now, self._tolerance_s):
                session.connection.lose(session, f"there was no sign of life for {self._tolerance_s:g} s")

    def _make_app(self) -> ProtocolApp:
        from ding.interaction.master.routes import MASTER_CODES, master_routes
        from ding.interaction.server.app import ProtocolApp

        return ProtocolApp(self, MASTER_CODES, master_routes(self), self._body_limit)

    def _jobs(self) -> list[tuple[str, Callable[[], Any]]]:
        return [("heartbeat", self._watch), ("task_result", self.results.run)]

    def _on_shutdown(self) -> None:
        for session in self.table.all():
            session.connection.drop(session, "the master was closed")
        self.results.stop()

    def _advertised(self) -> tuple[str, int] | None:
        host, port, _, _ = parse_address(self.my_address)
        return host, port

    def _peer_error(self, to_itself: bool) -> Callable[[requests.HTTPError], Exception]:
        return master_error if to_itself else slave_error
