"""The requests and replies of a server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, NamedTuple

from ding.interaction.base.app import envelope


@dataclass(frozen=True, slots=True)
class Request:
    """The head of a request.

    Attributes:
        target: the path with its query, as sent.
        headers: by their names in lower case.
        peer: the address of the client.
        path: the target without its query.
    """

    method: str
    target: str
    headers: Mapping[str, str]
    peer: str
    path: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", self.target.partition("?")[0])

    def header(self, name: str) -> str:
        """Return the value of a header; empty if it is missing."""
        return self.headers.get(name, "")


class Reply(NamedTuple):
    """The reply to a request."""

    status: int
    body: bytes
    headers: Mapping[str, str] = {"Content-Type": "application/json"}

    def to_bytes(self, is_kept: bool, is_bare: bool) -> bytes:
        """Return the bytes to send.

        Args:
            is_kept: whether the connection stays open.
            is_bare: whether to omit the body, as for HEAD requests.
        """
        lines = [f"HTTP/1.1 {self.status} {_PHRASES.get(self.status, '')}", f"Content-Length: {len(self.body)}"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        if not is_kept:
            lines.append("Connection: close")
        head = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"
        return head if is_bare else head + self.body


_PHRASES = {int(status): status.phrase for status in HTTPStatus}
_SUCCESS = envelope(True).encode()


def success(data: Any = None) -> Reply:
    """Return the reply to a request that succeeded."""
    return Reply(200, _SUCCESS if data is None else envelope(True, data).encode())


def failure(status: int, message: str, code: int = 1, data: Any = None, **headers: str) -> Reply:
    """Return the reply to a request that failed. Names of `headers` have underscores instead of hyphens."""
    more = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status, envelope(False, data, message, code).encode(), {"Content-Type": "application/json", **more})
