"""Declarations that a method of a policy may be replaced by one on whole batches.

A declaration holds for that function only: a function that wraps or overrides it is called as documented.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, WeakSet

F = TypeVar("F", bound=Callable[..., Any])

# Declarations of `plain_transition` by function: keys, or the policy attribute that lists them.
_PLAIN: WeakKeyDictionary[Callable[..., Any], tuple[str, ...] | str] = WeakKeyDictionary()
# Declarations of `adapts_batch` by function: the name of the method on batches.
_ADAPTS: WeakKeyDictionary[Callable[..., Any], str] = WeakKeyDictionary()
# Functions declared by `accepts_fragments`, and by `does_nothing`.
_ACCEPTS_FRAGMENTS: WeakSet[Callable[..., Any]] = WeakSet()
_DO_NOTHING: WeakSet[Callable[..., Any]] = WeakSet()


def plain_transition(*output_keys: str, attribute: str | None = None) -> Callable[[F], F]:
    """Declare that a `_process_transition` only collects `obs, next_obs, reward, done` and `output_keys`.

    `output_keys` are entries of what the policy returned for the env; if they depend on settings, `attribute` is
    the name of the policy's attribute that lists them. A collector may then build transitions from whole batches
    without calling the function for each env. The declaration holds for this function only: a function that wraps or
    overrides it is called for each env.
    """

    def declare(process_transition: F) -> F:
        _PLAIN[process_transition] = output_keys if attribute is None else attribute
        return process_transition

    return declare


def plain_output_keys(process_transition: Any) -> tuple[str, ...] | None:
    """Return the `output_keys` of a method whose function is declared as plain; None for any other callable."""
    keys = _PLAIN.get(process_transition.__func__) if type(process_transition) is MethodType else None
    return tuple(getattr(process_transition.__self__, keys)) if isinstance(keys, str) else keys


def accepts_fragments(get_train_sample: F) -> F:
    """Declare that a `_get_train_sample` takes several trajectory fragments at once.

    Given a `Table` with `lengths`, it returns a `Table` that is the concatenation of what it returns for each fragment
    alone; its `lengths` are the numbers of samples made of each fragment, which may be zero. Given a list, it returns a
    list. All bits are equal, except that a network may round differently for batches of different sizes. The
    declaration holds for this function only: a function that wraps or overrides it is called for each fragment.
    """
    _ACCEPTS_FRAGMENTS.add(get_train_sample)
    return get_train_sample


def takes_fragments(get_train_sample: Any) -> bool:
    """Return whether the function of a method is declared by `accepts_fragments`; False for any other callable."""
    return type(get_train_sample) is MethodType and get_train_sample.__func__ in _ACCEPTS_FRAGMENTS


def does_nothing(method: F) -> F:
    """Declare that a method does nothing, so that it need not be called; whatever overrides it is called."""
    _DO_NOTHING.add(method)
    return method


def is_idle(method: Any) -> bool:
    """Return whether the function of a method is declared by `does_nothing`; False for any other callable."""
    return type(method) is MethodType and method.__func__ in _DO_NOTHING


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
