"""The sessions of a master with its slaves, and the connection to one slave."""

from __future__ import annotations

import hashlib
import logging
import math
import threading
import time
import uuid
from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal

from ding.interaction.base import (
    ControllableContext,
    ProtocolError,
    RecentIds,
    get_values_from_response,
    random_token,
)
from ding.interaction.exception import MasterErrorCode, SlaveMasterTokenInvalid, SlaveSystemShuttingDown, failure_for
from ding.interaction.http_client import url_host
from ding.interaction.master.task import ResultThread, Task, TaskResultType

if TYPE_CHECKING:
    from ding.interaction.http_client import Limits
    from ding.interaction.server.client import PeerEngine, Peers, Reply


class SlaveSession:
    """One session with a slave, from just before `/connect` is sent until it ends. This class is thread-safe.

    A connection that is connected again begins another session.
    """

    def __init__(self, connection: SlaveConnection) -> None:
        self.connection = connection
        self.token = random_token()
        self.last_seen = time.monotonic()
        self._lock = threading.Lock()
        self._tasks: dict[str, Task] = {}
        self._settled = RecentIds()
        self._has_ended = False

    def add(self, task_id: str, task: Task) -> bool:
        """Register a task whose result is expected; return False if the session has ended."""
        with self._lock:
            if not self._has_ended:
                self._tasks[task_id] = task
            return not self._has_ended

    def take(self, task_id: str) -> Task | None:
        """Remove and return a task whose result has arrived or will never arrive; None if no such task is expected."""
        with self._lock:
            task = self._tasks.pop(task_id, None)
            if task is not None:
                self._settled.add(task_id)
            return task

    def has_settled(self, task_id: str) -> bool:
        """Return whether the task was registered and taken."""
        with self._lock:
            return task_id in self._settled

    def end(self) -> list[Task] | None:
        """End the session, and return its unfinished tasks, or None if it has ended before."""
        with self._lock:
            if self._has_ended:
                return None
            self._has_ended = True
            tasks = list(self._tasks.values())
            self._tasks.clear()
            return tasks


