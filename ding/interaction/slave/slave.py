"""The slave, which runs the tasks of a master."""

from __future__ import annotations

import logging
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ding.interaction.base.app import Codes, ProtocolError
from ding.interaction.base.common import in_session, number_or
from ding.interaction.config import DEFAULT_HEARTBEAT_SPAN, DEFAULT_SLAVE_PORT, MIN_HEARTBEAT_SPAN
from ding.interaction.exception.base import SlaveErrorCode
from ding.interaction.server.access import HostList, RunToken, may_report_to, parse_address, same_secret
from ding.interaction.server.role import Parts, Role
from ding.interaction.server.routes import (
    SMALL_BODY,
    Route,
    Routes,
    check_channel,
    field,
    header_token,
    read_body,
    request_id,
    uuid_field,
)
from ding.interaction.slave.link import Heartbeat, Link, MasterSession, Order, TaskRunner

if TYPE_CHECKING:
    from flask import Request

_BAD_BODY = 1
_CODES = Codes(
    shutting_down=SlaveErrorCode.SYSTEM_SHUTTING_DOWN,
    channel_missing=SlaveErrorCode.CHANNEL_NOT_FOUND,
    channel_wrong=SlaveErrorCode.CHANNEL_INVALID,
    self_token_missing=SlaveErrorCode.SELF_TOKEN_NOT_FOUND,
    self_token_wrong=SlaveErrorCode.SELF_TOKEN_INVALID,
)


