"""The HTTP server: Tornado's parser in a thread of its own, with limits on what strangers can hold.

A request is checked by its head, its body is read up to the limit of its route, and only then a thread serves it. A
client that has not yet proved that it belongs to the run is a *stranger*: its connection ends after one reply, or after
a few seconds, and the oldest strangers give way to new ones.
"""

from __future__ import annotations

import asyncio
import io
import logging
import math
import os
import queue
import socket
import ssl
import sys
import threading
import time
import weakref
from collections import Counter, OrderedDict
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import flask
from flask.sessions import NullSession, SessionInterface
from tornado.http1connection import HTTP1ConnectionParameters, HTTP1ServerConnection
from tornado.httputil import (
    HTTPConnection,
    HTTPHeaders,
    HTTPMessageDelegate,
    HTTPServerConnectionDelegate,
    ResponseStartLine,
)
from tornado.iostream import IOStream, SSLIOStream
from tornado.netutil import ssl_wrap_socket

from ding.interaction.base import Answer
from ding.interaction.server.app import Admission, Head, ProtocolApp, failure

if TYPE_CHECKING:
    from werkzeug.routing import MapAdapter

_HEAD_LIMIT = 16 * 2**10  # bytes of the headers; a head that is much longer is cut off without a reply
# Requests with larger bodies are answered in another thread, so that decoding them delays no other request.
_INLINE_LIMIT = 64 * 2**10
_MOST_THREADS = 8
# The most connections of strangers from one address, and from all: each process of this machine has all of 127.0.0.0/8.
_MOST_NEW = 128
_MOST_NEW_OF_ALL = 512
_STRANGERS_BYTES = 16 * 2**20  # limit of the unfinished bodies of all strangers together
_ADMISSION_S = 10.0  # how long a stranger may be connected
_SILENCE_S = 60.0  # how long a body may be interrupted
_IDLE_S = 600.0  # how long a connection is kept between two requests
_SWEEP_S = 1.0
_MOST_ACCEPTS = 64  # before requests are read again; the kernel turns clients away for a second if too many wait
_ACCEPT_RETRY_S = 1.0  # pause when there are no free descriptors
# After a refusal, the rest of the body is discarded for a while: a client whose connection is closed while it sends may
# not see the reply.
_LINGER_S, _LINGER_BYTES = 2.0, 8 * 2**20
_CLOSING_ROUNDS = 10
_TLS_HANDSHAKE = b"\x16"  # the first byte of a client that speaks TLS
_PARAMETERS = HTTP1ConnectionParameters(max_header_size=4 * _HEAD_LIMIT)
_log = logging.getLogger("ding.interaction")


