"""The log of a learner: the results of a policy sorted by kind, and running averages of its numbers."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from ding.utils.autolog import LoggedModel, LoggedValue, TickTime
from ding.utils.data.samples import table_of


class LogEntries(NamedTuple):
    """The log of one iteration: numbers, groups of curves, and distributions, without tensors and numpy values."""

    scalar: dict[str, Any]
    scalars: dict[str, Any]
    histogram: dict[str, Any]


def take_priority_info(results: list[dict[str, Any]], data: Any) -> dict[str, Any]:
    """Pop the priorities from the last of `results`, and return them with the ids of their items; {} if missing."""
    priority = results[-1].pop("priority", None) if results else None
    if priority is None:
        return {}
    table = table_of(data)
    info = {"priority": priority}
    for key in ("replay_buffer_idx", "replay_unique_id"):
        if table is None:
            info[key] = [item.get(key) for item in data]
        else:
            info[key] = table.columns[key].values() if key in table.columns else [None] * len(data)
    return info


def sort_out(results: dict[str, Any], train_iter: int) -> LogEntries:
    """Sort the `results` of an iteration by key.

    A key that contains `[scalars]` or `[histogram]` is popped and logged as that kind, under the text after its last
    `]`. The other keys are kept and logged as scalars.

    Raises:
        FloatingPointError: a scalar is or contains NaN; the message names all such scalars of the iteration.
    """
    entries = LogEntries({}, {}, {})
    marked, found = [], []
    for key, value in results.items():
        if "[scalars]" in key or "[histogram]" in key:
            marked.append(key)
            continue
        if type(value) is float:  # the usual case, without a call
            is_nan = value != value
        else:
            value = _plain(value)
            is_nan = _contains_nan(value)
        entries.scalar[key] = value
        if is_nan:
            found.append(f"{key} = {value}")
    if found:
        raise FloatingPointError(
            f"{', '.join(found)} at train_iter {train_iter}; look at the learning rate, and for NaN in the "
            "observations and rewards"
        )
    for key in marked:
        kind = entries.scalars if "[scalars]" in key else entries.histogram
        kind[key.rpartition("]")[2]] = _plain(results.pop(key))
    return entries


def _plain(value: Any) -> Any:
    """Return tensors and numpy values as Python numbers (if they have one element) or lists."""
    if isinstance(value, torch.Tensor):
        return value.item() if value.numel() == 1 else value.tolist()
    if isinstance(value, np.ndarray | np.generic):
        return value.item() if value.size == 1 else value.tolist()
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    return value


def _contains_nan(value: Any) -> bool:
    if isinstance(value, float):
        return value != value
    if isinstance(value, dict):
        return any(map(_contains_nan, value.values()))
    return isinstance(value, list | tuple) and any(map(_contains_nan, value))


class TickMonitor(LoggedModel):
    """The recent values of each declared name; `monitor.<name> = number` records a value at the current tick.

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

    def _newest(self, name: str) -> float:
        newest: float = self.window_of(name)[-1]
        return newest


_BASE_NAMES = tuple(TickMonitor._declared)
_RESERVED = {"avg", "val", "range_values", *(name for name in dir(TickMonitor) if name not in _BASE_NAMES)}


def get_simple_monitor_type(properties: Iterable[str] = ()) -> type[TickMonitor]:
    """Return `TickMonitor` or, if there are `properties`, a subclass that also declares them and `sample_count`.

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
