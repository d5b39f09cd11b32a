"""The page that shows in a browser how a run stands, and the data it draws.

`/status` is behind the same checks as everything else that the coordinator serves: off loopback it needs the bearer
token. A browser cannot send that token when it opens a page, so the page itself, `/`, is served to whoever passes the
checks of `Host` and `Origin`. It is the same few kilobytes for everybody and holds nothing of the run; that a
coordinator listens, a refusal would tell as well. It asks for the token if `/status` is refused, and sends it as
`Authorization` to `/status` only: never in an address, where histories and logs would keep it, and not as a cookie,
which other servers of the host would be sent. It keeps the token in the tab (`sessionStorage`), and forgets it when it
is refused, when the run is over, and when the coordinator has been silent for half a minute: whoever listens at its
port then may be somebody else.

What is shown comes from peers: names, addresses, tracebacks. The page sets it as text, never as markup; and if that
failed, its `Content-Security-Policy` would let no script run but the one in the page (by its hash), nor let anything be
sent but to this server.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import re
from collections.abc import Callable
from importlib.resources import files

from ding.utils.page import Page
from ding.worker.coordinator.status import RunStatus

_NAME = "status_page.html"


def status_pages(status: Callable[[], RunStatus]) -> dict[str, Page]:
    """What a coordinator serves, by path.

    Args:
        status: called for each request of the data.
    """
    return {
        "/": Page(page_text, "text/html; charset=utf-8", {"Content-Security-Policy": page_policy()}, is_public=True),
        "/status": Page(lambda: json.dumps(status().to_json(), allow_nan=False)),
    }


@functools.cache
def page_text() -> str:
    """The page: HTML that needs nothing else."""
    return files(__package__).joinpath(_NAME).read_text(encoding="utf-8")


@functools.cache
def page_policy() -> str:
    """The page's `Content-Security-Policy`: only what is in the page, and only requests to where it came from."""
    allowed = {
        "default-src": "'none'",
        "script-src": _hash_of("script"),
        "style-src": _hash_of("style"),
        "img-src": "data:",
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in allowed.items())


def _hash_of(tag: str) -> str:
    """The source expression for the one element `tag` of the page."""
    (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page_text(), re.DOTALL)
    digest = hashlib.sha256(content.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