class HttpServer(HTTPServerConnectionDelegate):
    """An HTTP server, which listens after construction, and answers between `start` and `stop`.

    New connections wait while the process has no free descriptors. A forked child closes its copies of the sockets, so
    that a port is free as soon as the process that listened has ended.

    Args:
        port: the port; 0 for any free one. The attribute `port` is the actual one.
        app: checks and answers the requests.
        name: the prefix of the names of the threads.
        tls: the TLS context with the certificate of the server; None for plain HTTP.

    Raises:
        OSError: the server cannot listen at the address.
    """

    def __init__(self, host: str, port: int, app: ProtocolApp, *, name: str, tls: ssl.SSLContext | None = None) -> None:
        self.app, self.tls = app, tls
        self._flask = FlaskApp()
        self._name = name
        self._socket = _listen(host, port)
        self.port = int(self._socket.getsockname()[1])
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stop_lock = threading.Lock()
        self._stop_at: float | None = None
        self._ended = asyncio.Event()
        self._pending = 0  # admitted requests without a reply
        self._connections: set[_Connection] = set()
        self._strangers: OrderedDict[_Connection, None] = OrderedDict()  # the oldest one first
        self._by_address: Counter[str] = Counter()  # the number of strangers
        self._most_strangers = _most_strangers()
        self._strangers_bytes = 0
        self._warned_at = -_IDLE_S
        self._threads: list[threading.Thread] = []
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._busy = 0  # the number of jobs that wait or run
        _servers.add(self)

    def start(self) -> None:
        """Begin to answer requests."""
        self._loop = asyncio.SelectorEventLoop()
        thread = threading.Thread(target=self._run, name=f"{self._name}_run_app", daemon=True)
        try:
            thread.start()
        except BaseException:
            self._loop.close()
            raise
        self._thread = thread

    def stop(self, grace_s: float) -> None:
        """Let the server end after the pending requests, in `grace_s` seconds at the latest, and return at once."""
        with self._stop_lock:
            if self._stop_at is None:
                self._stop_at = time.monotonic() + grace_s
            if self._thread is None:
                self._socket.close()
            elif self._loop is not None:
                self._loop.call_soon_threadsafe(self._begin_end)

    def join(self, deadline: float) -> list[threading.Thread]:
        """Wait for all threads until `time.monotonic()` is `deadline`, and return those that have not ended."""
        threads = [t for t in (self._thread, *self._threads) if t is not None and t is not threading.current_thread()]
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return [thread for thread in threads if thread.is_alive()]

    @property
    def connection_count(self) -> int:
        """The number of open connections."""
        return len(self._connections)

    def _run(self) -> None:
        loop = self._loop
        assert loop is not None
        try:
            loop.run_until_complete(self._serve(loop))
        except Exception:  # it ends in order, and waiting clients with it
            _log.exception("%s ends because its loop has failed", self._name)
        finally:
            with self._stop_lock:
                self._loop = None
            self._socket.close()
            loop.close()
            for _ in self._threads:
                self._jobs.put(None)

    async def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.add_reader(self._socket, self._accept, loop)
        self._sweep(loop)
        await self._ended.wait()
        loop.remove_reader(self._socket)
        for connection in list(self._connections):
            connection.close()
        for _ in range(_CLOSING_ROUNDS):  # rounds of the loop, in which the requests that are being read end
            await asyncio.sleep(0)

    def _begin_end(self) -> None:
        """End now, or as soon as nothing is pending or the grace time is over."""
        assert self._loop is not None and self._stop_at is not None
        left_s = self._stop_at - time.monotonic()
        if self._pending == 0 or left_s <= 0:
            self._ended.set()
        else:
            self._loop.call_later(left_s, self._ended.set)

    def _accept(self, loop: asyncio.AbstractEventLoop) -> None:
        for _ in range(_MOST_ACCEPTS):
            try:
                accepted, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # there are no free descriptors
                if time.monotonic() - self._warned_at > _IDLE_S:
                    _log.warning("%s accepts no connections at the moment: %s", self._name, error)
                    self._warned_at = time.monotonic()
                loop.remove_reader(self._socket)
                loop.call_later(_ACCEPT_RETRY_S, loop.add_reader, self._socket, self._accept, loop)
                return
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._opened(_Connection(self, loop, accepted, str(address[0])))

    def _opened(self, connection: _Connection) -> None:
        self._connections.add(connection)
        self._strangers[connection] = None
        self._by_address[connection.address] += 1
        if self._by_address[connection.address] > _MOST_NEW:
            next(stranger for stranger in self._strangers if stranger.address == connection.address).close()
        elif len(self._strangers) > self._most_strangers:
            next(iter(self._strangers)).close()

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        now = time.monotonic()
        for connection in list(self._connections):
            if now >= connection.expires_at:
                connection.close()
        loop.call_later(_SWEEP_S, self._sweep, loop)

    def _abandon(self) -> None:
        """Release the sockets in a forked child, which has none of the threads, without taking a lock."""
        null = os.open(os.devnull, os.O_RDWR)
        for fileno in [self._socket.fileno(), *(connection.fileno for connection in self._connections)]:
            if fileno >= 0:
                os.dup2(null, fileno, inheritable=False)  # the objects that hold the number still own it
        os.close(null)

    # Tornado calls the following two methods.

    def start_request(self, server_conn: object, request_conn: HTTPConnection) -> HTTPMessageDelegate:
        return _Exchange(self, server_conn.context, request_conn)  # type: ignore[attr-defined]

    def on_close(self, server_conn: object) -> None:
        self.forget(server_conn.context)  # type: ignore[attr-defined]

    # The connections call the following methods, in the thread of the server.

    def is_stranger(self, connection: _Connection) -> bool:
        """Return whether the client has not proved that it belongs to the run."""
        return connection in self._strangers

    def admitted(self, connection: _Connection) -> None:
        """Note that a client is no longer a stranger, or is gone."""
        if connection in self._strangers:
            del self._strangers[connection]
            self._by_address[connection.address] -= 1
            if not self._by_address[connection.address]:
                del self._by_address[connection.address]

    def forget(self, connection: _Connection) -> None:
        """Remove a connection that is closed."""
        connection.fileno = -1
        self._connections.discard(connection)
        self.admitted(connection)

    def has_room(self, size: int) -> bool:
        """Add `size`, which may be negative, to the bytes of strangers' bodies; return whether the limit is kept."""
        self._strangers_bytes += size
        return self._strangers_bytes <= _STRANGERS_BYTES

    def answer(self, admission: Admission, body: bytes, done: Callable[[Answer], None]) -> None:
        """Answer the admitted request with this body, and call `done` in the thread of the server."""
        self._pending += 1
        if admission.is_quick and len(body) <= _INLINE_LIMIT:
            self._answered(self._flask.respond(admission, body), done)
        else:
            self._in_thread(partial(self._answer, admission, body, done))

    def _in_thread(self, job: Callable[[], None]) -> None:
        self._busy += 1
        if min(self._busy, _MOST_THREADS) > len(self._threads):
            name = f"{self._name}_request_{len(self._threads)}"
            thread = threading.Thread(target=self._work, name=name, daemon=True)
            thread.start()
            self._threads.append(thread)
        self._jobs.put(job)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            del job  # do not keep a closed connection alive while waiting for the next job

    def _answer(self, admission: Admission, body: bytes, done: Callable[[Answer], None]) -> None:
        answer = self._flask.respond(admission, body)
        with self._stop_lock:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._answered, answer, done, 1)

    def _answered(self, answer: Answer, done: Callable[[Answer], None], jobs: int = 0) -> None:
        self._busy -= jobs
        done(answer)
        self._pending -= 1
        if self._stop_at is not None and self._pending == 0:
            self._ended.set()


