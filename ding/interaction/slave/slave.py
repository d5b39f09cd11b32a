"""The slave: what a worker process offers to its master."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

from ding.interaction.config import DEFAULT_SLAVE_PORT
from ding.interaction.server.credentials import RunToken
from ding.interaction.server.service import Role
from ding.interaction.slave.service import SlaveService


class Slave(Role):
    """Waits for one master at a time, and runs its tasks, one at a time, by `_process_task`.

    Subclasses implement `_process_task`, and may override `_before_connection`, `_before_disconnection` and
    `_before_task`, which run while the master waits for its reply, and `_lost_connection`.

    Args:
        host: what to listen at; None and `auto` mean this machine only (127.0.0.1). Any other needs a token: see
            `ding.interaction.server.credentials`.
        port: 7236 by default; 0 for any that is free, which `port` tells after `start`.
        heartbeat_span: seconds between signs of life (3.0 by default, at least 0.2).
        request_retries: how often a sign of life is tried again after a transport error (5 by default).
        request_retry_waiting: seconds between tries (1.0 by default).
        channel: the channel of the masters it talks to (0 by default).
        body_limit: the largest body of a request in bytes (64 MiB by default).
        allowed_hosts: hosts besides this machine's and the master's own address that may stand in requests to the
            slave, and in the address that it reports to: `name`, `name:port` or `.domain`. By default those that the
            environment variable `DING_HOSTS` lists, separated by commas.
        run_token: the token of the run, which both sides sign with; None for that of the environment, if there is one.

    Example:
        >>> class Adder(Slave):
        ...     def _process_task(self, task):
        ...         return {"sum": task["a"] + task["b"]}
        >>> from ding.interaction import Master
        >>> with Adder(port=0) as slave, Master(port=0) as master:
        ...     with master.new_connection("adder", "127.0.0.1", slave.port) as connection:
        ...         connection.new_task({"a": 2, "b": 3}).start().join().result
        {'sum': 5}
    """

    _interaction: SlaveService

    def __init__(
        self,
        host: str | None = None,
        port: int | None = None,
        heartbeat_span: float | None = None,
        request_retries: int | None = None,
        request_retry_waiting: float | None = None,
        channel: int | None = None,
        *,
        body_limit: int | None = None,
        allowed_hosts: Iterable[str] | None = None,
        run_token: RunToken | None = None,
    ) -> None:
        super().__init__(
            SlaveService(
                self,
                heartbeat_span,
                host,
                DEFAULT_SLAVE_PORT if port is None else port,
                channel=channel,
                request_retries=request_retries,
                request_retry_waiting=request_retry_waiting,
                body_limit=body_limit,
                allowed_hosts=allowed_hosts,
                run_token=run_token,
            )
        )

    @abstractmethod
    def _process_task(self, task: Any) -> Any:
        """Run a task and return its result, which JSON can hold; a falsy one reaches the master as `{}`.

        Runs in the task thread. Any exception fails the task: `TaskFail` with the result it brings, any other with its
        text as `message`, the name of its type as `exception`, and its `traceback`.
        """

    def _before_connection(self, data: Any) -> None:
        """Called with what the master's `_before_connect` returned; `ConnectionRefuse` keeps it out."""

    def _before_disconnection(self, data: Any) -> None:
        """Called with what the master's `_before_disconnect` returned; `DisconnectionRefuse` keeps it connected."""

    def _before_task(self, data: Any) -> None:
        """Called with the data of a new task; `TaskRefuse` sends it back."""

    def _lost_connection(self, master_address: str, err: Exception) -> None:
        """Called when the master cannot be reached any more (`err` is a `requests.RequestException`), or does not know
        this slave any more (a `MasterResponseException`). The slave can be connected again by now."""
