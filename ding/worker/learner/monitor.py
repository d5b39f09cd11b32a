"""Running averages of the values that a learner logs, over a clock that ticks once per iteration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from ding.utils.autolog import LoggedModel, LoggedValue, TickTime


class TickMonitor(LoggedModel):
    """Keeps the recent values of each declared name; `monitor.<name> = number` records one at the current tick.

    `monitor.avg[name]()` is the mean of the values in range, 0 if there are none. `monitor.val[name]()` is the newest
    value; it raises IndexError if there are none. A value counts after the next tick: with `expire` 10 and one value
    per tick, the mean is over the last 11.

    Example:
        >>> monitor = TickMonitor(TickTime(), expire=10)
        >>> for seconds in (1, 2, 6):
        ...     monitor.record({"train_time": seconds})
        ...     _ = monitor.time.step()
        >>> monitor.avg["train_time"](), monitor.val["train_time"]()
        (3.0, 6.0)
    """

    data_time = LoggedValue(float)
    train_time = LoggedValue(float)
    total_collect_step = LoggedValue(float)
    total_step = LoggedValue(float)
    total_episode = LoggedValue(float)
    total_sample = LoggedValue(float)
    total_duration = LoggedValue(float)

    def __init__(self, time_: TickTime, expire: float) -> None:
        super().__init__(time_, expire)
        for name in self._declared:
            self.register_attribute_value("avg", name, partial(self.mean_of, name))
            self.register_attribute_value("val", name, partial(self._newest, name))

    def record(self, values: Mapping[str, Any]) -> None:
        """Record one value for each name; values of undeclared names are kept separately and may have any type.

        Raises:
            TypeError: the value of a declared name is not a number or a tensor, array or list with one element. No
                declared value is recorded.
        """
        checked = {}
        for name, value in values.items():
            declared = self._declared.get(name)
            if declared is None:
                setattr(self, name, value)
            else:
                checked[name] = value if type(value) is declared.type_ else declared.check(value)
        now = self._clock.time()
        for name, value in checked.items():
            self._data[name].append_at(now, value)

    def _newest(self, name: str) -> float:
        newest: float = self.window_of(name)[-1]
        return newest


_BASE_NAMES = tuple(TickMonitor._declared)
_RESERVED = {"avg", "val", "range_values", *(name for name in dir(TickMonitor) if name not in _BASE_NAMES)}


def get_simple_monitor_type(properties: Iterable[str] = ()) -> type[TickMonitor]:
    """Returns `TickMonitor`, or if there are `properties`, a subclass that declares them and `sample_count`, too.

    Raises:
        ValueError: a property has a reserved name, such as `time` or `avg`.
    """
    names = list(properties)
    if not names:
        return TickMonitor
    taken = sorted(_RESERVED.intersection(names))
    if taken:
        raise ValueError(f"a policy cannot monitor {', '.join(taken)}: the name is reserved; use another")
    body = {name: LoggedValue(float) for name in (*_BASE_NAMES, "sample_count", *names)}
    return type("SimpleTickMonitor", (TickMonitor,), body)
