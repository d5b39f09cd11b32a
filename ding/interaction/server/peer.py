"""The client side of the protocol between masters and slaves."""

from __future__ import annotations

import json
import math
import secrets
import threading
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from ding.interaction.base.app import envelope, get_values_from_response
from ding.interaction.base.common import number_or
from ding.interaction.base.engine import Timeout, retry
from ding.interaction.base.network import url_host
from ding.interaction.config import (
    DEFAULT_CHANNEL,
    DEFAULT_REQUEST_RETRIES,
    DEFAULT_REQUEST_RETRY_WAITING,
    DEFAULT_REQUEST_TIMEOUT,
)
from ding.interaction.exception.codes import MASTER_ERRORS, SLAVE_ERRORS
from ding.interaction.server.client import Connection, ConnectionPool, Limits, Received
from ding.interaction.server.credentials import RunToken, same_secret
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
# Sends method, path, headers and body.
_Send = Callable[[str, str, Mapping[str, str], bytes], Received]


class _Session:
    """A session with a server that has proved that it knows the token of the run."""

    def __init__(self, name: str, key: SessionKey) -> None:
        self.name = name
        self.key = key
        self.number = 0  # of the last request


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
        host, port, https, path = address
        self._host = f"{url_host(host)}:{port}"
        self._prefix = f"/{path.strip('/')}" if path.strip("/") else ""
        self._url = f"{'https' if https else 'http'}://{self._host}{self._prefix}"
        self._kind = kind
        self._retries, self._retry_waiting_s = retries, retry_waiting_s
        self._headers = {"Token": token}
        if channel is not None:
            self._headers["Channel"] = str(channel)
        self._run_token = run_token
        self._pool = ConnectionPool(host, port, https)
        self._closing = threading.Event()

    def request(
        self,
        method: str,
        path: str,
        data: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: Timeout | None = None,
        deadline: float = math.inf,
        most_retries: float = math.inf,
    ) -> Received:
        """Send `data` as JSON and return the reply.

        Args:
            timeout: seconds (until the connection is open, until the reply begins) of each try.
            deadline: when to give up, on the clock `time.monotonic`.
            most_retries: a limit for this request.

        Raises:
            requests.ConnectionError, requests.Timeout: the request or its reply was lost.
            ResponseException: the peer refuses the request, has not proved that it knows the token of the run, or is
                not a master or slave.
        """
        body = _encode(data)
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
        timeout: Timeout | None = None,
    ) -> Received:
        """Send one request without retries; see `request`."""
        return self._exchange(method, path, _encode(data), headers, timeout, math.inf)

    def close(self) -> None:
        """Close idle connections and end requests that wait to be retried. The engine may be used again afterwards."""
        closing, self._closing = self._closing, threading.Event()
        closing.set()
        self._pool.close()

    def _exchange(
        self,
        method: str,
        path: str,
        body: bytes,
        headers: Mapping[str, str] | None,
        timeout: Timeout | None,
        deadline: float,
    ) -> Received:
        limits = Limits(*(timeout or DEFAULT_REQUEST_TIMEOUT), deadline)
        merged = {**self._headers, **(headers or {})}
        with self._pool.connection(limits) as connection:

            def send(method: str, path: str, headers: Mapping[str, str], body: bytes) -> Received:
                return connection.exchange(self._message(method, path, headers, body), limits)

            if self._run_token is None:
                reply = send(method, path, merged, body)
            else:
                reply = self._exchange_signed(connection, self._run_token, send, method, path, merged, body)
        if reply.status_code >= 300 or (self._run_token is None and not _is_envelope(reply)):
            self._raise(reply)
        return reply

    def _exchange_signed(
        self,
        connection: Connection,
        token: RunToken,
        send: _Send,
        method: str,
        path: str,
        headers: dict[str, str],
        body: bytes,
    ) -> Received:
        import requests

        session: _Session = connection.session or self._begin_session(token, send)
        connection.session = session
        session.number += 1
        digest, number = digest_of(body), str(session.number)
        lower = {name.lower(): value for name, value in headers.items()}
        signature = session.key.of_request(number, method, f"/{path.strip('/')}", lower, str(len(body)), digest)
        fields = authorization(session=session.name, number=number, body=digest, signature=signature)
        reply = send(method, path, {**headers, "Authorization": fields}, body)
        signature = parse_fields(reply.headers.get(REPLY_HEADER.lower(), "")).get("signature", "")
        if not same_secret(signature, session.key.of_reply(number, reply.status_code, reply.content)):
            # The server has proved itself before. It has dropped the session, or something on the way has changed the
            # request or the reply: a retry begins another session.
            raise requests.ConnectionError(f"a reply was lost: {self._unproved(reply)}")
        return reply

    def _begin_session(self, token: RunToken, send: _Send) -> _Session:
        nonce = secrets.token_hex(16)
        proof = proof_of_client(token, self._kind, self._host, nonce)
        reply = send(
            "POST", SESSION_PATH, {"Authorization": authorization(host=self._host, nonce=nonce, proof=proof)}, b""
        )
        try:
            data = reply.json()["data"]
            answer, server_proof = str(data["nonce"]), str(data["proof"])
        except (ValueError, KeyError, TypeError):
            self._refuse_unproved(reply)
        if not same_secret(server_proof, proof_of_server(token, self._kind, self._host, nonce, answer)):
            self._refuse_unproved(reply)
        return _Session(answer, SessionKey(token, self._kind, self._host, nonce, answer))

    def _message(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> bytes:
        lines = [f"{method} {self._prefix}/{path.strip('/')} HTTP/1.1", f"Host: {self._host}"]
        lines += [f"Content-Length: {len(body)}", *(f"{name}: {value}" for name, value in headers.items())]
        return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body

    def _refuse_unproved(self, reply: Received) -> NoReturn:
        """Raise the general exception for a reply that may not come from the peer, whatever its code says."""
        text = envelope(False, message=self._unproved(reply))
        self._raise(Received(reply.status_code if reply.status_code >= 300 else 401, reply.reason, {}, text.encode()))

    def _unproved(self, reply: Received) -> str:
        message = f"the server at {self._host} has not proved that it knows the token of the run"
        if reply.status_code < 400:
            return message
        try:
            return f"{message}; it says: {reply.json()['message']}"
        except (ValueError, KeyError, TypeError):
            return f"{message}; it answers {reply.status_code} {reply.reason}"

    def _raise(self, reply: Received) -> NoReturn:
        import requests

        text = f"{reply.status_code}"
        if 300 <= reply.status_code < 400:
            text += ": redirects are not followed"
        error = requests.HTTPError(text, response=reply.to_response(self._url))
        raise _ERRORS[self._kind].from_any_error(error) from error


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


def _is_envelope(reply: Received) -> bool:
    """Return whether a master or slave may have sent the reply, rather than another server."""
    try:
        get_values_from_response(reply)
    except (ValueError, KeyError):
        return False
    return True


def _encode(data: Mapping[str, Any] | None) -> bytes:
    return json.dumps(data or {}).encode()
