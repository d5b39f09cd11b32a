"""Small helpers, and what can be started and closed."""

from __future__ import annotations

import numbers
import operator
import secrets
import string
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

_Self = TypeVar("_Self", bound="ControllableContext")
_DEFAULT_TOKEN_LENGTH = 64


def random_token(length: int | None = None) -> str:
    """A secret of `length` hexadecimal digits (64 by default), upper and lower case mixed.

    It comes from the operating system, never from a seeded generator.
    """
    return "".join(secrets.choice(string.hexdigits) for _ in range(length or _DEFAULT_TOKEN_LENGTH))


def translate_dict_func(functions: Mapping[str, Callable[..., Any]]) -> Callable[..., dict[str, Any]]:
    """A function that passes its arguments to each of `functions` and returns their results under the same keys.

    Example:
        >>> translate_dict_func({"sum": lambda a, b: a + b, "first": lambda a, b: a})(2, 3)
        {'sum': 5, 'first': 2}
    """
    return lambda *args: {key: function(*args) for key, function in functions.items()}


def default_func(value: Any = None) -> Callable[[Callable[..., Any] | None], Callable[..., Any]]:
    """Make a function out of an optional one: `func` itself, or for None one that returns `value` for any arguments."""

    def choose(func: Callable[..., Any] | None) -> Callable[..., Any]:
        return func if func is not None else lambda *args, **kwargs: value

    return choose


def checked_port(port: int) -> int:
    """`port`, if it is one.

    Raises:
        ValueError: it is not an integer in [0, 65535].
    """
    try:
        number = operator.index(port)
    except TypeError:
        number = -1
    if not 0 <= number <= 65535:
        raise ValueError(f"port = {port!r} is not allowed; it must be an integer in [0, 65535]")
    return number


def number_or(default: float, name: str, value: float | None, minimum: float = 0.0) -> float:
    """`value`, or `default` where it is None or 0, but at least `minimum`.

    Raises:
        ValueError: the value is negative, or no number.
    """
    if value is not None and not (isinstance(value, numbers.Real) and value >= 0):
        raise ValueError(f"{name} = {value!r} is not allowed; it must be a number >= 0, or None for {default!r}")
    return max(value or default, minimum)


class ControllableContext(ABC):
    """What is started on entering a `with` block and closed on leaving it."""

    @abstractmethod
    def start(self) -> Any:
        """Begin."""

    @abstractmethod
    def close(self) -> Any:
        """End."""

    def __enter__(self: _Self) -> _Self:
        self.start()
        return self

    def __exit__(self, *exc_info: Any) -> None:
        self.close()


class ControllableService(ControllableContext):
    """A context that ends in two steps: it is asked to, then waited for."""

    @abstractmethod
    def shutdown(self) -> None:
        """Ask it to end; return at once."""

    @abstractmethod
    def join(self) -> None:
        """Wait until it has ended."""

    def close(self) -> None:
        """Ask it to end, and wait until it has."""
        self.shutdown()
        self.join()
