"""The client side of the protocol between masters and slaves, on connections of urllib3."""

from __future__ import annotations

import builtins
import json
import math
import os
import secrets
import socket
import ssl
import threading
from collections.abc import Mapping
from time import monotonic
from typing import Any, NoReturn

import requests
from urllib3 import BaseHTTPResponse, HTTPConnectionPool, HTTPResponse, Timeout
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError, ProtocolError, SSLError, TimeoutError
from urllib3.util import SKIP_HEADER

from ding.interaction.base.app import envelope, get_values_from_response
from ding.interaction.base.common import number_or
from ding.interaction.base.engine import LEAST_TRY_S, Limits, retry
from ding.interaction.base.network import url_host
from ding.interaction.config import (
    DEFAULT_CHANNEL,
    DEFAULT_REQUEST_RETRIES,
    DEFAULT_REQUEST_RETRY_WAITING,
    DEFAULT_REQUEST_TIMEOUT,
)
from ding.interaction.exception.base import MASTER_ERRORS, SLAVE_ERRORS
from ding.interaction.server.access import RunToken, client_context, same_secret
from ding.interaction.server.signing import (
    REPLY_HEADER,
    SESSION_PATH,
    SessionKey,
    authorization,
    digest_of,
    parse_fields,
    proof_of_client,
    proof_of_server,
)

_ERRORS = {"master": MASTER_ERRORS, "slave": SLAVE_ERRORS}
_REPLY_LIMIT = 16 * 2**20  # bytes of a reply, including its head
_MOST_IDLE = 4  # connections in a pool
# What OpenSSL calls a reply that is no TLS.
_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE")


class _LimitedSocket(socket.socket):
    """A socket with one deadline, and one limit in bytes, for all that it receives."""

    deadline = math.inf
    left = _REPLY_LIMIT

    def recv_into(self, *args: Any, **kwargs: Any) -> int:
        left_s = self.deadline - monotonic()
        if left_s <= 0:
            raise builtins.TimeoutError("the deadline has passed")
        if left_s < math.inf:
            self.settimeout(left_s)
        count = super().recv_into(*args, **kwargs)
        self.left -= count
        if self.left < 0:
            raise OSError(f"the reply has more than {_REPLY_LIMIT} bytes")
        return count


class _LimitedTlsSocket(_LimitedSocket, ssl.SSLSocket):
    """The same over TLS."""


