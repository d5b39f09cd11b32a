"""The client of a slave, or of a server itself, on the connection pool of requests."""

from __future__ import annotations

import contextlib
import io
import json
import math
import socket
import threading
from collections.abc import Mapping
from time import monotonic
from typing import Any, NamedTuple, NoReturn

import requests
import urllib3
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from ding.interaction.access import RunToken, client_context
from ding.interaction.exception import refusal_of
from ding.interaction.http_client import BINARY, DEFAULT_BODY_LIMIT, DEFAULT_REQUEST_TIMEOUT, Limits, retry, url_host
from ding.utils.msgpack_helper import pack, unpack

# A task, a heartbeat, and a disconnection may be sent at the same time.
_MOST_IDLE = 3
_LEAST_TRY_S = 0.05  # what a try gets, however close the deadline is


class Reply(NamedTuple):
    """A reply of a peer; names of headers may be in any case."""

    status_code: int
    headers: Mapping[str, str]
    content: bytes
    values: Any

    def json(self) -> Any:
        """Return the decoded body; None if it is neither a JSON object nor such a dict of msgpack."""
        return self.values


class PeerClient:
    """A thread-safe client of one server, which raises refusals as the exceptions of the protocol.

    Redirects are not followed, so that no reply moves a request, and the tokens in it, to another server; proxies and
    passwords of the environment are ignored.

    Args:
        kind: the kind of the server, `master` or `slave`.
        address: host, port, and whether it speaks TLS.
        headers: the headers of all requests.
        token: the token of the run, if it has one.
        retries: how often a request is retried after a transport error.
        retry_waiting_s: seconds between tries.
    """

    def __init__(
        self,
        kind: str,
        address: tuple[str, int, bool],
        headers: Mapping[str, str],
        token: RunToken | None,
        retries: int,
        retry_waiting_s: float,
    ) -> None:
        host, port, https = address
        self._kind, self._address, self._token = kind, address, token
        self._retries, self._retry_waiting_s = retries, retry_waiting_s
        self._headers = {"Content-Type": BINARY, **headers}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token.secret}"
        self.url = f"{'https' if https else 'http'}://{url_host(host)}:{port}"
        self._lock = threading.Lock()
        self._pool: HTTPConnectionPool | None = None
        self._connections: set[HTTPConnection] = set()
        self._closing = threading.Event()

    def request(
        self,
        method: str,
        path: str,
        data: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: Limits = DEFAULT_REQUEST_TIMEOUT,
        deadline: float = math.inf,
        most_retries: float = math.inf,
    ) -> Reply:
        """Send `data` as msgpack and return the reply.

        Args:
            timeout: seconds (until the connection is open, from then until the reply is complete) of each try.
            deadline: when to give up, by `time.monotonic`.
            most_retries: a limit for this request; 0 for one try.

        Raises:
            TypeError: the data cannot be packed.
            requests.ConnectionError, requests.Timeout: the request or its reply was lost.
            ResponseException: the peer refuses the request, or is not a master or slave.
        """
        body = pack(data or {})
        merged = {**self._headers, **(headers or {})}
        reply = retry(
            lambda: self._exchange(method, path, body, merged, timeout, deadline),
            int(min(self._retries, most_retries)),
            self._retry_waiting_s,
            deadline,
            self._closing,
        )
        if reply.status_code >= 300:
            self._refuse(reply)
        return reply

    def _exchange(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str], timeout: Limits, deadline: float
    ) -> Reply:
        pool, (connect_s, reply_s) = self._open_pool(), timeout
        left_s = max(_LEAST_TRY_S, min(deadline - monotonic(), connect_s + reply_s))
        limits = urllib3.Timeout(connect=min(connect_s, left_s), read=reply_s, total=left_s)
        try:
            with pool.urlopen(
                method,
                path,
                body=body,
                headers=headers,
                timeout=limits,
                retries=False,
                redirect=False,
                preload_content=False,
                decode_content=False,
            ) as response:
                content, end = b"", monotonic() + min(left_s, reply_s)
                while chunk := response.read1(2**20):
                    content += chunk
                    if len(content) > DEFAULT_BODY_LIMIT:
                        raise requests.ConnectionError(f"a reply has more than {DEFAULT_BODY_LIMIT} bytes")
                    if monotonic() > end:
                        raise requests.ReadTimeout("a reply was not complete in time")
                values = _decoded(content, response.headers.get("Content-Type") == BINARY)
                if response.status < 300 and values is None:
                    raise requests.ConnectionError("half a reply has come, or one of something else")
                return Reply(response.status, response.headers, content, values)
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise _as_requests(error, self.url) from error

    def _refuse(self, reply: Reply) -> NoReturn:
        """Raise the exception for a refusal."""
        response = requests.Response()
        response.status_code, response.url, response.raw = reply.status_code, self.url, io.BytesIO(reply.content)
        error = requests.HTTPError(f"{self.url} answers {reply.status_code}", response=response)
        raise refusal_of(self._kind, error) from error

    def close(self) -> None:
        """End all requests, also those that wait for a reply or for another try. The client may be used again."""
        with self._lock:
            pool, self._pool = self._pool, None
            closing, self._closing = self._closing, threading.Event()
            connections, self._connections = self._connections, set()
        closing.set()
        for connection in list(connections):
            if connection.sock is not None:
                with contextlib.suppress(OSError):  # it is closed
                    socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)
        if pool is not None:
            pool.close()

    def _open_pool(self) -> HTTPConnectionPool:
        with self._lock:
            if self._pool is None:
                host, port, https = self._address
                host = host.strip("[]")
                if https:
                    context = client_context(self._token)
                    self._pool = HTTPSConnectionPool(
                        host,
                        port,
                        maxsize=_MOST_IDLE,
                        ssl_context=context,
                        assert_hostname=None if context.check_hostname else False,
                    )
                else:
                    self._pool = HTTPConnectionPool(host, port, maxsize=_MOST_IDLE)
                self._pool.ConnectionCls = _tracked(self._pool.ConnectionCls, self._connections)
            return self._pool


def _decoded(content: bytes, is_binary: bool) -> dict[str, Any] | None:
    try:
        values = unpack(content) if is_binary else json.loads(content)
    except (ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) else None


def _tracked(base: Any, connections: set[HTTPConnection]) -> Any:
    """Return a class of connections that are in `connections` while they are open."""

    class Tracked(base):  # type: ignore[misc]
        def connect(self) -> None:
            connections.add(self)
            super().connect()

        def close(self) -> None:
            connections.discard(self)
            super().close()

    return Tracked


def _as_requests(error: Exception, url: str) -> requests.RequestException:
    """Return the exception of requests for an error of its connection pool."""
    errors = urllib3.exceptions
    kind: type[requests.RequestException] = requests.ConnectionError
    if isinstance(error, errors.SSLError):
        kind = requests.exceptions.SSLError
    elif isinstance(error, errors.ReadTimeoutError):
        kind = requests.ReadTimeout
    elif isinstance(error, errors.ConnectTimeoutError) and not isinstance(error, errors.NewConnectionError):
        kind = requests.ConnectTimeout
    elif isinstance(error, requests.RequestException):
        kind = type(error)
    return kind(f"{url}: {error}")
