"""The averages of what a learner logs, on a clock that ticks once per iteration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from ding.utils.autolog import LoggedModel, LoggedValue, TickTime


class TickMonitor(LoggedModel):
    """Keeps the recent values of each declared name: `monitor.<name> = number` records one at the present tick.

    `monitor.avg[name]()` is the mean of the values in range, 0 where there is none; `monitor.val[name]()` the newest of
    them, an IndexError where there is none. A value counts once the clock moved on from its tick; with `expire` 10 and
    one value a tick that makes the last 11.

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
        """Record one value for each name; undeclared names are kept aside, of any type.

        Raises:
            TypeError: the value of a declared name is not a number, nor a tensor, array or list of one.
        """
        for name, value in values.items():
            setattr(self, name, value)

    def _newest(self, name: str) -> float:
        newest: float = self.window_of(name)[-1]
        return newest


_BASE_NAMES = tuple(TickMonitor._declared)
_RESERVED = {"avg", "val", "range_values", *(name for name in dir(TickMonitor) if name not in _BASE_NAMES)}


def get_simple_monitor_type(properties: Iterable[str] = ()) -> type[TickMonitor]:
    """`TickMonitor` where `properties` is empty, else a subclass that also declares those names and `sample_count`.

    Raises:
        ValueError: a property has the name of a part of the monitor, such as `time` or `avg`.
    """
    names = list(properties)
    if not names:
        return TickMonitor
    taken = sorted(_RESERVED.intersection(names))
    if taken:
        raise ValueError(
            f"a policy cannot monitor {', '.join(taken)}: the monitor uses the name itself; log it under another"
        )
    body = {name: LoggedValue(float) for name in (*_BASE_NAMES, "sample_count", *names)}
    return type("SimpleTickMonitor", (TickMonitor,), body)
