"""The slave, which runs the tasks of a master: its session, its task, and the threads that report to the master."""

from __future__ import annotations

import itertools
import logging
import math
import queue
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from ding.interaction.base import Codes, ProtocolError, RecentIds, in_session, number_or
from ding.interaction.exception import ConnectionRefuse as ConnectionRefuse
from ding.interaction.exception import DisconnectionRefuse as DisconnectionRefuse
from ding.interaction.exception import (
    MasterTaskDataInvalid,
    ResponseException,
    SlaveErrorCode,
    TaskFail,
    failure_for,
    failure_of,
)
from ding.interaction.exception import TaskRefuse as TaskRefuse
from ding.interaction.http_client import DEFAULT_HEARTBEAT_SPAN, DEFAULT_SLAVE_PORT, MIN_HEARTBEAT_SPAN, may_pass
from ding.interaction.server.access import HostList, RunToken, may_report_to, parse_address, same_secret
from ding.interaction.server.app import (
    SMALL_BODY,
    Head,
    Route,
    Routes,
    check_channel,
    field,
    header_token,
    read_body,
    request_id,
    uuid_field,
)
from ding.interaction.server.role import GRACE_S, Parts, Role

if TYPE_CHECKING:
    from ding.interaction.http_client import Limits
    from ding.interaction.server.client import PeerEngine

__path__: list[str] = []  # the modules below it that DI-engine has are aliases
_MOST_BEAT_TIMEOUT_S = 10.0
_DELIVERY_DEADLINE_S = 30.0  # how long the delivery of a result is retried
_FIRST_WAIT_S = 0.05  # the first wait between two tries; it doubles each time
_REPORT_TIMEOUT_S = (5.0, 10.0)
_LAST_REPORT_TIMEOUT_S = (1.0, 1.0)
_numbers = itertools.count(1)
_log = logging.getLogger("ding.interaction")


class MasterSession:
    """One session with a master, from `/connect` until it ends; a later one is another object.

    Args:
        token: the token that both sides send.
        address: the address at which the master listens.
        engine: the client for requests to the master.
        request_id: the id of the request that connected, which may arrive twice.

    Attributes:
        number: see `session_number`.
        tasks: the ids of the accepted tasks.
        proved_at: when the last request that the master has acknowledged was sent, by `time.monotonic`.
        ended: set when the session has ended.
    """

    def __init__(self, token: str, address: str, engine: PeerEngine, request_id: str) -> None:
        self.number = next(_numbers)
        self.token = token
        self.address = address
        self.engine = engine
        self.request_id = request_id
        self.tasks = RecentIds()
        self.proved_at = time.monotonic()
        self.ended = threading.Event()

    def send(self, method: str, path: str, body: Any, timeout: Limits, most_retries: float = math.inf) -> None:
        """Send a request to the master, which takes it as a sign of life."""
        began = time.monotonic()
        self.engine.request(method, path, body, timeout=timeout, most_retries=most_retries)
        self.proved_at = began

    def end(self) -> None:
        """End the session, and let threads that wait to retry a request give up."""
        self.ended.set()
        self.engine.close()


class Order(NamedTuple):
    """An accepted task."""

    session: MasterSession
    task_id: str
    data: Any

    def report(self, kind: str, result: Any, timeout: Limits) -> None:
        """Send the result of the task to the master: `kind` is `complete` or `fail`."""
        body = {"task": {"id": self.task_id}, "result": result}
        self.session.send("PUT", f"slave/task/{kind}", body, timeout, most_retries=0)


