"""A page that a server shows beside what it is there for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Page:
    """What is shown at one path.

    Attributes:
        make: makes the content, each time anew, in a thread of the server. If it raises, the reader is told so.
        headers: further headers of the reply.
        is_public: shown without the token of the run, too, for a browser sends none when it opens a page. Only for what
            is no secret.
    """

    make: Callable[[], str | bytes]
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    is_public: bool = False
