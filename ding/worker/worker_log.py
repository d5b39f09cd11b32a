"""The logs of workers: text and TensorBoard, and what a learner logs, its results by kind and running averages."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from ding.utils.autolog import LoggedModel, LoggedValue, TickTime
from ding.utils.data.nested import FLOAT32_MAX, is_finite, is_mapping, leaves
from ding.utils.log_helper import FileLogger, build_logger, only_shows
from ding.utils.metric_sinks import MetricWriter, add_by_axis
from ding.utils.pytorch_ddp_dist_helper import get_rank


class WorkerLog:
    """The text log `./<exp_name>/log/<instance_name>/<instance_name>_logger.txt` and the TensorBoard log of a worker.

    A `tb_logger` that is passed in is shared: `close` flushes it, but does not close it. Without one, a writer in
    `<instance_name>_tb_logger` next to the text log is created, and closed by `close`. With `is_monitor` false,
    there is no TensorBoard log and, unless this is rank 0, no text file; handlers that users add still get the records.

    Attributes:
        text: The text logger, with the Python name `<instance_name>_logger`; None if `need_text` is false.
        tb: The TensorBoard writer, or None.
        path: Folder of the text log.
    """

    def __init__(
        self,
        exp_name: str,
        instance_name: str,
        tb_logger: Any = None,
        *,
        is_monitor: bool = True,
        need_text: bool = True,
    ) -> None:
        self.instance_name = instance_name
        self.path = os.path.join(".", exp_name, "log", instance_name)
        self._owns_tb = is_monitor and tb_logger is None
        self._warned: set[str] = set()
        self.text: Any = None
        self.tb: Any = None
        if need_text and not is_monitor and get_rank() != 0:
            self.text = FileLogger(f"{instance_name}_logger", None)
        elif need_text or self._owns_tb:
            self.text, self.tb = build_logger(self.path, instance_name, need_tb=self._owns_tb, need_text=need_text)
        if is_monitor and tb_logger is not None:
            self.tb = tb_logger

    def scalars(
        self,
        values: Mapping[str, float],
        train_iter: int | None = None,
        envstep: int | None = None,
        iter_only: Collection[str] = (),
    ) -> None:
        """Write each value as `<instance>_iter/<key>` at `train_iter` and `<instance>_step/<key>` at `envstep`.

        An axis whose position is None is skipped. The names in `iter_only` are skipped on the axis of env steps. The
        sinks of a `MetricWriter` get `values` once, with both positions.
        """
        with self.only_shows():
            if isinstance(self.tb, MetricWriter):
                self.tb.add_scalars_of(self.instance_name, values, train_iter, envstep, iter_only)
            elif self.tb is not None:
                add_by_axis(self.tb.add_scalar, self.instance_name, values, train_iter, envstep, iter_only)

    def only_shows(self, what: str = "writing the log") -> contextlib.AbstractContextManager[None]:
        """Catch exceptions of a block that only writes to `tb`, of any kind; see `log_helper.only_shows`."""
        return only_shows(f"{what} of {self.instance_name}", self._warned)

    def close(self) -> None:
        """Flush the TensorBoard writer, and close it unless it is shared. Further calls do nothing."""
        if self.tb is None:
            return
        with self.only_shows():
            self.tb.flush()
            if self._owns_tb:
                self.tb.close()


class LogEntries(NamedTuple):
    """The log of one iteration: numbers, groups of curves, and distributions, without tensors and numpy values."""

    scalar: dict[str, Any]
    scalars: dict[str, Any]
    histogram: dict[str, Any]


def sort_out(results: dict[str, Any], train_iter: int) -> LogEntries:
    """Sort the `results` of an iteration by key.

    A key that contains `[scalars]` or `[histogram]` is popped and logged as that kind, under the text after its last
    `]`. The other keys are kept and logged as scalars.

    Raises:
        FloatingPointError: a scalar is or contains NaN or an infinity; the message names all such scalars of the
            iteration.
    """
    entries = LogEntries({}, {}, {})
    marked, found = [], []
    for key, value in results.items():
        if "[scalars]" in key or "[histogram]" in key:
            marked.append(key)
            continue
        if type(value) is float:  # the usual case, without a call
            is_wrong = not abs(value) <= FLOAT32_MAX
        else:
            value = _plain(value)
            is_wrong = not all(map(is_finite, leaves(value)))
        entries.scalar[key] = value
        if is_wrong:
            found.append(f"{key} = {value}")
    if found:
        raise FloatingPointError(
            f"{', '.join(found)} at train_iter {train_iter}; look at the learning rate, and for huge "
            "observations and rewards"
        )
    for key in marked:
        kind = entries.scalars if "[scalars]" in key else entries.histogram
        kind[key.rpartition("]")[2]] = _plain(results.pop(key))
    return entries


def _plain(value: Any) -> Any:
    """Return tensors and numpy values as Python numbers (if they have one element) or lists."""
    if is_mapping(value):
        return {name: _plain(part) for name, part in value.items()}
    if not isinstance(value, torch.Tensor | np.ndarray | np.generic):
        return value
    return value.item() if math.prod(value.shape) == 1 else value.tolist()


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
