"""The replies and pages of servers, and small helpers: tokens, checks, contexts, an event to wait for both ways.

Every reply is one envelope, `{"success", "code", "message", "data"}`; `code` is 0 only on success.
"""

from __future__ import annotations

import functools
import json
import numbers
import operator
import secrets
import string
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, unique
from typing import TYPE_CHECKING, Any, TypeVar

from ding.interaction.http_client import HttpEngine as HttpEngine
from ding.interaction.http_client import get_host_ip as get_host_ip
from ding.interaction.http_client import get_http_engine_class as get_http_engine_class
from ding.interaction.http_client import split_http_address as split_http_address

if TYPE_CHECKING:
    import flask

__path__: list[str] = []  # the modules below it that DI-engine has are aliases
_View = Callable[..., Any]
_Self = TypeVar("_Self", bound="ControllableContext")
_DEFAULT_TOKEN_LENGTH = 64


@dataclass(frozen=True, slots=True)
class Page:
    """A page that a server shows at one path, beside its protocol.

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


@unique
class CommonErrorCode(IntEnum):
    """Codes that do not depend on the server."""

    SUCCESS = 0
    COMMON_FAILURE = 1


def envelope(success: bool, data: Any = None, message: str | None = None, code: int | None = None) -> dict[str, Any]:
    """Return the envelope; `code` is 0 on success and never 0 otherwise."""
    number = CommonErrorCode.SUCCESS if success else (code or CommonErrorCode.COMMON_FAILURE)
    text = message or ("Success." if success else "Failed.")
    return {"success": success, "code": int(number), "message": text, "data": data}


def flask_response(
    success: bool, data: Any = None, message: str | None = None, code: int | None = None
) -> flask.Response:
    """Return a JSON reply with the envelope, with status 200; for another status, a view returns `(reply, status)`."""
    import flask

    return flask.Response(json.dumps(envelope(success, data, message, code)), mimetype="application/json")


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


def random_token(length: int | None = None) -> str:
    """Return a secret of `length` hexadecimal digits (64 by default), upper and lower case mixed.

    It comes from the operating system, never from a seeded generator.
    """
    return "".join(secrets.choice(string.hexdigits) for _ in range(length or _DEFAULT_TOKEN_LENGTH))


def translate_dict_func(functions: Mapping[str, Callable[..., Any]]) -> Callable[..., dict[str, Any]]:
    """Return a function that passes its arguments to each of `functions` and returns the results by the same keys.

    Example:
        >>> translate_dict_func({"sum": lambda a, b: a + b, "first": lambda a, b: a})(2, 3)
        {'sum': 5, 'first': 2}
    """
    return lambda *args: {key: function(*args) for key, function in functions.items()}


def default_func(value: Any = None) -> Callable[[Callable[..., Any] | None], Callable[..., Any]]:
    """Return a decorator that keeps a function, and replaces None by a function that always returns `value`."""

    def choose(func: Callable[..., Any] | None) -> Callable[..., Any]:
        return func if func is not None else lambda *args, **kwargs: value

    return choose


def checked_port(port: int) -> int:
    """Check `port`, and return it.

    Raises:
        ValueError: the port is not an integer in [0, 65535].
    """
    try:
        number = operator.index(port)
    except TypeError:
        number = -1
    if not 0 <= number <= 65535:
        raise ValueError(f"port = {port!r} is not allowed; it must be an integer in [0, 65535]")
    return number


def number_or(default: float, name: str, value: float | None, minimum: float = 0.0) -> float:
    """Return `value`, or `default` if it is None or 0; the result is at least `minimum`.

    Raises:
        ValueError: the value is negative or not a number.
    """
    if value is not None and not (isinstance(value, numbers.Real) and value >= 0):
        raise ValueError(f"{name} = {value!r} is not allowed; it must be a number >= 0, or None for {default!r}")
    return max(value or default, minimum)


class ControllableContext(ABC):
    """An object that is started on entering a `with` block and closed on leaving it."""

    @abstractmethod
    def start(self) -> Any:
        """Start this object."""

    @abstractmethod
    def close(self) -> Any:
        """Close this object."""

    def __enter__(self: _Self) -> _Self:
        self.start()
        return self

    def __exit__(self, *exc_info: Any) -> None:
        self.close()


class ControllableService(ControllableContext):
    """A context that closes in two steps: it is asked to end, then waited for."""

    @abstractmethod
    def shutdown(self) -> None:
        """Ask the service to end, and return at once."""

    @abstractmethod
    def join(self) -> None:
        """Wait until the service has ended."""

    def close(self) -> None:
        """Ask the service to end, and wait until it has ended."""
        self.shutdown()
        self.join()


class DblEvent:
    """An event that threads can wait for in both directions: to be opened, and to be closed. This class is thread-safe.

    Args:
        opened: whether the event is open at first.

    Example:
        >>> event = DblEvent()
        >>> event.open()
        >>> event.wait_for_open(timeout=1)
        >>> event.is_open(), event.is_close()
        (True, False)
    """

    def __init__(self, opened: bool = False) -> None:
        self._condition = threading.Condition()
        self._is_open = opened

    def open(self) -> None:
        """Open the event and wake the threads that wait for it."""
        self._set(True)

    def close(self) -> None:
        """Close the event and wake the threads that wait for it."""
        self._set(False)

    def is_open(self) -> bool:
        """Return whether the event is open."""
        return self._is_open

    def is_close(self) -> bool:
        """Return whether the event is closed."""
        return not self._is_open

    def wait_for_open(self, timeout: float | None = None) -> None:
        """Wait until the event is open, at most `timeout` seconds; `is_open` then tells the outcome."""
        self._wait(True, timeout)

    def wait_for_close(self, timeout: float | None = None) -> None:
        """Wait until the event is closed, at most `timeout` seconds; `is_close` then tells the outcome."""
        self._wait(False, timeout)

    def _set(self, is_open: bool) -> None:
        with self._condition:
            self._is_open = is_open
            self._condition.notify_all()

    def _wait(self, is_open: bool, timeout: float | None) -> None:
        with self._condition:
            self._condition.wait_for(lambda: self._is_open is is_open, timeout)
