"""Who may talk to a server at all. The protocol's own tokens and channels come after this."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from ding.interaction.base.app import envelope
from ding.interaction.server.credentials import BearerToken
from ding.interaction.server.hosts import OwnNames

_Environ = dict[str, Any]
_StartResponse = Callable[..., Any]
WsgiApp = Callable[[_Environ, _StartResponse], Iterable[bytes]]
_Refusal = tuple[str, str]


class AccessGuard:
    """`app` behind the rules that keep out browsers, other machines and other users.

    Refusals have the envelope of all replies: 403 for a foreign `Host` and for any `Origin`, 401 without the bearer
    token (where there is one), 415 for a body that is declared to be no JSON.

    Args:
        public: paths that may be read without the bearer token.
    """

    def __init__(
        self, app: WsgiApp, token: BearerToken | None, names: OwnNames, public: Collection[str] = frozenset()
    ) -> None:
        self._app = app
        self._token = token
        self._names = names
        self._public = public

    def __call__(self, environ: _Environ, start_response: _StartResponse) -> Iterable[bytes]:
        refusal = self._refusal(environ)
        if refusal is None:
            return self._app(environ, start_response)
        status, message = refusal
        body = envelope(False, message=message).encode()
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        if status.startswith("401"):
            headers.append(("WWW-Authenticate", "Bearer"))
        start_response(status, headers)
        return [body]

    def _refusal(self, environ: _Environ) -> _Refusal | None:
        if not self._names.accept(environ.get("HTTP_HOST")):
            return (
                "403 Forbidden",
                "The host in the request is not a name of this server (DING_HOSTS lists further names).",
            )
        if "HTTP_ORIGIN" in environ:
            return "403 Forbidden", "Requests of web pages are not served."
        if not self._has_token(environ):
            return "401 Unauthorized", "The bearer token is missing or wrong (DING_TOKEN or DING_TOKEN_FILE)."
        content_type = environ.get("CONTENT_TYPE") or "application/json"
        if content_type.partition(";")[0].strip().lower() != "application/json":
            return "415 Unsupported Media Type", "The body must be application/json."
        return None

    def _has_token(self, environ: _Environ) -> bool:
        """Whether the request has the bearer token, or needs none."""
        if self._token is None or self._token.is_in(environ.get("HTTP_AUTHORIZATION")):
            return True
        return environ.get("REQUEST_METHOD") in ("GET", "HEAD") and environ.get("PATH_INFO") in self._public
