"""The HTTP server of masters and slaves: a Flask app on Tornado's server, behind a gate that judges requests."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import queue
import socket
import ssl
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from http.client import responses
from typing import Any, NamedTuple

import flask
from tornado.httpserver import HTTPServer
from tornado.httputil import (
    HTTPHeaders,
    HTTPMessageDelegate,
    HTTPServerRequest,
    RequestStartLine,
    ResponseStartLine,
)
from tornado.iostream import IOStream, StreamClosedError
from tornado.wsgi import WSGIContainer
from werkzeug.exceptions import HTTPException

from ding.interaction.access import RunToken, is_own_name, listed_hosts
from ding.interaction.base import Page, ResponsibleException, envelope, success_response
from ding.interaction.exception import SlaveErrorCode
from ding.interaction.http_client import BINARY, DEFAULT_BODY_LIMIT

# The most connections of clients that have not shown the token; the oldest gives way to a new one.
_MOST_STRANGERS = 256
_HEAD_LIMIT = 16 * 2**10  # bytes
_BODY_S, _IDLE_S = 60.0, 600.0  # how long a body may take, and how long a connection is kept between two requests
_REPLY_S, _LINGER_S = 5.0, 0.5  # how long a stranger may take to read a reply, and to stop sending
_LAST_REQUEST_S = 0.1  # how long the last requests of peers may take to arrive
_MOST_THREADS = 8
# Only pages of the server itself may read a page; browsers do not cache it or guess its type.
_PAGE_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_CHALLENGE = {"WWW-Authenticate": "Bearer"}
_CLOSING = SlaveErrorCode.SYSTEM_SHUTTING_DOWN  # the same number as that of masters
_log = logging.getLogger("ding.interaction")
# Strangers could fill the log with a line for each of their handshakes that fail.
logging.getLogger("tornado.general").addFilter(lambda record: not record.getMessage().startswith("SSL Error"))


class Reply(NamedTuple):
    """A reply, of the app or of the gate."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def _refusal(status: int, message: str, headers: Mapping[str, str] | None = None) -> Reply:
    body = json.dumps(envelope(False, message=message)).encode()
    return Reply(status, {"Content-Type": "application/json", **(headers or {})}, body)


def _failed(error: BaseException) -> Reply:
    """Return the reply to a request that has failed: the traceback is logged, the client gets the type and the text."""
    _log.error("a request failed", exc_info=error)
    return _refusal(500, f"{type(error).__name__}: {error}")


def _page_reply(page: Page, is_locked: bool = False) -> Reply:
    """Return a page, with the status 401 if `is_locked`, by which a page can ask its reader for the token."""
    try:
        content = page.make()
    except Exception as error:  # the client receives whatever fails
        return _failed(error)
    headers = {**_PAGE_HEADERS, **page.headers, "Content-Type": page.content_type}
    body = content.encode() if isinstance(content, str) else content
    return Reply(401, {**headers, **_CHALLENGE}, body) if is_locked else Reply(200, headers, body)


