"""The base of masters and slaves: how they bind, serve and end."""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, NamedTuple

from ding.interaction.base import Codes, ControllableService, Page, checked_port, number_or, random_token
from ding.interaction.http_client import DEFAULT_BODY_LIMIT, LOCAL_HOST, is_wildcard, url_host
from ding.interaction.server.access import (
    HostList,
    OwnNames,
    check_authorities,
    is_tls_configured,
    read_run_token,
    require_token,
    server_context,
)
from ding.interaction.server.app import ProtocolApp, Routes

if TYPE_CHECKING:
    from ding.interaction.server.client import Peers
    from ding.interaction.server.guard import HttpServer

# How long requests that are being served, and a running task, may continue after the close.
GRACE_S = 0.5
# How long `join` waits for threads after the close.
_JOIN_S = 1.5


class _State(Enum):
    NEW = auto()
    RUNNING = auto()
    CLOSED = auto()


class Parts(NamedTuple):
    """The parts that a kind of role adds to its server.

    Attributes:
        kind: `master` or `slave`.
        codes: the error codes.
        routes: the routes.
        threads: functions by the names of the threads that run them; they return soon after the given event is set.
        on_start: called by `start`, before requests are served.
        on_shutdown: wakes the threads; called once, after the event is set, if the role was running.
        advertised: returns the host and port that are sent to peers, or None.
    """

    kind: str
    codes: Codes
    routes: Routes
    threads: Mapping[str, Callable[[threading.Event], Any]]
    on_start: Callable[[], Any]
    on_shutdown: Callable[[], Any]
    advertised: Callable[[], tuple[str, int] | None]


class Role(ControllableService):
    """A server with threads of its own, which can be used once.

    The threads do not keep the interpreter alive; call `join` for that. Users subclass masters and slaves and may use
    any names, which is why attributes begin with two underscores.

    Args:
        parts: see `Parts`.
        peers: the factory of clients for requests to other servers.
        host: the address to listen at; None and `auto` mean this machine only (127.0.0.1).
        port: the port; 0 for any free one.
        body_limit: the largest body of a request in bytes.
        hosts: further hosts that requests may name.
    """

    def __init__(
        self, parts: Parts, peers: Peers, host: str | None, port: int, body_limit: int | None, hosts: HostList
    ) -> None:
        # Modules that `start` needs are loaded here, so that it is quick.
        import requests  # noqa: F401

        import ding.interaction.server.guard  # noqa: F401

        self.__parts = parts
        self.__peers = peers
        self.__host = LOCAL_HOST if host in (None, "", "auto") else str(host)
        self.__port = checked_port(port)
        self.__hosts = hosts
        self.__self_token = random_token()
        self.__lock = threading.RLock()
        self.__state = _State.NEW
        self.__closing = threading.Event()
        self.__pid = os.getpid()
        self.__threads: list[threading.Thread] = []
        self.__server: HttpServer | None = None
        self.__app = ProtocolApp(
            parts.codes,
            parts.routes,
            body_limit=int(number_or(DEFAULT_BODY_LIMIT, "body_limit", body_limit)),
            self_token=self.__self_token,
            closing=self.__closing,
            shutdown=self.shutdown,
        )

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
        return self.__peers.channel

    def start(self) -> None:
        """Begin to listen and serve; requests are answered when this returns.

        Raises:
            RuntimeError: the server was started or closed before.
            PermissionError: the server would be reachable from other machines without a token, or the token file is
                not private.
            ValueError: the configured token is malformed, or only half of TLS is configured.
            OSError: the server cannot listen at the address, or a certificate cannot be loaded.
        """
        from ding.interaction.server.guard import HttpServer

        with self.__lock:
            parts, peers = self.__parts, self.__peers
            if self.__state is not _State.NEW:
                raise RuntimeError(f"a {parts.kind} starts once; make another one")
            self.__pid = os.getpid()
            peers.run_token = peers.run_token or read_run_token()
            require_token(self.__host, peers.run_token)
            check_authorities()
            self.__server = HttpServer(self.__host, self.__port, self.__app, name=parts.kind, tls=server_context())
            self.__port = self.__server.port
            self.__state = _State.RUNNING
            _started.add(peers)
            try:
                parts.on_start()
                names = OwnNames((self.__host, self.__port), parts.advertised(), self.__hosts)
                self.__app.open(names, peers.run_token, parts.kind)
                self.__server.start()
                for name, target in parts.threads.items():
                    thread = threading.Thread(
                        target=target, args=(self.__closing,), name=f"{parts.kind}_{name}", daemon=True
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
            self.__parts.on_shutdown()
            assert self.__server is not None
            self.__server.stop(GRACE_S)

    def join(self, timeout: float | None = None) -> None:
        """Wait until the server is asked to end (at most `timeout` seconds), then a bounded time until it has ended.

        Threads that are stuck in user code are left behind with a warning; they end as soon as that code returns.
        """
        if self.__server is None or self.__pid != os.getpid() or not self.__closing.wait(timeout):
            return
        if threading.current_thread() in self.__threads:
            return
        deadline = time.monotonic() + _JOIN_S
        left = self.__server.join(deadline)
        for thread in self.__threads:
            thread.join(max(0.0, deadline - time.monotonic()))
            left += [thread] if thread.is_alive() else []
        if left:
            names = ", ".join(thread.name for thread in left)
            logging.getLogger("ding.interaction").warning(
                "the %s at port %d is closed, but these threads are still busy: %s", self.__parts.kind, self.port, names
            )

    def ping(self) -> bool:
        """Send a request to this server, and return whether it is answered; False if the server does not run.

        Raises:
            ResponseException: the server refuses the request.
        """
        import requests

        if self.__state is not _State.RUNNING:
            return False
        host = self.__host
        if is_wildcard(host):
            host = "::1" if ":" in host else LOCAL_HOST
        address = (host, self.__port, is_tls_configured(), "")
        engine = self.__peers.engine(address, self.__self_token, self.__parts.kind)
        try:
            engine.request("GET", "ping")
        except requests.RequestException:
            return False
        finally:
            engine.close()
        return True

    def serve_page(self, path: str, page: Page) -> None:
        """Answer GET requests at `path` with `page`; they pass the same checks as all requests, see `Page`.

        Raises:
            RuntimeError: the server was started or closed before.
            ValueError: the path is malformed, or in use.
        """
        with self.__lock:
            kind = self.__parts.kind
            if self.__state is not _State.NEW:
                raise RuntimeError(f"the page {path!r} comes too late: add pages before the {kind} starts")
            self.__app.add_page(path, page)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {url_host(self.host)}:{self.port}, {self.__state.name.lower()}>"


_started: weakref.WeakSet[Peers] = weakref.WeakSet()


def _forget_tokens() -> None:
    """Forget the tokens in a forked child, such as an env's process: its code has no business with other servers."""
    for peers in list(_started):
        if peers.run_token is not None:
            peers.run_token.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_tokens)
