"""Requests and their replies: access control, routes, and the checks that routes begin with."""

from __future__ import annotations

import json
import logging
import re
import threading
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ding.interaction.base.app import Codes, ProtocolError, ResponsibleException
from ding.interaction.server.credentials import RunToken, same_secret
from ding.interaction.server.hosts import OwnNames
from ding.interaction.server.messages import Reply, Request, failure, success
from ding.interaction.server.signing import SCHEME, SESSION_PATH, Signed, Verifier, parse_fields

if TYPE_CHECKING:
    from ding.utils.page import Page

# The largest body of a request that is admitted before the client has proved to be a peer.
SMALL_BODY = 1024 * 1024
_NO_BODY = 16 * 1024
_PAGE_PATH = re.compile(r"/[A-Za-z0-9._/-]*")
# Only pages of the server itself may read a page; browsers do not cache it or guess its type.
_PAGE_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_log = logging.getLogger("ding.interaction")


class Route(NamedTuple):
    """The handler of a path and method.

    Attributes:
        admit: judges the head of a request before its body is read; `answer` is called with the value.
        answer: called with that value, the head and the body; returns the `data` of the reply, or the reply.
        is_quick: whether `answer` neither waits nor runs user code.
        body_limit: the largest body in bytes; None for the limit of the server.
    """

    admit: Callable[[Request], Any]
    answer: Callable[[Any, Request, bytes], Any]
    is_quick: bool = False
    body_limit: int | None = None


Routes = Mapping[str, Mapping[str, Route]]
# For a copy of a signed request: it gets the reply to the first one, whatever the server's state is by now.
_COPY = Route(lambda _: None, lambda *_: None)


class ProtocolApp:
    """The HTTP side of a master or slave. Every reply except a page has the envelope, errors included.

    A request must pass these checks, in this order: its `Host` is a name of the server, and it has no `Origin` (403: it
    comes from a web page); if the run has a token, it is signed with the token or, for a page, carries it (401); its
    body is JSON (415); the server is not shutting down (401). The checks of the route follow.

    Args:
        codes: the error codes of the server.
        routes: by path, then by method.
        body_limit: the largest body of a request in bytes.
        self_token: the token of the server's requests to itself.
        closing: set when the server shuts down; requests are refused then.
        shutdown: begins that.
    """

    def __init__(
        self,
        codes: Codes,
        routes: Routes,
        *,
        body_limit: int,
        self_token: str,
        closing: threading.Event,
        shutdown: Callable[[], None],
    ) -> None:
        own = Route(self._check_self_token, lambda *_: None, True, _NO_BODY)
        self._codes = codes
        self._body_limit = body_limit
        self._self_token = self_token
        self._closing = closing
        self._routes: dict[str, dict[str, Route]] = {
            **{path: dict(methods) for path, methods in routes.items()},
            "/ping": {"GET": own},
            "/shutdown": {"DELETE": own._replace(answer=lambda *_: shutdown(), is_quick=False)},
        }
        self._pages: dict[str, Page] = {}
        self._names: OwnNames | None = None
        self._token: RunToken | None = None
        self._verifier: Verifier | None = None

    def open(self, names: OwnNames, token: RunToken | None, kind: str) -> None:
        """Begin to serve requests that name one of `names` and know `token`."""
        self._names, self._token = names, token
        self._verifier = None if token is None else Verifier(token, kind)

    def add_page(self, path: str, page: Page) -> None:
        """Serve a page.

        Raises:
            ValueError: the path is malformed, or in use.
        """
        if not _PAGE_PATH.fullmatch(path):
            raise ValueError(f"path = {path!r} is not allowed; it must be / and letters, digits and ._-/ after it")
        if path in self._routes or path in self._pages or path == SESSION_PATH:
            raise ValueError(f"path = {path!r} is in use; choose another one")
        self._pages[path] = page

    def admit(self, request: Request) -> Admission | Reply:
        """Judge a request by its head. A reply refuses it."""
        signed = None
        try:
            refusal = self._refusal(request)
            if refusal is not None:
                return refusal
            if self._verifier is not None and request.path == SESSION_PATH:
                return self._begin_session(request)
            if self._verifier is not None and not self._may_read_page(request):
                signed = self._verifier.verify(request.method, request.target, request.headers)
                if signed is None:
                    return _unproved("Bearer" if request.path in self._pages else SCHEME)
                if signed.exchange.has_begun:
                    return Admission(self, request, signed, _COPY._replace(is_quick=signed.exchange.is_finished))
            return self._find(request, signed)
        except Exception as error:
            return Admission(self, request, signed).refuse(error)

    def _refusal(self, request: Request) -> Reply | None:
        assert self._names is not None
        if not self._names.accept(request.headers.get("host")):
            return failure(
                403, "The host in the request is not a name of this server (DING_HOSTS lists further names)."
            )
        if "origin" in request.headers:
            return failure(403, "Requests of web pages are not served.")
        return None

    def _may_read_page(self, request: Request) -> bool:
        page = self._pages.get(request.path)
        if page is None or request.method not in ("GET", "HEAD") or self._token is None:
            return False
        return page.is_public or not self._token.guards_pages or self._token.is_in(request.header("authorization"))

    def _begin_session(self, request: Request) -> Reply | Admission:
        assert self._verifier is not None and self._names is not None
        fields = parse_fields(request.header("authorization"))
        begun = None
        if request.method == "POST" and self._names.accept(fields.get("host")):
            begun = self._verifier.begin(fields)
        if begun is None:
            return _unproved()
        data = {"nonce": begun[0], "proof": begun[1]}
        return Admission(self, request, None, Route(lambda _: None, lambda *_: data, True, 0))

    def _find(self, request: Request, signed: Signed | None) -> Admission:
        content_type = request.header("content-type") or "application/json"
        if content_type.partition(";")[0].strip().lower() != "application/json":
            raise ProtocolError(415, 1, "The body must be application/json.")
        if self._closing.is_set():
            raise ProtocolError(401, self._codes.shutting_down, "The server is shutting down.")
        page = self._pages.get(request.path)
        if page is not None:
            shown = page
            get = Route(lambda _: None, lambda *_: _show(shown), False, _NO_BODY)
            methods: Mapping[str, Route] = {"GET": get, "HEAD": get}
        else:
            methods = self._routes.get(request.path, {})
        if not methods:
            raise ProtocolError(404, 1, "Nothing is served at this path.")
        route = methods.get(request.method)
        if route is None:
            raise ProtocolError(405, 1, f"The method must be {' or '.join(methods)}.")
        return Admission(self, request, signed, route, route.admit(request))

    def _check_self_token(self, request: Request) -> None:
        if not same_secret(header_token(request, self._codes.self_token_missing), self._self_token):
            raise ProtocolError(403, self._codes.self_token_wrong, "The token is wrong.")

    def limit_of(self, route: Route) -> int:
        """Return the largest body of a request in bytes."""
        return self._body_limit if route.body_limit is None else min(route.body_limit, self._body_limit)


