"""Requests and replies that are signed with the token of the run, which is never sent.

A client begins a *session* with a server: it sends a random number and its proof that it knows the token; the server
answers with a random number of its own, and its proof. From both numbers and the token either side derives the key of
the session, which signs every request (its method, path, headers that matter, length and digest of its body, and its
number within the session) and every reply (its status, its body, and the number of the request). So

- nothing but the start of a session is told to whoever listens at an address and has not proved that it knows the
  token; each connection begins with a session of its own, for somebody else may have the port by now,
- a request is judged by its head, before its body is read,
- a request that was recorded is refused when it comes again, since numbers only grow, and in another session, since
  the key is another, and
- no reply can be made up or be moved to another request.

The address that the client has called, and the kind of server that it expects, are part of the proofs: what is meant
for one server proves nothing to another. The content is not encrypted.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Mapping
from typing import NamedTuple

from ding.interaction.base.common import RecentIds
from ding.interaction.server.credentials import RunToken, same_secret

SCHEME = "DING-HMAC-SHA256"
SESSION_PATH = "/session"
REPLY_HEADER = "Authentication-Info"
# The headers that mean something to a server, beside those of the scheme itself.
_SIGNED_HEADERS = ("channel", "token", "request-id", "content-type")


def digest_of(body: bytes) -> str:
    """What stands for a body in a signature."""
    return hashlib.sha256(body).hexdigest()


def _sign(key: bytes, *parts: str) -> str:
    # A length before each part: what one part ends with cannot be moved to the next.
    text = "".join(f"{len(part)}:{part}," for part in parts)
    return hmac.digest(key, text.encode("utf-8", "surrogatepass"), "sha256").hex()


def authorization(**fields: str | int) -> str:
    """The value of an `Authorization` header of the scheme."""
    return f"{SCHEME} " + ", ".join(f"{name}={value}" for name, value in fields.items())


def parse_fields(header: str) -> dict[str, str]:
    """The fields of an `Authorization` or `Authentication-Info` header of the scheme; {} for any other."""
    scheme, _, rest = header.partition(" ")
    if scheme != SCHEME:
        return {}
    return dict(field.strip().partition("=")[::2] for field in rest.split(","))


class SessionKey:
    """The key of a session, on either side.

    Args:
        token: of the run.
        kind: of the server, `master` or `slave`.
        host: what the client has called, `host:port`.
        nonce, answer: the random numbers of client and server.
    """

    def __init__(self, token: RunToken, kind: str, host: str, nonce: str, answer: str) -> None:
        self._key = bytes.fromhex(_sign(token.key, "key", kind, host, nonce, answer))

    def of_request(
        self, number: str, method: str, path: str, headers: Mapping[str, str], length: str, digest: str
    ) -> str:
        """The signature of a request; `headers` have names in lower case."""
        signed = (headers.get(name, "") for name in _SIGNED_HEADERS)
        return _sign(self._key, "request", number, method, path, *signed, length, digest)

    def of_reply(self, number: str, status: int, body: bytes) -> str:
        """The signature of the reply to a request."""
        return _sign(self._key, "reply", number, str(status), digest_of(body))


def proof_of_client(token: RunToken, kind: str, host: str, nonce: str) -> str:
    """What a client begins a session with."""
    return _sign(token.key, "client", kind, host, nonce)


def proof_of_server(token: RunToken, kind: str, host: str, nonce: str, answer: str) -> str:
    """What a server answers to that."""
    return _sign(token.key, "server", kind, host, nonce, answer)


class Signed(NamedTuple):
    """A request whose head has been verified.

    Attributes:
        digest: what its body must have.
    """

    key: SessionKey
    number: str
    digest: str

    def is_body(self, body: bytes) -> bool:
        """Whether this is the body that was announced."""
        return same_secret(digest_of(body), self.digest)

    def reply_header(self, status: int, body: bytes) -> dict[str, str]:
        """What proves that the reply is the server's."""
        return {REPLY_HEADER: f"{SCHEME} signature={self.key.of_reply(self.number, status, body)}"}


class _Session:
    """A session at the server: its key, and the number of the last request."""

    def __init__(self, key: SessionKey) -> None:
        self.key = key
        self.last = 0


class Verifier:
    """The server's side: begins sessions, and tells whether a request is signed. Not thread-safe.

    Args:
        token: of the run.
        kind: `master` or `slave`.
        limit: how many sessions are known at a time; the one that was silent for longest is forgotten. Those that
            nobody has used yet are counted by themselves, so that they oust no others.
    """

    def __init__(self, token: RunToken, kind: str, limit: int = 8192) -> None:
        self._token = token
        self._kind = kind
        self._limit = limit
        self._new: OrderedDict[str, _Session] = OrderedDict()
        self._used: OrderedDict[str, _Session] = OrderedDict()
        self._nonces = RecentIds(limit)

    def begin(self, fields: Mapping[str, str]) -> tuple[str, str] | None:
        """The number of the server and its proof; None where the client has not proved that it knows the token."""
        nonce, host = fields.get("nonce", ""), fields.get("host", "")
        proof = proof_of_client(self._token, self._kind, host, nonce)
        if not same_secret(fields.get("proof", ""), proof) or nonce in self._nonces:
            return None
        self._nonces.add(nonce)
        answer = secrets.token_hex(16)
        self._new[answer] = _Session(SessionKey(self._token, self._kind, host, nonce, answer))
        if len(self._new) > self._limit:
            self._new.popitem(last=False)
        return answer, proof_of_server(self._token, self._kind, host, nonce, answer)

    def verify(self, method: str, path: str, headers: Mapping[str, str]) -> Signed | None:
        """What was signed; None where the signature is missing or wrong, or the request was seen before."""
        fields = parse_fields(headers.get("authorization", ""))
        name, number, digest = fields.get("session", ""), fields.get("number", ""), fields.get("body", "")
        session = self._used.get(name) or self._new.get(name)
        if session is None or not (number.isascii() and number.isdigit() and len(number) < 20):
            return None
        expected = session.key.of_request(number, method, path, headers, headers.get("content-length", ""), digest)
        if not same_secret(fields.get("signature", ""), expected) or int(number) <= session.last:
            return None
        session.last = int(number)
        self._new.pop(name, None)
        self._used[name] = session
        self._used.move_to_end(name)
        if len(self._used) > self._limit:
            self._used.popitem(last=False)
        return Signed(session.key, number, digest)