class Link:
    """The current session of a slave, if any, and the task that it runs. This class is thread-safe.

    Attributes:
        session: the current session.
        order: the task that waits or runs.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.session: MasterSession | None = None
        self.order: Order | None = None
        self._is_reporting = False

    @property
    def is_idle(self) -> bool:
        """Whether there is neither a task nor a result to report."""
        return self.order is None and not self._is_reporting

    def matches(self, token: str) -> MasterSession | None:
        """Return the current session if `token` is its token."""
        session = self.session
        return session if session is not None and same_secret(token, session.token) else None

    def open(self, session: MasterSession) -> None:
        """Make `session` the current one."""
        with self._changed:
            self.session = session
            self._changed.notify_all()

    def end(self, session: MasterSession) -> bool:
        """End `session`; return False if it was not the current one."""
        with self._changed:
            if self.session is not session:
                return False
            self.session = None
            self._changed.notify_all()
        session.end()
        return True

    def take(self, order: Order) -> None:
        """Make `order` the current task."""
        with self._changed:
            self.order = order
            order.session.tasks.add(order.task_id)

    def release(self, order: Order) -> bool:
        """Free the slave before the result of `order` is reported; return False if another thread reports it."""
        with self._changed:
            if self.order is not order:
                return False
            self.order = None
            self._is_reporting = True
            self._changed.notify_all()
            return True

    def reported(self) -> None:
        """Note that the report that `release` began has ended."""
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
    """The runner of tasks, one after the other, which also delivers their results.

    A result is delivered when the master has acknowledged it; until then it is sent again while the session lasts.
    After a deadline the session is given up: the master, which would wait for the result for ever, then notices that
    the slave is silent.

    Args:
        link: the link of the slave.
        process: runs a task and returns its result.
        longest_wait_s: the longest wait in seconds between two tries to deliver a result.
        lose: called with a session that has failed and the error.
    """

    def __init__(
        self,
        link: Link,
        process: Callable[[Any], Any],
        longest_wait_s: float,
        lose: Callable[[MasterSession, Exception], None],
    ) -> None:
        self._link = link
        self._process = process
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
        """Run tasks until `stop`, as the body of a thread; after `closing` is set they fail."""
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
                return "complete", self._process(order.data) or {}
        except TaskFail as error:
            return "fail", error.result
        except BaseException as error:  # SystemExit too: nothing that a task raises may end the thread
            _log.warning("a task has failed", exc_info=error)
            return "fail", failure_of(error)

    def _deliver(self, order: Order, kind: str, result: Any) -> None:
        try:
            try:
                self._send(order, kind, result)
            except (TypeError, ValueError, RecursionError) as error:  # errors of the JSON encoder
                message = f"the result has no JSON form: {error}"
                self._send(order, "fail", failure_for(message, type(error).__name__))
            except ResponseException as error:
                if error.status_code != 413:
                    raise
                message = f"the result was not accepted by the master: {error}"
                self._send(order, "fail", failure_for(message, "ResultTooLarge"))
        except MasterTaskDataInvalid as error:
            _log.error("the master does not know the task whose result it gets: %s", error)
        except Exception as error:  # whatever it is, further tasks must still run
            self._lose(order.session, error)

    def _send(self, order: Order, kind: str, result: Any) -> None:
        """Send the result until it arrives or the session has ended.

        Raises:
            ResponseException: the master does not accept it.
            requests.RequestException: the result did not arrive in time.
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
    """The sender of heartbeats while there is a session, which also ends the session when the slave is closed.

    A heartbeat is sent `span_s` seconds after the last request that the master has acknowledged, often a result.

    Args:
        link: the link of the slave.
        span_s: the longest time in seconds without a sign of life.
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
        session.send("GET", "slave/heartbeat", None, (timeout_s, timeout_s))

    def _keep(self, session: MasterSession, closing: threading.Event) -> None:
        """Send heartbeats until the session ends."""
        link = self._link

        def is_over() -> bool:
            return closing.is_set() or link.session is not session

        while True:
            wait_s = session.proved_at + self.span_s - time.monotonic()
            if link.wait_for(is_over, max(0.0, wait_s)):
                return
            if wait_s > 0:  # a result may have been acknowledged meanwhile
                continue
            try:
                self.beat(session)
            except Exception as error:  # whatever it is, a slave without heartbeats must not seem connected
                if not is_over():
                    self._lose(session, error)
                return

    def _end(self) -> None:
        """Give a running task a moment to end, or else report its failure; then end the session."""
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


_BAD_BODY = 1
_CODES = Codes(
    shutting_down=SlaveErrorCode.SYSTEM_SHUTTING_DOWN,
    channel_missing=SlaveErrorCode.CHANNEL_NOT_FOUND,
    channel_wrong=SlaveErrorCode.CHANNEL_INVALID,
    self_token_missing=SlaveErrorCode.SELF_TOKEN_NOT_FOUND,
    self_token_wrong=SlaveErrorCode.SELF_TOKEN_INVALID,
)


class Slave(Role):
    """A slave, which waits for one master at a time, and runs its tasks, one at a time, by `_process_task`.

    Subclasses implement `_process_task`, and may override `_before_connection`, `_before_disconnection` and
    `_before_task`, which run while the master waits for its reply, and `_lost_connection`.

    Args:
        host: the address to listen at; None and `auto` mean this machine only (127.0.0.1). Other addresses need a
            token: see `ding.interaction.server.access`.
        port: the port, 7236 by default; 0 for any free one, which the property `port` returns after `start`.
        heartbeat_span: the longest time in seconds without a result or heartbeat (3.0 by default, at least 0.2).
        request_retries: how often a heartbeat is retried after a transport error (5 by default).
        request_retry_waiting: seconds between tries (1.0 by default).
        channel: the channel (0 by default), which must be that of its masters.
        body_limit: the largest body of a request in bytes (64 MiB by default).
        allowed_hosts: further hosts, besides this machine and the address of the master, that requests to the slave may
            name and to which it may report, as `name`, `name:port` or `.domain`. The default is the list in the
            environment variable `DING_HOSTS`, separated by commas.
        run_token: the token of the run, with which both sides sign; None for the token of the environment, if any.

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
        self.__turn = threading.Lock()  # only one of `/connect`, `/disconnect` and `/task/new` runs at a time
        self.__last_disconnection = ("", "")  # token and id of the request
        self.__link = Link()
        self.__runner = TaskRunner(
            self.__link, lambda task: self._process_task(task), self.__peers.retry_waiting_s, self.__lose
        )
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

        It is called in the task thread. Any exception fails the task: `TaskFail` with its own result, any other with
        its text as `message`, the name of its type as `exception`, and its `traceback`.
        """

    def _before_connection(self, data: Any) -> None:
        """Accept a connection, or raise `ConnectionRefuse`; `data` is the value of the master's `_before_connect`."""

    def _before_disconnection(self, data: Any) -> None:
        """Accept the disconnection, or raise `DisconnectionRefuse`; `data` is the value of `_before_disconnect`."""

    def _before_task(self, data: Any) -> None:
        """Accept a new task with this data, or raise `TaskRefuse`."""

    def _lost_connection(self, master_address: str, err: Exception) -> None:
        """Handle the loss of the master; the slave can be connected again by then.

        `err` is a `requests.RequestException` if the master cannot be reached, and a `MasterResponseException` if it
        no longer knows this slave.
        """

    def __routes(self) -> Routes:
        """Return the routes that the slave serves to its master."""
        return {
            "/connect": {"POST": Route(self.__token, self.__connect, body_limit=SMALL_BODY, is_open=True)},
            "/disconnect": {"DELETE": Route(self.__session_to_end, self.__disconnect)},
            "/task/new": {"POST": Route(self.__session, self.__new_task)},
        }

    def __token(self, head: Head) -> str:
        check_channel(head, self.__peers.channel, _CODES)
        return header_token(head, SlaveErrorCode.MASTER_TOKEN_NOT_FOUND)

    def __session(self, head: Head) -> MasterSession:
        found = self.__link.matches(self.__token(head))
        if found is None:
            raise ProtocolError(403, SlaveErrorCode.MASTER_TOKEN_INVALID, "The token is not that of the master.")
        return found

    def __session_to_end(self, head: Head) -> MasterSession | None:
        """Return the session to end; None if the same request has ended it before."""
        last_token, last_id = self.__last_disconnection
        if last_id and request_id(head) == last_id and same_secret(self.__token(head), last_token):
            return None
        return self.__session(head)

    def __connect(self, token: str, head: Head, body: bytes) -> None:
        values = read_body(body, _BAD_BODY)
        address = field(values, "master.address", str, _BAD_BODY)
        data = field(values, "data", object, _BAD_BODY)
        with self.__turn:
            session = self.__link.session
            if session is not None:
                if session.request_id and session.request_id == request_id(head) and self.__link.matches(token):
                    return  # the same request has arrived before
                raise ProtocolError(400, SlaveErrorCode.SLAVE_ALREADY_CONNECTED, "The slave has a master.")
            parts = self.__check_address(address, head.peer)
            _call(self._before_connection, data)
            engine = self.__peers.engine(parts, token)
            self.__link.open(MasterSession(token, address, engine, request_id(head)))

    def __disconnect(self, session: MasterSession | None, head: Head, body: bytes) -> None:
        if session is None:
            return
        data = field(read_body(body, _BAD_BODY), "data", object, _BAD_BODY)
        with self.__turn:
            _check_is_current(session)
            with in_session(session.number):
                _call(self._before_disconnection, data)
            self.__link.end(session)
            self.__last_disconnection = (session.token, request_id(head))

    def __new_task(self, session: MasterSession, head: Head, body: bytes) -> None:
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
        """Give up a session that no longer works."""
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
