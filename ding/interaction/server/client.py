"""The client side of the protocol between masters and slaves, on the HTTP client of the standard library."""

from __future__ import annotations

import io
import json
import math
import os
import secrets
import socket
import ssl
import threading
import weakref
from collections.abc import Mapping
from email.message import Message
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from time import monotonic
from typing import Any, NamedTuple, NoReturn

import requests

from ding.interaction.base import envelope, get_values_from_response, number_or
from ding.interaction.exception import MASTER_ERRORS, SLAVE_ERRORS
from ding.interaction.http_client import (
    DEFAULT_CHANNEL,
    DEFAULT_REQUEST_RETRIES,
    DEFAULT_REQUEST_RETRY_WAITING,
    DEFAULT_REQUEST_TIMEOUT,
    LEAST_TRY_S,
    Limits,
    retry,
    url_host,
)
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
# What OpenSSL calls a reply that is not TLS.
_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE")


class _LimitedSocket(socket.socket):
    """A socket with one deadline, and one limit in bytes, for all that it receives."""

    deadline = math.inf
    left = _REPLY_LIMIT

    def recv_into(self, *args: Any, **kwargs: Any) -> int:
        self.settimeout(_left_s(self.deadline))
        count = super().recv_into(*args, **kwargs)
        self.left -= count
        if self.left < 0:
            raise OSError(f"the reply has more than {_REPLY_LIMIT} bytes")
        return count


class _LimitedTlsSocket(_LimitedSocket, ssl.SSLSocket):
    """A TLS socket with the same limits."""


class Reply(NamedTuple):
    """A reply.

    Attributes:
        headers: the headers, found by any spelling of their names.
    """

    status_code: int
    reason: str
    headers: Message
    content: bytes

    def json(self) -> Any:
        """Return the decoded body.

        Raises:
            ValueError: the body is not JSON.
        """
        return json.loads(self.content)