class _Connection:
    """A connection of a client, from its first byte on."""

    def __init__(
        self, server: HttpServer, loop: asyncio.AbstractEventLoop, accepted: socket.socket, address: str
    ) -> None:
        self._server, self._loop, self._socket = server, loop, accepted
        self._stream: _Stream | None = None
        self.address = address
        self.fileno = accepted.fileno()
        self.scheme = "http" if server.tls is None else "https"
        self.is_over = False  # whether no further request is read
        self.expires_at = time.monotonic() + _ADMISSION_S
        loop.add_reader(accepted, self._begin)

    def close(self) -> None:
        """Close the connection at once."""
        if self._stream is None:
            self._loop.remove_reader(self._socket)
            self._socket.close()
        else:
            self._stream.close()
        self._server.forget(self)

    def send_no_more(self) -> None:
        """Send what was written, but nothing that is written from now on."""
        assert self._stream is not None
        self._stream.is_over = True

    def _begin(self) -> None:
        """Look at the first byte, which shows whether the client speaks TLS."""
        tls = self._server.tls
        try:
            first = self._socket.recv(1, socket.MSG_PEEK)
            if first and (first == _TLS_HANDSHAKE) is (tls is not None):
                self._loop.remove_reader(self._socket)
                if tls is None:
                    self._stream = _Stream(self._socket)
                else:
                    secure = ssl_wrap_socket(self._socket, tls, server_side=True, do_handshake_on_connect=False)
                    self._stream = _TlsStream(secure)
                HTTP1ServerConnection(self._stream, _PARAMETERS, self).start_serving(self._server)
                return
            if first:
                self._socket.recv(_HEAD_LIMIT)  # a connection with unread bytes is reset, and the reply may be lost
                self._socket.send(_OTHER_PROTOCOL[tls is not None])
        except BlockingIOError:
            return
        except OSError:  # errors of the module ssl are such errors, too
            pass
        self.close()


