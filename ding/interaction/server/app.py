"""The Flask app of a master or slave: access control, dispatch, and replies in the envelope."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import flask
from flask import Request, Response

from ding.interaction.base.app import Codes, ProtocolError, ResponsibleException, failure_response, success_response
from ding.interaction.server.access import OwnNames, RunToken, same_secret
from ding.interaction.server.role import Route, Routes, header_token
from ding.interaction.server.signing import SCHEME, SESSION_PATH, Signed, Verifier, parse_fields

if TYPE_CHECKING:
    from ding.utils.page import Page

_NO_BODY = 16 * 1024
_PAGE_PATH = re.compile(r"/[A-Za-z0-9._/-]*")
# Only pages of the server itself may read a page; browsers do not cache it or guess its type.
_PAGE_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
# For a copy of a signed request: it gets the reply to the first one, whatever the server's state is by now.
_COPY = Route(lambda _: None, lambda *_: None)
# The key in a WSGI environment of the decision about its request.
ADMISSION = "ding.admission"
_log = logging.getLogger("ding.interaction")


class ProtocolApp:
    """The HTTP side of a master or slave. Every reply except a page has the envelope, errors included.

    A request must pass these checks, in this order: its `Host` is a name of the server, and it has no `Origin` (403: it
    comes from a web page); if the run has a token, it is signed with the token or, for a page, carries it (401); its
    body is JSON (415); the server is not shutting down (401). The checks of the route follow. All of them need the head
    of the request alone: a server calls `admit` first, puts the result into the environment as `ADMISSION`, and reads
    the body only then.

    Args:
        codes: the error codes of the server.
        routes: by path, then by method.
        body_limit: the largest body of a request in bytes.
        self_token: the token of the server's requests to itself.
        closing: set when the server shuts down; requests are refused then.
        shutdown: begins that.

    Attributes:
        flask: the WSGI application.
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
        self._routes: dict[str, dict[str, Route]] = {}
        self._pages: dict[str, Page] = {}
        self._names: OwnNames | None = None
        self._token: RunToken | None = None
        self._verifier: Verifier | None = None
        self.flask = flask.Flask(__name__, static_folder=None)
        self.flask.url_map.merge_slashes = False
        self.flask.before_request(self._check)
        own = Route(self._check_self_token, lambda *_: None, True, _NO_BODY)
        for path, methods in routes.items():
            self._serve(path, **methods)
        self._serve("/ping", GET=own)
        self._serve("/shutdown", DELETE=own._replace(answer=lambda *_: shutdown(), is_quick=False))

    def open(self, names: OwnNames, token: RunToken | None, kind: str) -> None:
        """Begin to serve requests that name one of `names` and know `token`."""
        self._names, self._token = names, token
        if token is not None:
            self._verifier = Verifier(token, kind)
            begin = Route(lambda _: None, lambda data, *_: data, True, 0)
            self._serve(SESSION_PATH, POST=begin)

    def add_page(self, path: str, page: Page) -> None:
        """Serve a page.

        Raises:
            ValueError: the path is malformed, or in use.
        """
        if not _PAGE_PATH.fullmatch(path):
            raise ValueError(f"path = {path!r} is not allowed; it must be / and letters, digits and ._-/ after it")
        if path in self._routes or path == SESSION_PATH:
            raise ValueError(f"path = {path!r} is in use; choose another one")
        self._pages[path] = page
        get = Route(lambda _: None, lambda *_: _show(page), body_limit=_NO_BODY, is_open=True)
        self._serve(path, GET=get, HEAD=get)

    def respond(self, environ: dict[str, Any]) -> Response:
        """Return the reply to a request. Does not raise."""
        try:
            with self.flask.request_context(environ):
                return self.flask.full_dispatch_request()
        except Exception as error:
            _log.error("a request failed", exc_info=error)
            return failure(500, f"{type(error).__name__}: {error}")

    def _serve(self, path: str, **methods: Route) -> None:
        self._routes[path] = methods
        self.flask.add_url_rule(path, path, self._answer, methods=list(methods), provide_automatic_options=False)

    def _check(self) -> Response | None:
        """Judge the request, unless the server has done so."""
        environ = flask.request.environ
        if ADMISSION not in environ:
            decided = self.admit(flask.request)
            if isinstance(decided, Response):
                return decided
            environ[ADMISSION] = decided
        admission: Admission = environ[ADMISSION]
        # What is asked for in a copy need not exist any more.
        return admission.answer(flask.request.get_data()) if admission.is_copy else None

    def _answer(self) -> Response:
        admission: Admission = flask.request.environ[ADMISSION]
        return admission.answer(flask.request.get_data())

    def admit(self, request: Request) -> Admission | Response:
        """Judge a request by its head. A reply refuses it."""
        signed = None
        try:
            refusal = self._refusal(request)
            if refusal is not None:
                return refusal
            if self._verifier is not None and _path(request) == SESSION_PATH:
                return self._begin_session(request)
            is_reader = self._may_read_page(request)
            if self._verifier is not None and not is_reader:
                signed = self._verifier.verify(request.method, request.environ["REQUEST_URI"], request.headers)
                if signed is None:
                    return self._unproved(request)
                if signed.exchange.has_begun:
                    return Admission(self, request, signed, _COPY._replace(is_quick=signed.exchange.is_finished))
            has_token = is_reader and self._token is not None and self._token.guards_pages
            return self._find(request, signed, has_token)
        except Exception as error:
            return Admission(self, request, signed).refuse(error)

    def _refusal(self, request: Request) -> Response | None:
        assert self._names is not None
        if not self._names.accept(request.headers.get("Host")):
            return failure(
                403, "The host in the request is not a name of this server (DING_HOSTS lists further names)."
            )
        if "Origin" in request.headers:
            return failure(403, "Requests of web pages are not served.")
        return None

    def _may_read_page(self, request: Request) -> bool:
        if _path(request) not in self._pages or request.method not in ("GET", "HEAD") or self._token is None:
            return False
        return not self._token.guards_pages or self._token.is_in(request.headers.get("Authorization"))

    def _unproved(self, request: Request) -> Response:
        """Return the refusal of a request without the token. That of a public page asks for the token, as the page."""
        page = self._pages.get(_path(request))
        if page is None:
            return _unproved()
        if not page.is_public or request.method not in ("GET", "HEAD"):
            return _unproved("Bearer")
        shown = _show(page)
        shown.status_code = 401
        shown.headers["WWW-Authenticate"] = "Bearer"
        return shown

    def _begin_session(self, request: Request) -> Response | Admission:
        assert self._verifier is not None and self._names is not None
        fields = parse_fields(request.headers.get("Authorization", ""))
        begun = None
        if request.method == "POST" and self._names.accept(fields.get("host")):
            begun = self._verifier.begin(fields)
        if begun is None:
            return _unproved()
        route = self._routes[SESSION_PATH]["POST"]
        return Admission(self, request, None, route, {"nonce": begun[0], "proof": begun[1]})

    def _find(self, request: Request, signed: Signed | None, has_token: bool) -> Admission:
        content_type = request.headers.get("Content-Type") or "application/json"
        if content_type.partition(";")[0].strip().lower() != "application/json":
            raise ProtocolError(415, 1, "The body must be application/json.")
        if self._closing.is_set():
            raise ProtocolError(401, self._codes.shutting_down, "The server is shutting down.")
        methods = self._routes.get(_path(request))
        if methods is None:
            raise ProtocolError(404, 1, "Nothing is served at this path.")
        route = methods.get(request.method)
        if route is None:
            raise ProtocolError(405, 1, f"The method must be {' or '.join(methods)}.")
        return Admission(self, request, signed, route, route.admit(request), has_token)

    def _check_self_token(self, request: Request) -> None:
        if not same_secret(header_token(request, self._codes.self_token_missing), self._self_token):
            raise ProtocolError(403, self._codes.self_token_wrong, "The token is wrong.")

    def limit_of(self, route: Route) -> int:
        """Return the largest body of a request in bytes."""
        return self._body_limit if route.body_limit is None else min(route.body_limit, self._body_limit)


