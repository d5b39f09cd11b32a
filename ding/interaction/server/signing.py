"""Requests and replies that are signed with the token of the run, which is never sent.

A client begins a *session* with a server: it sends a nonce and a proof that it knows the token; the server replies with
a nonce and a proof of its own. Both sides derive the key of the session from the token and both nonces. The key signs
every request (its method, path, relevant headers, length, digest of the body, and number within the session) and every
reply (its status, its body, and the number of the request). Therefore

- a server that has not proved that it knows the token receives nothing but the start of a session; each connection
  begins with a session of its own, because another process may hold the port by then,
- a request is judged by its head, before its body is read,
- a request that arrives twice is executed once: a copy of one of the last requests gets the stored reply, an older one
  is refused, and so is a request from another session, whose key differs, and
- a reply cannot be forged or moved to another request.

The address that the client called, and the kind of server that it expects, are part of the proofs, so that a proof for
one server proves nothing to another. The content is not encrypted.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Mapping
from threading import Event, Lock
from typing import NamedTuple

from ding.interaction.base import Answer
from ding.interaction.server.access import RunToken, same_secret

SCHEME = "DING-HMAC-SHA256"
SESSION_PATH = "/session"
REPLY_HEADER = "Authentication-Info"
# The signed headers: those that servers read, besides those of the scheme itself.
_SIGNED_HEADERS = ("channel", "token", "request-id", "content-type")
# The last requests of a session whose replies are stored, and the largest body of a stored reply in bytes.
_STORED_REPLIES = 4
_STORED_BODY = 16 * 2**10
# How long a copy waits for the reply to a request that is still being executed.
_COPY_WAIT_S = 5.0
_exchange_lock = Lock()  # one for all: it is held for a moment, and costs no request an object of its own


def digest_of(body: bytes) -> str:
    """Return the digest that represents a body in a signature."""
    return hashlib.sha256(body).hexdigest()


def _sign(key: bytes, *parts: str) -> str:
    # Each part follows its length, so that no text can be moved from one part to the next.
    text = "".join([f"{len(part)}:{part}," for part in parts])
    return hmac.digest(key, text.encode("utf-8", "surrogatepass"), "sha256").hex()


def authorization(**fields: str | int) -> str:
    """Return the value of an `Authorization` header of the scheme."""
    return f"{SCHEME} " + ", ".join(f"{name}={value}" for name, value in fields.items())


def parse_fields(header: str) -> dict[str, str]:
    """Return the fields of an `Authorization` or `Authentication-Info` header of the scheme; {} for any other."""
    scheme, _, rest = header.partition(" ")
    if scheme != SCHEME:
        return {}
    return dict([field.strip().partition("=")[::2] for field in rest.split(",")])


class SessionKey:
    """The key of a session, on either side.

    Args:
        token: the token of the run.
        kind: the kind of the server, `master` or `slave`.
        host: the address that the client called, `host:port`.
        nonce: the nonce of the client.
        answer: the nonce of the server.
    """

    def __init__(self, token: RunToken, kind: str, host: str, nonce: str, answer: str) -> None:
        self._key = bytes.fromhex(_sign(token.key, "key", kind, host, nonce, answer))

    def of_request(
        self, number: str, method: str, path: str, headers: Mapping[str, str], length: str, digest: str
    ) -> str:
        """Return the signature of a request; names of `headers` are in lower case."""
        signed = [headers.get(name, "") for name in _SIGNED_HEADERS]
        return _sign(self._key, "request", number, method, path, *signed, length, digest)

    def of_reply(self, number: str, status: int, body: bytes) -> str:
        """Return the signature of the reply to a request."""
        return _sign(self._key, "reply", number, str(status), digest_of(body))


def proof_of_client(token: RunToken, kind: str, host: str, nonce: str) -> str:
    """Return the proof with which a client begins a session."""
    return _sign(token.key, "client", kind, host, nonce)


def proof_of_server(token: RunToken, kind: str, host: str, nonce: str, answer: str) -> str:
    """Return the proof with which a server replies to the proof of a client."""
    return _sign(token.key, "server", kind, host, nonce, answer)


class Exchange:
    """One numbered request of a session and its reply. This class is thread-safe.

    The request may arrive more than once; the first arrival that calls `begin` executes it, the others `wait`.

    Attributes:
        has_begun: whether the request was executed or refused, or is being executed.
        is_finished: whether it was replied to.
    """

    def __init__(self, signature: str) -> None:
        self.signature = signature
        self.has_begun = self.is_finished = False
        self._reply: Answer | None = None
        self._waits: Event | None = None  # set when the copy that waits may continue

    def begin(self) -> bool:
        """Return whether the caller has to execute the request; only the first call returns True."""
        with _exchange_lock:
            is_first, self.has_begun = not self.has_begun, True
            return is_first

    def finish(self, reply: Answer) -> None:
        """Store the signed reply, unless its body is too large."""
        with _exchange_lock:
            self.has_begun = self.is_finished = True
            self._reply = reply if len(reply.body) <= _STORED_BODY else None
            if self._waits is not None:
                self._waits.set()

    def wait(self) -> Answer | None:
        """Return the stored reply; None if it is not stored, not there in time, or awaited by another copy."""
        with _exchange_lock:
            if self.is_finished or self._waits is not None:
                return self._reply
            waits = self._waits = Event()
        waits.wait(_COPY_WAIT_S)
        self._waits = None
        return self._reply


class Signed(NamedTuple):
    """A request whose head was verified.

    Attributes:
        digest: the announced digest of the body.
    """

    key: SessionKey
    number: str
    digest: str
    exchange: Exchange

    def is_body(self, body: bytes) -> bool:
        """Return whether this is the announced body."""
        return same_secret(digest_of(body), self.digest)

    def finish(self, reply: Answer) -> Answer:
        """Return `reply` with its signature, and store it for copies of the request."""
        signature = self.key.of_reply(self.number, reply.status, reply.body)
        reply = reply._replace(headers=(*reply.headers, (REPLY_HEADER, f"{SCHEME} signature={signature}")))
        self.exchange.finish(reply)
        return reply


class _Session:
    """A session on the server: its key, the highest number of a request, and the last requests."""

    def __init__(self, key: SessionKey) -> None:
        self.key = key
        self._highest = 0
        self._exchanges: OrderedDict[int, Exchange] = OrderedDict()

    def exchange(self, number: int, signature: str) -> Exchange | None:
        """Return the exchange of a request with a valid signature; None for an old or changed one."""
        known = self._exchanges.get(number)
        if known is not None:
            return known if same_secret(known.signature, signature) else None
        if number <= self._highest:
            return None
        self._highest = number
        self._exchanges[number] = exchange = Exchange(signature)
        if len(self._exchanges) > _STORED_REPLIES:
            self._exchanges.popitem(last=False)
        return exchange


class Verifier:
    """The server's side, which begins sessions and verifies the signatures of requests. This class is not thread-safe.

    Args:
        token: the token of the run.
        kind: the kind of the server, `master` or `slave`.
        limit: how many sessions are kept at most; the one that was silent longest is dropped. Sessions without a
            request are counted separately, so that they displace no others.
    """

    def __init__(self, token: RunToken, kind: str, limit: int = 8192) -> None:
        self._token = token
        self._kind = kind
        self._limit = limit
        self._new: OrderedDict[str, _Session] = OrderedDict()
        self._used: OrderedDict[str, _Session] = OrderedDict()
        self._answers: OrderedDict[tuple[str, str], str] = OrderedDict()  # the server's nonces by host, client's nonce

    def begin(self, fields: Mapping[str, str]) -> tuple[str, str] | None:
        """Begin a session, and return the server's nonce and proof; None if the client's proof is missing or wrong.

        A copy of the request gets the same nonce and does not begin another session.
        """
        nonce, host = fields.get("nonce", ""), fields.get("host", "")
        proof = proof_of_client(self._token, self._kind, host, nonce)
        if not same_secret(fields.get("proof", ""), proof):
            return None
        answer = self._answers.get((host, nonce)) or self._open(host, nonce)
        return answer, proof_of_server(self._token, self._kind, host, nonce, answer)

    def verify(self, method: str, path: str, headers: Mapping[str, str]) -> Signed | None:
        """Return the signed request; None if the signature is missing or wrong, or the request is too old."""
        fields = parse_fields(headers.get("authorization", ""))
        name, number, digest = fields.get("session", ""), fields.get("number", ""), fields.get("body", "")
        session = self._used.get(name) or self._new.get(name)
        if session is None or not (number.isascii() and number.isdigit() and len(number) < 20):
            return None
        expected = session.key.of_request(number, method, path, headers, headers.get("content-length", ""), digest)
        if not same_secret(fields.get("signature", ""), expected):
            return None
        exchange = session.exchange(int(number), expected)
        if exchange is None:
            return None
        self._new.pop(name, None)
        self._used[name] = session
        self._used.move_to_end(name)
        if len(self._used) > self._limit:
            self._used.popitem(last=False)
        return Signed(session.key, number, digest, exchange)

    def _open(self, host: str, nonce: str) -> str:
        answer = secrets.token_hex(16)
        self._answers[host, nonce] = answer
        self._new[answer] = _Session(SessionKey(self._token, self._kind, host, nonce, answer))
        for kept in (self._answers, self._new):
            if len(kept) > self._limit:
                kept.popitem(last=False)
        return answer
