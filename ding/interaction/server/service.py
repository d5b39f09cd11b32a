"""A master or slave: its public face, and its inner life (bind, serve, end)."""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from ding.interaction.base.common import ControllableService, checked_port, number_or, random_token
from ding.interaction.base.network import is_wildcard, url_host
from ding.interaction.config import (
    DEFAULT_BODY_LIMIT,
    DEFAULT_CHANNEL,
    DEFAULT_REQUEST_RETRIES,
    DEFAULT_REQUEST_RETRY_WAITING,
    LOCAL_HOST,
)
from ding.interaction.server.credentials import RunToken, read_run_token, require_token
from ding.interaction.server.hosts import HostList, OwnNames

if TYPE_CHECKING:
    import requests

    from ding.interaction.server.app import ProtocolApp
    from ding.interaction.server.http_server import HttpServer
    from ding.interaction.server.peer import PeerEngine
    from ding.utils.page import Page

# How long what is under way at the close may go on: requests being served, a task being run.
GRACE_S = 0.5
# How long `join` waits for threads after the close.
_JOIN_S = 1.5


class _State(Enum):
    NEW = auto()
    RUNNING = auto()
    CLOSED = auto()


class Service(ABC):
    """A server with threads of its own, used once. See `Role` for its methods.

    Args:
        kind: `master` or `slave`.
        host: what to listen at; None and `auto` mean this machine only (127.0.0.1).
        port: 0 for any that is free.
        channel: servers and clients of different channels refuse each other.
        request_retries: how often a request is tried again after a transport error.
        request_retry_waiting: seconds between tries.
        body_limit: the largest body of a request in bytes.
        allowed_hosts: see `HostList`.
        run_token: the token of the run; None for that of this process, if it has one.
    """

    def __init__(
        self,
        kind: str,
        host: str | None,
        port: int,
        *,
        channel: int | None,
        request_retries: int | None,
        request_retry_waiting: float | None,
        body_limit: int | None,
        allowed_hosts: Iterable[str] | None,
        run_token: RunToken | None,
    ) -> None:
        # What starting needs is loaded here, so that starting is quick.
        import requests  # noqa: F401

        import ding.interaction.server.http_server
        import ding.interaction.server.peer  # noqa: F401

        self._kind = kind
        self._host = LOCAL_HOST if host in (None, "", "auto") else str(host)
        self._port = checked_port(port)
        self._channel = channel or DEFAULT_CHANNEL
        self._retries = int(number_or(DEFAULT_REQUEST_RETRIES, "request_retries", request_retries))
        self._retry_waiting = number_or(DEFAULT_REQUEST_RETRY_WAITING, "request_retry_waiting", request_retry_waiting)
        self._body_limit = int(number_or(DEFAULT_BODY_LIMIT, "body_limit", body_limit))
        self._hosts = HostList(allowed_hosts)
        self._self_token = random_token()
        self._life = threading.RLock()
        self._state = _State.NEW
        self._closing = threading.Event()
        self._pid = os.getpid()
        self._threads: list[threading.Thread] = []
        self._run_token = run_token
        self._server: HttpServer | None = None
        self._app = self._make_app()

    @property
    def host(self) -> str:
        """What it listens at."""
        return self._host

    @property
    def port(self) -> int:
        """The port it listens at; before `start`, the one it was given."""
        return self._port

    @property
    def channel(self) -> int:
        """Its channel."""
        return self._channel

    @property
    def self_token(self) -> str:
        """The token of its requests to itself."""
        return self._self_token

    @property
    def retry(self) -> tuple[int, float]:
        """How often a request is tried again, and the seconds between tries."""
        return self._retries, self._retry_waiting

    @property
    def state(self) -> str:
        """`new`, `running` or `closed`."""
        return self._state.name.lower()

    @property
    def is_closing(self) -> bool:
        """Whether it has been asked to end."""
        return self._closing.is_set()

    def serve_page(self, path: str, page: Page) -> None:
        """See `Master.serve_page`."""
        with self._life:
            if self._state is not _State.NEW:
                raise RuntimeError(f"the page {path!r} comes too late: pages are added before the {self._kind} starts")
            self._app.add_page(path, page)

    def start(self) -> None:
        """See `Role.start`."""
        with self._life:
            if self._state is not _State.NEW:
                raise RuntimeError(f"a {self._kind} starts once; make another one")
            self._pid = os.getpid()
            from ding.interaction.server.http_server import HttpServer

            self._run_token = self._run_token or read_run_token()
            require_token(self._host, self._run_token)
            self._server = HttpServer(self._host, self._port, name=self._kind)
            self._port = self._server.port
            self._state = _State.RUNNING
            _running.add(self)
            try:
                names = OwnNames((self._host, self._port), self._advertised(), self._hosts)
                self._app.open(names, self._run_token, self._kind)
                self._server.start(self._app)
                for name, target in self._jobs():
                    thread = threading.Thread(target=target, name=f"{self._kind}_{name}", daemon=True)
                    thread.start()
                    self._threads.append(thread)
            except BaseException:
                self.shutdown()
                self.join()
                raise

    def shutdown(self) -> None:
        """See `Role.shutdown`."""
        with self._life:
            # A forked child has a copy of this object, but nothing that it could end.
            if self._state is _State.CLOSED or self._pid != os.getpid():
                return
            was_running = self._state is _State.RUNNING
            self._state = _State.CLOSED
            self._closing.set()
        if was_running:
            self._on_shutdown()
            assert self._server is not None
            self._server.stop(GRACE_S)

    def join(self, timeout: float | None = None) -> None:
        """See `Role.join`."""
        if self._server is None or self._pid != os.getpid() or not self._closing.wait(timeout):
            return
        own = threading.current_thread()
        if own in self._threads:
            return
        deadline = time.monotonic() + _JOIN_S
        left = self._server.join(deadline)
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
            left += [thread] if thread.is_alive() else []
        if left:
            names = ", ".join(thread.name for thread in left)
            logging.getLogger("ding.interaction").warning(
                "the %s at port %d is closed, but these threads are still busy: %s", self._kind, self._port, names
            )

    def ping(self) -> bool:
        """See `Role.ping`."""
        import requests

        if self._state is not _State.RUNNING:
            return False
        host = self._host
        if is_wildcard(host):
            host = "::1" if ":" in host else LOCAL_HOST
        engine = self.engine((host, self._port, False, ""), self._self_token, to_itself=True)
        try:
            engine.request("GET", "ping", retries=self._retries, retry_waiting=self._retry_waiting)
        except requests.RequestException:
            return False
        finally:
            engine.close()
        return True

    def engine(self, address: tuple[str, int, bool, str], token: str, *, to_itself: bool = False) -> PeerEngine:
        """Requests to a peer, or to this server itself."""
        from ding.interaction.server.peer import PeerEngine

        kind = self._kind if to_itself else {"master": "slave", "slave": "master"}[self._kind]
        return PeerEngine(
            address,
            kind,
            channel=None if to_itself else self._channel,
            token=token,
            run_token=self._run_token,
            error=self._peer_error(to_itself),
        )

    def _advertised(self) -> tuple[str, int] | None:
        """The host and port of the address that peers are told; None where none is told."""
        return None

    @abstractmethod
    def _make_app(self) -> ProtocolApp:
        """The app with all views; called by the constructor."""

    @abstractmethod
    def _jobs(self) -> list[tuple[str, Callable[[], Any]]]:
        """Names and functions of the threads that `start` starts; the functions return after `_on_shutdown`."""

    @abstractmethod
    def _on_shutdown(self) -> None:
        """Wake whoever waits; called once, by `shutdown` of what was running, when `is_closing` is true."""

    @abstractmethod
    def _peer_error(self, to_itself: bool) -> Callable[[requests.HTTPError], Exception]:
        """What makes the exceptions for status errors: of peers, or of this server."""


