"""Choose a function by the exact type of a value: one dict lookup for a type that was met before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Handler = Callable[..., Any]
Matcher = type | tuple[type, ...] | Callable[[type], bool]


def is_namedtuple(kind: type) -> bool:
    """Whether `kind` is a namedtuple class."""
    return issubclass(kind, tuple) and hasattr(kind, "_fields")


def is_treetensor(kind: type) -> bool:
    """Whether `kind` looks like a tree of tensors (DI-treetensor, optional): `json()` turns it into dicts."""
    return callable(getattr(kind, "json", None)) and not issubclass(kind, dict)


class ByType(dict[type, Handler]):
    """Handlers by type; `handlers[type(value)]` is the handler of `value`.

    Args:
        purpose: what the handlers are for, in words that complete "cannot <purpose> a set".
        rules: (types or predicate on a type, handler); the first that matches a new type is remembered for it.

    Raises:
        TypeError: on lookup of a type that no rule matches.

    Example:
        >>> length = ByType("measure", (str, len), (int, int.bit_length))
        >>> length[bool](True)
        1
    """

    def __init__(self, purpose: str, *rules: tuple[Matcher, Handler]) -> None:
        super().__init__()
        self._purpose = purpose
        self._rules = rules

    def __missing__(self, kind: type) -> Handler:
        for matcher, handler in self._rules:
            if issubclass(kind, matcher) if isinstance(matcher, (type, tuple)) else matcher(kind):
                self[kind] = handler
                return handler
        raise TypeError(f"cannot {self._purpose} a value of type {kind.__module__}.{kind.__qualname__}")
