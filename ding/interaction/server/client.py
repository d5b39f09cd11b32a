"""An HTTP client that reuses connections and has one deadline for a whole exchange."""

from __future__ import annotations

import contextlib
import io
import json
import os
import socket
import ssl
import threading
import weakref
from collections.abc import Iterator, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

import httptools

from ding.interaction.base.network import url_host
from ding.interaction.server.tls import client_context

if TYPE_CHECKING:
    import requests

_REPLY_LIMIT = 16 * 2**20  # bytes of a reply, including its head
_CHUNK = 256 * 2**10
_MOST_IDLE = 4  # connections in a pool


class Received(NamedTuple):
    """A reply.

    Attributes:
        headers: by their names in lower case.
    """

    status_code: int
    reason: str
    headers: Mapping[str, str]
    content: bytes

    def json(self) -> Any:
        """Return the decoded body.

        Raises:
            ValueError: it is not JSON, or too deeply nested.
        """
        try:
            return json.loads(self.content)
        except RecursionError:
            raise ValueError("too deeply nested") from None

    def to_response(self, url: str) -> requests.Response:
        """Return the reply as an object of the package requests."""
        import requests

        response = requests.Response()
        response.status_code, response.reason, response.url = self.status_code, self.reason, url
        response.headers.update(self.headers)
        response.raw = io.BytesIO(self.content)
        return response


class Limits(NamedTuple):
    """The time limits of an exchange.

    Attributes:
        connect_s: seconds until the connection is open.
        reply_s: seconds from then until the reply is complete.
        deadline: when to give up in any case, on the clock `time.monotonic`.
    """

    connect_s: float
    reply_s: float
    deadline: float


class Connection:
    """A connection to a server. One thread uses it at a time.

    Attributes:
        session: a value that the user of the connection stores with it.
    """

    def __init__(self, name: str, connected: socket.socket) -> None:
        self._name = name
        self._socket = connected
        self.is_reusable = True
        self.session: Any = None

    def exchange(self, message: bytes, limits: Limits) -> Received:
        """Send a request and return the reply.

        Raises:
            requests.ConnectionError, requests.Timeout: the request or the reply was lost.
        """
        import requests

        was_reusable, self.is_reusable = self.is_reusable, False
        try:
            reply, is_reusable = _exchange(self._socket, message, min(monotonic() + limits.reply_s, limits.deadline))
        except TimeoutError as error:
            raise requests.ReadTimeout(f"{self._name} has not answered in time") from error
        except (OSError, httptools.HttpParserError) as error:
            raise requests.ConnectionError(f"the connection to {self._name} has failed: {error}") from error
        except httptools.HttpParserUpgrade as error:
            raise requests.ConnectionError(f"{self._name} has changed to another protocol") from error
        self.is_reusable = was_reusable and is_reusable
        return reply

    def is_open(self) -> bool:
        """Return whether the connection is open, as far as this side knows without sending anything."""
        self._socket.settimeout(0)
        try:
            self._socket.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except OSError:
            return False  # the server has reset it
        return False  # the server has closed it, or sent something that no request asked for

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


class ConnectionPool:
    """Connections to one server, reused between exchanges. Thread-safe; a forked child opens its own.

    Args:
        https: whether to use TLS and verify the certificate of the server.
    """

    def __init__(self, host: str, port: int, https: bool) -> None:
        self._address = (host.strip("[]"), port)
        self._name = f"{url_host(host)}:{port}"
        self._https = https
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._pid = os.getpid()
        weakref.finalize(self, _close_all, self._idle)  # for a pool that is never closed

    @contextlib.contextmanager
    def connection(self, limits: Limits) -> Iterator[Connection]:
        """Return a connection for exclusive use within the block; it returns to the pool if it can be reused.

        Raises:
            requests.ConnectionError, requests.Timeout: no connection can be opened.
        """
        connection = self._take() or self._connect(limits)
        try:
            yield connection
        except BaseException:
            connection.is_reusable = False
            raise
        finally:
            self._give_back(connection)

    def close(self) -> None:
        """Close the idle connections."""
        with self._lock:
            _close_all(self._idle)

    def _take(self) -> Connection | None:
        if self._pid != os.getpid():  # a forked child must not write into the connections of its parent
            self._pid = os.getpid()
            self.close()
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection = self._idle.pop()
            if connection.is_open():
                return connection
            connection.close()

    def _give_back(self, connection: Connection) -> None:
        with self._lock:
            if connection.is_reusable and len(self._idle) < _MOST_IDLE:
                self._idle.append(connection)
                return
        connection.close()

    def _connect(self, limits: Limits) -> Connection:
        import requests

        timeout_s = max(0.001, min(limits.connect_s, limits.deadline - monotonic()))
        try:
            connected = socket.create_connection(self._address, timeout_s)
            try:
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self._https:
                    connected = client_context().wrap_socket(connected, server_hostname=self._address[0])
            except BaseException:
                connected.close()
                raise
        except TimeoutError as error:
            raise requests.ConnectTimeout(f"{self._name} was not reached in time") from error
        except OSError as error:
            raise requests.ConnectionError(f"{self._name} was not reached: {error}") from error
        return Connection(self._name, connected)


def _close_all(connections: list[Connection]) -> None:
    while connections:
        connections.pop().close()


def _exchange(connection: socket.socket, message: bytes, deadline: float) -> tuple[Received, bool]:
    """Return the reply, and whether the connection can be reused."""
    reader = _ReplyReader()
    try:
        connection.settimeout(_left_s(deadline))
        connection.sendall(message)
    except (BrokenPipeError, ConnectionResetError):
        # The server may have refused the request by its head and replied.
        if not _has_reply(connection, reader, deadline):
            raise
        return reader.received(), False
    while not reader.is_complete:
        connection.settimeout(_left_s(deadline))
        data = connection.recv(_CHUNK)
        if not data:
            reader.end()
            break
        reader.feed(data)
    return reader.received(), reader.is_kept


def _has_reply(connection: socket.socket, reader: _ReplyReader, deadline: float) -> bool:
    try:
        while not reader.is_complete:
            connection.settimeout(_left_s(deadline))
            data = connection.recv(_CHUNK)
            if not data:
                return False
            reader.feed(data)
    except OSError:
        return False
    return True


def _left_s(deadline: float) -> float:
    left_s = deadline - monotonic()
    if left_s <= 0:
        raise TimeoutError("the deadline has passed")
    return left_s


class _ReplyReader:
    """Parses one reply."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._reason = ""
        self._bytes = 0
        self._has_head = False
        self.is_complete = self.is_kept = False

    def feed(self, data: bytes) -> None:
        self._bytes += len(data)
        if self._bytes > _REPLY_LIMIT:
            raise OSError(f"the reply has more than {_REPLY_LIMIT} bytes")
        self._parser.feed_data(data)

    def end(self) -> None:
        """Handle the end of the connection."""
        if not self._has_head or "content-length" in self._headers or "transfer-encoding" in self._headers:
            raise ConnectionResetError("it ended before the reply")
        self.is_complete = True

    def received(self) -> Received:
        return Received(self._parser.get_status_code(), self._reason, self._headers, b"".join(self._body))

    def on_status(self, reason: bytes) -> None:
        self._reason = reason.decode("latin-1")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if self._parser.get_status_code() == 100:
            self._headers = {}
            return
        self._has_head = True
        self.is_kept = self._parser.should_keep_alive()

    def on_body(self, data: bytes) -> None:
        self._body.append(data)

    def on_message_complete(self) -> None:
        self.is_complete = self._has_head
