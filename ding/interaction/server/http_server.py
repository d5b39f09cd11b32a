"""An HTTP server on asyncio, in a thread of its own, that judges a request before it reads the body."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Protocol

import httptools

from ding.interaction.base.app import ProtocolError
from ding.interaction.server.messages import Reply, Request, failure
from ding.interaction.server.request_threads import RequestThreads

_HEAD_LIMIT = 16 * 2**10  # bytes of a request line and its headers
# Requests with larger bodies are answered in another thread, so that decoding them delays no other request.
_INLINE_LIMIT = 64 * 2**10
# The most connections from one address, and from all, without an admitted request. The oldest one is closed for a new
# one: a legitimate client is admitted with its first request.
_MOST_NEW = 128
_MOST_NEW_OF_ALL = 512  # a client may have many addresses: each process of this machine has all of 127.0.0.0/8
_ADMISSION_S = 10.0  # how long a connection may be open without an admitted request
_SILENCE_S = 60.0  # how long a body may be interrupted
_IDLE_S = 600.0  # how long a connection is kept between two requests
_SWEEP_S = 1.0
# After a refusal, further bytes are discarded for a while: a client whose connection is closed while it sends may not
# see the reply.
_LINGER_S, _LINGER_BYTES = 2.0, 8 * 2**20
_log = logging.getLogger("ding.interaction")


class Admission(Protocol):
    """The decision of an app to read the body of a request."""

    @property
    def body_limit(self) -> int:
        """The largest body in bytes."""

    @property
    def is_quick(self) -> bool:
        """Whether `answer` neither waits nor runs user code, so that it may run in the thread of the server."""

    def answer(self, body: bytes) -> Reply:
        """Return the reply to the request with this body. Does not raise."""

    def refuse(self, error: ProtocolError) -> Reply:
        """Return the reply to the request, whose body is not read."""


class App(Protocol):
    """Answers requests."""

    def admit(self, request: Request) -> Admission | Reply:
        """Judge a request by its head; a reply refuses it. Runs in the thread of the server."""


class HttpServer:
    """Listens after construction; answers between `start` and `stop`.

    A body is read only after the app has admitted the request by its head, and only up to the limit of the app. New
    connections wait while the process has no free descriptors. A forked child closes its copies of the sockets, so that
    a port is free as soon as the process that listened has ended.

    Args:
        port: 0 for any free port; the attribute `port` is the actual one.
        name: the prefix of the names of the threads.
        tls: serves TLS with the certificate of this context; None for plain HTTP.

    Raises:
        OSError: the address cannot be listened at.
    """

    def __init__(self, host: str, port: int, *, name: str, tls: ssl.SSLContext | None = None) -> None:
        self._name = name
        self._tls = tls
        self._socket = _listen(host, port)
        self.port = int(self._socket.getsockname()[1])
        self._threads = RequestThreads(f"{name}_request")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._app: App | None = None
        self._stop_lock = threading.Lock()
        self._stop_at: float | None = None
        self._ended = asyncio.Event()
        self._pending = 0  # admitted requests without a reply
        self._connections: set[_Connection] = set()
        self._new: dict[str, deque[_Connection]] = {}
        self._all_new: dict[_Connection, None] = {}  # the oldest one first
        self._refused_at = 0.0
        _servers.add(self)

    def start(self, app: App) -> None:
        """Answer requests with `app`."""
        self._app = app
        self._loop = asyncio.SelectorEventLoop()
        thread = threading.Thread(target=self._run, name=f"{self._name}_run_app", daemon=True)
        try:
            thread.start()
        except BaseException:
            self._loop.close()
            raise
        self._thread = thread

    def stop(self, grace_s: float) -> None:
        """End after the pending requests, in `grace_s` seconds at the latest; return at once."""
        with self._stop_lock:
            if self._stop_at is None:
                self._stop_at = time.monotonic() + grace_s
            if self._thread is None:
                self._socket.close()
            elif self._loop is not None:
                self._loop.call_soon_threadsafe(self._begin_end)

    def join(self, deadline: float) -> list[threading.Thread]:
        """Wait for all threads until `time.monotonic()` is `deadline`; return those that have not ended."""
        left = []
        if self._thread is not None:
            self._thread.join(max(0.0, deadline - time.monotonic()))
            left = [self._thread] if self._thread.is_alive() else []
        return left + self._threads.join(deadline)

    @property
    def connection_count(self) -> int:
        """The number of open connections."""
        return len(self._connections)

    def _run(self) -> None:
        loop = self._loop
        assert loop is not None
        loop.set_exception_handler(self._on_error)
        try:
            loop.run_until_complete(self._serve(loop))
        except Exception:
            _log.exception("%s ends because its loop has failed", self._name)
        finally:
            with self._stop_lock:
                self._loop = None
            self._socket.close()
            loop.close()
            self._threads.stop()

    async def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        # Not with `ssl`, which would announce a connection only after its handshake: they count from the beginning.
        server = await loop.create_server(lambda: _Connection(self, self._tls), sock=self._socket)
        self._sweep(loop)
        await self._ended.wait()
        loop.remove_reader(self._socket)  # `close` drops connections that were accepted in the same round
        accepting = asyncio.all_tasks(loop) - {asyncio.current_task(loop)}
        if accepting:
            if self._tls:  # clients take their time for their part of the handshake
                for task in accepting:
                    task.cancel()
            await asyncio.wait(accepting)
        server.close()
        for end in (_Connection.close, _Connection.abort):  # the first keeps connections with unsent bytes
            for connection in list(self._connections):
                end(connection)
            for _ in range(2):  # rounds of the loop, in which the transports close their sockets
                await asyncio.sleep(0)

    def _begin_end(self) -> None:
        """End now, or as soon as nothing is pending or the time is over."""
        assert self._loop is not None and self._stop_at is not None
        left_s = self._stop_at - time.monotonic()
        if self._pending == 0 or left_s <= 0:
            self._ended.set()
        else:
            self._loop.call_later(left_s, self._ended.set)

    def _on_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        error = context.get("exception")
        if isinstance(error, OSError) and "socket" in context:  # no descriptors: the loop tries again after a second
            if time.monotonic() - self._refused_at > _IDLE_S:
                _log.warning("%s accepts no connections at the moment: %s", self._name, error)
                self._refused_at = time.monotonic()
            return
        _log.error("%s: %s", self._name, context.get("message"), exc_info=error)  # type: ignore[arg-type]

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        now = time.monotonic()
        for connection in list(self._connections):
            if now >= connection.expires_at:
                connection.abort()
        loop.call_later(_SWEEP_S, self._sweep, loop)

    def _abandon(self) -> None:
        """Release the sockets in a forked child, which has none of the threads, without taking a lock."""
        null = os.open(os.devnull, os.O_RDWR)
        for fileno in [self._socket.fileno(), *(connection.fileno for connection in self._connections)]:
            if fileno >= 0:
                os.dup2(null, fileno, inheritable=False)  # the objects that hold the number still own it
        os.close(null)

    # The connections call the following methods.

    def admit(self, request: Request) -> Admission | Reply:
        """Return the decision of the app."""
        assert self._app is not None
        return self._app.admit(request)

    def opened(self, connection: _Connection) -> None:
        """Register a connection."""
        self._connections.add(connection)
        same_peer = self._new.setdefault(connection.peer, deque())
        same_peer.append(connection)
        self._all_new[connection] = None
        if len(same_peer) > _MOST_NEW:
            self._displace(same_peer[0])
        if len(self._all_new) > _MOST_NEW_OF_ALL:
            self._displace(next(iter(self._all_new)))

    def _displace(self, connection: _Connection) -> None:
        self.admitted(connection)  # not counted any more, though it closes a moment later
        connection.abort()

    def admitted(self, connection: _Connection) -> None:
        """Register that the first request of a connection was admitted."""
        if connection in self._all_new:
            del self._all_new[connection]
            same_peer = self._new[connection.peer]
            same_peer.remove(connection)
            if not same_peer:
                del self._new[connection.peer]

    def closed(self, connection: _Connection) -> None:
        """Remove a connection."""
        self._connections.discard(connection)
        self.admitted(connection)

    def answer(self, admission: Admission, body: bytes, done: Callable[[Reply], None]) -> None:
        """Answer the request, and call `done` in the thread of the server."""
        self._pending += 1
        if admission.is_quick and len(body) <= _INLINE_LIMIT:
            self._answered(admission.answer(body), done)
        else:
            self._threads.submit(lambda: self._answer_in_thread(admission, body, done))

    def _answer_in_thread(self, admission: Admission, body: bytes, done: Callable[[Reply], None]) -> None:
        reply = admission.answer(body)
        with self._stop_lock:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._answered, reply, done)

    def _answered(self, reply: Reply, done: Callable[[Reply], None]) -> None:
        done(reply)
        self._pending -= 1
        if self._stop_at is not None and self._pending == 0:
            self._ended.set()


class _Connection(asyncio.Protocol):
    """One connection of a client: requests arrive one after the other and are answered in this order.

    Args:
        tls: the handshake comes first; None for plain HTTP.
    """

    def __init__(self, server: HttpServer, tls: ssl.SSLContext | None = None) -> None:
        self._server, self._tls = server, tls
        self._handshake: asyncio.Task[None] | None = None
        self._early: list[bytes] = []  # what arrived before the end of the handshake was noticed
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._todo: deque[Callable[[], None]] = deque()  # complete requests that wait for an earlier reply
        self._is_answering = False
        self._is_admitted = self._has_eof = self._is_bare = self._is_kept = False
        self._linger: int | None = None  # once nothing more is read: how many bytes are still discarded
        self._head_bytes = 0
        self._begin()
        self.peer = ""
        self.fileno = -1
        self.expires_at = time.monotonic() + _ADMISSION_S

    # Transport -> connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.peer = str((transport.get_extra_info("peername") or ("",))[0])
        self.fileno = transport.get_extra_info("socket").fileno()
        if self._tls is not None:
            self._handshake = asyncio.get_running_loop().create_task(self._secure(transport, self._tls))
        self._server.opened(self)

    async def _secure(self, plain: asyncio.Transport, tls: ssl.SSLContext) -> None:
        """Do the handshake on a transport that has not read anything yet."""
        secure = None
        try:
            if not plain.is_closing():
                secure = await asyncio.get_running_loop().start_tls(
                    plain, self, tls, server_side=True, ssl_handshake_timeout=_ADMISSION_S
                )
        except OSError as error:  # also of the modules ssl and asyncio
            _log.debug("a TLS handshake with %s has failed: %s", self.peer, error)
        finally:
            self._handshake = None
            if secure is None or plain.is_closing():
                plain.abort()
                self.connection_lost(None)
        if self._transport is None:
            return
        self._transport = secure
        if self._early:
            self.data_received(b"".join(self._early))
        if self._has_eof:
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.close()  # Python 3.10 warns of a TLS transport that only the peer has closed
        self.fileno = -1
        self._transport = None
        self._todo.clear()
        self._server.closed(self)

    def eof_received(self) -> bool:
        self._has_eof = True
        if self._handshake is not None:
            return False
        # The reply is still sent; otherwise the connection is closed. TLS cannot be closed on one side only.
        return self._is_answering and self._transport is not None and self._transport.can_write_eof()

    def data_received(self, data: bytes) -> None:
        if self._handshake is not None:
            self._early.append(data)
        elif self._linger is None:
            self._read(data)
        else:
            self._linger -= len(data)
            if self._linger < 0:
                self.abort()

    def _read(self, data: bytes) -> None:
        if self._is_admitted:
            self.expires_at = time.monotonic() + _SILENCE_S
        if self._admission is None:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError as error:
            if self._linger is None:  # otherwise the request was refused and nothing more of it is read
                _log.error("a request could not be read", exc_info=error)
                self._refuse(failure(500, "Internal Server Error"))
        except httptools.HttpParserUpgrade:
            self._refuse(failure(400, "Bad Request: this server upgrades to no other protocol."))
        except httptools.HttpParserError as error:
            self._refuse(failure(400, f"Bad Request: {error}"))
        if self._admission is None and self._head_bytes > _HEAD_LIMIT and self._linger is None:
            self._refuse(failure(431, f"Request Header Fields Too Large: the limit is {_HEAD_LIMIT} bytes."))

    def close(self) -> None:
        """Close the connection after the unsent bytes."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    # Parser -> connection

    def _begin(self) -> None:
        self._target = b""
        self._headers: dict[str, str] = {}
        self._admission: Admission | None = None
        self._body: list[bytes] = []
        self._body_bytes = 0

    def on_message_begin(self) -> None:
        self._begin()

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        key = name.decode("latin-1").lower()
        if key in self._headers:  # a proxy might read another one of the two than this server
            self._refuse(failure(400, f"Bad Request: the header {key} is repeated."))
            raise _Done
        self._headers[key] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        request = Request(self._parser.get_method().decode(), self._target.decode("latin-1"), self._headers, self.peer)
        self._is_kept = self._parser.should_keep_alive()
        self._is_bare = request.method == "HEAD"
        decided = self._server.admit(request)
        if isinstance(decided, Reply):
            self._refuse(decided)
            raise _Done
        self._admission = decided
        self._head_bytes = 0
        if not self._is_admitted:
            self._is_admitted = True
            self._server.admitted(self)
            self.expires_at = time.monotonic() + _SILENCE_S
        length = request.headers.get("content-length", "")
        if length and int(length) > decided.body_limit:
            self._refuse(decided.refuse(_too_large(decided)))
            raise _Done
        if request.headers.get("expect", "").lower() == "100-continue":
            self._write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, data: bytes) -> None:
        assert self._admission is not None
        self._body_bytes += len(data)
        if self._body_bytes > self._admission.body_limit:  # sent in chunks; otherwise it was refused by its length
            self._refuse(self._admission.refuse(_too_large(self._admission)))
            raise _Done
        self._body.append(data)

    def on_message_complete(self) -> None:
        admission, body, is_kept, is_bare = self._admission, b"".join(self._body), self._is_kept, self._is_bare
        assert admission is not None
        self._begin()

        def send(reply: Reply) -> None:
            self._is_answering = False
            self._send(reply, is_kept, is_bare)
            self._proceed()

        def answer() -> None:
            self._is_answering = True
            self._server.answer(admission, body, send)

        self._todo.append(answer)
        self._proceed()

    # Connection -> transport

    def _proceed(self) -> None:
        while self._todo and not self._is_answering:
            self._todo.popleft()()
        if self._transport is not None and not self._transport.is_closing():
            if self._todo:
                self._transport.pause_reading()
            elif not self._transport.is_reading():
                self._transport.resume_reading()

    def _refuse(self, reply: Reply) -> None:
        """Send `reply` after those to earlier requests, and read no more requests."""
        self._linger = _LINGER_BYTES
        self._todo.append(lambda: self._send(reply, False, self._is_bare))
        self._proceed()

    def _send(self, reply: Reply, is_kept: bool, is_bare: bool) -> None:
        self._write(reply.to_bytes(is_kept, is_bare))
        if is_kept and not self._has_eof:
            self.expires_at = time.monotonic() + _IDLE_S
            return
        self._linger = _LINGER_BYTES
        self.expires_at = time.monotonic() + _LINGER_S
        if self._has_eof:
            self.close()
        elif self._transport is not None and not self._transport.is_closing():
            if self._transport.can_write_eof():
                self._transport.write_eof()
            else:
                self._transport.close()

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)


class _Done(Exception):
    """Ends the parser of a connection."""


def _too_large(admission: Admission) -> ProtocolError:
    return ProtocolError(413, 1, f"Request Entity Too Large: the limit is {admission.body_limit} bytes.")


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise OSError(f"cannot listen at {host}:{port}: the host is unknown ({error})") from error
    listener = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":  # on Windows this would let two servers share a port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(1024)
    except OSError as error:
        listener.close()
        hint = "; port 0 takes any free port" if port else ""
        raise OSError(error.errno, f"cannot listen at {host}:{port}: {error.strerror}{hint}") from error
    return listener


_servers: weakref.WeakSet[HttpServer] = weakref.WeakSet()


def _abandon_all() -> None:
    for server in list(_servers):
        server._abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)
