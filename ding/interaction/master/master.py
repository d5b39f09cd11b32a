"""The master, which sends tasks to slaves."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from ding.interaction.access import RunToken, uses_tls
from ding.interaction.base import checked_port, number_or
from ding.interaction.http_client import (
    DEFAULT_HEARTBEAT_CHECK_SPAN,
    DEFAULT_HEARTBEAT_TOLERANCE,
    DEFAULT_MASTER_PORT,
    DEFAULT_SLAVE_PORT,
    MIN_HEARTBEAT_CHECK_SPAN,
    MIN_HEARTBEAT_TOLERANCE,
    get_host_ip,
    is_wildcard,
    url_host,
)
from ding.interaction.master.connection import SlaveConnection
from ding.interaction.role import Role

if TYPE_CHECKING:
    import requests


class Master(Role):
    """A master, which connects to slaves and sends them tasks.

    A slave that is silent for too long is lost: its connection ends and its tasks fail. Subclasses may override the
    hooks, whose names begin with `_before_`, `_after_`, `_error_` and `_lost_`.

    Args:
        host: the address to listen at; None and `auto` mean this machine only (127.0.0.1). Other addresses need a
            token: see `ding.interaction.access`.
        port: the port, 7235 by default; 0 for any free one, which the property `port` returns after `start`.
        heartbeat_tolerance: seconds of silence after which a slave is lost (17.0 by default, at least 0.2).
        heartbeat_check_span: seconds between two checks for silent slaves (1.0 by default, at least 0.1).
        request_retries: how often a request is retried after a transport error (5 by default).
        request_retry_waiting: seconds between tries (1.0 by default).
        channel: the channel (0 by default), which must be that of its slaves.
        my_address: the URL of the master, which is told to slaves. By default it has the port and the host, or the
            address of this machine if the host means all interfaces.
        run_token: the token of the run, which the master sends; None for the token of the environment, if any.

    Raises:
        ValueError: an argument is out of range.

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
        run_token: RunToken | None = None,
    ) -> None:
        self.__tolerance_s = number_or(
            DEFAULT_HEARTBEAT_TOLERANCE, "heartbeat_tolerance", heartbeat_tolerance, MIN_HEARTBEAT_TOLERANCE
        )
        self.__check_span_s = number_or(
            DEFAULT_HEARTBEAT_CHECK_SPAN, "heartbeat_check_span", heartbeat_check_span, MIN_HEARTBEAT_CHECK_SPAN
        )
        self.__given_address = my_address
        self.__connections: dict[str, SlaveConnection] = {}  # also those that are being connected
        super().__init__(
            "master",
            [],
            {"heartbeat": self.__watch},
            self.__drop_all,
            host=host,
            port=DEFAULT_MASTER_PORT if port is None else port,
            channel=channel,
            request_retries=request_retries,
            request_retry_waiting=request_retry_waiting,
            run_token=run_token,
        )

    @property
    def my_address(self) -> str:
        """The URL of the master; its port is known after `start`."""
        if self.__given_address is not None:
            return self.__given_address
        host = get_host_ip() if is_wildcard(self.host) else self.host
        return f"{'https' if uses_tls(self.host) else 'http'}://{url_host(host)}:{self.port}"

    def new_connection(self, name: str, host: str, port: int | None = None, https: bool = False) -> SlaveConnection:
        """Return a connection, not connected yet, to the slave at `host` and `port` (7236 by default).

        It uses TLS if `https` is set, if the host is not on loopback, or if `DING_TLS_CERT` is set.

        Raises:
            KeyError: the name belongs to an active connection.
            ValueError: the port is not an integer in [0, 65535].
        """
        if name in self:
            raise KeyError(f"{name!r} is the name of an active connection")
        make_client = partial(
            self._new_client,
            "slave",
            host,
            DEFAULT_SLAVE_PORT if port is None else checked_port(port),
            https or uses_tls(host),
        )
        return SlaveConnection(self, self.__connections, make_client, self._is_running, name, self.__tolerance_s)

    def __contains__(self, name: object) -> bool:
        connection = self.__connections.get(name) if isinstance(name, str) else None
        return connection is not None and connection.is_connected

    def __getitem__(self, name: str) -> SlaveConnection:
        if name not in self:
            raise KeyError(name)
        return self.__connections[name]

    def __delitem__(self, name: str) -> None:
        self[name].disconnect()

    def __watch(self, closing: threading.Event) -> None:
        """Look for lost slaves until the master is closed."""
        while not closing.wait(self.__check_span_s):
            for connection in list(self.__connections.values()):
                connection.check()

    def __drop_all(self) -> None:
        for connection in list(self.__connections.values()):
            connection.drop("the master was closed")

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
        """Handle the loss of a slave; called in a thread of its own."""