def _digest_of(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()


class SlaveTable:
    """The sessions of a master, by the names of their connections and by their tokens. This class is thread-safe.

    A token is valid before the slave receives it, because the first heartbeat may overtake the slave's reply; a name
    is in use as soon as the slave has replied.
    """

    def __init__(self) -> None:
        self.results = ResultThread()
        self._lock = threading.Lock()
        self._is_open = False
        self._active: dict[str, SlaveSession] = {}
        self._by_digest: dict[bytes, SlaveSession] = {}  # also those whose slave has not replied yet

    def open(self) -> None:
        """Admit sessions."""
        self._is_open = True

    def close(self) -> None:
        """Admit no more sessions, end all of them, and stop the result thread."""
        with self._lock:
            self._is_open = False
            sessions = [*self._by_digest.values()]
        for session in sessions:
            session.connection.drop(session, "the master was closed")
        self.results.stop()

    def reserve(self, session: SlaveSession) -> None:
        """Add a session whose slave is about to be asked.

        Raises:
            RuntimeError: the master does not run.
            KeyError: another connection has the name.
        """
        connection = session.connection
        with self._lock:
            self.check_is_open()
            others = (s.connection for s in self._by_digest.values() if s.connection is not connection)
            if any(other.name == connection.name for other in others):
                raise KeyError(connection.name)
            self._by_digest[_digest_of(session.token)] = session

    def activate(self, session: SlaveSession) -> None:
        """Mark a session as connected, unless it has ended.

        Raises:
            RuntimeError: the master was closed.
        """
        with self._lock:
            if self.matches(session.token) is session:
                session.last_seen = time.monotonic()
                self._active[session.connection.name] = session
            self.check_is_open()

    def end(self, session: SlaveSession, reason: str) -> bool:
        """Remove a session and fail its tasks; return False if it has ended before."""
        with self._lock:
            if self._active.get(session.connection.name) is session:
                del self._active[session.connection.name]
            self._by_digest.pop(_digest_of(session.token), None)
        tasks = session.end()
        message = f"the connection to the slave {session.connection.name!r} has ended: {reason}"
        for task in tasks or ():
            failure = failure_for(message, "SlaveLost")
            self.results.submit(partial(task.finish, TaskResultType.FAILED, failure, is_lost=True))
        return tasks is not None

    def finish(self, session: SlaveSession, task_id: str, kind: TaskResultType, result: Any) -> None:
        """Finish a task of the session; the same result may arrive twice.

        Raises:
            ProtocolError: the session had no such task.
        """
        self.seen(session)
        task = session.take(task_id)
        if task is None:
            if not session.has_settled(task_id):
                raise ProtocolError(400, MasterErrorCode.TASK_DATA_INVALID, "The slave has no such task.")
        elif task.has_callbacks(kind):
            self.results.submit(partial(task.finish, kind, result))
        else:
            task.finish(kind, result)

    def get(self, name: str) -> SlaveSession | None:
        """Return the active session of the connection `name`."""
        with self._lock:
            return self._active.get(name)

    def matches(self, token: str) -> SlaveSession | None:
        """Return the session whose slave has `token`.

        Tokens are looked up by their digests, so that the time of a look-up does not show how much of a token is right.
        """
        return self._by_digest.get(_digest_of(token))

    def seen(self, session: SlaveSession) -> None:
        """Record a sign of life."""
        session.last_seen = time.monotonic()

    def silent(self, now: float, tolerance_s: float) -> list[SlaveSession]:
        """Return the active sessions without a sign of life for longer than `tolerance_s`."""
        with self._lock:
            return [session for session in self._active.values() if now - session.last_seen > tolerance_s]

    def excuse(self, seconds: float) -> None:
        """Do not count the last `seconds` as silence, because the master itself was stopped."""
        with self._lock:
            for session in self._active.values():
                session.last_seen += seconds

    def check_is_open(self) -> None:
        """Raise a RuntimeError if the master does not run."""
        if not self._is_open:
            raise RuntimeError("the master does not run, so that no slave could report to it: start it first")


_Request = Literal["connect", "disconnect", "new_task"]
_log = logging.getLogger("ding.interaction")
_DISCONNECT_RETRIES = 1
_TAKE_BACK_TIMEOUT_S = (1.0, 1.0)


class SlaveConnection(ControllableContext):
    """A connection to the slave at an address, made by `Master.new_connection`. It can be connected repeatedly.

    Leaving its `with` block disconnects it, unless the slave was lost.

    Args:
        master: the master, whose hooks are looked up at each call, so that overridden and patched ones are called.
        table: the sessions of the master.
        peers: the object that makes the requests.
        name: the name of the connection.
        address: host, port, and whether https.
        task_timeout: how long one try to start a task may take.
    """

    def __init__(
        self,
        master: Any,
        table: SlaveTable,
        peers: Peers,
        name: str,
        address: tuple[str, int, bool],
        task_timeout: Limits,
    ) -> None:
        host, port, https = address
        self._master = master
        self._table = table
        self._peers = peers
        self._task_timeout = task_timeout
        self._name = name
        self._address = f"{'https' if https else 'http'}://{url_host(host)}:{port}"
        self._parts = (host, port, https, "")
        self._turn = threading.RLock()  # serializes connect and disconnect; a hook of one may call the other
        self._session: SlaveSession | None = None
        self._last_session: SlaveSession | None = None
        self._loss = ""
        self._on_lost: Callable[[str], Any] | None = None
        self._last_token = random_token()

    @cached_property
    def _engine(self) -> PeerEngine:  # made late: the token of the run is known when the master has started
        return self._peers.engine(self._parts, self._last_token)

    @property
    def name(self) -> str:
        """The name of the connection at the master."""
        return self._name

    @property
    def is_connected(self) -> bool:
        """Whether the slave is connected, as far as the master knows; False as soon as the slave is lost."""
        return self._session is not None

    @property
    def silence_s(self) -> float | None:
        """Seconds since the last sign of life of the slave, which may be lost by now; None before the first one."""
        session = self._last_session
        return None if session is None else max(0.0, time.monotonic() - session.last_seen)

    def connect(self, timeout_s: float = math.inf) -> Any:
        """Connect, and return what the master's `_after_connect` returns.

        Args:
            timeout_s: seconds for all tries together.

        Raises:
            KeyError: another connection of this name is active.
            RuntimeError: the master does not run.
            requests.RequestException: the slave was not reached; `_error_connect` of the master may return instead.
            SlaveResponseException: the slave refuses.
        """
        with self._turn:
            self._table.check_is_open()
            data = self._before("connect")
            session = SlaveSession(self)
            self._table.reserve(session)
            try:
                body = {"master": {"address": self._master.my_address}, "data": data}
                response = self._request("POST", "connect", body, session.token, deadline=time.monotonic() + timeout_s)
            except BaseException as error:  # the name is free again; errors other than of transport are raised
                self._end(session, "")
                return self._error("connect", error)
            try:
                self._activate(session)
                return self._after("connect", response)
            except BaseException:
                self._take_back(session)
                raise

    def start(self) -> Any:
        """Connect; see `connect`."""
        return self.connect()

    def disconnect(self, timeout_s: float = math.inf) -> Any:
        """Disconnect, and return what the master's `_after_disconnect` returns. Unfinished tasks fail.

        A slave that was lost is disconnected, too, if it can be reached, so that it can be connected again.

        Args:
            timeout_s: seconds for all tries together.

        Raises:
            requests.RequestException: the slave was not reached and is lost; `_error_disconnect` of the master may
                return instead.
            SlaveSlaveDisconnectionRefused: the slave refuses, and stays connected.
            SlaveMasterTokenInvalid: the slave was not connected.
        """
        with self._turn:
            session, body = self._session, {"data": self._before("disconnect")}
            try:
                response = self._request(
                    "DELETE", "disconnect", body, self._last_token, deadline=time.monotonic() + timeout_s
                )
            except BaseException as error:
                if _is_end(error):
                    self._end(session, f"it could not be disconnected: {error}")
                return self._error("disconnect", error)
            self._end(session, "")
            return self._after("disconnect", response)

    def close(self) -> Any:
        """Disconnect; see `disconnect`."""
        return self.disconnect()

    def __exit__(self, *exc_info: Any) -> None:
        if not self.is_connected:
            return
        try:
            self.disconnect()
        except Exception:
            if exc_info[0] is None:
                raise
            _log.warning("%r could not be disconnected", self, exc_info=True)  # the first error is raised

    def new_task(self, data: Any = None, start_timeout_s: float = math.inf) -> Task:
        """Return a task for the slave, not started yet.

        Args:
            data: a JSON object, or None for an empty one.
            start_timeout_s: seconds in which the slave must accept the task, for all tries together.
        """
        return Task(data, partial(self._launch, start_timeout_s))

    def give_up(self, reason: str) -> None:
        """End the session and fail its tasks without a request to the slave, for example if its process has ended."""
        session = self._session
        if session is not None:
            self.lose(session, reason)

    def watch(self, on_lost: Callable[[str], Any]) -> None:
        """Call `on_lost` with the reason when the slave is lost, instead of an earlier callback.

        It is called in the result thread, or at once in the calling thread if the slave is lost already.
        """
        self._on_lost = on_lost
        if self._session is None and self._loss:
            on_lost(self._loss)

    def lose(self, session: SlaveSession, reason: str) -> None:
        """End a session that no longer works, and report the slave as lost."""
        if self.drop(session, reason):
            _log.warning("%r was lost: %s", self, reason)
            self._table.results.submit(partial(self._master._lost_connection, self._name, reason))
            if self._on_lost is not None:
                self._table.results.submit(partial(self._on_lost, reason))

    def drop(self, session: SlaveSession, reason: str) -> bool:
        """End a session, or an attempt to connect, without a request to the slave; return False if it had ended."""
        has_ended = self._end(session, reason)
        if has_ended:
            self._engine.close()
        return has_ended

    def _launch(self, timeout_s: float, task: Task) -> None:
        deadline = time.monotonic() + timeout_s
        session, task_id = self._session, str(uuid.uuid4())
        body = {"task": {"id": task_id}, "data": self._before("new_task", task.task)}
        is_expected = session is not None and session.add(task_id, task)
        try:
            if not is_expected:
                self._check_was_not_lost()
            token = random_token() if session is None or not is_expected else session.token
            response = self._request("POST", "task/new", body, token, self._task_timeout, deadline)
        except BaseException as error:
            if session is not None and is_expected:
                if session.take(task_id) is None:
                    return  # the result has arrived, or the task has failed with its session
                if _is_end(error) and not _is_transport_error(error):
                    self.lose(session, f"the slave does not know the master any more: {error}")
            task.mark_start_failed()
            self._error("new_task", error)
            return
        task.mark_started()
        self._after("new_task", response)

    def _check_was_not_lost(self) -> None:
        # A slave that was never connected, or was disconnected, refuses the task itself. A lost one might accept it,
        # but the result would not arrive.
        if self._loss:
            import requests

            raise requests.ConnectionError(f"{self!r} was lost: {self._loss}")

    def _before(self, request: _Request, *data: Any) -> Any:
        """Return the data to send with a request, `{}` if the hook of the master returns None."""
        found = getattr(self._master, f"_before_{request}")(*data)
        return {} if found is None else found

    def _after(self, request: _Request, reply: Reply) -> Any:
        """Return what the hook returns for the reply to a request."""
        return getattr(self._master, f"_after_{request}")(*get_values_from_response(reply))

    def _error(self, request: _Request, error: BaseException) -> Any:
        """Return what the hook returns for a transport error; raise any other error."""
        if _is_transport_error(error):
            return getattr(self._master, f"_error_{request}")(error)
        raise error

    def _request(
        self,
        method: str,
        path: str,
        body: dict[str, Any],
        token: str,
        timeout: Limits | None = None,
        deadline: float = math.inf,
    ) -> Reply:
        # The slave recognizes a request that arrives twice by its id; tasks have ids of their own.
        headers = {"Token": token, "Request-Id": str(uuid.uuid4())} if path != "task/new" else {"Token": token}
        # A slave that misses its disconnection notices it by itself.
        most_retries = _DISCONNECT_RETRIES if path == "disconnect" else math.inf
        return self._engine.request(method, path, body, headers, timeout, deadline, most_retries)

    def _activate(self, session: SlaveSession) -> None:
        self._end(self._session, "it was connected anew")
        self._session, self._last_token, self._loss = session, session.token, ""
        self._last_session = session
        self._table.activate(session)

    def _end(self, session: SlaveSession | None, reason: str) -> bool:
        """End a session and fail its unfinished tasks; return False if it has ended before.

        An empty reason means that the end was requested.
        """
        if session is None:
            return False
        has_ended = self._table.end(session, reason or "it was disconnected")
        if self._session is session:
            self._session, self._loss = None, reason
        return has_ended

    def _take_back(self, session: SlaveSession) -> None:
        """End a session that the slave has accepted, but not the master or its hook."""
        self._end(session, "it was taken back")
        try:
            headers = {"Token": session.token}
            self._engine.request("DELETE", "disconnect", {"data": {}}, headers, _TAKE_BACK_TIMEOUT_S, most_retries=0)
        except Exception as error:  # the slave notices by itself that its master is gone
            _log.info("%r was not reached to be disconnected: %s", self, error)

    def __repr__(self) -> str:
        return f"<SlaveConnection {self._name!r} to {self._address}{', connected' if self.is_connected else ''}>"


def _is_transport_error(error: BaseException) -> bool:
    import requests

    return isinstance(error, requests.RequestException)


def _is_end(error: BaseException) -> bool:
    """Return whether the error means that the slave is no longer connected, or cannot be reached."""
    return _is_transport_error(error) or isinstance(error, (SlaveMasterTokenInvalid, SlaveSystemShuttingDown))