class Admission:
    """A request whose head has passed all checks, or was refused.

    Attributes:
        body_limit: the largest body in bytes.
        is_quick: whether `answer` neither waits nor runs user code.
        is_copy: whether it is a copy of a signed request.
        is_peer: whether the client has proved that it belongs to the run.
    """

    def __init__(
        self,
        app: ProtocolApp,
        request: Request,
        signed: Signed | None,
        route: Route | None = None,
        found: Any = None,
        has_token: bool = False,
    ) -> None:
        self._request = request
        self._signed = signed
        self._route = route
        self._found = found
        self.body_limit = 0 if route is None else app.limit_of(route)
        self.is_quick = route is not None and route.is_quick
        self.is_copy = route is not None and route.answer is _COPY.answer
        self.is_peer = has_token or signed is not None or (route is not None and not route.is_open)

    def answer(self, body: bytes) -> Response:
        """Return the reply to the request with this body. Does not raise."""
        if self._signed is not None:
            if not self._signed.is_body(body):
                return _unproved()
            if not self._signed.exchange.begin():
                return self._signed.exchange.wait() or _unproved()
        assert self._route is not None
        try:
            data = self._route.answer(self._found, self._request, body)
            return self._sign(data if isinstance(data, Response) else success_response(data))
        except BaseException as error:  # SystemExit of a hook too: the thread must continue
            return self.refuse(error)

    def refuse(self, error: BaseException) -> Response:
        """Return the reply to a request that has failed with `error`."""
        if isinstance(error, ResponsibleException):
            response, status = error.get_response()
            response.status_code = status
            return self._sign(response)
        # The traceback is logged here; the client receives the type and the text.
        _log.error("a request failed", exc_info=error)
        return self._sign(failure(500, f"{type(error).__name__}: {error}"))

    def too_large(self) -> Response:
        """Return the reply to a request whose body is larger than allowed."""
        return self.refuse(ProtocolError(413, 1, f"Request Entity Too Large: the limit is {self.body_limit} bytes."))

    def _sign(self, response: Response) -> Response:
        return response if self._signed is None else self._signed.finish(response)


def failure(status: int, message: str, **headers: str) -> Response:
    """Return the reply to a request that failed. Names of `headers` have underscores instead of hyphens."""
    response = failure_response(message=message)
    response.status_code = status
    for name, value in headers.items():
        response.headers[name.replace("_", "-")] = value
    return response


def _path(request: Request) -> str:
    """Return the path as it was sent, but for escapes; `request.path` has one slash in place of several."""
    return str(request.environ["PATH_INFO"])


def _unproved(challenge: str = SCHEME) -> Response:
    message = "The token of the run is missing or wrong (DING_TOKEN or DING_TOKEN_FILE)."
    return failure(401, message, WWW_Authenticate=challenge)


def _show(page: Page) -> Response:
    headers = {**_PAGE_HEADERS, **page.headers, "Content-Type": page.content_type}
    return Response(page.make(), headers=headers)