class Slave(Role):
    """Waits for one master at a time, and runs its tasks, one at a time, by `_process_task`.

    Subclasses implement `_process_task`, and may override `_before_connection`, `_before_disconnection` and
    `_before_task`, which run while the master waits for its reply, and `_lost_connection`.

    Args:
        host: the address to listen at; None and `auto` mean this machine only (127.0.0.1). Others need a token: see
            `ding.interaction.server.access`.
        port: 7236 by default; 0 for any free port, which the property `port` returns after `start`.
        heartbeat_span: seconds between heartbeats (3.0 by default, at least 0.2).
        request_retries: how often a heartbeat is retried after a transport error (5 by default).
        request_retry_waiting: seconds between tries (1.0 by default).
        channel: the channel of its masters (0 by default).
        body_limit: the largest body of a request in bytes (64 MiB by default).
        allowed_hosts: further hosts, besides this machine and the address of the master, that requests to the slave may
            name and that it may report to: `name`, `name:port` or `.domain`. By default those that the
            environment variable `DING_HOSTS` lists, separated by commas.
        run_token: the token of the run, with which both sides sign; None for that of the environment, if it has one.

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
        from ding.interaction.server.client import Peers

        self.__peers = Peers("master", channel, request_retries, request_retry_waiting, run_token)
        self.__hosts = HostList(allowed_hosts)
        self.__turn = threading.Lock()  # one of `/connect`, `/disconnect` and `/task/new` at a time
        self.__last_disconnection = ("", "")  # token and id of the request
        self.__link = Link()
        self.__runner = TaskRunner(self.__link, self, self.__peers.retry_waiting_s, self.__lose)
        span_s = number_or(DEFAULT_HEARTBEAT_SPAN, "heartbeat_span", heartbeat_span, MIN_HEARTBEAT_SPAN)
        self.__heartbeat = Heartbeat(self.__link, span_s, self.__lose)
        parts = Parts(
            "slave",
            _CODES,
            self.__routes(),
            {"heartbeat": self.__heartbeat.run, "task": self.__runner.run},
            on_start=lambda: None,
            on_shutdown=self.__wake,
            advertised=lambda: None,
        )
        port = DEFAULT_SLAVE_PORT if port is None else port
        super().__init__(parts, self.__peers, host, port, body_limit, self.__hosts)

    @abstractmethod
    def _process_task(self, task: Any) -> Any:
        """Run a task and return its result, a JSON value; a falsy one reaches the master as `{}`.

        Runs in the task thread. Any exception fails the task: `TaskFail` with its own result, any other with its text
        as `message`, the name of its type as `exception`, and its `traceback`.
        """

    def _before_connection(self, data: Any) -> None:
        """Called with the value of the master's `_before_connect`. `ConnectionRefuse` refuses the connection."""

    def _before_disconnection(self, data: Any) -> None:
        """Called with the value of the master's `_before_disconnect`. `DisconnectionRefuse` refuses to disconnect."""

    def _before_task(self, data: Any) -> None:
        """Called with the data of a new task. `TaskRefuse` refuses it."""

    def _lost_connection(self, master_address: str, err: Exception) -> None:
        """Called after the master was lost. The slave can be connected again by then.

        `err` is a `requests.RequestException` if the master cannot be reached, and a `MasterResponseException` if it
        does not know this slave any more.
        """

    def __routes(self) -> Routes:
        """Return what the slave serves to its master."""
        return {
            "/connect": {"POST": Route(self.__token, self.__connect, body_limit=SMALL_BODY, is_open=True)},
            "/disconnect": {"DELETE": Route(self.__session_to_end, self.__disconnect)},
            "/task/new": {"POST": Route(self.__session, self.__new_task)},
        }

    def __token(self, request: Request) -> str:
        check_channel(request, self.__peers.channel, _CODES)
        return header_token(request, SlaveErrorCode.MASTER_TOKEN_NOT_FOUND)

    def __session(self, request: Request) -> MasterSession:
        found = self.__link.matches(self.__token(request))
        if found is None:
            raise ProtocolError(403, SlaveErrorCode.MASTER_TOKEN_INVALID, "The token is not that of the master.")
        return found

    def __session_to_end(self, request: Request) -> MasterSession | None:
        """Return the session; None if the same request has ended it before."""
        last_token, last_id = self.__last_disconnection
        if last_id and request_id(request) == last_id and same_secret(self.__token(request), last_token):
            return None
        return self.__session(request)

    def __connect(self, token: str, request: Request, body: bytes) -> None:
        values = read_body(body, _BAD_BODY)
        address = field(values, "master.address", str, _BAD_BODY)
        data = field(values, "data", object, _BAD_BODY)
        with self.__turn:
            session = self.__link.session
            if session is not None:
                if session.request_id and session.request_id == request_id(request) and self.__link.matches(token):
                    return  # the same request has arrived before
                raise ProtocolError(400, SlaveErrorCode.SLAVE_ALREADY_CONNECTED, "The slave has a master.")
            parts = self.__check_address(address, str(request.remote_addr))
            _call(self._before_connection, data)
            engine = self.__peers.engine(parts, token)
            self.__link.open(MasterSession(token, address, engine, request_id(request)))

    def __disconnect(self, session: MasterSession | None, request: Request, body: bytes) -> None:
        if session is None:
            return
        data = field(read_body(body, _BAD_BODY), "data", object, _BAD_BODY)
        with self.__turn:
            _check_is_current(session)
            with in_session(session.number):
                _call(self._before_disconnection, data)
            self.__link.end(session)
            self.__last_disconnection = (session.token, request_id(request))

    def __new_task(self, session: MasterSession, request: Request, body: bytes) -> None:
        values = read_body(body, _BAD_BODY)
        task_id = uuid_field(values, "task.id", _BAD_BODY)
        data = field(values, "data", object, _BAD_BODY)
        with self.__turn:
            _check_is_current(session)
            if task_id in session.tasks:
                return  # the same task has arrived before
            if self.__link.order is not None:
                raise ProtocolError(400, SlaveErrorCode.TASK_ALREADY_EXIST, "The slave has a task.")
            _call(self._before_task, data)
            order = Order(session, task_id, data)
            self.__link.take(order)
            self.__runner.put(order)

    def __check_address(self, address: str, peer: str) -> tuple[str, int, bool, str]:
        try:
            parts = parse_address(address)
        except ValueError as error:
            raise ProtocolError(400, 1, f"The address of the master is not usable: {error}") from None
        if not may_report_to(parts[0], parts[1], peer, self.__hosts):
            raise ProtocolError(
                403,
                SlaveErrorCode.SLAVE_CONNECTION_REFUSED,
                f"The slave was called from {peer} and does not report to {parts[0]}, which is another machine; "
                "DING_HOSTS of the slave lists hosts that it may report to.",
            )
        return parts

    def __lose(self, session: MasterSession, error: Exception) -> None:
        """Give up a session that does not work any more."""
        if not self.__link.end(session):
            return
        log = logging.getLogger("ding.interaction")
        log.warning("the slave at port %d has lost its master at %s: %s", self.port, session.address, error)
        try:
            with in_session(session.number):
                self._lost_connection(session.address, error)
        except BaseException:  # it must not end the thread that noticed the loss
            log.exception("_lost_connection has failed")

    def __wake(self) -> None:
        self.__runner.stop()
        self.__link.wake()


def _call(hook: Callable[[Any], Any], data: Any) -> None:
    try:
        hook(data)
    except Exception:
        raise
    except BaseException as error:  # SystemExit too: it must not end the thread without an answer
        raise RuntimeError(f"{type(error).__name__}: {error}") from error


def _check_is_current(session: MasterSession) -> None:
    """Refuse a request whose session another request has ended meanwhile."""
    if session.ended.is_set():
        raise ProtocolError(403, SlaveErrorCode.MASTER_TOKEN_INVALID, "The token is not that of the master any more.")
