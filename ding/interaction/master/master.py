"""The master: what gives tasks to slaves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ding.interaction.config import DEFAULT_MASTER_PORT
from ding.interaction.master.connection import SlaveConnection
from ding.interaction.master.service import MasterService
from ding.interaction.server.credentials import RunToken
from ding.interaction.server.service import Role

if TYPE_CHECKING:
    import requests

    from ding.utils.page import Page


class Master(Role):
    """Connects to slaves, and gives them tasks.

    A slave that is silent for too long counts as lost: its connection ends and its tasks fail. Subclasses may override
    the hooks, whose names begin with `_before_`, `_after_`, `_error_` and `_lost_`.

    Args:
        host: what to listen at; None and `auto` mean this machine only (127.0.0.1). Any other needs a token: see
            `ding.interaction.server.credentials`.
        port: 7235 by default; 0 for any that is free, which `port` tells after `start`.
        heartbeat_tolerance: seconds of silence after which a slave is lost (17.0 by default, at least 0.2).
        heartbeat_check_span: seconds between looking for silent slaves (1.0 by default, at least 0.1).
        request_retries: how often a request is tried again after a transport error (5 by default).
        request_retry_waiting: seconds between tries (1.0 by default).
        channel: the channel of the slaves it talks to (0 by default).
        my_address: the URL, possibly with a path, at which slaves reach the master; made from the host (or, where that
            is all interfaces, the address of this machine) and the port by default.
        body_limit: the largest body of a request in bytes (64 MiB by default).
        allowed_hosts: hosts besides those of this machine and of `my_address` that requests to the master may name:
            `name`, `name:port` or `.domain`. By default those that the environment variable `DING_HOSTS` lists,
            separated by commas.
        run_token: the token of the run, which both sides sign with; None for that of the environment, if there is one.

    Raises:
        ValueError: `my_address` is no plain URL.

    Example: see `ding.interaction.Slave`.
    """

    _interaction: MasterService

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
        super().__init__(
            MasterService(
                self,
                heartbeat_tolerance,
                heartbeat_check_span,
                my_address,
                host,
                DEFAULT_MASTER_PORT if port is None else port,
                channel=channel,
                request_retries=request_retries,
                request_retry_waiting=request_retry_waiting,
                body_limit=body_limit,
                allowed_hosts=allowed_hosts,
                run_token=run_token,
            )
        )

    @property
    def my_address(self) -> str:
        """The URL at which slaves reach the master; its port is known from `start` on."""
        return self._interaction.my_address

    def new_connection(self, name: str, host: str, port: int | None = None, https: bool = False) -> SlaveConnection:
        """A connection, not connected yet, to the slave at `host` and `port` (7236 by default).

        Raises:
            KeyError: the name belongs to an active connection.
            ValueError: the port is none.
        """
        return self._interaction.new_connection(name, host, port, https)

    def serve_page(self, path: str, page: Page) -> None:
        """Answer GET requests at `path`, too. They pass the same checks as all requests, see `Page`.

        Raises:
            RuntimeError: it was started or closed before.
            ValueError: the path is none, or something is served there.
        """
        self._interaction.serve_page(path, page)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._interaction.table.get(name) is not None

    def __getitem__(self, name: str) -> SlaveConnection:
        session = self._interaction.table.get(name)
        if session is None:
            raise KeyError(name)
        return session.connection

    def __delitem__(self, name: str) -> None:
        self[name].disconnect()

    def _before_connect(self) -> Any:
        """Called before a slave is asked to connect; what it returns is handed to the slave's `_before_connection`."""
        return {}

    def _after_connect(self, status: int, success: bool, code: int, message: str, data: Any) -> Any:
        """Called with the reply of the slave; its value is that of `connect`. If it raises, the slave is let go."""

    def _error_connect(self, err: requests.RequestException) -> Any:
        """Called when the slave cannot be reached; its value, if it does not raise, is that of `connect`."""
        raise err

    def _before_disconnect(self) -> Any:
        """Called before a slave is disconnected; what it returns is handed to the slave's `_before_disconnection`."""
        return {}

    def _after_disconnect(self, status: int, success: bool, code: int, message: str, data: Any) -> Any:
        """Called with the reply of the slave; its value is that of `disconnect`."""

    def _error_disconnect(self, err: requests.RequestException) -> Any:
        """Called when the slave cannot be reached; its value, if it does not raise, is that of `disconnect`."""
        raise err

    def _before_new_task(self, data: Any) -> Any:
        """Called with the data of a task that starts; what it returns is sent to the slave."""
        return data

    def _after_new_task(self, status: int, success: bool, code: int, message: str, data: Any) -> Any:
        """Called with the reply of the slave to a new task."""

    def _error_new_task(self, err: requests.RequestException) -> Any:
        """Called when the slave of a task that starts cannot be reached."""
        raise err

    def _lost_connection(self, name: str, reason: str) -> None:
        """Called in the result thread when a slave was lost, after its tasks have failed."""
