"""A connection to one slave."""

from __future__ import annotations

import logging
import math
import threading
import time
import uuid
from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from ding.interaction.base.app import get_values_from_response
from ding.interaction.base.common import ControllableContext, random_token
from ding.interaction.base.network import url_host
from ding.interaction.exception.base import SlaveMasterTokenInvalid, SlaveSystemShuttingDown
from ding.interaction.master.session import SlaveSession, SlaveTable
from ding.interaction.master.task import Task

if TYPE_CHECKING:
    from ding.interaction.base.engine import Limits
    from ding.interaction.master.master import Master
    from ding.interaction.server.client import PeerEngine, Peers, Reply

_log = logging.getLogger("ding.interaction")
_DISCONNECT_RETRIES = 1
_TAKE_BACK_TIMEOUT_S = (1.0, 1.0)


class SlaveConnection(ControllableContext):
    """A connection to the slave at an address, made by `Master.new_connection`. It can be connected repeatedly.

    Leaving its `with` block disconnects, unless the slave was lost.

    Args:
        master: its hooks are called.
        table: the sessions of the master.
        peers: makes the requests.
        name: of the connection.
        address: host, port, and whether https.
        task_timeout: how long one try to start a task may take.
    """

    def __init__(
        self,
        master: Master,
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
        self._turn = threading.RLock()  # serializes connect and disconnect; the hooks of one may call the other
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
        """Whether the slave is connected, as far as the master knows; false as soon as the slave is lost."""
        return self._session is not None

    @property
    def silence_s(self) -> float | None:
        """Seconds since the last sign of life of the slave, which may be lost by now; None before the first one."""
        session = self._last_session
        return None if session is None else max(0.0, time.monotonic() - session.last_seen)

    def connect(self, timeout_s: float = math.inf) -> Any:
        """Connect, and return what the master's `_after_connect` returns.

        Args:
            timeout_s: the time for all tries together.

        Raises:
            KeyError: another connection of this name is active.
            RuntimeError: the master does not run.
            requests.RequestException: the slave was not reached; `_error_connect` of the master may return instead.
            SlaveResponseException: the slave refuses.
        """
        with self._turn:
            master = self._master
            self._table.check_is_open()
            data = master._before_connect()
            session = SlaveSession(self)
            self._table.reserve(session)
            try:
                body = {"master": {"address": master.my_address}, "data": {} if data is None else data}
                response = self._request("POST", "connect", body, session.token, deadline=time.monotonic() + timeout_s)
            except BaseException as error:
                self._end(session, "")
                return _decide(error, master._error_connect)
            try:
                self._activate(session)
                return master._after_connect(*get_values_from_response(response))
            except BaseException:
                self._take_back(session)
                raise

    def start(self) -> Any:
        """`connect`."""
        return self.connect()

    def disconnect(self, timeout_s: float = math.inf) -> Any:
        """Disconnect, and return what the master's `_after_disconnect` returns. Unfinished tasks fail.

        A slave that was lost is disconnected, too, if it can be reached, so that it can be connected again.

        Args:
            timeout_s: the time for all tries together.

        Raises:
            requests.RequestException: the slave was not reached and is lost; `_error_disconnect` of the master may
                return instead.
            SlaveSlaveDisconnectionRefused: the slave refuses, and stays connected.
            SlaveMasterTokenInvalid: the slave was not connected.
        """
        with self._turn:
            master, session = self._master, self._session
            data = master._before_disconnect()
            try:
                body = {"data": {} if data is None else data}
                response = self._request(
                    "DELETE", "disconnect", body, self._last_token, deadline=time.monotonic() + timeout_s
                )
            except BaseException as error:
                if _is_end(error):
                    self._end(session, f"it could not be disconnected: {error}")
                return _decide(error, master._error_disconnect)
            self._end(session, "")
            return master._after_disconnect(*get_values_from_response(response))

    def close(self) -> Any:
        """`disconnect`."""
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
            start_timeout_s: the time in which the slave must accept it, for all tries together.
        """
        return Task(data, partial(self._launch, start_timeout_s))

    def give_up(self, reason: str) -> None:
        """End the session without a request to the slave, for example because its process has ended. Tasks fail."""
        session = self._session
        if session is not None:
            self.lose(session, reason)

    def watch(self, on_lost: Callable[[str], Any]) -> None:
        """Call `on_lost` with the reason when the slave is lost; it replaces an earlier callback.

        It runs in the result thread, or at once in the calling thread if the slave is lost already.
        """
        self._on_lost = on_lost
        if self._session is None and self._loss:
            on_lost(self._loss)

    def lose(self, session: SlaveSession, reason: str) -> None:
        """End a session that does not work any more, and report the slave as lost."""
        if self.drop(session, reason):
            _log.warning("%r was lost: %s", self, reason)
            self._table.results.submit(lambda: self._master._lost_connection(self._name, reason))
            if self._on_lost is not None:
                self._table.results.submit(partial(self._on_lost, reason))

    def drop(self, session: SlaveSession, reason: str) -> bool:
        """End a session, or an attempt to connect, without a request to the slave; return false if it had ended."""
        has_ended = self._end(session, reason)
        if has_ended:
            self._engine.close()
        return has_ended

    def _launch(self, timeout_s: float, task: Task) -> None:
        deadline = time.monotonic() + timeout_s
        master, session, task_id = self._master, self._session, str(uuid.uuid4())
        data = master._before_new_task(task.task)
        is_expected = session is not None and session.add(task_id, task)
        try:
            if not is_expected:
                self._check_was_not_lost()
            body = {"task": {"id": task_id}, "data": {} if data is None else data}
            token = random_token() if session is None or not is_expected else session.token
            response = self._request("POST", "task/new", body, token, self._task_timeout, deadline)
        except BaseException as error:
            if session is not None and is_expected:
                if session.take(task_id) is None:
                    return  # its result has arrived, or it has failed with its session
                if _is_end(error) and not _is_transport_error(error):
                    self.lose(session, f"the slave does not know the master any more: {error}")
            task.mark_start_failed()
            _decide(error, master._error_new_task)
            return
        task.mark_started()
        master._after_new_task(*get_values_from_response(response))

    def _check_was_not_lost(self) -> None:
        # A slave that was never connected, or was disconnected, refuses the task itself. A lost one might accept it,
        # but the result would not arrive.
        if self._loss:
            import requests

            raise requests.ConnectionError(f"{self!r} was lost: {self._loss}")

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
        # A slave that misses its disconnection notices by itself.
        most_retries = _DISCONNECT_RETRIES if path == "disconnect" else math.inf
        return self._engine.request(method, path, body, headers, timeout, deadline, most_retries)

    def _activate(self, session: SlaveSession) -> None:
        self._end(self._session, "it was connected anew")
        self._session, self._last_token, self._loss = session, session.token, ""
        self._last_session = session
        self._table.activate(session)

    def _end(self, session: SlaveSession | None, reason: str) -> bool:
        """End a session and fail its unfinished tasks; return false if it has ended before.

        An empty reason means that the end was requested.
        """
        if session is None:
            return False
        has_ended = self._table.end(session, reason or "it was disconnected")
        if self._session is session:
            self._session, self._loss = None, reason
        return has_ended

    def _take_back(self, session: SlaveSession) -> None:
        """End a session that the slave has accepted, but the master or its hook has not."""
        self._end(session, "it was taken back")
        try:
            self._engine.request_once(
                "DELETE", "disconnect", {"data": {}}, {"Token": session.token}, _TAKE_BACK_TIMEOUT_S
            )
        except Exception as error:
            _log.info("%r was not reached to be disconnected: %s", self, error)

    def __repr__(self) -> str:
        return f"<SlaveConnection {self._name!r} to {self._address}{', connected' if self.is_connected else ''}>"


def _is_transport_error(error: BaseException) -> bool:
    import requests

    return isinstance(error, requests.RequestException)


def _is_end(error: BaseException) -> bool:
    """Return whether the error means that the slave is not connected any more, or cannot be reached."""
    return _is_transport_error(error) or isinstance(error, (SlaveMasterTokenInvalid, SlaveSystemShuttingDown))


def _decide(error: BaseException, hook: Callable[[Any], Any]) -> Any:
    """Return what `hook` returns for a transport error; raise any other error."""
    if _is_transport_error(error):
        return hook(error)
    raise error
