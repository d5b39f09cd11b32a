"""Requests and replies of a server, its routes, and functions with which handlers read a request."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

from ding.interaction.base import Codes, ProtocolError, envelope

# The largest body of a request that is admitted before the client has proved to be a peer.
SMALL_BODY = 1024 * 1024


class Head(NamedTuple):
    """A request without its body.

    Attributes:
        target: the path and query as they were sent.
        headers: the headers, by their names in lower case.
        peer: the address of the client.
    """

    method: str
    target: str
    headers: Mapping[str, str]
    peer: str

    @property
    def path(self) -> str:
        """The path without escapes, one character for each byte."""
        path = self.target.partition("?")[0]
        return unquote_to_bytes(path).decode("latin-1") if "%" in path else path


class Answer(NamedTuple):
    """A reply; its `Content-Length` is not among the headers."""

    body: bytes
    status: int
    headers: tuple[tuple[str, str], ...]


class Route(NamedTuple):
    """The handler of a path and method.

    Attributes:
        admit: checks the head of a request before its body is read, and returns a value for `answer`.
        answer: called with that value, the head and the body; returns the `data` of the reply, or the reply.
        is_quick: whether `answer` neither waits nor runs user code.
        body_limit: the largest body in bytes; None for the limit of the server.
        is_open: whether `admit` also lets clients pass that have not proved that they belong to the run.
    """

    admit: Callable[[Head], Any]
    answer: Callable[[Any, Head, bytes], Any]
    is_quick: bool = False
    body_limit: int | None = None
    is_open: bool = False


Routes = Mapping[str, Mapping[str, Route]]

_JSON = (("Content-Type", "application/json"),)


def success(data: Any = None) -> Answer:
    """Return the reply to a request that succeeded."""
    return Answer(envelope(True, data).encode(), 200, _JSON)


def failure(status: int, message: str, **headers: str) -> Answer:
    """Return the reply to a request that failed; names of `headers` have underscores instead of hyphens."""
    further = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Answer(envelope(False, message=message).encode(), status, _JSON + further)


def check_channel(head: Head, own: int, codes: Codes) -> None:
    """Refuse a request whose channel is missing or malformed (400), or differs from `own` (403)."""
    text = head.headers.get("channel")
    if not text:
        raise ProtocolError(400, codes.channel_missing, "The request has no channel.")
    try:
        channel = int(text)
    except ValueError:
        raise ProtocolError(400, codes.channel_wrong, "The channel is not a number.") from None
    if channel != own:
        raise ProtocolError(403, codes.channel_wrong, "The channel is another one.")


def header_token(head: Head, missing: int) -> str:
    """Return the token of the request; refuse a request without one (400)."""
    token = head.headers.get("token")
    if not token:
        raise ProtocolError(400, missing, "The request has no token.")
    return token


def request_id(head: Head) -> str:
    """Return the id of the request, which is the same for each try; empty if it has none."""
    return head.headers.get("request-id", "")


def read_body(data: bytes, bad: int) -> dict[str, Any]:
    """Return the JSON object in the body, `{}` for an empty body; refuse any other body (400)."""
    if not data:
        return {}
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        raise ProtocolError(400, bad, "The body is not JSON, or too deeply nested.") from None
    if not isinstance(body, dict):
        raise ProtocolError(400, bad, "The body is not a JSON object.")
    return body


def field(body: dict[str, Any], path: str, kind: type, bad: int) -> Any:
    """Return the value at `path` (keys joined by dots); refuse a body (400) without it, or with another type."""
    value: Any = body
    for key in path.split("."):
        if not isinstance(value, dict) or key not in value:
            raise ProtocolError(400, bad, f"The body has no {path}.")
        value = value[key]
    if not isinstance(value, kind):
        raise ProtocolError(400, bad, f"The {path} in the body is of a wrong type.")
    return value


def uuid_field(body: dict[str, Any], path: str, bad: int) -> str:
    """Return the UUID at `path` in its canonical spelling; refuse a body (400) without it."""
    text = field(body, path, str, bad)
    try:
        return str(uuid.UUID(text))
    except ValueError:
        raise ProtocolError(400, bad, f"The {path} in the body is not a UUID.") from None
