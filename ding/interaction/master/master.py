"""The master, which sends tasks to slaves."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from ding.interaction.base import Codes, ProtocolError, checked_port, number_or
from ding.interaction.exception import MasterErrorCode
from ding.interaction.http_client import (
    DEFAULT_HEARTBEAT_CHECK_SPAN,
    DEFAULT_HEARTBEAT_TOLERANCE,
    DEFAULT_MASTER_PORT,
    DEFAULT_REQUEST_TIMEOUT,
    DEFAULT_SLAVE_PORT,
    LOCAL_HOST,
    MIN_HEARTBEAT_CHECK_SPAN,
    MIN_HEARTBEAT_TOLERANCE,
    get_host_ip,
    is_wildcard,
    url_host,
)
from ding.interaction.master.connection import SlaveConnection, SlaveSession, SlaveTable
from ding.interaction.master.task import TaskResultType
from ding.interaction.server.access import HostList, RunToken, is_tls_configured, parse_address
from ding.interaction.server.app import (
    Head,
    Route,
    Routes,
    check_channel,
    field,
    header_token,
    read_body,
    uuid_field,
)
from ding.interaction.server.role import Parts, Role

if TYPE_CHECKING:
    import requests

_BAD_BODY = MasterErrorCode.TASK_DATA_INVALID
_CODES = Codes(
    shutting_down=MasterErrorCode.SYSTEM_SHUTTING_DOWN,
    channel_missing=MasterErrorCode.CHANNEL_NOT_GIVEN,
    channel_wrong=MasterErrorCode.CHANNEL_INVALID,
    self_token_missing=MasterErrorCode.SELF_TOKEN_NOT_GIVEN,
    self_token_wrong=MasterErrorCode.SELF_TOKEN_INVALID,
)


class Master(Role):
    """A master, which connects to slaves and sends them tasks.

    A slave that is silent for too long is lost: its connection ends and its tasks fail. Subclasses may override the
    hooks, whose names begin with `_before_`, `_after_`, `_error_` and `_lost_`.

    Args:
        host: the address to listen at; None and `auto` mean this machine only (127.0.0.1). Other addresses need a
            token: see `ding.interaction.server.access`.
        port: the port, 7235 by default; 0 for any free one, which the property `port` returns after `start`.
        heartbeat_tolerance: seconds of silence after which a slave is lost (17.0 by default, at least 0.2).
        heartbeat_check_span: seconds between two checks for silent slaves (1.0 by default, at least 0.1).
        request_retries: how often a request is retried after a transport error (5 by default).
        request_retry_waiting: seconds between tries (1.0 by default).
        channel: the channel (0 by default), which must be that of its slaves.
        my_address: the URL, possibly with a path, at which slaves reach the master. By default it has the port and the
            host, or the address of this machine if the host means all interfaces.
        body_limit: the largest body of a request in bytes (64 MiB by default).
        allowed_hosts: hosts besides those of this machine and of `my_address` that requests to the master may name, as
            `name`, `name:port` or `.domain`. The default is the list in the environment variable `DING_HOSTS`,
            separated by commas.
        run_token: the token of the run, with which both sides sign; None for the token of the environment, if any.

    Raises:
        ValueError: an argument is out of range, or `my_address` is not a plain URL.

    See `ding.interaction.Slave` for an example.
    """

    def __init__(
        self,
        host: str | None = None,
        port: int | None = None,
        heartbeat_tolerance: float | None = None,
        heartbeat_check_span: float | None = None,
        request_retries: int | None = None,
        request_retry_waiting: float | None = None,
        channel: int | None = None,
        my_address: str | None = None,
        *,
        body_limit: int | None = None,
        allowed_hosts: Iterable[str] | None = None,
        run_token: RunToken | None = None,
    ) -> None:
        from ding.interaction.server.client import Peers

        self.__tolerance_s = number_or(
            DEFAULT_HEARTBEAT_TOLERANCE, "heartbeat_tolerance", heartbeat_tolerance, MIN_HEARTBEAT_TOLERANCE
        )
        self.__check_span_s = number_or(
            DEFAULT_HEARTBEAT_CHECK_SPAN, "heartbeat_check_span", heartbeat_check_span, MIN_HEARTBEAT_CHECK_SPAN
        )
        if my_address is not None:
            try:
                parse_address(my_address)
            except ValueError as error:
                raise ValueError(f"my_address = {my_address!r} is not allowed; {error}") from None
        self.__given_address = my_address
        self.__table = table = SlaveTable()
        self.__peers = Peers("slave", channel, request_retries, request_retry_waiting, run_token)
        parts = Parts(
            "master",
            _CODES,
            self.__routes(),
            {"heartbeat": self.__watch, "task_result": lambda closing: table.results.run()},
            on_start=table.open,
            on_shutdown=table.close,
            advertised=lambda: parse_address(self.my_address)[:2],
        )
        port = DEFAULT_MASTER_PORT if port is None else port
        super().__init__(parts, self.__peers, host, port, body_limit, HostList(allowed_hosts))

    @property
    def my_address(self) -> str:
        """The URL at which slaves reach the master; its port is known after `start`."""
        if self.__given_address is not None:
            return self.__given_address
        host = get_host_ip() if is_wildcard(self.host) else self.host
        return f"{'https' if is_tls_configured() else 'http'}://{url_host(host)}:{self.port}"

    def new_connection(self, name: str, host: str, port: int | None = None, https: bool = False) -> SlaveConnection:
        """Return a connection, not connected yet, to the slave at `host` and `port` (7236 by default).

        Raises:
            KeyError: the name belongs to an active connection.
            ValueError: the port is not an integer in [0, 65535].
        """
        if self.__table.get(name) is not None:
            raise KeyError(f"{name!r} is the name of an active connection")
        if is_wildcard(host):  # as an address to connect to it means this machine
            host = "::1" if ":" in host else LOCAL_HOST
        address = (host, DEFAULT_SLAVE_PORT if port is None else checked_port(port), https)
        # One try to start a task takes not much longer than it takes to notice that the slave is lost.
        task_timeout = (DEFAULT_REQUEST_TIMEOUT[0], max(1.0, self.__tolerance_s / 5))
        return SlaveConnection(self, self.__table, self.__peers, name, address, task_timeout)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.__table.get(name) is not None

    def __getitem__(self, name: str) -> SlaveConnection:
        session = self.__table.get(name)
        if session is None:
            raise KeyError(name)
        return session.connection

    def __delitem__(self, name: str) -> None:
        self[name].disconnect()

    def __routes(self) -> Routes:
        """Return the routes that the master serves to its slaves."""
        table = self.__table

        def session(head: Head) -> SlaveSession:
            check_channel(head, self.__peers.channel, _CODES)
            found = table.matches(header_token(head, MasterErrorCode.SLAVE_TOKEN_NOT_GIVEN))
            if found is None:
                code = MasterErrorCode.SLAVE_TOKEN_INVALID
                raise ProtocolError(403, code, "The token is not that of a connected slave.")
            return found

        def finish(kind: TaskResultType, current: SlaveSession, head: Head, body: bytes) -> None:
            values = read_body(body, _BAD_BODY)
            task_id = uuid_field(values, "task.id", _BAD_BODY)
            table.finish(current, task_id, kind, field(values, "result", object, _BAD_BODY))

        return {
            "/slave/heartbeat": {"GET": Route(session, lambda current, *_: table.seen(current), is_quick=True)},
            "/slave/task/complete": {"PUT": Route(session, partial(finish, TaskResultType.COMPLETED), is_quick=True)},
            "/slave/task/fail": {"PUT": Route(session, partial(finish, TaskResultType.FAILED), is_quick=True)},
        }

    def __watch(self, closing: threading.Event) -> None:
        """Look for lost slaves until the master is closed."""
        checked = time.monotonic()
        while not closing.wait(self.__check_span_s):
            now = time.monotonic()
            late_s = now - checked - self.__check_span_s
            if late_s > self.__tolerance_s / 2:  # the master itself was stopped and received nothing in this time
                self.__table.excuse(late_s)
            checked = now
            for session in self.__table.silent(now, self.__tolerance_s):
                session.connection.lose(session, f"there was no sign of life for {self.__tolerance_s:g} s")

    def _before_connect(self) -> Any:
        """Return a value for the slave's `_before_connection`; called before a slave is connected."""
        return {}

    def _after_connect(self, status: int, success: bool, code: int, message: str, data: Any) -> Any:
        """Return the value for `connect` to return, given the slave's reply; an exception disconnects the slave."""

    def _error_connect(self, err: requests.RequestException) -> Any:
        """Raise an error, or return a value for `connect` to return; called if the slave cannot be reached."""
        raise err

    def _before_disconnect(self) -> Any:
        """Return a value for the slave's `_before_disconnection`; called before a slave is disconnected."""
        return {}

    def _after_disconnect(self, status: int, success: bool, code: int, message: str, data: Any) -> Any:
        """Return the value for `disconnect` to return, given the slave's reply."""

    def _error_disconnect(self, err: requests.RequestException) -> Any:
        """Raise an error, or return a value for `disconnect` to return; called if the slave cannot be reached."""
        raise err

    def _before_new_task(self, data: Any) -> Any:
        """Return the data to send to the slave, given the data of a task that starts."""
        return data

    def _after_new_task(self, status: int, success: bool, code: int, message: str, data: Any) -> Any:
        """Handle the reply of the slave to a new task."""

    def _error_new_task(self, err: requests.RequestException) -> Any:
        """Handle that the slave of a task that starts cannot be reached."""
        raise err

    def _lost_connection(self, name: str, reason: str) -> None:
        """Handle the loss of a slave, after its tasks have failed; called in the result thread."""
