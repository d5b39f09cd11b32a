"""Additional pages of a server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Page:
    """The page at one path.

    Attributes:
        make: function that returns the content, called for each request in a thread of the server. An error is sent to
            the client.
        content_type: content type of the reply.
        headers: further headers of the reply.
        is_public: whether the page is served without the token of the run, which browsers do not send when they open a
            page. It must not hold secrets.
    """

    make: Callable[[], str | bytes]
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    is_public: bool = False
