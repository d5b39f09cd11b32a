"""Helpers for values, dicts, functions, classes, seeds and schedules; those for batches are in `running_stats`."""

from __future__ import annotations

import copy
import functools
import operator
import random
import threading
from abc import ABCMeta
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple, TypeVar

import numpy as np
from easydict import EasyDict

from ding.utils.config_helper import (
    Configurable,
    Setting,
    Settings,
    boolean,
    check_section,
    count,
    number,
    one_of,
    positive,
)
from ding.utils.import_helper import lazy_names
from ding.utils.log_helper import one_time_warning as one_time_warning

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


def deep_merge_dicts(original: dict[str, Any] | None, new_dict: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a deep copy of `original` updated by `new_dict`, which is not copied; None counts as empty.

    Values that are dicts in both are merged; any other value of `new_dict`, including None and lists, replaces that of
    `original`. New keys are allowed. An `EasyDict` stays an `EasyDict`.
    """
    merged: dict[str, Any] = copy.deepcopy(original or {})
    if new_dict:
        deep_update(merged, new_dict, new_keys_allowed=True)
    return merged


def deep_update(
    original: MutableMapping[str, Any],
    new_dict: Mapping[str, Any],
    new_keys_allowed: bool = False,
    whitelist: Sequence[str] | None = None,
    override_all_if_type_changes: Sequence[str] | None = None,
) -> MutableMapping[str, Any]:
    """Merge `new_dict` into `original` in place and return `original`.

    Args:
        original: the dict to update.
        new_dict: the new values.
        new_keys_allowed: whether new keys may be added.
        whitelist: top-level keys below which new keys may always be added.
        override_all_if_type_changes: top-level keys whose value is replaced as a whole if its `type` entry changes.

    Raises:
        RuntimeError: a key is unknown and may not be added.
    """
    for key, value in new_dict.items():
        if key not in original and not new_keys_allowed:
            raise RuntimeError(f"unknown key {key!r}; known keys are {', '.join(map(str, original)) or 'none'}")
        current = original.get(key)
        if not (isinstance(current, MutableMapping) and isinstance(value, Mapping)):
            original[key] = value
            continue
        type_changes = "type" in value and value["type"] != current.get("type")
        if type_changes and key in (override_all_if_type_changes or ()):
            original[key] = value
        else:
            deep_update(current, value, new_keys_allowed or key in (whitelist or ()))
    return original


def flatten_dict(data: Mapping[str, Any], delimiter: str = "/") -> dict[str, Any]:
    """Return a new dict without nesting, with keys joined by `delimiter`; empty dicts are dropped."""
    flat: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, Mapping):
            flat.update((f"{key}{delimiter}{sub}", leaf) for sub, leaf in flatten_dict(value, delimiter).items())
        else:
            flat[key] = value
    return flat


def lists_to_dicts(data: Sequence[Any], recursive: bool = False) -> Any:
    """Turn a list of dicts into a dict of lists with the keys of the first, or namedtuples into one of tuples.

    With `recursive`, values that are dicts become dicts of lists too, one level down, except for `prev_state`.

    Raises:
        ValueError: `data` is empty.
        TypeError: the elements are neither dicts nor namedtuples.
        KeyError: a later dict lacks a key of the first.
    """
    if len(data) == 0:
        raise ValueError("data = [] is not allowed; it must have at least one element")
    first = data[0]
    if isinstance(first, Mapping):
        turned = {key: [element[key] for element in data] for key in first}
        if recursive:
            for key, value in first.items():
                if isinstance(value, Mapping) and key != "prev_state":
                    turned[key] = lists_to_dicts(turned[key])
        return turned
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*zip(*data, strict=True))
    raise TypeError(f"elements of type {type(first).__name__} are not allowed; they must be dicts or namedtuples")


def dicts_to_lists(data: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Turn a dict of lists into a list of dicts, of the length of the shortest list."""
    return [dict(zip(data, row, strict=True)) for row in zip(*data.values(), strict=False)]


def convert_easy_dict_to_dict(easy_dict: Mapping[str, Any]) -> dict[str, Any]:
    """Return `easy_dict` as a plain dict; nested `EasyDict`s are converted, but not those in lists."""
    return {
        key: convert_easy_dict_to_dict(value) if isinstance(value, EasyDict) else value
        for key, value in easy_dict.items()
    }


def make_key_as_identifier(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a new dict whose keys can be field names: `.` becomes `_`, and `_` precedes a leading digit."""

    def identifier(key: str) -> str:
        return ("_" + key if key[:1].isdigit() else key).replace(".", "_")

    return {identifier(key): value for key, value in data.items()}


def remove_illegal_item(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a new dict without the entries whose value is a string."""
    return {key: value for key, value in data.items() if not isinstance(value, str)}


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
        except Exception as error:  # as documented
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


def closing(stack: ExitStack, worker: Any) -> Any:
    """Let `stack` close `worker` if it has a `close`, and return `worker`."""
    close = getattr(worker, "close", None)  # workers of users need none
    if close is not None:
        stack.callback(close)
    return worker


def derive_seed(*numbers: int) -> int:
    """Return a seed below 2^31 that is derived from `numbers`.

    Raises:
        ValueError: a number is negative.
    """
    return int(np.random.SeedSequence(numbers).generate_state(1)[0] >> 1)


class _OfThread(threading.local):
    """The seed of a thread, from which generators are derived; None before `set_pkg_seed`."""

    seed: np.random.SeedSequence | None = None


OF_THREAD = _OfThread()


def set_pkg_seed(seed: int, use_cuda: bool = True) -> None:
    """Seed everything that this thread makes from here on, and the global generators.

    These are the global generators of Python, numpy and torch, and that of the current CUDA device, for code that draws
    from them. The parts of this package have generators of their own; see `new_generator`.
    """
    import torch

    seed = operator.index(seed)  # Python's generator does not take numpy's ints
    OF_THREAD.seed = np.random.SeedSequence(seed)
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    if use_cuda and torch.cuda.is_available():
        torch.cuda.manual_seed(seed)


def new_generator() -> np.random.Generator:
    """Return a new generator for one owner: what explores, samples or shuffles.

    It is derived from the seed that `set_pkg_seed` was given in this thread, and independent of all others. Without
    such a seed it is seeded from numpy's global state. What others seed or draw later changes nothing of it.

    SFC64 is fast, and its state is a few 64-bit words that code-free files can hold.
    """
    if OF_THREAD.seed is not None:
        return np.random.Generator(np.random.SFC64(OF_THREAD.seed.spawn(1)[0]))
    return np.random.Generator(np.random.SFC64(np.random.randint(0, 2**32, size=4, dtype=np.uint32)))


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


def _increasing_pair(value: Any) -> str | None:
    is_pair = isinstance(value, list) and len(value) == 2 and all(number()(end) is None for end in value)
    return None if is_pair and value[0] < value[1] else "a list of two numbers, the smaller one first"


class Scheduler(Configurable):
    """A scheduler that changes a parameter by `factor` when a metric has not improved in more than `patience` steps.

    A metric improves if it differs from that of the previous call by more than `threshold`, in the direction of
    `optimize_mode`. The first `cooldown` calls, and the `cooldown` calls after each change, do not count.

    Args:
        merged_scheduler_config: overrides the defaults.

    Raises:
        ConfigError: a value is not allowed.

    Example:
        >>> scheduler = Scheduler({"schedule_mode": "multi", "factor": 2.0, "change_range": [0, 8], "patience": 0})
        >>> [scheduler.step(metric, 1.0) for metric in (0.5, 0.5, 0.4)]
        [1.0, 2.0, 1.0]
    """

    settings = Settings(
        {
            "schedule_flag": Setting(False, boolean, "Whether the parameter is scheduled; read by callers."),
            "schedule_mode": Setting("reduce", one_of("reduce", "add", "multi", "div"), "How the parameter changes."),
            "factor": Setting(0.05, positive, "Amount or factor of a change."),
            "change_range": Setting([-1, 1], _increasing_pair, "Limits of the parameter."),
            "threshold": Setting(1e-4, number(), "Least change of the metric that counts as an improvement."),
            "optimize_mode": Setting("min", one_of("min", "max"), "Whether a smaller or a larger metric is better."),
            "patience": Setting(10, count(0), "Number of calls without improvement before a change."),
            "cooldown": Setting(0, count(0), "Number of calls at the start and after each change that do not count."),
        }
    )

    def __init__(self, merged_scheduler_config: Mapping[str, Any]) -> None:
        cfg = deep_merge_dicts(copy.deepcopy(self.config), merged_scheduler_config)
        check_section(cfg, type(self))
        self._mode: str = cfg["schedule_mode"]
        self._factor: float = cfg["factor"]
        self._low: float = cfg["change_range"][0]
        self._high: float = cfg["change_range"][1]
        self._threshold: float = cfg["threshold"]
        self._sign = 1.0 if cfg["optimize_mode"] == "max" else -1.0
        self._patience: int = cfg["patience"]
        self._cooldown: int = cfg["cooldown"]
        self._cooldown_left = self._cooldown
        self._not_better = 0
        self._last_metric: float | None = None

    def step(self, metrics: float, param: float) -> float:
        """Return the new value of the parameter, whose current value is `param`, after the metric `metrics`.

        Raises:
            AssertionError: `metrics` is not a float.
        """
        if not isinstance(metrics, float):
            raise AssertionError(f"metrics = {metrics!r} is not allowed; it must be a float")
        last, self._last_metric = self._last_metric, metrics
        is_better = last is None or self._sign * (metrics - last) > self._threshold
        self._not_better = 0 if is_better else self._not_better + 1
        if self._cooldown_left > 0:
            self._cooldown_left -= 1
            self._not_better = 0
        if self._not_better <= self._patience:
            return param
        self._not_better = 0
        self._cooldown_left = self._cooldown
        return self._changed(param)

    def _changed(self, param: float) -> float:
        """Return the changed `param`, limited by the bound of the range in the direction of the change."""
        if self._mode == "reduce":
            return max(param - self._factor, self._low)
        if self._mode == "add":
            return min(param + self._factor, self._high)
        is_multi = self._mode == "multi"
        value = param * self._factor if is_multi else param / self._factor
        grows = is_multi is (self._factor >= 1)  # if the parameter is positive
        return min(value, self._high) if grows else max(value, self._low)