class _Stream(IOStream):
    """A stream that sends every packet at once, and nothing after the last reply."""

    is_over = False

    def write(self, data: bytes | memoryview) -> asyncio.Future[None]:
        """Write `data`, but not after the last reply, which Tornado follows up with a 400 if the body is malformed."""
        return super().write(b"" if self.is_over else data)

    def set_nodelay(self, value: bool) -> None:
        """Do nothing: the option is set when a client is accepted, not twice for each request."""


class _TlsStream(_Stream, SSLIOStream):
    """A TLS stream that sends every packet at once."""


class _Exchange(HTTPMessageDelegate):
    """One request and its reply."""

    def __init__(self, server: HttpServer, connection: _Connection, http: HTTPConnection) -> None:
        self._server, self._connection = server, connection
        self._http: Any = http
        self._head: Head | None = None
        self._admission: Admission | None = None
        self._body = bytearray()
        self._counted = 0  # bytes of the body that are counted as a stranger's
        self._left: int | None = None  # after a refusal: how many bytes of the body are still discarded

    def headers_received(self, start_line: Any, headers: HTTPHeaders) -> None:
        connection = self._connection
        if connection.is_over:
            connection.close()
            return
        self._http.set_max_body_size(sys.maxsize)  # the limit depends on the request, see below
        fields: dict[str, str] = {}
        head = self._head = Head(start_line.method, start_line.path, fields, connection.address, connection.scheme)
        size = len(head.target)
        for name, value in headers.get_all():
            key = name.lower().replace("_", "-")
            if key in fields:  # a proxy might use the other one of the two
                self._refuse(failure(400, f"Bad Request: the header {key} is repeated."))
                return
            fields[key] = value
            size += len(name) + len(value) + 4
        if size > _HEAD_LIMIT:
            self._refuse(failure(431, f"Request Header Fields Too Large: the limit is {_HEAD_LIMIT} bytes."))
            return
        decided = self._server.app.admit(head)
        if isinstance(decided, Answer):
            self._refuse(decided)
            return
        self._admission = decided
        if decided.is_peer:
            self._server.admitted(connection)
            connection.expires_at = time.monotonic() + _SILENCE_S
        length = fields.get("content-length", "0")
        if not (length.isascii() and length.isdigit()):
            self._refuse(failure(400, "Bad Request: the Content-Length is not a number."))
        elif int(length) > decided.body_limit:
            self._refuse(decided.too_large())

    def data_received(self, chunk: bytes) -> None:
        if self._left is not None:
            self._left -= len(chunk)
            if self._left < 0:
                self._connection.close()
            return
        assert self._admission is not None
        self._body += chunk
        if not self._server.is_stranger(self._connection):
            self._connection.expires_at = time.monotonic() + _SILENCE_S
        else:
            self._counted += len(chunk)
            if not self._server.has_room(len(chunk)):
                self._refuse(failure(503, "The server is busy."))
                return
        if len(self._body) > self._admission.body_limit:  # sent in chunks; otherwise it was refused by its length
            self._refuse(self._admission.too_large())

    def finish(self) -> None:
        if self._left is not None:
            self._http.finish()
            self._connection.close()
            return
        assert self._admission is not None
        self._connection.expires_at = math.inf  # the reply takes as long as it takes
        body = bytes(self._body)
        self._release()
        self._server.answer(self._admission, body, self._reply)

    def on_connection_close(self) -> None:
        self._release()

    def _release(self) -> None:
        self._body = bytearray()
        self._server.has_room(-self._counted)
        self._counted = 0

    def _reply(self, answer: Answer) -> None:
        is_stranger = self._server.is_stranger(self._connection)
        self._connection.expires_at = time.monotonic() + (_ADMISSION_S if is_stranger else _IDLE_S)
        self._connection.is_over = is_stranger
        sent = self._write(answer, is_last=is_stranger)
        self._http.finish()
        if is_stranger:
            sent.add_done_callback(lambda _: self._connection.close())

    def _refuse(self, answer: Answer) -> None:
        """Send the reply and close the connection, but read the rest of the body first, for a while."""
        self._release()
        self._left = _LINGER_BYTES
        self._connection.expires_at = time.monotonic() + _LINGER_S
        self._write(answer, is_last=True)
        assert self._head is not None
        fields = self._head.headers
        has_body = fields.get("content-length", "0") != "0" or "transfer-encoding" in fields
        if not has_body or "expect" in fields:
            self._http.finish()

    def _write(self, answer: Answer, is_last: bool) -> Any:
        assert self._head is not None
        headers = HTTPHeaders()
        for name, value in answer.headers:
            headers[name] = value
        headers["Content-Length"] = str(len(answer.body))
        if is_last:
            headers["Connection"] = "close"
        line = ResponseStartLine("", answer.status, _PHRASES.get(answer.status, ""))
        sent = self._http.write_headers(line, headers, b"" if self._head.method == "HEAD" else answer.body)
        if is_last:
            self._connection.send_no_more()
        return sent


