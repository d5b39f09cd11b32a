"""Helpers for values, functions, classes and seeds, with exports of the helpers for dicts and batches."""

from __future__ import annotations

import functools
import operator
import random
import threading
from abc import ABCMeta
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from ding.utils.dict_helper import (
    convert_easy_dict_to_dict,
    deep_merge_dicts,
    deep_update,
    dicts_to_lists,
    flatten_dict,
    lists_to_dicts,
    make_key_as_identifier,
    remove_illegal_item,
)
from ding.utils.import_helper import lazy_names
from ding.utils.showing import one_time_warning

if TYPE_CHECKING:
    from ding.utils.running_stats import RunningMeanStd, get_shape0, split_data_generator

__all__ = [
    "LimitedSpaceContainer",
    "RunningMeanStd",
    "SequenceType",
    "SingletonMetaclass",
    "convert_easy_dict_to_dict",
    "deep_merge_dicts",
    "deep_update",
    "default_get",
    "dicts_to_lists",
    "error_wrapper",
    "flatten_dict",
    "get_shape0",
    "iter_mapping",
    "list_split",
    "lists_to_dicts",
    "make_key_as_identifier",
    "one_time_warning",
    "override",
    "remove_illegal_item",
    "set_pkg_seed",
    "split_data_generator",
    "squeeze",
]

# They need torch, which nothing else here does at import.
__getattr__ = lazy_names(
    __name__,
    dict.fromkeys(("RunningMeanStd", "get_shape0", "split_data_generator"), "ding.utils.running_stats"),
)

Method = TypeVar("Method", bound=Callable[..., Any])
SequenceType = TypeVar("SequenceType", list[Any], tuple[Any, ...], NamedTuple, Sequence[Any])
"""A list, a tuple or a named tuple; the same type throughout a signature."""
Item = TypeVar("Item")
Result = TypeVar("Result")


def squeeze(data: Any) -> Any:
    """Return the only element of a list, tuple or dict, a longer list as a tuple, and anything else unchanged."""
    if isinstance(data, (list, tuple)):
        return data[0] if len(data) == 1 else tuple(data)
    if isinstance(data, dict) and len(data) == 1:
        return next(iter(data.values()))
    return data


def default_get(
    data: Mapping[str, Any],
    name: str,
    default_value: Any = None,
    default_fn: Callable[[], Any] | None = None,
    judge_fn: Callable[[Any], bool] | None = None,
) -> Any:
    """Return `data[name]` or, with one warning per name, the default: `default_fn()` if given, else `default_value`.

    Raises:
        AssertionError: the name is missing and there is no default, or `judge_fn` returns false for the default.
    """
    if name in data:
        return data[name]
    if default_fn is None and default_value is None:
        raise AssertionError(f"{name!r} is missing and has no default; pass default_value or default_fn")
    value = default_value if default_fn is None else default_fn()
    if judge_fn is not None and not judge_fn(value):
        raise AssertionError(f"the default {value!r} of {name!r} is not allowed: judge_fn rejects it; set {name!r}")
    one_time_warning(f"{name!r} is not set: the default value {value!r} is used")
    return value


def list_split(data: Sequence[Any], step: int) -> tuple[list[Sequence[Any]], Sequence[Any] | None]:
    """Split `data` into pieces of length `step`, and return `(pieces, rest)`; the rest is None if it is empty."""
    if len(data) < step:
        return [], data
    full = len(data) // step * step
    pieces = [data[start : start + step] for start in range(0, full, step)]
    return pieces, data[full:] if full < len(data) else None


def error_wrapper(fn: Callable[..., Any], default_ret: Any, warning_msg: str = "") -> Callable[..., Any]:
    """Wrap `fn` to return `default_ret` on any `Exception`; `warning_msg`, if given, is logged once per error text."""

    @functools.wraps(fn)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        try:
            return fn(*args, **kwargs)
        except Exception as error:
            if warning_msg:
                one_time_warning(f"{warning_msg} ({type(error).__name__}: {error}); {default_ret!r} is used instead")
            return default_ret

    return guarded


def override(cls: type) -> Callable[[Method], Method]:
    """Decorate a method that overrides one of `cls`.

    Raises:
        NameError: `cls` has no attribute of this name.
    """

    def check(method: Method) -> Method:
        if method.__name__ not in dir(cls):
            raise NameError(f"{method.__name__!r} overrides nothing: {cls.__name__} has no attribute of this name")
        return method

    return check


class LimitedSpaceContainer:
    """A bounded counter of used spaces, between `min_val` and `max_val`. Thread-safe.

    Example:
        >>> container = LimitedSpaceContainer(0, 1)
        >>> container.acquire_space(), container.acquire_space()
        (True, False)
    """

    def __init__(self, min_val: int, max_val: int) -> None:
        if max_val < min_val:
            raise AssertionError(f"max_val = {max_val!r} is not allowed; it must be at least min_val = {min_val!r}")
        self.min_val = min_val
        self.max_val = max_val
        self.cur = min_val
        self._lock = threading.Lock()

    def acquire_space(self) -> bool:
        """Use a space, and return whether one was free."""
        with self._lock:
            if self.cur >= self.max_val:
                return False
            self.cur += 1
            return True

    def get_residual_space(self) -> int:
        """Use all free spaces and return their number."""
        with self._lock:
            residual = max(0, self.max_val - self.cur)
            self.cur = max(self.cur, self.max_val)
            return residual

    def release_space(self) -> None:
        """Free a space."""
        with self._lock:
            self.cur = max(self.min_val, self.cur - 1)

    def increase_space(self) -> None:
        """Increase `max_val` by 1."""
        with self._lock:
            self.max_val += 1

    def decrease_space(self) -> None:
        """Decrease `max_val` by 1."""
        with self._lock:
            self.max_val -= 1


def derive_seed(*numbers: int) -> int:
    """Return a seed below 2^31 that is derived from `numbers`.

    Raises:
        ValueError: a number is negative.
    """
    return int(np.random.SeedSequence(numbers).generate_state(1)[0] >> 1)


def set_pkg_seed(seed: int, use_cuda: bool = True) -> None:
    """Seed the global generators of Python, numpy and torch, and that of the current CUDA device."""
    import torch

    seed = operator.index(seed)  # Python's generator does not take numpy's ints
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    if use_cuda and torch.cuda.is_available():
        torch.cuda.manual_seed(seed)


def iter_mapping(iter_: Iterable[Item], mapping: Callable[[Item], Result]) -> Iterator[Result]:
    """Yield `mapping(item)` for each item, lazily."""
    for item in iter_:
        yield mapping(item)


class SingletonMetaclass(ABCMeta):
    """Metaclass of singletons: the first call creates the instance `cls.instance`, later arguments are ignored.

    A subclass has its own instance. Thread-safe.

    Example:
        >>> class Config(metaclass=SingletonMetaclass):
        ...     pass
        >>> Config() is Config()
        True
    """

    instances: dict[type, Any] = {}
    _lock = threading.RLock()

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        with SingletonMetaclass._lock:
            if cls not in SingletonMetaclass.instances:
                SingletonMetaclass.instances[cls] = super().__call__(*args, **kwargs)
                cls.instance = SingletonMetaclass.instances[cls]
            return SingletonMetaclass.instances[cls]
