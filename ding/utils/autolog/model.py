"""A record of values over time, with statistics that are registered on it."""

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
    """How the times of recorded values are told.

    ABSOLUTE: as the clock told them. RELATIVE_LIFECYCLE: since the model was made. RELATIVE_CURRENT_TIME: relative to
    now, so never positive.
    """

    ABSOLUTE = 0
    RELATIVE_LIFECYCLE = 1
    RELATIVE_CURRENT_TIME = 2


_Interval = tuple[tuple[float, float], Any]


class _UnknownAttributeError(AttributeError, KeyError):
    """Nothing of this name is on the model. Also a KeyError, which DI-engine raises for it."""

    __str__ = Exception.__str__


class LoggedModel:
    """Values with their recent history, on one clock.

    A subclass declares values in its body; those of a base class are not taken over. Assignment records a value at the
    present time. Any other name that is assigned is kept aside, so that it never replaces a part of the model: reading
    gives it back, unless it is the name of such a part.

    Statistics are registered with `register_attribute_value(name, value_name, anything)`, by convention a function, and
    read as `model.<name>[value_name]`. `model.range_values[value_name](mode)` is there for every value: the list of
    `((begin, end), value)`, in the times of the `TimeMode` (since the model was made by default).

    Not safe for writing from several threads.

    Args:
        time_: the clock.
        expire: how long a value is kept, in units of the clock; the newest is kept in any case.

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
        """The time at which values are recorded and read: the one of `freeze` while frozen."""
        return self._clock.time()

    def current_time(self) -> float:
        """The time of the clock, frozen or not."""
        return self._clock.current_time()

    def freeze(self) -> None:
        """Stop the time of this model; wait while another holder has it stopped."""
        self._clock.freeze()

    def unfreeze(self) -> None:
        """Let the time of this model go on.

        Raises:
            RuntimeError: it is not frozen.
        """
        self._clock.unfreeze()

    def register_attribute_value(self, attribute_name: str, property_name: str, value: Any) -> None:
        """Make `value` what `model.<attribute_name>[property_name]` gives."""
        values = self._methods.setdefault(attribute_name, {})
        values[property_name] = value
        if not hasattr(type(self), attribute_name):
            self.__dict__[attribute_name] = values  # found without the detour through __getattr__

    def get_property_attribute(self, property_name: str) -> list[str]:
        """The names of the attributes that are registered for a value, `range_values` left out."""
        return [name for name, values in self._methods.items() if property_name in values and name != "range_values"]

    def mean_of(self, name: str) -> float:
        """The unweighted mean of what `range_values[name]()` lists, 0.0 when that is empty.

        Raises:
            KeyError: `name` is not declared.
        """
        return self._data[name].mean()

    def window_of(self, name: str) -> list[Any]:
        """The values that `range_values[name]()` lists, without their times.

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
        """Whether a private name is one of this class, which a value of that name must not replace."""
        return name in _OWN_FIELDS and name in self.__dict__ or (hasattr(LoggedModel, name) and name[:2] != "__")

    def __getattr__(self, name: str) -> Any:
        # A private name that comes here is not set, or not yet: what is looked up below may be missing too.
        if not name.startswith("_") and name in self._extras:
            return self._extras[name]
        raise _UnknownAttributeError(f"{type(self).__name__} has no value or registered attribute {name!r}")


_OWN_FIELDS = frozenset(("_time", "_clock", "_init_time", "_expire", "_data", "_methods", "_extras"))


class _RangeValues:
    """The function behind `range_values[name]`; an object, so that it is copied along with its model."""

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
