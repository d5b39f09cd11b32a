"""The connection of a master to one slave."""

from __future__ import annotations

import logging
import math
import threading
import time
import uuid
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from ding.interaction.base import ControllableContext, get_values_from_response, random_token
from ding.interaction.exception import (
    SlaveMasterTokenInvalid,
    SlaveResponseException,
    SlaveSystemShuttingDown,
    failure_for,
)
from ding.interaction.http_client import DEFAULT_HEARTBEAT_SPAN, DEFAULT_REQUEST_TIMEOUT, HEARTBEAT_HEADER, Limits
from ding.interaction.master.task import Task, TaskResultType

if TYPE_CHECKING:
    from ding.interaction.client import PeerClient, Reply

_Request = Literal["connect", "disconnect", "new_task"]
_log = logging.getLogger("ding.interaction")
_DISCONNECT_RETRIES = 1
_KINDS = {"completed": TaskResultType.COMPLETED, "failed": TaskResultType.FAILED}


class _Session:
    """One session with a slave, from just before `/connect` is sent until it ends.

    Attributes:
        last_seen: when the last reply has come, by `time.monotonic`.
        span_s: how long the slave lets the master be silent.
        is_asked: whether a request is under way whose reply is a sign of life.
        is_leaving: whether the slave is being disconnected.
        ended: set when the session has ended, for the reason `loss`.
    """

    def __init__(self) -> None:
        self.token = random_token()
        self.last_seen = time.monotonic()
        self.span_s = DEFAULT_HEARTBEAT_SPAN
        self.is_asked = self.is_leaving = False
        self.ended = threading.Event()
        self.loss = ""


