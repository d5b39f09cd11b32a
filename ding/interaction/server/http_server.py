"""A WSGI app on a socket, served by waitress, and ended by handle."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
import weakref
from typing import Any

from waitress import wasyncore
from waitress.adjustments import Adjustments
from waitress.channel import HTTPChannel
from waitress.server import TcpWSGIServer
from waitress.task import ErrorTask

from ding.interaction.base.app import envelope
from ding.interaction.server.guard import WsgiApp
from ding.interaction.server.request_threads import RequestThreads

_IDLE_TURN_S = 30.0  # how often the loop looks for connections to drop; everything else wakes it


class HttpServer:
    """Listens from construction on; answers from `start` until `stop`.

    The sockets are in a map of this server, which is empty when its loop has ended. A forked child closes its copies of
    them, so that a port is free as soon as the process that listened has ended.

    Args:
        port: 0 for any that is free; the attribute `port` tells which.
        name: what the names of the threads begin with.
        body_limit: the largest body in bytes; a larger one is answered with 413.

    Raises:
        OSError: the address cannot be listened at; the text says why.
    """

    def __init__(self, host: str, port: int, *, name: str, body_limit: int) -> None:
        self._name = name
        self._body_limit = body_limit
        self._socket = _listen(host, port)
        self.port = int(self._socket.getsockname()[1])
        self._map: dict[int, Any] = {}
        self._listener: _Listener | None = None
        self._thread: threading.Thread | None = None
        self._threads = RequestThreads(f"{name}_request", self._wake)
        self._stop_at: float | None = None
        _servers.add(self)

    def start(self, app: WsgiApp, threads: int) -> None:
        """Answer requests by `app`, at most `threads` at a time."""
        settings = Adjustments(
            sockets=[self._socket],
            ident=None,
            clear_untrusted_proxy_headers=False,  # nothing here reads them
            connection_limit=4096,
            channel_timeout=600,
            max_request_body_size=self._body_limit + 1,  # waitress refuses from this size on
            inbuf_overflow=self._body_limit + 1,  # no temporary files: bodies are decoded in memory anyway
        )
        address = (self._socket.family, self._socket.type, self._socket.proto, self._socket.getsockname())
        self._listener = _Listener(app, self._map, True, self._socket, self._threads, settings, address, False)
        self._threads.set_thread_count(threads)
        thread = threading.Thread(target=self._run, name=f"{self._name}_run_app", daemon=True)
        thread.start()
        self._thread = thread

    def set_thread_count(self, count: int) -> None:
        """Answer up to `count` requests at a time; never fewer than before."""
        self._threads.set_thread_count(count)

    def stop(self, grace_s: float) -> None:
        """End once the requests that are being served have been, at the latest in `grace_s`; return at once."""
        if self._stop_at is None:
            self._stop_at = time.monotonic() + grace_s
        if self._thread is None:
            self._end()
        self._wake()

    def join(self, deadline: float) -> list[threading.Thread]:
        """Wait until all threads have ended, until `time.monotonic()` is `deadline`; those that have not."""
        left = []
        if self._thread is not None:
            self._thread.join(max(0.0, deadline - time.monotonic()))
            left = [self._thread] if self._thread.is_alive() else []
        return left + self._threads.join(deadline)

    def _run(self) -> None:
        try:
            while self._map and not self._is_over():
                turn_s = _IDLE_TURN_S if self._stop_at is None else max(0.0, self._stop_at - time.monotonic())
                wasyncore.loop(timeout=turn_s, use_poll=True, map=self._map, count=1)
        except Exception:
            logging.getLogger("ding.interaction").exception("%s ends: its loop has failed", self._name)
        finally:
            self._end()

    def _is_over(self) -> bool:
        return self._stop_at is not None and (self._threads.is_idle or time.monotonic() >= self._stop_at)

    def _wake(self) -> None:
        if self._stop_at is not None and self._listener is not None:
            self._listener.pull_trigger()

    def _end(self) -> None:
        if self._listener is None:
            self._socket.close()
        else:
            self._listener.close()
        self._threads.stop()

    def _abandon(self) -> None:
        """In a forked child, which has none of the threads: give the sockets up without taking any lock."""
        channels = [] if self._listener is None else [*self._listener.active_channels.values()]
        for owner in [self._socket, *(channel.socket for channel in channels)]:
            with contextlib.suppress(OSError, AttributeError):  # one may be closed already, or be gone
                owner.close()


class _JsonErrorTask(ErrorTask):  # type: ignore[misc]
    """What waitress finds wrong with a request, in the envelope of all replies."""

    def execute(self) -> None:
        error = self.request.error
        self.status = f"{error.code} {error.reason}"
        body = envelope(False, message=f"{error.reason}: {error.body}").encode()
        self.response_headers.append(("Content-Type", "application/json"))
        self.set_close_on_finish()
        self.content_length = len(body)
        self.write(body)


class _Channel(HTTPChannel):  # type: ignore[misc]
    error_task_class = _JsonErrorTask


class _Listener(TcpWSGIServer):  # type: ignore[misc]
    channel_class = _Channel

    def __init__(self, *args: Any) -> None:
        self._trigger_lock = threading.Lock()
        self._has_trigger = True
        super().__init__(*args)

    def pull_trigger(self) -> None:
        # A request that ends after the loop must not write into a file that has got the trigger's number since.
        with self._trigger_lock:
            if self._has_trigger:
                super().pull_trigger()

    def close(self) -> None:
        for channel in list(self.active_channels.values()):
            channel.handle_close()
        with self._trigger_lock:
            self._has_trigger = False
            super().close()


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise OSError(f"cannot listen at {host}:{port}: the host is unknown ({error})") from error
    listener = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":  # elsewhere this would let two servers share a port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(1024)
    except OSError as error:
        listener.close()
        hint = "; port 0 takes any that is free" if port else ""
        raise OSError(error.errno, f"cannot listen at {host}:{port}: {error.strerror}{hint}") from error
    return listener


_servers: weakref.WeakSet[HttpServer] = weakref.WeakSet()


def _abandon_all() -> None:
    for server in list(_servers):
        server._abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)
