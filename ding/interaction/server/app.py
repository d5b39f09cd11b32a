"""The HTTP side of a master or slave: access control, dispatch, and replies in the envelope."""

from __future__ import annotations

import json
import logging
import re
import threading
import uuid
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

from ding.interaction.base import Answer, Codes, Page, ProtocolError, ResponsibleException, envelope
from ding.interaction.server.access import OwnNames, RunToken, same_secret
from ding.interaction.server.signing import SCHEME, SESSION_PATH, Signed, Verifier, parse_fields

# The largest body of a request that is admitted before the client has proved to be a peer.
SMALL_BODY = 1024 * 1024


class Head(NamedTuple):
    """A request without its body.

    Attributes:
        target: the path and query as they were sent.
        headers: the headers, by their names in lower case.
        peer: the address of the client.
        scheme: `http` or `https`.
    """

    method: str
    target: str
    headers: Mapping[str, str]
    peer: str
    scheme: str = "http"

    @property
    def path(self) -> str:
        """The path without escapes, one character for each byte."""
        path = self.target.partition("?")[0]
        return unquote_to_bytes(path).decode("latin-1") if "%" in path else path


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


_NO_BODY = 16 * 1024
_PAGE_PATH = re.compile(r"/[A-Za-z0-9._/-]*")
_HEADER = re.compile(r"[A-Za-z0-9-]+: [\t -~\x80-\xff]*")
# Only pages of the server itself may read a page; browsers do not cache it or guess its type.
_PAGE_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
# For a copy of a signed request, which gets the reply to the first one, whatever the server's state is by now.
_COPY = Route(lambda _: None, lambda *_: None)
_QUICK_COPY = _COPY._replace(is_quick=True)
_log = logging.getLogger("ding.interaction")


