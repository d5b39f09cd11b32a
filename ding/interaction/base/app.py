"""The replies of servers: one JSON envelope, `{"success", "code", "message", "data"}`; `code` is 0 only on success."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable
from enum import IntEnum, unique
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import flask

_View = Callable[..., Any]


@unique
class CommonErrorCode(IntEnum):
    """Codes that do not depend on the server."""

    SUCCESS = 0
    COMMON_FAILURE = 1


def envelope(success: bool, data: Any = None, message: str | None = None, code: int | None = None) -> str:
    """Return the envelope as JSON text; `code` is 0 on success and never 0 otherwise."""
    number = CommonErrorCode.SUCCESS if success else (code or CommonErrorCode.COMMON_FAILURE)
    text = message or ("Success." if success else "Failed.")
    return json.dumps({"success": success, "code": int(number), "message": text, "data": data})


def flask_response(
    success: bool, data: Any = None, message: str | None = None, code: int | None = None
) -> flask.Response:
    """Return a reply with the envelope and the status 200; for another status, a view returns `(reply, status)`."""
    import flask

    return flask.Response(envelope(success, data, message, code), mimetype="application/json")


def success_response(data: Any = None, message: str | None = None) -> flask.Response:
    """Return the reply to a request that succeeded."""
    return flask_response(True, data, message)


def failure_response(code: int | None = None, message: str | None = None, data: Any = None) -> flask.Response:
    """Return the reply to a request that failed."""
    return flask_response(False, data, message, code)


def get_values_from_response(response: Any) -> tuple[int, bool, int, str, Any]:
    """Return `(status, success, code, message, data)` of a reply of requests or Flask.

    A missing message is returned as `''`, missing data as `{}`. `data` is None if the reply holds null, as that of
    `success_response()` does.

    Raises:
        ValueError: the reply is not JSON, or too deeply nested.
        KeyError: the reply is not an envelope.
    """
    try:
        values = response.get_json() if hasattr(response, "get_json") else response.json()
    except RecursionError:
        raise ValueError("the reply is too deeply nested") from None
    if not isinstance(values, dict):
        raise KeyError("success")
    return (
        int(response.status_code),
        values["success"],
        values["code"],
        values.get("message") or "",
        values.get("data", {}),
    )


class ResponsibleException(Exception):
    """An exception that a view may raise to send the reply that it describes.

    Args:
        code: the code in the envelope, not 0.
        message: the message in the envelope.
        data: the data in the envelope; `{}` by default.
        status_code: the HTTP status.
    """

    def __init__(self, code: int = 1, message: str | None = None, data: Any = None, status_code: int = 400) -> None:
        super().__init__(code, message, data, status_code)
        self._code = code
        self._message = message
        self._data = {} if data is None else data
        self._status_code = status_code

    def get_response(self) -> tuple[flask.Response, int]:
        """Return `(reply, status)`."""
        return failure_response(self._code, self._message, self._data), self._status_code


def responsible(classes: Iterable[type[ResponsibleException]] | None = None) -> Callable[[_View], _View]:
    """Return a decorator for views that turns a `ResponsibleException` of `classes` (any by default) into its reply."""
    caught = (ResponsibleException,) if classes is None else tuple(classes)

    def decorate(view: _View) -> _View:
        @functools.wraps(view)
        def answering(*args: Any, **kwargs: Any) -> Any:
            try:
                return view(*args, **kwargs)
            except caught as error:
                return error.get_response()

        return answering

    return decorate


class ProtocolError(ResponsibleException):
    """The error of a request that breaks the protocol or arrives at a wrong time; the reply has no data."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(code, message, None, status)
        self._data = None


class Codes(NamedTuple):
    """The codes that one kind of server sends in the checks that both kinds make."""

    shutting_down: int
    channel_missing: int
    channel_wrong: int
    self_token_missing: int
    self_token_wrong: int
