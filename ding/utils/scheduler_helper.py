"""A scheduler that changes a parameter when a metric stops improving."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from ding.utils.config_helper import Configurable, Setting, Settings, boolean, check_section, one_of
from ding.utils.default_helper import deep_merge_dicts


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _positive(value: Any) -> str | None:
    return None if _is_number(value) and value > 0 else "a number > 0"


def _a_number(value: Any) -> str | None:
    return None if _is_number(value) else "a number"


def _increasing_pair(value: Any) -> str | None:
    is_pair = isinstance(value, list) and len(value) == 2 and all(map(_is_number, value))
    return None if is_pair and value[0] < value[1] else "a list of two numbers, the smaller one first"


def _count(value: Any) -> str | None:
    return None if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else "an integer >= 0"


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
            "factor": Setting(0.05, _positive, "Amount or factor of a change."),
            "change_range": Setting([-1, 1], _increasing_pair, "Limits of the parameter."),
            "threshold": Setting(1e-4, _a_number, "Least change of the metric that counts as an improvement."),
            "optimize_mode": Setting("min", one_of("min", "max"), "Whether a smaller or a larger metric is better."),
            "patience": Setting(10, _count, "Number of calls without improvement before a change."),
            "cooldown": Setting(0, _count, "Number of calls at the start and after each change that do not count."),
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
        self._not_better = 0 if self._is_better(metrics) else self._not_better + 1
        self._last_metric = metrics
        if self._cooldown_left > 0:
            self._cooldown_left -= 1
            self._not_better = 0
        if self._not_better <= self._patience:
            return param
        self._not_better = 0
        self._cooldown_left = self._cooldown
        return self._changed(param)

    def _is_better(self, metric: float) -> bool:
        if self._last_metric is None:
            return True
        return self._sign * (metric - self._last_metric) > self._threshold

    def _changed(self, param: float) -> float:
        """Return the changed `param`, limited by the bound of the range in the direction of the change."""
        if self._mode == "reduce":
            return max(param - self._factor, self._low)
        if self._mode == "add":
            return min(param + self._factor, self._high)
        if self._mode == "multi":
            return self._bounded(param * self._factor, grows=self._factor >= 1)
        return self._bounded(param / self._factor, grows=self._factor < 1)

    def _bounded(self, value: float, grows: bool) -> float:
        # `grows` is the direction for positive parameters.
        return min(value, self._high) if grows else max(value, self._low)