class ProtocolApp:
    """The HTTP side of a master or slave. Every reply except a page has the envelope, errors included.

    A request must pass these checks, in this order: its `Host` is a name of the server, and it has no `Origin` header,
    which would mean that it comes from a web page (403); if the run has a token, it is signed with the token or, for a
    page, carries it (401); its body is JSON (415); the server is not shutting down (401). The checks of the route
    follow. All checks need only the head of the request: a server calls `admit` first, and reads the body only after
    that. `guard.py` lets a Flask app answer what is admitted.

    Args:
        codes: the error codes of the server.
        routes: the routes by path, then by method.
        body_limit: the largest body of a request in bytes.
        self_token: the token of the server's requests to itself.
        closing: set when the server shuts down; requests are then refused.
        shutdown: begins the shutdown.
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
        self._codes = codes
        self._body_limit = body_limit
        self._self_token = self_token
        self._closing = closing
        self._pages: dict[str, Page] = {}
        self._names: OwnNames | None = None
        self._token: RunToken | None = None
        self._verifier: Verifier | None = None
        own = Route(self._check_self_token, lambda *_: None, True, _NO_BODY)
        self._routes: dict[str, Mapping[str, Route]] = {
            **routes,
            "/ping": {"GET": own},
            "/shutdown": {"DELETE": own._replace(answer=lambda *_: shutdown(), is_quick=False)},
        }

    def open(self, names: OwnNames, token: RunToken | None, kind: str) -> None:
        """Begin to serve requests that name one of `names` and know `token`."""
        self._names, self._token = names, token
        if token is not None:
            self._verifier = Verifier(token, kind)
            self._routes[SESSION_PATH] = {"POST": Route(lambda _: None, lambda data, *_: data, True, 0)}

    def add_page(self, path: str, page: Page) -> None:
        """Serve a page.

        Raises:
            ValueError: the path is malformed or in use, or a header of the page is malformed.
        """
        if not _PAGE_PATH.fullmatch(path):
            raise ValueError(f"path = {path!r} is not allowed; it must be / and letters, digits and ._-/ after it")
        if path in self._routes or path == SESSION_PATH:
            raise ValueError(f"path = {path!r} is in use; choose another one")
        for name, value in {"Content-Type": page.content_type, **page.headers}.items():
            if not _HEADER.fullmatch(f"{name}: {value}"):
                raise ValueError(f"the header {name!r}: {value!r} of the page {path!r} is malformed")
        self._pages[path] = page
        get = Route(lambda _: None, lambda *_: _show(page), body_limit=_NO_BODY, is_open=True)
        self._routes[path] = {"GET": get, "HEAD": get}

    def admit(self, head: Head) -> Admission | Answer:
        """Check a request by its head, and return its admission, or the reply that refuses it. It never raises."""
        signed = None
        try:
            refusal = self._refusal(head)
            if refusal is not None:
                return refusal
            path = head.path
            if self._verifier is None:
                return self._find(head, path, None, False)
            if path == SESSION_PATH:
                return self._begin_session(head)
            if self._may_read_page(head, path):
                return self._find(head, path, None, self._token is not None and self._token.guards_pages)
            signed = self._verifier.verify(head.method, head.target, head.headers)
            if signed is None:
                return self._unproved(head, path)
            if signed.exchange.has_begun:
                copy = _QUICK_COPY if signed.exchange.is_finished else _COPY
                return Admission(head, signed, copy, self._body_limit)
            return self._find(head, path, signed, False)
        except Exception as error:  # the client receives whatever a check raises
            return _refuse(error, signed)

    def _refusal(self, head: Head) -> Answer | None:
        assert self._names is not None
        if not self._names.accept(head.headers.get("host")):
            return failure(
                403, "The host in the request is not a name of this server (DING_HOSTS lists further names)."
            )
        if "origin" in head.headers:
            return failure(403, "Requests of web pages are not served.")
        return None

    def _may_read_page(self, head: Head, path: str) -> bool:
        if path not in self._pages or head.method not in ("GET", "HEAD") or self._token is None:
            return False
        return not self._token.guards_pages or self._token.is_in(head.headers.get("authorization"))

    def _unproved(self, head: Head, path: str) -> Answer:
        """Return the refusal of a request without the token; for a public page, the page itself, which asks for it."""
        page = self._pages.get(path)
        if page is None:
            return unproved()
        if not page.is_public or head.method not in ("GET", "HEAD"):
            return unproved("Bearer")
        shown = _show(page)
        return shown._replace(status=401, headers=(*shown.headers, ("WWW-Authenticate", "Bearer")))

    def _begin_session(self, head: Head) -> Answer | Admission:
        assert self._verifier is not None and self._names is not None
        fields = parse_fields(head.headers.get("authorization", ""))
        begun = None
        if head.method == "POST" and self._names.accept(fields.get("host")):
            begun = self._verifier.begin(fields)
        if begun is None:
            return unproved()
        return Admission(head, None, self._routes[SESSION_PATH]["POST"], 0, {"nonce": begun[0], "proof": begun[1]})

    def _find(self, head: Head, path: str, signed: Signed | None, has_token: bool) -> Admission:
        content_type = head.headers.get("content-type") or "application/json"
        if content_type.partition(";")[0].strip().lower() != "application/json":
            raise ProtocolError(415, 1, "The body must be application/json.")
        if self._closing.is_set():
            raise ProtocolError(401, self._codes.shutting_down, "The server is shutting down.")
        methods = self._routes.get(path)
        if methods is None:
            raise ProtocolError(404, 1, "Nothing is served at this path.")
        route = methods.get(head.method)
        if route is None:
            raise ProtocolError(405, 1, f"The method must be {' or '.join(methods)}.")
        limit = self._body_limit if route.body_limit is None else min(route.body_limit, self._body_limit)
        return Admission(head, signed, route, limit, route.admit(head), has_token)

    def _check_self_token(self, head: Head) -> None:
        if not same_secret(header_token(head, self._codes.self_token_missing), self._self_token):
            raise ProtocolError(403, self._codes.self_token_wrong, "The token is wrong.")


class Admission:
    """A request whose head has passed all checks.

    Attributes:
        head: the head of the request.
        body_limit: the largest body in bytes.
        is_quick: whether `answer` neither waits nor runs user code.
        is_copy: whether it is a copy of a signed request.
        is_peer: whether the client has proved that it belongs to the run.
    """

    __slots__ = ("_found", "_route", "_signed", "body_limit", "head", "is_copy", "is_peer", "is_quick")

    def __init__(
        self,
        head: Head,
        signed: Signed | None,
        route: Route,
        body_limit: int,
        found: Any = None,
        has_token: bool = False,
    ) -> None:
        self.head = head
        self._signed = signed
        self._route = route
        self._found = found
        self.body_limit = body_limit
        self.is_quick = route.is_quick
        self.is_copy = route.answer is _COPY.answer
        self.is_peer = has_token or signed is not None or not route.is_open

    def answer(self, body: bytes) -> Answer:
        """Return the reply to the request with this body. It never raises."""
        signed = self._signed
        if signed is not None:
            if not signed.is_body(body):
                return unproved()
            if not signed.exchange.begin():
                return signed.exchange.wait() or unproved()
        try:
            data = self._route.answer(self._found, self.head, body)
            answer = data if isinstance(data, Answer) else success(data)
        except BaseException as error:  # SystemExit of a hook too: the thread must continue
            return self.refuse(error)
        return answer if signed is None else signed.finish(answer)

    def refuse(self, error: BaseException) -> Answer:
        """Return the reply to the request, which has failed with `error`."""
        return _refuse(error, self._signed)

    def too_large(self) -> Answer:
        """Return the reply to a request whose body is larger than allowed."""
        return self.refuse(ProtocolError(413, 1, f"Request Entity Too Large: the limit is {self.body_limit} bytes."))


def _refuse(error: BaseException, signed: Signed | None) -> Answer:
    """Return the reply to a request that has failed with `error`."""
    answer = None
    if isinstance(error, ProtocolError):
        answer = Answer(envelope(False, None, error.message, error.code).encode(), error.status, _JSON)
    elif isinstance(error, ResponsibleException):
        try:
            response, status = error.get_response()
            headers = tuple(item for item in response.headers if item[0] != "Content-Length")
            answer = Answer(response.get_data(), status, headers)
        except Exception as failed:  # its data may have no JSON form
            error = failed
    if answer is None:
        # The traceback is logged here; the client receives the type and the text.
        _log.error("a request failed", exc_info=error)
        answer = failure(500, f"{type(error).__name__}: {error}")
    return answer if signed is None else signed.finish(answer)


def unproved(challenge: str = SCHEME) -> Answer:
    """Return the reply to a request that does not prove that its client knows the token of the run."""
    message = "The token of the run is missing or wrong (DING_TOKEN or DING_TOKEN_FILE)."
    return failure(401, message, WWW_Authenticate=challenge)


def _show(page: Page) -> Answer:
    content = page.make()
    if not isinstance(content, (str, bytes)):
        raise TypeError(f"a page returned a {type(content).__name__}; it must be a str or bytes")
    headers = {**_PAGE_HEADERS, **page.headers, "Content-Type": page.content_type}
    return Answer(content.encode() if isinstance(content, str) else content, 200, tuple(headers.items()))
