"""Statistics of the use count, priority and staleness of sampled items."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy.typing as npt


class TimeSource(Protocol):
    """A clock that counts ticks."""

    def time(self) -> float:
        """Returns the current time, in ticks."""


class SampledDataAttrMonitor:
    """Statistics of use count, priority and staleness over the recent samples.

    `record` stores references; statistics are computed on access.

    `use_max`, `use_avg`, `priority_max`, `priority_avg`, `priority_min`, `staleness_max` and `staleness_avg` are of
    the newest sample. `avg[attr]()`, `max[attr]()` and `min['priority']()` are over all samples of the last `expire`
    ticks.

    Example:
        >>> import numpy as np
        >>> from ding.utils.autolog import TickTime
        >>> monitor = SampledDataAttrMonitor(TickTime(), expire=5)
        >>> monitor.record(use=np.array([1, 3]), priority=np.array([1.0, 0.5]), staleness=np.array([0, 4]))
        >>> monitor.use_max, monitor.avg["staleness"](), monitor.min["priority"]()
        (3, 2.0, 0.5)
    """

    def __init__(self, time_: TimeSource, expire: float) -> None:
        self.time, self.expire = time_, expire
        self._records: deque[tuple[float, Mapping[str, npt.NDArray[Any]]]] = deque()  # times and arrays
        self.avg: dict[str, Callable[[], float]] = {
            attr: lambda attr=attr: self._average(attr)  # type: ignore[misc]
            for attr in ("use", "priority", "staleness")
        }
        self.max: dict[str, Callable[[], float]] = {
            attr: lambda attr=attr: max(_plain(values[attr].max()) for _, values in self._recent())  # type: ignore[misc]
            for attr in ("use", "priority", "staleness")
        }
        self.min: dict[str, Callable[[], float]] = {
            "priority": lambda: min(_plain(values["priority"].min()) for _, values in self._recent())
        }

    def record(self, **values: npt.NDArray[Any]) -> None:
        """Record the `use`, `priority` and `staleness` of the items of one sample, an array [n] each."""
        now = self.time.time()
        self._records.append((now, values))
        self._forget_before(now - self.expire)

    def summary(self) -> dict[str, float]:
        """Returns all statistics over the recent samples, by `<attr>_<statistic>`."""
        kinds = {"avg": self.avg, "max": self.max, "min": self.min}
        return {f"{attr}_{kind}": read() for kind, reads in kinds.items() for attr, read in reads.items()}

    def state_dict(self) -> dict[str, Any]:
        """Returns the records of the recent samples."""
        return {"records": [(time, dict(values)) for time, values in self._recent()]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Replace the records by those of a state."""
        self._records = deque((time, values) for time, values in state["records"])

    @property
    def use_max(self) -> int:
        """Largest use count of the newest sample."""
        return int(self._newest("use").max())

    @property
    def use_avg(self) -> float:
        """Mean use count of the newest sample."""
        return float(self._newest("use").mean())

    @property
    def priority_max(self) -> float:
        """Largest priority of the newest sample."""
        return float(self._newest("priority").max())

    @property
    def priority_avg(self) -> float:
        """Mean priority of the newest sample."""
        return float(self._newest("priority").mean())

    @property
    def priority_min(self) -> float:
        """Smallest priority of the newest sample."""
        return float(self._newest("priority").min())

    @property
    def staleness_max(self) -> int:
        """Largest staleness of the newest sample."""
        return int(self._newest("staleness").max())

    @property
    def staleness_avg(self) -> float:
        """Mean staleness of the newest sample."""
        return float(self._newest("staleness").mean())

    def _newest(self, attr: str) -> npt.NDArray[Any]:
        if not self._records:
            raise ValueError("no sample was recorded; call record first")
        return self._records[-1][1][attr]

    def _recent(self) -> deque[tuple[float, Mapping[str, npt.NDArray[Any]]]]:
        self._forget_before(self.time.time() - self.expire)
        return self._records

    def _forget_before(self, begin: float) -> None:
        records = self._records
        while len(records) > 1 and records[0][0] < begin:
            records.popleft()

    def _average(self, attr: str) -> float:
        means = [float(values[attr].mean()) for _, values in self._recent()]
        return sum(means) / len(means)


def _plain(value: Any) -> float:
    number: float = value.item()
    return number
