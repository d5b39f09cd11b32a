"""Declaration of methods on items by env that adapt a method on stacked batches, which may be called instead."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

F = TypeVar("F", bound=Callable[..., Any])

# The name of the method on batches, by function.
_ADAPTS: WeakKeyDictionary[Callable[..., Any], str] = WeakKeyDictionary()


def adapts_batch(name: str) -> Callable[[F], F]:
    """Declare that a method on `{env_id: item}` stacks the items, calls the method `name`, and splits its result.

    A caller with a stacked batch may call the method `name` instead; see `batch_method`. The declaration holds for this
    function only: a function that wraps or overrides it is called with items by env.
    """

    def declare(method: F) -> F:
        _ADAPTS[method] = name
        return method

    return declare


def batch_method_name(function: Callable[..., Any]) -> str | None:
    """Return the name of the method on batches that this function is declared to adapt; None for any other function."""
    return _ADAPTS.get(function)


def batch_method(method: Any) -> Callable[..., Any] | None:
    """Return the method on batches that a bound method is declared to adapt; None for any other callable.

    Example:
        >>> class Double:
        ...     @adapts_batch("of_batch")
        ...     def of_envs(self, items):
        ...         return dict(zip(items, self.of_batch(list(items.values())), strict=True))
        ...
        ...     def of_batch(self, items):
        ...         return [2 * item for item in items]
        >>> batch_method(Double().of_envs)([1, 2])
        [2, 4]
    """
    name = _ADAPTS.get(method.__func__) if type(method) is MethodType else None
    return None if name is None else getattr(method.__self__, name)
