"""Logged values with their recent history, on a clock of ticks or seconds."""

from __future__ import annotations

import numbers
import operator
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Mapping
from enum import IntEnum, unique
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar, Generic, TypeVar

from ding.utils.lock_helper import LockContext, LockContextType

__path__: list[str] = []  # the modules below it that DI-engine has are aliases
_T = TypeVar("_T")

# --- clocks ---


class BaseTime(ABC):
    """A clock that never decreases."""

    _saved: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def time(self) -> float:
        """Return the current time."""


class NaturalTime(BaseTime):
    """Wall clock time in seconds since the epoch; constant while the system clock is behind an earlier reading."""

    def __init__(self) -> None:
        self._last_time = time.time()

    def time(self) -> float:
        """Return the current time."""
        self._last_time = max(self._last_time, time.time())
        return self._last_time


class TickTime(BaseTime):
    """A clock that only `step` advances.

    Example:
        >>> clock = TickTime()
        >>> clock.step(), clock.step(3), clock.time()
        (1, 4, 4)
    """

    _saved = ("_tick",)

    def __init__(self, init: int = 0) -> None:
        self._tick = init

    def step(self, delta: int = 1) -> int:
        """Advance by `delta` ticks, and return the new time.

        Raises:
            TypeError: `delta` is not an integer.
            ValueError: `delta` is less than 1.
        """
        delta = operator.index(delta)
        if delta < 1:
            raise ValueError(f"a tick clock moves forward by at least 1, got {delta}")
        self._tick += delta
        return self._tick

    def time(self) -> int:
        """Return the current tick."""
        return self._tick