class _Signer:
    """A connection's session with a server that has proved that it knows the token of the run."""

    def __init__(self, name: str, key: SessionKey, prefix: str) -> None:
        self._name, self._key, self._prefix = name, key, prefix
        self._number = 0  # of the last request

    def sign(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> dict[str, str]:
        """Return the headers with the signature of the request."""
        self._number += 1
        digest, number = digest_of(body), str(self._number)
        lower = {name.lower(): value for name, value in headers.items()}
        path = url.removeprefix(self._prefix)
        signature = self._key.of_request(number, method, path, lower, str(len(body)), digest)
        fields = authorization(session=self._name, number=number, body=digest, signature=signature)
        return {**headers, "Authorization": fields}

    def is_proved(self, reply: HTTPResponse) -> bool:
        """Return whether the server has signed the reply to the last request."""
        signature = parse_fields(reply.headers.get(REPLY_HEADER, "")).get("signature", "")
        return same_secret(signature, self._key.of_reply(str(self._number), reply.status, reply.data))


class _PeerConnection(HTTPConnection):
    """A connection that begins with a session, if the run has a token, and signs its requests.

    Args:
        peer: the server.
    """

    def __init__(self, *args: Any, peer: _Peer, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._peer = peer
        self._signer: _Signer | None = None
        self._unsent: bytearray | None = None

    def connect(self) -> None:
        super().connect()
        self.sock: Any
        if not isinstance(self.sock, _LimitedSocket):
            timeout_s = self.sock.gettimeout()
            self.sock = _LimitedSocket(fileno=self.sock.detach())
            self.sock.settimeout(timeout_s)

    def close(self) -> None:
        self._signer = self._unsent = None
        super().close()

    def request(self, method: str, url: str, body: Any = None, headers: Any = None, **kwargs: Any) -> None:
        if self.sock is None:
            self.connect()
        token = self._peer.run_token
        if token is not None:
            if self._signer is None:
                self._signer = self._begin(token, **kwargs)
            headers = self._signer.sign(method, url, headers, body)
        # The head and the body in one packet: the server wakes up once.
        self._unsent = bytearray()
        super().request(method, url, body, headers, **kwargs)
        message, self._unsent = self._unsent, None
        self.send(message)

    def send(self, data: Any) -> None:
        if self._unsent is None:
            super().send(data)
        else:
            self._unsent += data

    def getresponse(self) -> HTTPResponse:  # type: ignore[override]
        signer = self._signer  # the connection may be closed with the reply
        reply = self._receive()
        if self._peer.run_token is not None and (signer is None or not signer.is_proved(reply)):
            # The server has proved itself before. It has dropped the session, or something on the way has changed the
            # request or the reply: a retry begins another session.
            raise _Unproved(self._peer.unproved(reply))
        return reply

    def _receive(self) -> HTTPResponse:
        if self.sock is not None:
            self.sock.deadline, self.sock.left = monotonic() + float(self.timeout or math.inf), _REPLY_LIMIT
        return super().getresponse()

    def _begin(self, token: RunToken, **kwargs: Any) -> _Signer:
        peer, nonce = self._peer, secrets.token_hex(16)
        host, kind = peer.host, peer.kind
        proof = proof_of_client(token, kind, host, nonce)
        fields = authorization(host=host, nonce=nonce, proof=proof)
        super().request("POST", peer.prefix + SESSION_PATH, b"", {"Authorization": fields}, **kwargs)
        reply = self._receive()
        try:
            data = json.loads(reply.data)["data"]
            answer, server_proof = str(data["nonce"]), str(data["proof"])
        except (ValueError, KeyError, TypeError, RecursionError):
            peer.refuse_unproved(reply)
        if not same_secret(server_proof, proof_of_server(token, kind, host, nonce, answer)):
            peer.refuse_unproved(reply)
        return _Signer(answer, SessionKey(token, kind, host, nonce, answer), peer.prefix)


class _SecurePeerConnection(_PeerConnection, HTTPSConnection):
    """The same over TLS; the certificate of the server is verified."""

    def connect(self) -> None:
        self.ssl_context = client_context()
        self.ssl_context.sslsocket_class = _LimitedTlsSocket
        super().connect()


class _Unproved(Exception):
    """A reply that is not signed by the server that was connected."""


class _Peer:
    """The server at the other end of a connection, and the exceptions for what it does.

    Args:
        address: host, port, whether https, and the prefix of all paths.
        kind: `master` or `slave`.
        run_token: the token of the run, if it has one.
    """

    def __init__(self, address: tuple[str, int, bool, str], kind: str, run_token: RunToken | None) -> None:
        host, port, https, path = address
        self.host = f"{url_host(host)}:{port}"
        self.prefix = f"/{path.strip('/')}" if path.strip("/") else ""
        self.url = f"{'https' if https else 'http'}://{self.host}{self.prefix}"
        self.kind = kind
        self.run_token = run_token

    def lost(self, error: Exception) -> requests.RequestException:
        """Return the exception for a request or reply that was lost."""
        if isinstance(error, _Unproved):
            return requests.ConnectionError(f"a reply was lost: {error}")
        if isinstance(error, NewConnectionError):
            return requests.ConnectionError(f"{self.host} was not reached: {error.__cause__ or error}")
        if isinstance(error, ConnectTimeoutError):
            return requests.ConnectTimeout(f"{self.host} was not reached in time")
        cause = error.args[-1] if isinstance(error, (SSLError, ProtocolError)) and error.args else error
        if isinstance(cause, (TimeoutError, socket.timeout)):
            return requests.ReadTimeout(f"{self.host} has not answered in time")
        if isinstance(cause, ssl.SSLCertVerificationError):
            return requests.exceptions.SSLError(f"{self.host} was not reached: {cause}")
        if isinstance(cause, ssl.SSLError) and getattr(cause, "reason", None) in _NO_TLS:
            return requests.exceptions.SSLError(
                f"{self.host} was not reached: it does not speak TLS (DING_TLS_CERT is set here): {cause}"
            )
        return requests.ConnectionError(f"the connection to {self.host} has failed: {cause}")

    def refuse_unproved(self, reply: HTTPResponse) -> NoReturn:
        """Raise the general exception for a reply that may not come from the peer, whatever its code says."""
        response = to_response(reply)
        response._content = envelope(False, message=self.unproved(reply)).encode()
        if reply.status < 300:
            response.status_code = 401
        self.refuse(response)

    def unproved(self, reply: HTTPResponse) -> str:
        """Return what to say about such a reply."""
        message = f"the server at {self.host} has not proved that it knows the token of the run"
        if reply.status < 400:
            return message
        try:
            return f"{message}; it says: {json.loads(reply.data)['message']}"
        except (ValueError, KeyError, TypeError, RecursionError):
            return f"{message}; it answers {reply.status} {reply.reason}"

    def refuse(self, response: requests.Response) -> NoReturn:
        response.url = self.url
        text = f"{response.status_code}"
        if 300 <= response.status_code < 400:
            text += ": redirects are not followed"
        error = requests.HTTPError(text, response=response)
        raise _ERRORS[self.kind].from_any_error(error) from error


class PeerEngine:
    """Requests to a master or slave; status errors are raised as the exceptions of the protocol. Thread-safe.

    Redirects are not followed, so that no reply moves a request, and the tokens in it, to another server.

    Args:
        address: host, port, whether https, and the prefix of all paths.
        kind: of the server, `master` or `slave`.
        channel: the channel of the caller, None for requests to itself.
        token: the token of the session; a header of the request takes precedence.
        run_token: the token of the run, if it has one.
        retries: how often a request is retried after a transport error.
        retry_waiting_s: seconds between tries.
    """

    def __init__(
        self,
        address: tuple[str, int, bool, str],
        kind: str,
        *,
        channel: int | None,
        token: str,
        run_token: RunToken | None,
        retries: int,
        retry_waiting_s: float,
    ) -> None:
        self._address = address
        self._peer = _Peer(address, kind, run_token)
        self._retries, self._retry_waiting_s = retries, retry_waiting_s
        self._headers = {"User-Agent": SKIP_HEADER, "Accept-Encoding": SKIP_HEADER, "Token": token}
        if channel is not None:
            self._headers["Channel"] = str(channel)
        self._closing = threading.Event()
        self._pool = self._new_pool()
        self._pid = os.getpid()

    def request(
        self,
        method: str,
        path: str,
        data: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: Limits | None = None,
        deadline: float = math.inf,
        most_retries: float = math.inf,
    ) -> requests.Response:
        """Send `data` as JSON and return the reply.

        Args:
            timeout: seconds (until the connection is open, from then until the reply is complete) of each try.
            deadline: when to give up, on the clock `time.monotonic`.
            most_retries: a limit for this request.

        Raises:
            requests.ConnectionError, requests.Timeout: the request or its reply was lost.
            ResponseException: the peer refuses the request, has not proved that it knows the token of the run, or is
                not a master or slave.
        """
        body = json.dumps(data or {}).encode()
        return retry(
            lambda: self._exchange(method, path, body, headers, timeout, deadline),
            int(min(self._retries, most_retries)),
            self._retry_waiting_s,
            deadline,
            self._closing,
        )

    def request_once(
        self,
        method: str,
        path: str,
        data: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: Limits | None = None,
    ) -> requests.Response:
        """Send one request without retries; see `request`."""
        return self._exchange(method, path, json.dumps(data or {}).encode(), headers, timeout, math.inf)

    def close(self) -> None:
        """Close idle connections and end requests that wait to be retried. The engine may be used again afterwards."""
        closing, self._closing = self._closing, threading.Event()
        closing.set()
        pool, self._pool = self._pool, self._new_pool()
        pool.close()

    def _new_pool(self) -> HTTPConnectionPool:
        host, port, https, _ = self._address
        pool = HTTPConnectionPool(host.strip("[]"), port, maxsize=_MOST_IDLE, peer=self._peer)
        pool.ConnectionCls = _SecurePeerConnection if https else _PeerConnection
        return pool

    def _exchange(
        self,
        method: str,
        path: str,
        body: bytes,
        headers: Mapping[str, str] | None,
        timeout: Limits | None,
        deadline: float,
    ) -> requests.Response:
        if self._pid != os.getpid():  # a forked child must not write into the connections of its parent
            self._pid, self._pool = os.getpid(), self._new_pool()
        peer, (connect_s, reply_s) = self._peer, timeout or DEFAULT_REQUEST_TIMEOUT
        total_s = None if deadline == math.inf else max(LEAST_TRY_S, deadline - monotonic())
        try:
            reply = self._pool.urlopen(
                method,
                f"{peer.prefix}/{path.strip('/')}",
                body,
                {**self._headers, **(headers or {})},
                retries=False,
                redirect=False,
                timeout=Timeout(total_s, connect_s, reply_s),
                decode_content=False,
            )
        except (HTTPError, OSError, ValueError, _Unproved) as error:
            raise peer.lost(error) from error
        if reply.status == 200 and not reply.data and not {"Content-Length", "Transfer-Encoding"} & set(reply.headers):
            raise requests.ConnectionError(f"the connection to {peer.host} has failed: it ended before the reply")
        response = to_response(reply)
        if reply.status >= 300 or (peer.run_token is None and not _is_envelope(response)):
            peer.refuse(response)
        return response


class Peers:
    """How a master or slave sends requests: to its peers, and to itself.

    Args:
        kind: of the peers, `master` or `slave`.
        channel: of the caller.
        request_retries: how often a request is retried after a transport error.
        request_retry_waiting: seconds between tries.
        run_token: the token of the run; None for none, or one that is set later.
    """

    def __init__(
        self,
        kind: str,
        channel: int | None,
        request_retries: int | None,
        request_retry_waiting: float | None,
        run_token: RunToken | None,
    ) -> None:
        self._kind = kind
        self.channel = channel or DEFAULT_CHANNEL
        self.retries = int(number_or(DEFAULT_REQUEST_RETRIES, "request_retries", request_retries))
        self.retry_waiting_s = number_or(DEFAULT_REQUEST_RETRY_WAITING, "request_retry_waiting", request_retry_waiting)
        self.run_token = run_token

    def engine(self, address: tuple[str, int, bool, str], token: str) -> PeerEngine:
        """Return an engine for requests with `token` to a peer."""
        return self._engine(address, self._kind, self.channel, token)

    def engine_to_itself(self, address: tuple[str, int, bool, str], kind: str, self_token: str) -> PeerEngine:
        """Return an engine for requests of a server of `kind` to itself."""
        return self._engine(address, kind, None, self_token)

    def _engine(self, address: tuple[str, int, bool, str], kind: str, channel: int | None, token: str) -> PeerEngine:
        return PeerEngine(
            address,
            kind,
            channel=channel,
            token=token,
            run_token=self.run_token,
            retries=self.retries,
            retry_waiting_s=self.retry_waiting_s,
        )


def to_response(reply: BaseHTTPResponse) -> requests.Response:
    """Return a reply as an object of the package requests."""
    response = requests.Response()
    response.status_code, response.reason = reply.status, reply.reason or ""
    response.headers.update(reply.headers)
    response._content = reply.data
    return response


def _is_envelope(reply: requests.Response) -> bool:
    """Return whether a master or slave may have sent the reply, rather than another server."""
    try:
        get_values_from_response(reply)
    except (ValueError, KeyError):
        return False
    return True
