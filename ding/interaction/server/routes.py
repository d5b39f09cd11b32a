"""The routes of masters and slaves, and the checks that they begin with."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ding.interaction.base.app import Codes, ProtocolError

if TYPE_CHECKING:
    from flask import Request

# The largest body of a request that is admitted before the client has proved to be a peer.
SMALL_BODY = 1024 * 1024


class Route(NamedTuple):
    """The handler of a path and method.

    Attributes:
        admit: judges the head of a request before its body is read; `answer` is called with the value.
        answer: called with that value, the head and the body; returns the `data` of the reply, or the reply.
        is_quick: whether `answer` neither waits nor runs user code.
        body_limit: the largest body in bytes; None for the limit of the server.
        is_open: whether `admit` lets clients pass that have not proved to belong to the run.
    """

    admit: Callable[[Request], Any]
    answer: Callable[[Any, Request, bytes], Any]
    is_quick: bool = False
    body_limit: int | None = None
    is_open: bool = False


Routes = Mapping[str, Mapping[str, Route]]


def check_channel(request: Request, own: int, codes: Codes) -> None:
    """Refuse a request with a missing or malformed channel (400), or with another one (403)."""
    text = request.headers.get("Channel")
    if not text:
        raise ProtocolError(400, codes.channel_missing, "The request has no channel.")
    try:
        channel = int(text)
    except ValueError:
        raise ProtocolError(400, codes.channel_wrong, "The channel is not a number.") from None
    if channel != own:
        raise ProtocolError(403, codes.channel_wrong, "The channel is another one.")


def header_token(request: Request, missing: int) -> str:
    """Return the token of the request; refuse a request without one (400)."""
    token = request.headers.get("Token")
    if not token:
        raise ProtocolError(400, missing, "The request has no token.")
    return token


def request_id(request: Request) -> str:
    """Return the id of the request, which is the same for each try; empty if it has none."""
    return request.headers.get("Request-Id", "")


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
