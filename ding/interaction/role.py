"""The base of masters and slaves: how they listen, answer and end."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from ding.interaction.access import (
    RunToken,
    read_run_token,
    require_token,
    same_secret,
    server_context,
    uses_tls,
)
from ding.interaction.base import (
    ControllableService,
    Page,
    ResponsibleException,
    checked_port,
    number_or,
    random_token,
)
from ding.interaction.exception import SlaveErrorCode
from ding.interaction.http_client import (
    DEFAULT_CHANNEL,
    DEFAULT_REQUEST_RETRIES,
    DEFAULT_REQUEST_RETRY_WAITING,
    LOCAL_HOST,
    is_wildcard,
    url_host,
)

if TYPE_CHECKING:
    from ding.interaction.client import PeerClient
    from ding.interaction.server import HttpServer

# How long requests that are being served may continue after the close.
GRACE_S = 0.5
# How long `join` waits for threads after the close.
_JOIN_S = 1.5


class _State(Enum):
    NEW = auto()
    RUNNING = auto()
    CLOSED = auto()


class Role(ControllableService):
    """A server with threads of its own, which can be used once.

    The threads do not keep the interpreter alive; call `join` for that. Users subclass masters and slaves and may use
    any names, which is why attributes begin with two underscores.

    Args:
        kind: `master` or `slave`.
        routes: `(method, path, view)` of the app; a view returns the data of the reply.
        threads: functions by the names of the threads that run them; they return soon after the given event is set.
        on_shutdown: wakes the threads; called once, after the event is set, if the role was running.
    """

    def __init__(
        self,
        kind: str,
        routes: Sequence[tuple[str, str, Callable[..., Any]]],
        threads: dict[str, Callable[[threading.Event], Any]],
        on_shutdown: Callable[[], Any],
        *,
        host: str | None,
        port: int,
        channel: int | None,
        request_retries: int | None,
        request_retry_waiting: float | None,
        run_token: RunToken | None,
    ) -> None:
        import ding.interaction.client
        import ding.interaction.server  # noqa: F401  # here, so that `start` is quick

        self.__kind, self.__routes = kind, routes
        self.__targets, self.__on_shutdown = threads, on_shutdown
        self.__host = LOCAL_HOST if host in (None, "", "auto") else str(host)
        self.__port = checked_port(port)
        self.__channel = channel or DEFAULT_CHANNEL
        self.__retries = int(number_or(DEFAULT_REQUEST_RETRIES, "request_retries", request_retries))
        self.__retry_waiting_s = number_or(
            DEFAULT_REQUEST_RETRY_WAITING, "request_retry_waiting", request_retry_waiting
        )
        self.__token = run_token
        self.__self_token = random_token()
        self.__pages: dict[str, Page] = {}
        self.__lock = threading.RLock()
        self.__state = _State.NEW
        self.__closing = threading.Event()
        self.__pid = os.getpid()
        self.__threads: list[threading.Thread] = []
        self.__server: HttpServer | None = None

    @property
    def host(self) -> str:
        """The address at which the server listens."""
        return self.__host

    @property
    def port(self) -> int:
        """The port at which the server listens; before `start`, the requested one."""
        return self.__port

    @property
    def channel(self) -> int:
        """The channel; masters and slaves of different channels refuse each other."""
        return self.__channel

    def start(self) -> None:
        """Begin to listen and serve; requests are answered when this returns.

        Raises:
            RuntimeError: the server was started or closed before.
            PermissionError: the server would be reachable from other machines without a token, or the token file is
                not private.
            ValueError: the configured token is malformed, or only half of TLS is configured.
            OSError: the server cannot listen at the address, or a certificate cannot be loaded.
        """
        from ding.interaction.server import Gate, HttpServer, new_app

        with self.__lock:
            if self.__state is not _State.NEW:
                raise RuntimeError(f"a {self.__kind} starts once; make another one")
            self.__pid = os.getpid()
            token = self.__token = self.__token or read_run_token()
            require_token(self.__host, token)
            tls = server_context(self.__host, token)
            own = [("GET", "/ping", self.__answer_ping), ("DELETE", "/shutdown", self.__answer_shutdown)]
            app = new_app([*own, *self.__routes], self.__pages, self.__closing)
            gate = Gate(self.__host, token, self.__pages)
            self.__server = HttpServer(self.__host, self.__port, app, gate, name=self.__kind, tls=tls)
            self.__port = self.__server.port
            self.__state = _State.RUNNING
            try:
                self.__server.start()
                for name, target in self.__targets.items():
                    thread = threading.Thread(
                        target=target, args=(self.__closing,), name=f"{self.__kind}_{name}", daemon=True
                    )
                    thread.start()
                    self.__threads.append(thread)
            except BaseException:
                self.shutdown()
                self.join()
                raise

    def shutdown(self) -> None:
        """Ask the server to end, and return at once; callable repeatedly, from any thread, and before `start`."""
        with self.__lock:
            # A forked child has a copy of this object, but none of its threads.
            if self.__state is _State.CLOSED or self.__pid != os.getpid():
                return
            was_running = self.__state is _State.RUNNING
            self.__state = _State.CLOSED
            self.__closing.set()
        if was_running:
            self.__on_shutdown()
            assert self.__server is not None
            self.__server.stop(GRACE_S)

    def join(self, timeout: float | None = None) -> None:
        """Wait until the server is asked to end (at most `timeout` seconds), then a bounded time until it has ended.

        Threads that are stuck in user code are left behind with a warning; they end as soon as that code returns.
        """
        if self.__server is None or self.__pid != os.getpid() or not self.__closing.wait(timeout):
            return
        threads, current = [*self.__server.threads, *self.__threads], threading.current_thread()
        if current in self.__threads:
            return
        deadline = time.monotonic() + _JOIN_S
        for thread in threads:
            if thread is not current and thread.ident:
                thread.join(max(0.0, deadline - time.monotonic()))
        names = ", ".join(thread.name for thread in threads if thread is not current and thread.is_alive())
        if names:
            logging.getLogger("ding.interaction").warning(
                "the %s at port %d is closed, but these threads are still busy: %s", self.__kind, self.port, names
            )

    def ping(self) -> bool:
        """Send a request to this server, and return whether it is answered; False if the server does not run.

        Raises:
            ResponseException: the server refuses the request.
        """
        import requests

        if self.__state is not _State.RUNNING:
            return False
        client = self._new_client(self.__kind, self.__host, self.__port, uses_tls(self.__host))
        try:
            client.request("GET", "/ping", headers={"Token": self.__self_token})
        except requests.RequestException:
            return False
        finally:
            client.close()
        return True

    def serve_page(self, path: str, page: Page) -> None:
        """Answer GET requests at `path` with `page`; they pass the same checks as all requests, see `Page`.

        Raises:
            RuntimeError: the server was started or closed before.
        """
        if self.__state is not _State.NEW:
            raise RuntimeError(f"the page {path!r} comes too late: add pages before the {self.__kind} starts")
        self.__pages[path] = page

    def _is_running(self) -> bool:
        return self.__state is _State.RUNNING

    def _new_client(self, kind: str, host: str, port: int, https: bool) -> PeerClient:
        """Return a client of the server at `host`, whose kind is `kind`, with the channel and retries of this one."""
        from ding.interaction.client import PeerClient

        if is_wildcard(host):  # as an address to connect to it means this machine
            host = "::1" if ":" in host else LOCAL_HOST
        channel = {"Channel": str(self.__channel)}
        return PeerClient(kind, (host, port, https), channel, self.__token, self.__retries, self.__retry_waiting_s)

    def __answer_ping(self) -> None:
        if not same_secret(request_token(SlaveErrorCode.SELF_TOKEN_NOT_FOUND), self.__self_token):
            raise ResponsibleException(SlaveErrorCode.SELF_TOKEN_INVALID, "The token is wrong.", status_code=403)

    def __answer_shutdown(self) -> None:
        self.__answer_ping()
        self.shutdown()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {url_host(self.host)}:{self.port}, {self.__state.name.lower()}>"


def request_token(missing: int) -> str:
    """Return the `Token` of the request that is answered; refuse a request without one (400, with this code)."""
    import flask

    token = flask.request.headers.get("Token")
    if not token:
        raise ResponsibleException(missing, "The request has no token.")
    return token
