"""The slave, which runs the tasks of a master and answers with their results."""

from __future__ import annotations

import logging
import queue
import threading
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ding.interaction.access import RunToken, same_secret
from ding.interaction.base import ResponsibleException, envelope, number_or, success_response
from ding.interaction.exception import ConnectionRefuse as ConnectionRefuse
from ding.interaction.exception import DisconnectionRefuse as DisconnectionRefuse
from ding.interaction.exception import SlaveErrorCode, TaskFail, failure_for, failure_of
from ding.interaction.exception import TaskRefuse as TaskRefuse
from ding.interaction.http_client import (
    BINARY,
    DEFAULT_BODY_LIMIT,
    DEFAULT_HEARTBEAT_SPAN,
    DEFAULT_SLAVE_PORT,
    HEARTBEAT_HEADER,
    MIN_HEARTBEAT_SPAN,
)
from ding.interaction.role import GRACE_S, Role, request_token

if TYPE_CHECKING:
    import uuid

    import flask

__path__: list[str] = []  # the modules below it that DI-engine has are aliases
# After so many spans without a request of the master, it is lost.
_MISSED_SPANS = 5
_log = logging.getLogger("ding.interaction")


class _Session:
    """One session with a master, from `/connect` until it ends; a later one is another object.

    Attributes:
        task_ids: the ids of the last accepted tasks.
        seen_at: when the master has sent the last request, by `time.monotonic`.
    """

    def __init__(self, token: str, address: str) -> None:
        self.token, self.address = token, address
        self.task_ids: deque[str] = deque(maxlen=100)
        self.seen_at = time.monotonic()


class _Task:
    """An accepted task, and the reply with its result once it has ended."""

    def __init__(self, session: _Session, task_id: str, data: Any) -> None:
        self.session, self.task_id, self.data = session, task_id, data
        self.reply: bytes | None = None


class _Current:
    """The current session of a slave, if any, and its last task. This class is thread-safe.

    Attributes:
        session: the current session.
        task: the last task, whose reply is kept until the next task, as it may get lost on the way.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.session: _Session | None = None
        self.task: _Task | None = None
        self._last_poll = 0

    @property
    def is_busy(self) -> bool:
        """Whether a task waits or runs."""
        return self.task is not None and self.task.reply is None

    def change(self, **attributes: Any) -> None:
        """Set attributes, and wake waiting threads."""
        with self._changed:
            vars(self).update(attributes)
            self._changed.notify_all()

    def end(self, session: _Session) -> bool:
        """End `session`; return False if it was not the current one."""
        with self._changed:
            if self.session is not session:
                return False
            self.session = None
            self._changed.notify_all()
            return True

    def settle(self, task: _Task, reply: bytes) -> None:
        """Set the reply to a task, unless it has one."""
        with self._changed:
            if task.reply is None:
                task.reply = reply
                self._changed.notify_all()

    def wait_for(self, predicate: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until `predicate` is true; it is evaluated after each change."""
        with self._changed:
            return self._changed.wait_for(predicate, timeout_s)

    def poll(self, task: _Task, timeout_s: float) -> bytes | None:
        """Wait for the reply to a task; None after `timeout_s`, at the end of the session, or at the next poll.

        So the polls that a master abandons hold one thread at most.
        """
        with self._changed:
            self._last_poll = number = self._last_poll + 1
            self._changed.notify_all()

            def is_over() -> bool:
                return task.reply is not None or self._last_poll != number or self.session is not task.session

            self._changed.wait_for(is_over, timeout_s)
            return task.reply