class _NoSessions(SessionInterface):
    """The interface of browser sessions, of which there are none."""

    _none = NullSession()

    def open_session(self, app: flask.Flask, request: flask.Request) -> NullSession:
        return self._none


class FlaskApp(flask.Flask):
    """A Flask app for the user code of masters and slaves: `flask.request` is the request that they answer.

    What answers a request was found by its head; so the app has no routes, and needs no hooks and signals.
    """

    session_interface = _NoSessions()

    def __init__(self) -> None:
        super().__init__(__name__, static_folder=None)

    def create_url_adapter(self, request: flask.Request | None) -> MapAdapter | None:
        return None

    def respond(self, admission: Admission, body: bytes) -> Answer:
        """Return the reply to an admitted request with this body. It never raises."""
        if admission.is_copy:  # what a copy asks for need not exist any more
            return admission.answer(body)
        try:
            with self.request_context(environ_of(admission.head, body)):
                return admission.answer(body)
        except Exception as error:  # the client receives whatever fails
            return admission.refuse(error)


def environ_of(head: Head, body: bytes) -> dict[str, Any]:
    """Return the WSGI environment of a request."""
    headers = {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in head.headers.items()}
    return {
        **headers,
        "REQUEST_METHOD": head.method,
        "REQUEST_URI": head.target,
        "SCRIPT_NAME": "",
        "PATH_INFO": head.path,
        "QUERY_STRING": head.target.partition("?")[2],
        "CONTENT_TYPE": head.headers.get("content-type", ""),
        "CONTENT_LENGTH": str(len(body)),
        "REMOTE_ADDR": head.peer,
        "SERVER_NAME": "",
        "SERVER_PORT": "0",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": head.scheme,
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }


_PHRASES = {int(status): status.phrase for status in HTTPStatus}


def _plain_reply(message: str) -> bytes:
    body = failure(400, message).body
    head = f"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"Connection: close\r\n\r\n" + body


# The reply to a client without TLS at a server with TLS, and the other way round.
_OTHER_PROTOCOL = {
    True: _plain_reply("Bad Request: this server speaks TLS; use https (DING_TLS_CERT is set here)."),
    False: _plain_reply("Bad Request: this server does not speak TLS (DING_TLS_CERT is not set here)."),
}


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
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        hint = "; port 0 takes any free port" if port else ""
        raise OSError(error.errno, f"cannot listen at {host}:{port}: {error.strerror}{hint}") from error
    return listener


def _most_strangers() -> int:
    """Return how many connections of strangers this process can afford: a quarter of its descriptors at most."""
    try:
        import resource
    except ImportError:
        return _MOST_NEW_OF_ALL
    return min(_MOST_NEW_OF_ALL, max(1, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4))


_servers: weakref.WeakSet[HttpServer] = weakref.WeakSet()


def _abandon_all() -> None:
    for server in list(_servers):
        server._abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)
