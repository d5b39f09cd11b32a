"""A record of values over time, with registered statistics."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum, unique
from itertools import pairwise
from typing import Any

from ding.utils.autolog.data import TimeRangedData
from ding.utils.autolog.time_ctl import BaseTime, TimeProxy
from ding.utils.autolog.value import LoggedValue


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
    """The model has no such name. Also a KeyError, which DI-engine raises."""

    __str__ = Exception.__str__


class LoggedModel:
    """Values with their recent history, on one clock.

    A subclass declares values in its body; declarations of base classes are not inherited. Assignment records a value
    at the current time. Other assigned names are stored separately, so that they never replace an attribute of the
    model; reading such a name returns the attribute of the model if there is one.

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

    _declared: dict[str, LoggedValue[Any]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._declared = {name: value for name, value in vars(cls).items() if isinstance(value, LoggedValue)}

    def __init__(self, time_: BaseTime, expire: float) -> None:
        self._time = time_
        self._clock = TimeProxy(time_)
        self._init_time = time_.time()
        self._expire = expire
        self._data: dict[str, TimeRangedData[Any]] = {
            name: TimeRangedData(self._clock, expire) for name in self._declared
        }
        self._methods: dict[str, dict[str, Any]] = {}
        self._extras: dict[str, Any] = {}
        for name in self._declared:
            self.register_attribute_value("range_values", name, _RangeValues(self, name))

    @property
    def time(self) -> BaseTime:
        """The clock."""
        return self._time

    @property
    def expire(self) -> float:
        """How long a value is kept, in units of the clock."""
        return self._expire

    def fixed_time(self) -> float:
        """Returns the time at which values are recorded and read; while frozen, the time of `freeze`."""
        return self._clock.time()

    def current_time(self) -> float:
        """Returns the time of the clock, frozen or not."""
        return self._clock.current_time()

    def freeze(self) -> None:
        """Stop the time of this model; wait while another caller has it stopped."""
        self._clock.freeze()

    def unfreeze(self) -> None:
        """Resume the time of this model.

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
        """Returns the names of the attributes that are registered for a value, without `range_values`."""
        return [name for name, values in self._methods.items() if property_name in values and name != "range_values"]

    def mean_of(self, name: str) -> float:
        """Returns the unweighted mean of the values in `range_values[name]()`, 0.0 if there are none.

        Raises:
            KeyError: `name` is not declared.
        """
        return self._data[name].mean()

    def window_of(self, name: str) -> list[Any]:
        """Returns the values in `range_values[name]()` without their times.

        Raises:
            KeyError: `name` is not declared.
        """
        return self._data[name].window()

    def _get_value(self, name: str) -> Any:
        data = self._data.get(name)
        return self.__getattr__(name) if data is None else data.current()

    def __setattr__(self, name: str, value: Any) -> None:
        declared = self._declared.get(name)
        if declared is not None:
            if type(value) is not declared.type_:
                value = declared.check(value)
            self._data[name].append(value)
        elif name.startswith("_") and not self._is_own_part(name):
            object.__setattr__(self, name, value)
        else:
            self._extras[name] = value

    def _is_own_part(self, name: str) -> bool:
        """Whether a private name belongs to this class, so that a value must not replace it."""
        return name in _OWN_FIELDS and name in self.__dict__ or (hasattr(LoggedModel, name) and name[:2] != "__")

    def __getattr__(self, name: str) -> Any:
        # During construction and copying, `_extras` may be missing, too.
        if not name.startswith("_") and name in self._extras:
            return self._extras[name]
        raise _UnknownAttributeError(f"{type(self).__name__} has no value or registered attribute {name!r}")


_OWN_FIELDS = frozenset(("_time", "_clock", "_init_time", "_expire", "_data", "_methods", "_extras"))


class _RangeValues:
    """The function `range_values[name]`; an object, so that it is copied with its model."""

    def __init__(self, model: LoggedModel, name: str) -> None:
        self._model = model
        self._name = name

    def __call__(self, mode: TimeMode = TimeMode.RELATIVE_LIFECYCLE) -> list[_Interval]:
        model = self._model
        shifts: dict[TimeMode, Callable[[], float]] = {
            TimeMode.ABSOLUTE: lambda: 0,
            TimeMode.RELATIVE_LIFECYCLE: lambda: model._init_time,
            TimeMode.RELATIVE_CURRENT_TIME: model.fixed_time,
        }
        shift = shifts[mode]()
        history = model._data[self._name].history()
        return [((begin - shift, end - shift), value) for (begin, value), (end, _) in pairwise(history)]