class Slave(Role):
    """A slave, which waits for one master at a time, and runs its tasks, one at a time, by `_process_task`.

    Subclasses implement `_process_task`, and may override `_before_connection`, `_before_disconnection` and
    `_before_task`, which run while the master waits for its reply, and `_lost_connection`.

    Args:
        host: the address to listen at; None and `auto` mean this machine only (127.0.0.1). Other addresses need a
            token: see `ding.interaction.access`.
        port: the port, 7236 by default; 0 for any free one, which the property `port` returns after `start`.
        heartbeat_span: the longest time in seconds that the master may send nothing (3.0 by default, at least 0.2);
            after five such spans it is lost.
        request_retries: how often a request of the slave to itself is retried after a transport error (5 by default).
        request_retry_waiting: seconds between tries (1.0 by default).
        channel: the channel (0 by default), which must be that of its masters.
        run_token: the token of the run, which masters must send; None for the token of the environment, if any.

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
        run_token: RunToken | None = None,
    ) -> None:
        self.__span_s = number_or(DEFAULT_HEARTBEAT_SPAN, "heartbeat_span", heartbeat_span, MIN_HEARTBEAT_SPAN)
        self.__turn = threading.Lock()  # only one of `/connect`, `/disconnect` and a new task runs at a time
        self.__last_token: str | None = None  # of the last session that was disconnected
        self.__current = _Current()
        self.__tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        super().__init__(
            "slave",
            [
                ("POST", "/connect", self.__connect),
                ("DELETE", "/disconnect", self.__disconnect),
                ("PUT", "/tasks/<uuid:task_id>", self.__task),
                ("GET", "/heartbeat", lambda: self.__session() and None),
            ],
            {"heartbeat": self.__watch, "task": self.__work},
            lambda: self.__tasks.put(None),
            host=host,
            port=DEFAULT_SLAVE_PORT if port is None else port,
            channel=channel,
            request_retries=request_retries,
            request_retry_waiting=request_retry_waiting,
            run_token=run_token,
        )

    @abstractmethod
    def _process_task(self, task: Any) -> Any:
        """Run a task and return its result; a falsy one reaches the master as `{}`.

        Both consist of what `ding.utils.msgpack_helper.pack` accepts.

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
        """Handle the loss of the master, which has sent nothing for too long; the slave can be connected again."""

    def __connect(self) -> flask.Response:
        token = self.__request_token()
        body = _body("master", "data")
        address = body["master"].get("address") if isinstance(body["master"], dict) else None
        if not isinstance(address, str):
            raise ResponsibleException(1, "The body has no address of the master.")
        with self.__turn:
            session = self.__current.session
            if session is None:
                self._before_connection(body["data"])
                self.__current.change(session=_Session(token, address))
            elif not same_secret(token, session.token):  # otherwise the same request has arrived before
                raise ResponsibleException(SlaveErrorCode.SLAVE_ALREADY_CONNECTED, "The slave has a master.")
        reply = success_response()
        reply.headers[HEARTBEAT_HEADER] = f"{self.__span_s:g}"
        return reply

    def __disconnect(self) -> None:
        if self.__last_token is not None and same_secret(self.__request_token(), self.__last_token):
            return  # the same request has arrived before
        session = self.__session()
        data = _body("data")["data"]
        with self.__turn:
            self.__check_is_current(session)
            self._before_disconnection(data)
            self.__last_token = session.token
            self.__current.end(session)

    def __task(self, task_id: uuid.UUID) -> flask.Response:
        """Accept a task, unless it was accepted before, and answer with its result, or that it still runs."""
        from flask import Response, request

        from ding.utils.msgpack_helper import pack  # here: it imports numpy

        session, current, key = self.__session(), self.__current, str(task_id)
        with self.__turn:
            self.__check_is_current(session)
            if key not in session.task_ids:
                data = _body("data")["data"]
                if current.is_busy:
                    raise ResponsibleException(SlaveErrorCode.TASK_ALREADY_EXIST, "The slave has a task.")
                self._before_task(data)
                session.task_ids.append(key)
                current.change(task=_Task(session, key, data))
                self.__tasks.put(current.task)
            task = current.task
        if task is None or task.task_id != key:
            raise ResponsibleException(1, "The slave has a later task.")
        wait_s = request.args.get("wait", 0.0, type=float)
        reply = current.poll(task, min(self.__span_s, wait_s))
        self.__check_is_current(session)
        return Response(reply or pack(envelope(True, {"status": "running"})), mimetype=BINARY)

    def __request_token(self) -> str:
        """Return the token of the request, whose channel is checked first."""
        from flask import request

        channel = request.headers.get("Channel")
        if not channel:
            raise ResponsibleException(SlaveErrorCode.CHANNEL_NOT_FOUND, "The request has no channel.")
        if channel != str(self.channel):
            status = 403 if channel.lstrip("-").isdecimal() else 400
            text = "The channel is another one."
            raise ResponsibleException(SlaveErrorCode.CHANNEL_INVALID, text, status_code=status)
        return request_token(SlaveErrorCode.MASTER_TOKEN_NOT_FOUND)

    def __session(self) -> _Session:
        """Return the session of the request."""
        token, session = self.__request_token(), self.__current.session
        if session is None or not same_secret(token, session.token):
            raise _not_the_master()
        session.seen_at = time.monotonic()
        return session

    def __check_is_current(self, session: _Session) -> None:
        if self.__current.session is not session:
            raise _not_the_master()

    def __work(self, closing: threading.Event) -> None:
        """Run tasks, one after the other, until None is in the queue."""
        while (task := self.__tasks.get()) is not None:
            self.__current.settle(task, self.__run(task, closing))
            del task  # do not keep it alive while waiting for the next task

    def __run(self, task: _Task, closing: threading.Event) -> bytes:
        """Run a task and return the reply with its result."""
        if closing.is_set() or self.__current.session is not task.session:
            return _failed(failure_for("the slave was closed before it ran the task", "SlaveClosed"))
        try:
            result = self._process_task(task.data)
        except TaskFail as error:
            return _failed(error.result)
        except BaseException as error:  # SystemExit too: nothing that a task raises may end the thread
            _log.warning("a task has failed", exc_info=error)
            return _failed(failure_of(error))
        return _ended("completed", result or {})

    def __watch(self, closing: threading.Event) -> None:
        """End the session of a master that is silent for too long; at the end, do not leave it without a result."""
        from requests import ReadTimeout

        current = self.__current
        while not closing.wait(self.__span_s):
            session = current.session
            if session is None:
                continue
            silence_s = time.monotonic() - session.seen_at
            if silence_s > _MISSED_SPANS * self.__span_s:
                self.__lose(session, ReadTimeout(f"there was no request of the master for {silence_s:.1f} s"))
        current.wait_for(lambda: not current.is_busy, GRACE_S / 2)
        if current.task is not None:
            closed = failure_for("the slave was closed while it ran the task", "SlaveClosed")
            current.settle(current.task, _failed(closed))

    def __lose(self, session: _Session, error: Exception) -> None:
        """End a session whose master is lost; another master is not connected before the hook has returned."""
        with self.__turn:
            if not self.__current.end(session):
                return
            _log.warning("the slave at port %d has lost its master at %s: %s", self.port, session.address, error)
            try:
                self._lost_connection(session.address, error)
            except BaseException:  # it must not end the thread that noticed the loss
                _log.exception("_lost_connection has failed")


