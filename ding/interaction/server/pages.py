"""What a server answers besides its protocol: pages for people, and data for whoever watches."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ding.interaction.server.messages import Reply

_PATH = re.compile(r"/[A-Za-z0-9._/-]*")
# Nobody but the server's own pages may read a page, and nothing may take it for something else or keep it.
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True, slots=True)
class Page:
    """The answer to GET requests at one path.

    Attributes:
        make: makes the body, for each request anew, in the thread that serves it. If it raises, the reply is a 500.
        headers: further headers of the reply.
        is_public: served without the bearer token, too, for a browser sends none when it opens a page. Only for what is
            no secret. The checks of `Host` and `Origin` hold for every page.
    """

    make: Callable[[], str | bytes]
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    is_public: bool = False

    def reply(self) -> Reply:
        """The reply to a request."""
        body = self.make()
        headers = {**_HEADERS, **self.headers, "Content-Type": self.content_type}
        return Reply(200, body.encode() if isinstance(body, str) else body, headers)


def check_page_path(path: str) -> None:
    """Refuse what is no path of a page.

    Raises:
        ValueError: it is none.
    """
    if not _PATH.fullmatch(path):
        raise ValueError(f"path = {path!r} is not allowed; it must be / and letters, digits and ._-/ after it")