class _Signer:
    """The session of a connection with a server that has proved that it knows the token of the run."""

    def __init__(self, name: str, key: SessionKey, prefix: str) -> None:
        self._name, self._key, self._prefix = name, key, prefix
        self._number = 0  # the number of the last request

    def sign(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> dict[str, str]:
        """Return the headers with the signature of the request."""
        self._number += 1
        digest, number = digest_of(body), str(self._number)
        lower = {name.lower(): value for name, value in headers.items()}
        path = url.removeprefix(self._prefix)
        signature = self._key.of_request(number, method, path, lower, str(len(body)), digest)
        fields = authorization(session=self._name, number=number, body=digest, signature=signature)
        return {**headers, "Authorization": fields}

    def is_proved(self, reply: Reply) -> bool:
        """Return whether the server has signed the reply to the last request."""
        signature = parse_fields(reply.headers.get(REPLY_HEADER, "")).get("signature", "")
        return same_secret(signature, self._key.of_reply(str(self._number), reply.status_code, reply.content))


class _PeerConnection(HTTPConnection):
    """A connection that begins with a session, if the run has a token, and signs its requests.

    Args:
        peer: the server.
    """

    def __init__(self, peer: _Peer, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._peer = peer
        self._signer: _Signer | None = None
        self._unsent = bytearray()
        self.is_reusable = False

    def connect(self) -> None:
        super().connect()
        self.sock: Any
        if not isinstance(self.sock, _LimitedSocket):
            self.sock = _LimitedSocket(fileno=self.sock.detach())

    def send(self, data: Any) -> None:
        self._unsent += data

    def is_open(self) -> bool:
        """Return whether the connection is open, as far as this side knows without sending anything."""
        self.sock.settimeout(0)
        try:
            self.sock.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except OSError:
            return False  # the server has reset it
        return False  # the server has closed it, or sent something that no request asked for

    def exchange(self, method: str, url: str, body: bytes, headers: dict[str, str], deadline: float) -> Reply:
        """Send a request and return the reply.

        Raises:
            ResponseException: the server does not prove that it knows the token of the run.
            OSError, HTTPException, _Unproved: the request or the reply was lost.
        """
        token = self._peer.run_token
        if token is None:
            return self._exchange(method, url, body, headers, deadline)
        if self._signer is None:
            self._signer = self._begin(token, deadline)
        reply = self._exchange(method, url, body, self._signer.sign(method, url, headers, body), deadline)
        if not self._signer.is_proved(reply):
            # The server has proved itself before. It has dropped the session, or something on the way has changed the
            # request or the reply: a retry begins another session.
            raise _Unproved(self._peer.unproved(reply))
        return reply

    def _exchange(self, method: str, url: str, body: bytes, headers: dict[str, str], deadline: float) -> Reply:
        self.is_reusable = False
        self.putrequest(method, url, skip_accept_encoding=True)
        for name, value in headers.items():
            self.putheader(name, value)
        self.putheader("Content-Length", str(len(body)))
        self.endheaders(body)
        message, self._unsent = self._unsent, bytearray()  # the head and the body together: the server wakes up once
        self.sock.deadline, self.sock.left = deadline, _REPLY_LIMIT
        try:
            self.sock.settimeout(_left_s(deadline))
            self.sock.sendall(message)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the server may have refused the request by its head and replied
        with self.getresponse() as response:
            content = response.read()
            reply = Reply(response.status, response.reason, response.headers, content)
        if response.length is None and not content and reply.status_code == 200 and not response.chunked:
            raise ConnectionResetError("it ended before the reply")
        self.is_reusable = self.sock is not None
        return reply

    def _begin(self, token: RunToken, deadline: float) -> _Signer:
        peer, nonce = self._peer, secrets.token_hex(16)
        host, kind = peer.host, peer.kind
        proof = proof_of_client(token, kind, host, nonce)
        fields = authorization(host=host, nonce=nonce, proof=proof)
        reply = self._exchange("POST", peer.prefix + SESSION_PATH, b"", {"Authorization": fields}, deadline)
        try:
            data = reply.json()["data"]
            answer, server_proof = str(data["nonce"]), str(data["proof"])
        except (ValueError, KeyError, TypeError, RecursionError):
            peer.refuse_unproved(reply)
        if not same_secret(server_proof, proof_of_server(token, kind, host, nonce, answer)):
            peer.refuse_unproved(reply)
        return _Signer(answer, SessionKey(token, kind, host, nonce, answer), peer.prefix)


class _SecurePeerConnection(_PeerConnection, HTTPSConnection):
    """A connection over TLS; the certificate of the server is verified."""

    def __init__(self, peer: _Peer, **kwargs: Any) -> None:
        context = client_context()
        context.sslsocket_class = _LimitedTlsSocket
        super().__init__(peer, context=context, **kwargs)


class _Unproved(Exception):
    """The error that a reply is not signed by the server to which the connection was opened."""


class _Peer:
    """The server at the other end of a connection, and the exceptions for its failures and refusals.

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

    def not_reached(self, error: OSError) -> requests.RequestException:
        """Return the exception for a connection that could not be opened."""
        if isinstance(error, TimeoutError):
            return requests.ConnectTimeout(f"{self.host} was not reached in time")
        text = f"{self.host} was not reached: {error}"
        if isinstance(error, ssl.SSLCertVerificationError):
            return requests.exceptions.SSLError(text)
        if isinstance(error, ssl.SSLError) and getattr(error, "reason", None) in _NO_TLS:
            text = f"{self.host} was not reached: it does not speak TLS (DING_TLS_CERT is set here): {error}"
            return requests.exceptions.SSLError(text)
        return requests.ConnectionError(text)

    def lost(self, error: Exception) -> requests.RequestException:
        """Return the exception for a request or reply that was lost."""
        if isinstance(error, TimeoutError):
            return requests.ReadTimeout(f"{self.host} has not answered in time")
        if isinstance(error, _Unproved):
            return requests.ConnectionError(f"a reply was lost: {error}")
        return requests.ConnectionError(f"the connection to {self.host} has failed: {error}")

    def unproved(self, reply: Reply) -> str:
        """Return the error message for a reply that may not come from the peer."""
        message = f"the server at {self.host} has not proved that it knows the token of the run"
        if reply.status_code < 400:
            return message
        try:
            return f"{message}; it says: {reply.json()['message']}"
        except (ValueError, KeyError, TypeError, RecursionError):
            return f"{message}; it answers {reply.status_code} {reply.reason}"

    def refuse_unproved(self, reply: Reply) -> NoReturn:
        """Raise the general exception for a reply that may not come from the peer, whatever its code says."""
        content = envelope(False, message=self.unproved(reply)).encode()
        self.refuse(reply._replace(status_code=reply.status_code if reply.status_code >= 300 else 401, content=content))

    def refuse(self, reply: Reply) -> NoReturn:
        """Raise the exception for a refusal."""
        response = requests.Response()
        response.status_code, response.reason, response.url = reply.status_code, reply.reason, self.url
        response.headers.update(reply.headers.items())
        response.raw = io.BytesIO(reply.content)
        text = f"{response.status_code}"
        if 300 <= response.status_code < 400:
            text += ": redirects are not followed"
        error = requests.HTTPError(text, response=response)
        raise _ERRORS[self.kind].from_any_error(error) from error


class PeerEngine:
    """A client of a master or slave, which raises status errors as the exceptions of the protocol.

    This class is thread-safe.

    Redirects are not followed, so that no reply moves a request, and the tokens in it, to another server.

    Args:
        settings: the channel of the caller, the token of the run and the retries.
        address: host, port, whether https, and the prefix of all paths.
        token: the token of the session; a header of the request takes precedence.
        itself: the kind of the caller, for requests to itself, which name no channel; None for requests to a peer.
    """

    def __init__(
        self, settings: Peers, address: tuple[str, int, bool, str], token: str, itself: str | None = None
    ) -> None:
        self._settings, self._address = settings, address
        self._peer = _Peer(address, itself or settings.kind, settings.run_token)
        self._headers = {"Token": token, **({} if itself else {"Channel": str(settings.channel)})}
        self._closing = threading.Event()
        self._idle: list[_PeerConnection] = []
        self._pid = os.getpid()
        weakref.finalize(self, _close_all, self._idle)  # for an engine that is never closed

    def request(
        self,
        method: str,
        path: str,
        data: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: Limits | None = None,
        deadline: float = math.inf,
        most_retries: float = math.inf,
    ) -> Reply:
        """Send `data` as JSON and return the reply.

        Args:
            timeout: seconds (until the connection is open, from then until the reply is complete) of each try.
            deadline: when to give up, by `time.monotonic`.
            most_retries: a limit for this request; 0 for one try.

        Raises:
            requests.ConnectionError, requests.Timeout: the request or its reply was lost.
            ResponseException: the peer refuses the request, has not proved that it knows the token of the run, or is
                not a master or slave.
        """
        body = json.dumps(data or {}).encode()
        return retry(
            lambda: self._exchange(method, path, body, headers, timeout, deadline),
            int(min(self._settings.retries, most_retries)),
            self._settings.retry_waiting_s,
            deadline,
            self._closing,
        )

    def close(self) -> None:
        """Close idle connections and end requests that wait to be retried. The engine may be used again afterwards."""
        closing, self._closing = self._closing, threading.Event()
        closing.set()
        _close_all(self._idle)

    def _exchange(
        self,
        method: str,
        path: str,
        body: bytes,
        headers: Mapping[str, str] | None,
        timeout: Limits | None,
        deadline: float,
    ) -> Reply:
        peer, (connect_s, reply_s) = self._peer, timeout or DEFAULT_REQUEST_TIMEOUT
        deadline, closing = max(deadline, monotonic() + LEAST_TRY_S), self._closing
        connection = self._take() or self._connect(min(connect_s, deadline - monotonic()))
        url, merged = f"{peer.prefix}/{path.strip('/')}", {**self._headers, **(headers or {})}
        try:
            reply = connection.exchange(method, url, body, merged, min(deadline, monotonic() + reply_s))
        except (OSError, HTTPException, ValueError, _Unproved) as error:
            connection.is_reusable = False
            raise peer.lost(error) from error
        finally:
            if connection.is_reusable and len(self._idle) < _MOST_IDLE:
                self._idle.append(connection)
                if closing.is_set():  # the engine was closed meanwhile
                    _close_all(self._idle)
            else:
                connection.close()
        if reply.status_code >= 300 or (peer.run_token is None and not _is_envelope(reply)):
            peer.refuse(reply)
        return reply

    def _connect(self, timeout_s: float) -> _PeerConnection:
        host, port, https, _ = self._address
        kind = _SecurePeerConnection if https else _PeerConnection
        try:
            connection = kind(self._peer, host=host.strip("[]"), port=port, timeout=timeout_s)
            try:
                connection.connect()
            except BaseException:
                connection.close()
                raise
        except OSError as error:
            raise self._peer.not_reached(error) from error
        return connection

    def _take(self) -> _PeerConnection | None:
        """Return an idle connection, or None."""
        if self._pid != os.getpid():  # a forked child must not write into the connections of its parent
            self._pid = os.getpid()
            _close_all(self._idle)
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread was faster
                break
            if connection.is_open():
                return connection
            connection.close()
        return None


def _close_all(connections: list[_PeerConnection]) -> None:
    while connections:
        connections.pop().close()


def _left_s(deadline: float) -> float:
    left_s = deadline - monotonic()
    if left_s <= 0:
        raise TimeoutError("the deadline has passed")
    return left_s


class Peers:
    """The factory of the clients with which a master or slave sends requests to its peers, and to itself.

    Args:
        kind: the kind of the peers, `master` or `slave`.
        channel: the channel of the caller.
        request_retries: how often a request is retried after a transport error.
        request_retry_waiting: seconds between tries.
        run_token: the token of the run; None if there is none, or it is set later.
    """

    def __init__(
        self,
        kind: str,
        channel: int | None,
        request_retries: int | None,
        request_retry_waiting: float | None,
        run_token: RunToken | None,
    ) -> None:
        self.kind = kind
        self.channel = channel or DEFAULT_CHANNEL
        self.retries = int(number_or(DEFAULT_REQUEST_RETRIES, "request_retries", request_retries))
        self.retry_waiting_s = number_or(DEFAULT_REQUEST_RETRY_WAITING, "request_retry_waiting", request_retry_waiting)
        self.run_token = run_token

    def engine(self, address: tuple[str, int, bool, str], token: str, itself: str | None = None) -> PeerEngine:
        """Return an engine for requests with `token` to a peer, or to this server itself, whose kind is `itself`."""
        return PeerEngine(self, address, token, itself)


def _is_envelope(reply: Reply) -> bool:
    """Return whether the reply may come from a master or slave, rather than from another server."""
    try:
        get_values_from_response(reply)
    except (ValueError, KeyError):
        return False
    return True