def _not_the_master() -> ResponsibleException:
    text = "The token is not that of the master."
    return ResponsibleException(SlaveErrorCode.MASTER_TOKEN_INVALID, text, status_code=403)


def _body(*keys: str) -> dict[str, Any]:
    """Return the dict in the body of the request; refuse another body (400), or one without one of `keys`."""
    from flask import request

    from ding.utils.msgpack_helper import unpack

    try:
        body: dict[str, Any] = unpack(request.get_data())
    except ValueError:
        raise ResponsibleException(1, "The body is not msgpack, or too deeply nested.") from None
    missing = keys if not isinstance(body, dict) else [key for key in keys if key not in body]
    if missing:
        raise ResponsibleException(1, f"The body has no {missing[0]}.")
    return body


def _ended(status: str, result: Any) -> bytes:
    """Return the reply for a task that has ended with this result."""
    from ding.utils.msgpack_helper import pack

    try:
        reply = pack(envelope(True, {"status": status, "result": result}))
    except (TypeError, ValueError) as error:
        return _failed(failure_for(f"the result cannot be sent: {error}", type(error).__name__))
    if len(reply) > DEFAULT_BODY_LIMIT:
        return _failed(failure_for(f"the result has more than {DEFAULT_BODY_LIMIT} bytes", "ResultTooLarge"))
    return reply


def _failed(result: Any) -> bytes:
    return _ended("failed", result)
