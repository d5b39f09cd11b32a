"""The Flask app of a server, and the checks that all its views begin with."""

from __future__ import annotations

import json
import logging
import uuid
from typing import TYPE_CHECKING, Any

import flask
from werkzeug.exceptions import HTTPException

from ding.interaction.base.app import (
    Codes,
    ProtocolError,
    ResponsibleException,
    failure_response,
    success_response,
)
from ding.interaction.server.credentials import same_secret

if TYPE_CHECKING:
    from ding.interaction.server.service import Service


def make_app(service: Service, codes: Codes) -> flask.Flask:
    """The app of `service` with the views that it alone may call. Every reply has the envelope, whatever goes wrong."""
    app = flask.Flask("ding.interaction", static_folder=None)
    app.debug = app.testing = False  # the environment must not switch tracebacks on

    @app.before_request
    def check_is_open() -> None:
        if service.is_closing:
            raise ProtocolError(401, codes.shutting_down, "The server is shutting down.")

    @app.get("/ping")
    def ping() -> Any:
        _check_self_token(service.self_token, codes)
        return success_response()

    @app.delete("/shutdown")
    def shutdown() -> Any:
        _check_self_token(service.self_token, codes)
        service.shutdown()
        return success_response()

    app.register_error_handler(Exception, _answer)
    return app


def _answer(error: Exception) -> Any:
    if isinstance(error, ResponsibleException):
        return error.get_response()
    if isinstance(error, HTTPException):
        return failure_response(message=error.description), error.code
    # The traceback stays here; the caller learns what it was.
    logging.getLogger("ding.interaction").error("a request failed", exc_info=error)
    return failure_response(message=f"{type(error).__name__}: {error}"), 500


def _check_self_token(own: str, codes: Codes) -> None:
    if not same_secret(header_token(codes.self_token_missing), own):
        raise ProtocolError(403, codes.self_token_wrong, "The token is wrong.")


def check_channel(own: int, codes: Codes) -> None:
    """Refuse a request without channel (400), with something that is none (400), or with another one (403)."""
    text = _header("Channel")
    if not text:
        raise ProtocolError(400, codes.channel_missing, "The request has no channel.")
    try:
        channel = int(text)
    except ValueError:
        raise ProtocolError(400, codes.channel_wrong, "The channel is not a number.") from None
    if channel != own:
        raise ProtocolError(403, codes.channel_wrong, "The channel is another one.")


def header_token(missing: int) -> str:
    """The token of the request; without one it is refused (400)."""
    token = _header("Token")
    if not token:
        raise ProtocolError(400, missing, "The request has no token.")
    return token


def request_id() -> str:
    """The id that the sender gave to the request, the same for each try; empty for none."""
    return _header("Request-Id")


def read_body(bad: int) -> dict[str, Any]:
    """The JSON object in the body; an empty body is an empty one. Anything else is refused (400)."""
    data = flask.request.get_data(cache=False)
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
    """The value in the body at `path` (keys with dots between them); refused (400) if missing or not of type `kind`."""
    value: Any = body
    for key in path.split("."):
        if not isinstance(value, dict) or key not in value:
            raise ProtocolError(400, bad, f"The body has no {path}.")
        value = value[key]
    if not isinstance(value, kind):
        raise ProtocolError(400, bad, f"The {path} in the body is of a wrong type.")
    return value


def uuid_field(body: dict[str, Any], path: str, bad: int) -> str:
    """The UUID in the body at `path`, in its usual spelling; anything else is refused (400)."""
    text = field(body, path, str, bad)
    try:
        return str(uuid.UUID(text))
    except ValueError:
        raise ProtocolError(400, bad, f"The {path} in the body is not a UUID.") from None


def _header(name: str) -> str:
    return flask.request.headers.get(name, "")