class TimeProxy(BaseTime):
    """A wrapper of a clock that can be frozen: `time` is then constant until `unfreeze`.

    A second `freeze` waits for the `unfreeze` of the first. Reading takes no lock.

    Args:
        time_: the wrapped clock.
        frozen: whether to start frozen.
        lock_type: the kind of lock.

    Example:
        >>> clock = TickTime()
        >>> proxy = TimeProxy(clock)
        >>> proxy.freeze()
        >>> clock.step(), proxy.time(), proxy.current_time()
        (1, 0, 1)
    """

    def __init__(
        self, time_: BaseTime, frozen: bool = False, lock_type: LockContextType = LockContextType.THREAD_LOCK
    ) -> None:
        self._time = time_
        self._lock_type = lock_type
        self._lock = LockContext(lock_type)
        self._frozen = False
        self._frozen_time: float = 0
        if frozen:
            self.freeze()

    @property
    def is_frozen(self) -> bool:
        """Whether the time is frozen."""
        return self._frozen

    def freeze(self) -> None:
        """Freeze `time` at the current time, after waiting for other callers to unfreeze it."""
        self._lock.acquire()
        self._frozen_time = self._time.time()
        self._frozen = True

    def unfreeze(self) -> None:
        """Unfreeze `time`.

        Raises:
            RuntimeError: the time is not frozen.
        """
        if not self._frozen:
            raise RuntimeError("the time is not frozen; call freeze() before unfreeze()")
        self._frozen = False
        self._lock.release()

    def time(self) -> float:
        """Return the current time, or while frozen, the time of `freeze`."""
        return self._frozen_time if self._frozen else self._time.time()

    def current_time(self) -> float:
        """Return the current time, frozen or not."""
        return self._time.time()

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the lock, which cannot be copied; the copy creates its own."""
        state = self.__dict__.copy()
        del state["_lock"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = LockContext(self._lock_type)
        if self._frozen:
            self._lock.acquire()


# --- recent values ---


class RangedData(ABC, Generic[_T]):
    """The values of the last `expire` units of time, and the value that was current at the start of this span.

    So the newest value is kept however old it is. Only one thread may write.

    Raises:
        TypeError: `expire` is not a number.
        ValueError: `expire` is not positive.
    """

    _saved = ("_records",)

    def __init__(self, expire: float) -> None:
        if not isinstance(expire, numbers.Real) or isinstance(expire, bool):
            raise TypeError(f"expire must be a number, got {type(expire).__name__} {expire!r}")
        if expire <= 0:
            raise ValueError(f"expire must be positive, got {expire}")
        self._expire: float = expire if isinstance(expire, int) else float(expire)
        self._records: deque[tuple[float, _T]] = deque()  # times and values

    @abstractmethod
    def _get_time(self) -> float:
        """Return the current time, which must never decrease."""

    @property
    def expire(self) -> float:
        """The time for which a value is kept."""
        return self._expire

    def append(self, data: _T) -> RangedData[_T]:
        """Record one value now, and return self.

        Raises:
            ValueError: the time has decreased.
        """
        now, records = self._get_time(), self._records
        if records and now < records[-1][0]:
            raise ValueError(f"time went back: the newest value is of {records[-1][0]}, now is {now}")
        records.append((now, data))
        self._drop_expired(now)
        return self

    def extend(self, iter_: Iterable[_T]) -> RangedData[_T]:
        """Record each value now, and return self.

        Raises:
            ValueError: the time has decreased.
        """
        for item in iter_:
            self.append(item)
        return self

    def current(self) -> _T:
        """Return the newest value.

        Raises:
            ValueError: nothing is recorded.
        """
        if not self._records:
            raise ValueError("nothing was recorded yet")
        return self._records[-1][1]

    def history(self) -> list[tuple[float, _T]]:
        """Return (time, value) of all kept values in order; a value older than the span has the span's start time.

        If time has passed since the newest value, it is repeated at the end with the current time.
        """
        now = self._get_time()
        self._drop_expired(now)
        result = [(max(time_, now - self._expire), value) for time_, value in self._records]
        is_old = bool(result) and now > self._records[-1][0]
        return [*result, (now, result[-1][1])] if is_old else result

    def __bool__(self) -> bool:
        return bool(self._records)

    def _drop_expired(self, now: float) -> None:
        """Drop expired values, but keep one that is older than the span."""
        begin, records = now - self._expire, self._records
        while len(records) > 1 and records[1][0] < begin:
            records.popleft()


class TimeRangedData(RangedData[_T]):
    """`RangedData` on a given clock.

    Example:
        >>> clock = TickTime()
        >>> data = TimeRangedData(clock, expire=2)
        >>> for value in "abcde":
        ...     _, _ = data.append(value), clock.step()
        >>> data.history()
        [(3, 'c'), (3, 'd'), (4, 'e'), (5, 'e')]
    """

    def __init__(self, time_: BaseTime, expire: float) -> None:
        super().__init__(expire)
        self._time = time_
        self._get_time = time_.time  # type: ignore[method-assign]  # saves one call per value

    def _get_time(self) -> float:
        return self._time.time()

    @property
    def time(self) -> BaseTime:
        """The clock."""
        return self._time


# --- models ---


class LoggedValue(Generic[_T]):
    """A value of a `LoggedModel`: assignment records it, reading returns the newest one.

    Values must be instances of `type_`. If it is float or int, any number and any tensor, array or list with one
    element is converted; a bool is a number, and int accepts only whole numbers.

    Raises:
        TypeError: a value of another type is assigned.
        ValueError: the value is read before the first assignment.
    """

    def __init__(self, type_: type[_T] = object) -> None:  # type: ignore[assignment]
        self.type_ = type_
        self._name = "value"

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def check(self, value: Any) -> _T:
        """Return `value`, converted to the type if it is a number.

        Raises:
            TypeError: `value` has another type.
        """
        if self.type_ not in (float, int):
            if not isinstance(value, self.type_):
                raise TypeError(
                    f"{self._name} takes {self.type_.__name__} values, got {type(value).__name__} {value!r}"
                )
            return value
        item = value[0] if isinstance(value, (list, tuple)) and len(value) == 1 else value
        try:
            number: Any = item.item() if hasattr(item, "item") else item
            is_number = isinstance(number, numbers.Real)
            if not is_number or (self.type_ is int and int(number) != number):
                raise TypeError(f"got {type(value).__name__} {value!r}")
            converted: _T = self.type_(number)  # type: ignore[call-arg]
            return converted
        except (TypeError, ValueError, RuntimeError, OverflowError) as error:
            raise TypeError(f"{self._name} takes {self.type_.__name__} values: {error}") from error

    def __get__(self, instance: LoggedModel | None, owner: type) -> Any:
        if instance is None:
            return self
        is_declared = self._name in instance._declared
        return instance._data[self._name].current() if is_declared else instance.__getattr__(self._name)

    def __set__(self, instance: LoggedModel, value: Any) -> None:
        setattr(instance, self._name, value)  # __setattr__ of the model records it


@unique
class TimeMode(IntEnum):
    """The reference of the times of recorded values.

    ABSOLUTE: time of the clock. RELATIVE_LIFECYCLE: time since the model was created. RELATIVE_CURRENT_TIME: time
    relative to now, which is never positive.
    """

    ABSOLUTE = 0
    RELATIVE_LIFECYCLE = 1
    RELATIVE_CURRENT_TIME = 2


_Interval = tuple[tuple[float, float], Any]


class _UnknownAttributeError(AttributeError, KeyError):
    """The model has no such name; also a KeyError, as DI-engine raises."""

    __str__ = Exception.__str__


class LoggedModel:
    """Values with their recent history, on one clock.

    A subclass declares values in its body; declarations of base classes are not inherited. Assignment records a value
    at the current time. Other assigned public names are stored separately, so that they never replace an attribute of
    the model; reading such a name returns the attribute of the model if there is one.

    Statistics are registered with `register_attribute_value(name, value_name, function)` and read as
    `model.<name>[value_name]`. Every value has `model.range_values[value_name](mode)`, the list of
    `((begin, end), value)` in the times of a `TimeMode` (by default since the model was created).

    Only one thread may write.

    Args:
        time_: the clock.
        expire: how long a value is kept, in units of the clock; the newest value is always kept.

    Example:
        >>> from ding.utils.autolog import TickTime
        >>> class Losses(LoggedModel):
        ...     loss = LoggedValue(float)
        >>> losses = Losses(TickTime(), expire=10)
        >>> for losses.loss in (1, 3):
        ...     _ = losses.time.step()
        >>> losses.loss, losses.mean_of("loss"), losses.range_values["loss"]()
        (3.0, 2.0, [((0, 1), 1.0), ((1, 2), 3.0)])
    """

    _saved = ("_time", "_data")
    _declared: dict[str, LoggedValue[Any]] = {}
    _time: BaseTime
    _clock: TimeProxy
    _init_time: float
    _data: dict[str, TimeRangedData[Any]]
    _expire: float
    _methods: dict[str, dict[str, Any]]
    _extras: dict[str, Any]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._declared = {name: value for name, value in vars(cls).items() if isinstance(value, LoggedValue)}

    def __init__(self, time_: BaseTime, expire: float) -> None:
        clock = TimeProxy(time_)
        data: dict[str, Any] = {name: TimeRangedData(clock, expire) for name in self._declared}
        own = {"_time": time_, "_clock": clock, "_init_time": time_.time(), "_data": data, "_expire": expire}
        self.__dict__.update(own, _methods={}, _extras={})
        for name in self._declared:
            self.register_attribute_value("range_values", name, partial(self._range_values, name))

    @property
    def time(self) -> BaseTime:
        """The clock."""
        return self._time

    @property
    def expire(self) -> float:
        """The time for which a value is kept, in units of the clock."""
        return self._expire

    def fixed_time(self) -> float:
        """Return the time at which values are recorded and read; while frozen, the time of `freeze`."""
        return self._clock.time()

    def current_time(self) -> float:
        """Return the time of the clock, frozen or not."""
        return self._clock.current_time()

    def freeze(self) -> None:
        """Freeze the time of this model, after waiting for other callers to unfreeze it."""
        self._clock.freeze()

    def unfreeze(self) -> None:
        """Unfreeze the time of this model.

        Raises:
            RuntimeError: the time is not frozen.
        """
        self._clock.unfreeze()

    def register_attribute_value(self, attribute_name: str, property_name: str, value: Any) -> None:
        """Register `value` as `model.<attribute_name>[property_name]`."""
        values = self._methods.setdefault(attribute_name, {})
        values[property_name] = value
        if not hasattr(type(self), attribute_name):
            self.__dict__[attribute_name] = values  # found without __getattr__

    def get_property_attribute(self, property_name: str) -> list[str]:
        """Return the names of the attributes that are registered for a value, without `range_values`."""
        return [name for name, values in self._methods.items() if property_name in values and name != "range_values"]

    def record(self, values: Mapping[str, Any]) -> None:
        """Record one value for each name; values of undeclared names are kept separately and may have any type.

        Raises:
            TypeError: a value has another type than declared; then no declared value is recorded.
        """
        checked = []
        for name, value in values.items():
            declared = self._declared.get(name)
            if declared is None:
                setattr(self, name, value)
            else:
                checked.append((name, value if type(value) is declared.type_ else declared.check(value)))
        now = self._clock.time()
        for name, value in checked:
            records = self._data[name]._records
            records.append((now, value))
            if records[0][0] < now - 2 * self._expire:  # not each time: what reads the values drops the rest
                self._data[name]._drop_expired(now)

    def mean_of(self, name: str) -> float:
        """Return the unweighted mean of the values in `range_values[name]()`, 0.0 if there are none.

        Raises:
            KeyError: `name` is not declared.
        """
        values = self.window_of(name)
        return sum(values) / len(values) if values else 0.0

    def window_of(self, name: str) -> list[Any]:
        """Return the values in `range_values[name]()` without their times.

        Raises:
            KeyError: `name` is not declared.
        """
        return [value for _, value in self._data[name].history()[:-1]]

    def _range_values(self, name: str, mode: TimeMode = TimeMode.RELATIVE_LIFECYCLE) -> list[_Interval]:
        shift = (0, self._init_time, self.fixed_time())[mode]
        history = [(time_ - shift, value) for time_, value in self._data[name].history()]
        return [((begin, end), value) for (begin, value), (end, _) in pairwise(history)]

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._declared:
            LoggedModel.record(self, {name: value})  # not what a subclass calls `record`
        elif name.startswith("_"):
            object.__setattr__(self, name, value)
        else:
            self._extras[name] = value

    def __getattr__(self, name: str) -> Any:
        # During construction and copying, `_extras` may be missing, too.
        if not name.startswith("_") and name in self._extras:
            return self._extras[name]
        raise _UnknownAttributeError(f"{type(self).__name__} has no value or registered attribute {name!r}")