class SlaveConnection(ControllableContext):
    """A connection to the slave at an address, made by `Master.new_connection`. It can be connected repeatedly.

    Leaving its `with` block disconnects it, unless the slave was lost.

    Args:
        master: the master, whose hooks are looked up at each call, so that overridden and patched ones are called.
        names: the connections of the master that are connected or being connected, by name.
        make_client: returns the client of the slave, once the master has started.
        is_running: returns whether the master runs.
        name: the name of the connection.
        tolerance_s: after so many seconds without a sign of life the slave is lost.
    """

    def __init__(
        self,
        master: Any,
        names: dict[str, SlaveConnection],
        make_client: Callable[[], PeerClient],
        is_running: Callable[[], bool],
        name: str,
        tolerance_s: float,
    ) -> None:
        self._master, self._names, self._make_client, self._name = master, names, make_client, name
        self._is_running, self._tolerance_s = is_running, tolerance_s
        self._lock = threading.Lock()  # guards the end of sessions
        self._turn = threading.RLock()  # serializes connect and disconnect; a hook of one may call the other
        self._session: _Session | None = None
        self._last_session: _Session | None = None
        self._on_lost: Callable[[str], Any] | None = None

    @cached_property
    def _client(self) -> PeerClient:  # made late: the token of the run is known when the master has started
        return self._make_client()

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
            if not self._is_running():
                raise RuntimeError("the master does not run: start it first")
            if self._names.setdefault(self._name, self) is not self:
                raise KeyError(self._name)
            session = _Session()
            try:
                body = {"master": {"address": self._master.my_address}, "data": self._before("connect")}
                deadline = time.monotonic() + timeout_s
                reply = self._client.request("POST", "/connect", body, {"Token": session.token}, deadline=deadline)
            except BaseException as error:
                if self._session is None:
                    self._names.pop(self._name, None)
                return self._error("connect", error)
            session.span_s = float(reply.headers.get(HEARTBEAT_HEADER, session.span_s))
            session.last_seen = time.monotonic()
            self._end(self._session, "it was connected anew")
            self._names[self._name] = self
            self._session = self._last_session = session
            return self._after("connect", reply)

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
            if session is not None:
                session.is_leaving = True
            headers = {"Token": (self._last_session or _Session()).token}
            deadline = time.monotonic() + timeout_s
            try:
                # A slave that misses its disconnection notices it by itself.
                reply = self._client.request(
                    "DELETE", "/disconnect", body, headers, deadline=deadline, most_retries=_DISCONNECT_RETRIES
                )
            except BaseException as error:
                if session is not None:
                    session.is_leaving = False
                    if _is_end(error) or _is_transport_error(error):
                        self._end(session, f"it could not be disconnected: {error}")
                return self._error("disconnect", error)
            self._end(session, "it was disconnected")
            self._client.close()
            self._last_session = None
            return self._after("disconnect", reply)

    def close(self) -> Any:
        """Disconnect; see `disconnect`."""
        return self.disconnect()

    def __exit__(self, *exc_info: Any) -> None:
        if self.is_connected:
            self.disconnect()

    def new_task(self, data: Any = None) -> Task:
        """Return a task for the slave, not started yet; `data` is a dict, see `pack`, or None for an empty one."""
        return Task(data, self._launch)

    def run(self, data: Any, timeout_s: float) -> tuple[TaskResultType, Any]:
        """Run a task in the calling thread, usually in one exchange; return how it ended, and its result.

        Raises:
            TypeError: the data cannot be packed; see `ding.utils.msgpack_helper.pack`.
            requests.RequestException: the slave was lost, or has not answered in time.
            SlaveResponseException: the slave did not accept the task.
        """
        deadline = time.monotonic() + timeout_s
        session, task_id, values, reply = self._send(data, deadline, self._tolerance_s / 3)
        self._after("new_task", reply)
        return self._follow(session, task_id, values, deadline)

    def drop(self, reason: str) -> None:
        """End the session and fail its tasks without a request to the slave, for example if its process has ended."""
        self._end(self._session, reason)
        self._client.close()

    def watch(self, on_lost: Callable[[str], Any]) -> None:
        """Call `on_lost` with the reason in a thread when the slave is lost, or now if it is lost already."""
        self._on_lost = on_lost
        if self._session is None and self._last_session is not None:
            on_lost(self._last_session.loss)

    def check(self) -> None:
        """Lose a slave without a sign of life for too long; ask one for it that may miss one."""
        session = self._session
        if session is None:
            return
        silence_s = time.monotonic() - session.last_seen
        if silence_s > self._tolerance_s:
            self.lose(session, f"there was no sign of life for {self._tolerance_s:g} s")
        elif silence_s > min(session.span_s, self._tolerance_s) / 3 and not session.is_asked:
            session.is_asked = True
            threading.Thread(target=self._ping, args=(session,), name="master_ping", daemon=True).start()

    def lose(self, session: _Session, reason: str) -> None:
        """End a session that no longer works, and report the slave as lost."""
        if session.is_leaving or not self._end(session, reason):
            return
        self._client.close()
        _log.warning("%r was lost: %s", self, reason)
        threading.Thread(target=self._report_loss, args=(reason,), name="master_lost", daemon=True).start()

    def _report_loss(self, reason: str) -> None:
        if self._on_lost is not None:
            self._on_lost(reason)
        self._master._lost_connection(self._name, reason)

    def _launch(self, task: Task) -> None:
        """Start a task whose result another thread waits for."""
        try:
            session, task_id, values, reply = self._send(task.task, math.inf, 0.0)
        except BaseException as error:
            task.mark_start_failed()
            self._error("new_task", error)
            return
        task.mark_started()
        threading.Thread(
            target=self._finish, args=(task, session, task_id, values), name="master_task_result", daemon=True
        ).start()
        self._after("new_task", reply)

    def _finish(self, task: Task, session: _Session, task_id: str, values: Any) -> None:
        try:
            kind, result = self._follow(session, task_id, values, math.inf)
        except Exception as error:
            message = f"the connection to the slave {self._name!r} has ended: {session.loss or error}"
            task.finish(TaskResultType.FAILED, failure_for(message, "SlaveLost"), is_lost=True)
        else:
            task.finish(kind, result)

    def _send(self, data: Any, deadline: float, wait_s: float) -> tuple[_Session, str, Any, Reply]:
        """Send a task; return the session, the id of the task, and the reply, which may have the result."""
        session, task_id = self._session or _Session(), str(uuid.uuid4())
        body = {"data": self._before("new_task", data)}
        if self._last_session is not None:
            # A slave that was never connected, or was disconnected, refuses the task itself.
            self._check_session(self._last_session)
        reply = self._ask(session, task_id, body, deadline, wait_s)
        return session, task_id, reply.json()["data"], reply

    def _follow(self, session: _Session, task_id: str, values: Any, deadline: float) -> tuple[TaskResultType, Any]:
        """Ask for the result of a task until it comes or the session ends; `values` are those of the last reply."""
        import requests

        while values["status"] not in _KINDS:
            self._check_session(session)
            if time.monotonic() >= deadline:
                raise requests.ReadTimeout("the result has not come in time")
            try:
                values = self._ask(session, task_id, None, deadline, self._tolerance_s / 3).json()["data"]
            except (requests.ConnectionError, requests.Timeout):
                # `check` loses the slave if it stays silent; the slave loses a master after some spans.
                session.ended.wait(min(session.span_s / 3, self._tolerance_s / 10))
            except SlaveSystemShuttingDown:
                return TaskResultType.FAILED, failure_for("the slave was closed while it ran the task", "SlaveClosed")
            except SlaveResponseException:
                self._check_session(session)
                raise
        return _KINDS[values["status"]], values["result"]

    def _ask(self, session: _Session, task_id: str, body: Any, deadline: float, wait_s: float) -> Reply:
        wait_s = max(0.0, min(wait_s, deadline - time.monotonic()))
        # One try takes not much longer than it takes to notice that the slave is lost.
        timeout = (DEFAULT_REQUEST_TIMEOUT[0], wait_s + max(1.0, self._tolerance_s / 5))
        session.is_asked = True
        try:
            return self._request(session, "PUT", f"/tasks/{task_id}?wait={wait_s:.3f}", body, timeout, deadline)
        finally:
            session.is_asked = False

    def _ping(self, session: _Session) -> None:
        import requests

        timeout = (DEFAULT_REQUEST_TIMEOUT[0], max(1.0, self._tolerance_s / 3))
        try:
            self._request(session, "GET", "/heartbeat", None, timeout, math.inf, most_retries=0)
        except (requests.RequestException, SlaveResponseException) as error:
            _log.debug("%r has not answered: %s", self, error)  # `check` loses it if it stays silent
        finally:
            session.is_asked = False

    def _request(
        self,
        session: _Session,
        method: str,
        path: str,
        body: Any,
        timeout: Limits,
        deadline: float,
        most_retries: float = math.inf,
    ) -> Reply:
        """Send a request in a session, whose reply is a sign of life; lose the slave if it has ended the session."""
        try:
            reply = self._client.request(method, path, body, {"Token": session.token}, timeout, deadline, most_retries)
        except SlaveResponseException as error:
            if _is_end(error):
                if session.is_leaving:  # the reply to `/disconnect` is about to come
                    session.ended.wait(self._tolerance_s)
                    self._check_session(session)
                self.lose(session, f"the slave does not know the master any more: {error}")
            raise
        except Exception as error:
            if _is_transport_error(error):
                self._check_session(session)
            raise
        session.last_seen = time.monotonic()
        return reply

    def _check_session(self, session: _Session) -> None:
        if session.ended.is_set():
            import requests

            raise requests.ConnectionError(f"{self!r} was lost: {session.loss}")

    def _before(self, request: _Request, *data: Any) -> Any:
        """Return the data to send with a request, `{}` if the hook of the master returns None."""
        found = getattr(self._master, f"_before_{request}")(*data)
        return {} if found is None else found

    def _after(self, request: _Request, reply: Reply) -> Any:
        """Return what the hook returns for the reply to a request."""
        status, success, code, message, data = get_values_from_response(reply)
        data = None if request == "new_task" else data  # the result is not for the hook
        return getattr(self._master, f"_after_{request}")(status, success, code, message, data)

    def _error(self, request: _Request, error: BaseException) -> Any:
        """Return what the hook returns for a transport error; raise any other error."""
        if _is_transport_error(error):
            return getattr(self._master, f"_error_{request}")(error)
        raise error

    def _end(self, session: _Session | None, reason: str) -> bool:
        """End a session, so that its unfinished tasks fail; return False if it has ended before."""
        with self._lock:
            if session is None or session.ended.is_set():
                return False
            if self._session is session:
                self._session = None
                self._names.pop(self._name, None)
            session.loss = reason
            session.ended.set()
            return True

    def __repr__(self) -> str:
        return f"<SlaveConnection {self._name!r} to {self._client.url}{', connected' if self.is_connected else ''}>"


def _is_transport_error(error: BaseException) -> bool:
    import requests

    return isinstance(error, requests.RequestException)


def _is_end(error: BaseException) -> bool:
    """Return whether the error means that the slave is no longer connected."""
    return isinstance(error, (SlaveMasterTokenInvalid, SlaveSystemShuttingDown))