class Gate:
    """A judge of requests by their heads.

    A request must pass these checks, in this order: its `Host` is a name of the server, and it has no `Origin` header,
    which would mean that it comes from a web page (403); it carries the token of the run, or is for a page that needs
    none (401); its body is msgpack (415) and within the limit (413).

    Args:
        host: the host at which the server listens.
        token: the token of the run, if it has one.
        pages: the pages by path.
    """

    def __init__(self, host: str, token: RunToken | None, pages: Mapping[str, Page]) -> None:
        self._host, self._token, self._pages = host, token, pages
        self.is_locked = token is not None and token.guards_pages  # whether strangers get 401 and nothing else
        self._listed = listed_hosts()
        self._last_name: str | None = None  # the last `Host` that was accepted: clients send the same one each time

    def judge(self, line: RequestStartLine, headers: HTTPHeaders) -> Reply | Page | None:
        """Return None for a request of a peer, which the app answers, or else the reply or page that it gets."""
        name = headers.get("Host")
        if name is None or (name != self._last_name and not is_own_name(name, self._host, self._listed)):
            text = "The host in the request is not a name of this server (DING_HOSTS lists further names)."
            return _refusal(403, text)
        self._last_name = name
        if "Origin" in headers:
            return _refusal(403, "Requests of web pages are not served.")
        token = self._token
        if token is not None and not token.is_in(headers.get("Authorization")):
            page = self._pages.get(line.path.partition("?")[0])
            if page is None or line.method not in ("GET", "HEAD") or (self.is_locked and not page.is_public):
                text = "The token of the run is missing or wrong (DING_TOKEN or DING_TOKEN_FILE)."
                return _refusal(401, text, _CHALLENGE)
            return page
        content_type = headers.get("Content-Type") or BINARY
        if content_type.partition(";")[0].strip().lower() != BINARY:
            return _refusal(415, f"The body must be {BINARY}.")
        length = headers.get("Content-Length", "0")
        if length.isdigit() and int(length) > DEFAULT_BODY_LIMIT:
            return _refusal(413, f"Request Entity Too Large: the limit is {DEFAULT_BODY_LIMIT} bytes.")
        return None


class _GuardedServer(HTTPServer):
    """Tornado's server, which passes only requests on that its gate admits, and keeps few connections of strangers."""

    def initialize(self, request_callback: Any, *, gate: Gate, **kwargs: Any) -> None:  # type: ignore[override]
        super().initialize(request_callback, **kwargs)
        self.gate = gate
        self.streams: set[IOStream] = set()
        self.strangers: dict[IOStream, None] = {}  # the oldest one first

    def handle_stream(self, stream: IOStream, address: tuple[Any, ...]) -> None:
        self.streams.add(stream)
        self.strangers[stream] = None
        if len(self.strangers) > _MOST_STRANGERS:
            oldest = next(iter(self.strangers))
            del self.strangers[oldest]
            oldest.close()
        super().handle_stream(stream, address)

    def on_close(self, server_conn: Any) -> None:
        self.streams.discard(server_conn.stream)
        self.strangers.pop(server_conn.stream, None)
        super().on_close(server_conn)

    def start_request(self, server_conn: Any, request_conn: Any) -> HTTPMessageDelegate:
        return _Guarded(self, server_conn.stream, request_conn, super().start_request(server_conn, request_conn))


class _Guarded(HTTPMessageDelegate):
    """A request before the gate; once it is admitted, `inner` receives it."""

    def __init__(self, server: _GuardedServer, stream: IOStream, http: Any, inner: HTTPMessageDelegate) -> None:
        self._server, self._stream, self._http, self._inner = server, stream, http, inner

    def headers_received(self, start_line: Any, headers: HTTPHeaders) -> Any:
        answer = self._server.gate.judge(start_line, headers)
        if answer is None:
            self._server.strangers.pop(self._stream, None)
            return self._inner.headers_received(start_line, headers)
        return self._refuse(answer, start_line.method == "HEAD")

    async def _refuse(self, answer: Reply | Page, is_head: bool) -> None:
        """Send the reply and close the connection; nothing of the body is parsed."""
        self._inner = HTTPMessageDelegate()
        if isinstance(answer, Page):
            loop = asyncio.get_running_loop()
            reply = await loop.run_in_executor(None, _page_reply, answer, self._server.gate.is_locked)
        else:
            reply = answer
        line = ResponseStartLine("HTTP/1.1", reply.status, responses.get(reply.status, ""))
        head = HTTPHeaders({**reply.headers, "Content-Length": str(len(reply.body)), "Connection": "close"})
        with contextlib.suppress(StreamClosedError, asyncio.TimeoutError):
            sent = self._http.write_headers(line, head, b"" if is_head else reply.body)
            await asyncio.wait_for(sent, _REPLY_S)
            # A client whose connection is closed while it sends may not see the reply.
            await asyncio.wait_for(self._stream.read_bytes(2**16), _LINGER_S)
        self._stream.close()

    def data_received(self, chunk: bytes) -> Any:
        return self._inner.data_received(chunk)

    def finish(self) -> None:
        self._inner.finish()

    def on_connection_close(self) -> None:
        self._inner.on_connection_close()