class Admission:
    """A request whose head has passed all checks, or was refused."""

    def __init__(
        self, app: ProtocolApp, request: Request, signed: Signed | None, route: Route | None = None, found: Any = None
    ) -> None:
        self._request = request
        self._signed = signed
        self._route = route
        self._found = found
        self.body_limit = 0 if route is None else app.limit_of(route)
        self.is_quick = route is not None and route.is_quick

    def answer(self, body: bytes) -> Reply:
        """Return the reply to the request with this body. Does not raise."""
        if self._signed is not None:
            if not self._signed.is_body(body):
                return _unproved()
            if not self._signed.exchange.begin():
                return self._signed.exchange.wait() or _unproved()
        assert self._route is not None
        try:
            data = self._route.answer(self._found, self._request, body)
            return self._sign(data if isinstance(data, Reply) else success(data))
        except BaseException as error:  # SystemExit of a hook too: the thread must continue
            return self.refuse(error)

    def refuse(self, error: BaseException) -> Reply:
        """Return the reply to a request that has failed with `error`."""
        if isinstance(error, ResponsibleException):
            status, text = error.get_envelope()
            return self._sign(Reply(status, text.encode()))
        # The traceback is logged here; the client receives the type and the text.
        _log.error("a request failed", exc_info=error)
        return self._sign(failure(500, f"{type(error).__name__}: {error}"))

    def _sign(self, reply: Reply) -> Reply:
        return reply if self._signed is None else self._signed.finish(reply)


def _unproved(challenge: str = SCHEME) -> Reply:
    message = "The token of the run is missing or wrong (DING_TOKEN or DING_TOKEN_FILE)."
    return failure(401, message, WWW_Authenticate=challenge)


def _show(page: Page) -> Reply:
    content = page.make()
    headers = {**_PAGE_HEADERS, **page.headers, "Content-Type": page.content_type}
    return Reply(200, content.encode() if isinstance(content, str) else content, headers)


def check_channel(request: Request, own: int, codes: Codes) -> None:
    """Refuse a request with a missing or malformed channel (400), or with another one (403)."""
    text = request.header("channel")
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
    token = request.header("token")
    if not token:
        raise ProtocolError(400, missing, "The request has no token.")
    return token


def request_id(request: Request) -> str:
    """Return the id of the request, which is the same for each try; empty if it has none."""
    return request.header("request-id")


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