_running: weakref.WeakSet[Service] = weakref.WeakSet()


def _forget_tokens() -> None:
    """In a forked child, such as that of an env: what it runs has nothing to ask of the others."""
    for service in list(_running):
        if service._run_token is not None:
            service._run_token.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_tokens)


class Role(ControllableService):
    """A server with threads of its own, used once. Its threads do not keep the interpreter alive: `join` it for that.

    All that it is made of is behind one attribute, so that subclasses may name theirs as they like.
    """

    def __init__(self, service: Service) -> None:
        self._interaction = service

    @property
    def host(self) -> str:
        """What it listens at."""
        return self._interaction.host

    @property
    def port(self) -> int:
        """The port it listens at; before `start`, the one it was given."""
        return self._interaction.port

    @property
    def channel(self) -> int:
        """Its channel."""
        return self._interaction.channel

    def start(self) -> None:
        """Listen, then serve; when this returns, requests are answered.

        Raises:
            RuntimeError: it was started or closed before.
            PermissionError: it would be reached from other machines without a token, or the token file is not private.
            ValueError: what stands for the token is none.
            OSError: the address cannot be listened at.
        """
        self._interaction.start()

    def shutdown(self) -> None:
        """Ask it to end, and return at once. May be called any number of times, from any thread, and before `start`."""
        self._interaction.shutdown()

    def join(self, timeout: float | None = None) -> None:
        """Wait until it has been asked to end (at most `timeout` seconds), then a bounded time until it has ended.

        Threads that are stuck in code of the user are left behind, with a warning. They are told to end nevertheless.
        """
        self._interaction.join(timeout)

    def ping(self) -> bool:
        """Whether it answers a request of its own; False only where the request does not arrive.

        Raises:
            ResponseException: it refuses the request.
        """
        return self._interaction.ping()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {url_host(self.host)}:{self.port}, {self._interaction.state}>"