class _OneTurn(WSGIContainer):
    """A container that answers a request in one turn of a daemon thread; that of Tornado takes three turns."""

    def __init__(self, app: flask.Flask, loop: asyncio.AbstractEventLoop, name: str) -> None:
        super().__init__(app)
        self._loop, self._name = loop, name
        self._jobs: queue.SimpleQueue[tuple[HTTPServerRequest, dict[str, Any]] | None] = queue.SimpleQueue()
        self.threads: list[threading.Thread] = []
        self._pending = 0  # requests without a reply
        self.idle = asyncio.Event()
        self.idle.set()

    def __call__(self, request: HTTPServerRequest) -> None:
        self._pending += 1
        self.idle.clear()
        if self._pending > len(self.threads) and len(self.threads) < _MOST_THREADS:
            thread = threading.Thread(target=self._work, name=f"{self._name}_{len(self.threads)}", daemon=True)
            thread.start()
            self.threads.append(thread)
        self._jobs.put((request, self.environ(request)))

    def close(self) -> None:
        """Let the threads end after the requests that they answer."""
        for _ in self.threads:
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            request, environ = job
            # A client that has gone is not answered: else polls that a peer abandons would hold up other requests.
            has_gone = request.connection.stream.closed()  # type: ignore[union-attr]
            reply = None if has_gone else self._answer(environ)
            with contextlib.suppress(RuntimeError):  # the server has ended meanwhile
                self._loop.call_soon_threadsafe(self._reply, request, reply)
            del job, request, environ, reply  # do not keep them alive while waiting for the next request

    def _answer(self, environ: dict[str, Any]) -> Reply:
        found: dict[str, Any] = {}

        def start_response(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Callable[..., Any]:
            found.update(status=int(status[:3]), headers=dict(headers))
            return lambda data: None

        try:
            body = b"".join(self.wsgi_application(environ, start_response))
            return Reply(found["status"], found["headers"], body)
        except BaseException as error:  # SystemExit of a hook too: the thread must continue
            return _failed(error)

    def _reply(self, request: HTTPServerRequest, reply: Reply | None) -> None:
        self._pending -= 1
        if not self._pending:
            self.idle.set()
        if reply is None:
            return
        line = ResponseStartLine("HTTP/1.1", reply.status, responses.get(reply.status, ""))
        assert request.connection is not None
        request.connection.write_headers(line, HTTPHeaders(reply.headers), reply.body)
        request.connection.finish()


def new_app(
    routes: Iterable[tuple[str, str, Callable[..., Any]]],
    pages: Mapping[str, Page],
    closing: threading.Event,
) -> flask.Flask:
    """Return the Flask app of a server, whose replies except pages have the envelope.

    Args:
        routes: `(method, path, view)`; a view returns the data of the reply, or the reply.
        closing: set when the server shuts down; requests are then refused.
    """
    app = flask.Flask(__name__, static_folder=None)
    app.url_map.merge_slashes = False

    def refuse_if_closing() -> None:
        if closing.is_set():
            raise ResponsibleException(_CLOSING, "The server is shutting down.", status_code=401)

    def reply_of(error: Exception) -> Any:
        if isinstance(error, ResponsibleException):
            return error.get_response()
        if isinstance(error, HTTPException):
            return _as_response(_refusal(error.code or 500, str(error)))
        return _as_response(_failed(error))

    app.before_request(refuse_if_closing)
    app.register_error_handler(Exception, reply_of)
    views = {path: ("GET", lambda page=page: _as_response(_page_reply(page))) for path, page in pages.items()}
    views |= {path: (method, _in_envelope(view)) for method, path, view in routes}
    for path, (method, view) in views.items():
        app.add_url_rule(path, path, view, methods=[method], provide_automatic_options=False)
    return app


def _in_envelope(view: Callable[..., Any]) -> Callable[..., flask.Response]:
    def answering(**arguments: Any) -> flask.Response:
        data = view(**arguments)
        return data if isinstance(data, flask.Response) else success_response(data)

    return answering


def _as_response(reply: Reply) -> flask.Response:
    return flask.Response(reply.body, reply.status, dict(reply.headers))


class HttpServer:
    """An HTTP server in a thread, which listens after construction, and answers between `start` and `stop`.

    A forked child closes its copies of the sockets, so that a port is free as soon as the process that listened ends.

    Args:
        port: the port; 0 for any free one. The attribute `port` is the actual one.
        app: answers the requests of peers, in threads.
        gate: judges requests before their bodies are read.
        name: the prefix of the names of the threads.
        tls: the TLS context with the certificate of the server; None for plain HTTP.

    Raises:
        OSError: the server cannot listen at the address.
    """

    def __init__(
        self, host: str, port: int, app: flask.Flask, gate: Gate, *, name: str, tls: ssl.SSLContext | None = None
    ) -> None:
        host = host.strip("[]")
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._listener = socket.create_server((host, port), family=family, backlog=1024)
        except OSError as error:
            hint = "; port 0 takes any free port" if port else ""
            raise OSError(error.errno, f"cannot listen at {host}:{port}: {error.strerror}{hint}") from error
        self._listener.setblocking(False)
        self.port = int(self._listener.getsockname()[1])
        self._app, self._gate, self._name, self._tls = app, gate, name, tls
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._grace_s = 0.0
        self._thread = threading.Thread(target=self._run, name=f"{name}_run_app", daemon=True)
        self._server: _GuardedServer | None = None
        self._answering: _OneTurn | None = None
        _servers.add(self)

    def start(self) -> None:
        """Begin to answer requests."""
        self._thread.start()

    def stop(self, grace_s: float) -> None:
        """Let the server end after the requests that it serves, in `grace_s` seconds at the latest; return at once."""
        self._grace_s = grace_s
        if self._thread.ident is None:  # it has not started
            self._close()
        else:
            with contextlib.suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._ended.set)

    @property
    def threads(self) -> list[threading.Thread]:
        """The threads of the server."""
        return [self._thread, *(self._answering.threads if self._answering else ())]

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._close()

    def _close(self) -> None:
        self._listener.close()
        self._loop.close()

    async def _serve(self) -> None:
        answering = self._answering = _OneTurn(self._app, self._loop, f"{self._name}_request")
        server = self._server = _GuardedServer(
            answering,
            gate=self._gate,
            ssl_options=self._tls,
            max_header_size=_HEAD_LIMIT,
            max_body_size=DEFAULT_BODY_LIMIT,
            body_timeout=_BODY_S,
            idle_connection_timeout=_IDLE_S,
        )
        server.add_socket(self._listener)
        await self._ended.wait()
        if server.streams:  # a peer may just be sending a request
            await asyncio.sleep(_LAST_REQUEST_S)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(answering.idle.wait(), self._grace_s)
        server.stop()
        answering.close()
        for stream in list(server.streams):
            stream.close()
        await server.close_all_connections()

    def abandon(self) -> None:
        """Release the sockets in a forked child, which has none of the threads, without taking a lock."""
        streams = () if self._server is None else self._server.streams
        null = os.open(os.devnull, os.O_RDWR)
        for fileno in [own.fileno() for own in (self._listener, *(stream.socket for stream in streams))]:
            if fileno >= 0:
                os.dup2(null, fileno, inheritable=False)  # the objects that hold the number still own it
        os.close(null)


_servers: weakref.WeakSet[HttpServer] = weakref.WeakSet()


def _abandon_all() -> None:
    for server in list(_servers):
        server.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)
