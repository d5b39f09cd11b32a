"""Dispatch by the exact type of a value: one dict lookup for a known type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Handler = Callable[..., Any]
Matcher = type | tuple[type, ...] | Callable[[type], bool]


def is_namedtuple(kind: type) -> bool:
    """Returns whether `kind` is a namedtuple class."""
    return issubclass(kind, tuple) and hasattr(kind, "_fields")


def is_treetensor(kind: type) -> bool:
    """Returns whether `kind` is a tree of tensors (DI-treetensor), which `json()` turns into dicts."""
    return callable(getattr(kind, "json", None)) and not issubclass(kind, dict)


class ByType(dict[type, Handler]):
    """A dict of handlers by type: `handlers[type(value)]` is the handler of `value`.

    The lookup of a type that no rule matches raises a TypeError.

    Args:
        purpose: What the handlers do, for the error "cannot <purpose> a value of type ...".
        rules: Pairs of types, or a predicate on types, and a handler. The first match of a new type is cached.

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
