"""Throughput of a buffer: the limit on the ratio pushed / sampled, and the periodic log."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Clock = Callable[[], float]


class Verdict(NamedTuple):
    """Whether a call is allowed, and the reason. True if it is allowed."""

    allowed: bool
    reason: str

    def __bool__(self) -> bool:
        return self.allowed


_NO_LOWER_LIMIT = Verdict(True, "no lower limit")


class ThruputController:
    """Limits the recent ratio pushed / sampled.

    Both counts decay once a second, so that what happened `window_seconds` ago counts for 1 %. The decay is computed
    on access; there is no thread. Not thread-safe: the owner calls it under its lock.

    Args:
        cfg: Has `push_sample_rate_limit.max`, `.min` and `window_seconds`.
        clock: Returns monotonic seconds.

    Raises:
        ValueError: If `min` is negative or above `max`.
    """

    def __init__(self, cfg: Any, clock: Clock = time.monotonic) -> None:
        limit = cfg.push_sample_rate_limit
        self._max, self._min = float(limit.max), float(limit.min)
        if not 0 <= self._min <= self._max:
            raise ValueError(
                f"push_sample_rate_limit min = {self._min}, max = {self._max} is not allowed; need 0 <= min <= max"
            )
        self._decay_per_second = 0.01 ** (1 / cfg.window_seconds)
        self._clock = clock
        self._decayed_at = clock()
        self._pushed = self._sampled = 0.0

    def can_push(self, push_size: int) -> Verdict:
        """Returns whether the ratio stays <= max if `push_size` items are pushed. True before the first sample."""
        if self._max == math.inf:
            return Verdict(True, "no upper limit")
        pushed, sampled = self.history_push_count, self.history_sample_count
        if sampled < 1e-5:
            return Verdict(True, "nothing sampled yet")
        rate = (pushed + push_size) / sampled
        return Verdict(rate <= self._max, f"pushed / sampled would be {rate:.4g}, allowed is at most {self._max:.4g}")

    def can_sample(self, sample_size: int) -> Verdict:
        """Returns whether the ratio stays >= min if `sample_size` items are sampled."""
        if self._min == 0:
            return _NO_LOWER_LIMIT
        rate = self.history_push_count / (self.history_sample_count + sample_size)
        return Verdict(rate >= self._min, f"pushed / sampled would be {rate:.4g}, allowed is at least {self._min:.4g}")

    def add(self, pushed: int = 0, sampled: int = 0) -> None:
        """Add to the counts."""
        self._decay()
        self._pushed += pushed
        self._sampled += sampled

    @property
    def history_push_count(self) -> float:
        """Decayed number of pushed items. May be set."""
        self._decay()
        return self._pushed

    @history_push_count.setter
    def history_push_count(self, count: float) -> None:
        self._pushed = count

    @property
    def history_sample_count(self) -> float:
        """Decayed number of sampled items. May be set."""
        self._decay()
        return self._sampled

    @history_sample_count.setter
    def history_sample_count(self, count: float) -> None:
        self._sampled = count

    def close(self) -> None:
        """Reset both counts to 0. May be called any number of times."""
        self._pushed = self._sampled = 0.0

    def state_dict(self) -> dict[str, float]:
        """Returns both decayed counts."""
        return {"pushed": self.history_push_count, "sampled": self.history_sample_count}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Replace both counts by those of a state; they do not decay for the time between."""
        self._decayed_at = self._clock()
        self._pushed, self._sampled = state["pushed"], state["sampled"]

    def _decay(self) -> None:
        seconds = math.floor(self._clock() - self._decayed_at)
        if seconds > 0:
            self._decayed_at += seconds
            factor = self._decay_per_second**seconds
            self._pushed *= factor
            self._sampled *= factor


class PeriodicThruputMonitor:
    """Logs the numbers of pushed, sampled, removed and stored items once per period of `cfg.seconds`.

    There is no thread: the first call of `add` after the end of a period logs it. Thread-safe.

    Args:
        name: Name of the buffer. TensorBoard tags are `<name>_sec/<key>`, with steps 0, 1, 2, ...
        clock: Returns monotonic seconds.
    """

    def __init__(
        self, name: str, cfg: Any, logger: logging.Logger, tb_logger: Any, clock: Clock = time.monotonic
    ) -> None:
        self._name, self._logger, self._tb_logger = name, logger, tb_logger
        self._seconds = cfg.seconds
        self._clock = clock
        self._lock = threading.RLock()
        self._period_end = clock() + self._seconds
        self._print_index = 0
        self._closed = False
        self._pushed = self._sampled = self._removed = self._valid = 0

    def add(self, pushed: int = 0, sampled: int = 0, removed: int = 0, valid: int | None = None) -> None:
        """Add to the counts of the current period, and set the number of stored items to `valid`, if given."""
        with self._lock:
            self._end_period()
            self._pushed += pushed
            self._sampled += sampled
            self._removed += removed
            if valid is not None:
                self._valid = valid

    @property
    def push_data_count(self) -> int:
        """Number of items pushed in this period."""
        return self._pushed

    @push_data_count.setter
    def push_data_count(self, count: int) -> None:
        self.add(pushed=count - self._pushed)

    @property
    def sample_data_count(self) -> int:
        """Number of items sampled in this period."""
        return self._sampled

    @sample_data_count.setter
    def sample_data_count(self, count: int) -> None:
        self.add(sampled=count - self._sampled)

    @property
    def remove_data_count(self) -> int:
        """Number of items removed or overwritten in this period."""
        return self._removed

    @remove_data_count.setter
    def remove_data_count(self, count: int) -> None:
        self.add(removed=count - self._removed)

    @property
    def valid_count(self) -> int:
        """Number of stored items."""
        return self._valid

    @valid_count.setter
    def valid_count(self, count: int) -> None:
        self.add(valid=count)

    def state_dict(self) -> dict[str, float]:
        """Returns the counts of the current period, its number and its remaining seconds."""
        with self._lock:
            left_s = self._period_end - self._clock()
            counts = {"pushed": self._pushed, "sampled": self._sampled, "removed": self._removed, "valid": self._valid}
            return {**counts, "index": self._print_index, "left_s": left_s}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Continue the period of a state."""
        with self._lock:
            self._pushed, self._sampled, self._removed, self._valid, self._print_index = (
                int(state[name]) for name in ("pushed", "sampled", "removed", "valid", "index")
            )
            self._period_end = self._clock() + state["left_s"]

    def close(self) -> None:
        """Stop logging. May be called any number of times."""
        self._closed = True

    def _end_period(self) -> None:
        now = self._clock()
        if self._closed or now < self._period_end:
            return
        self._period_end = now + self._seconds
        counts = {
            "pushed_in": self._pushed,
            "sampled_out": self._sampled,
            "removed": self._removed,
            "current_have": self._valid,
        }
        self._logger.info(
            "in the last %s s: %s", self._seconds, ", ".join(f"{key} {count}" for key, count in counts.items())
        )
        if self._tb_logger is not None:
            for key, count in counts.items():
                self._tb_logger.add_scalar(f"{self._name}_sec/{key}", count, self._print_index)
        self._print_index += 1
        self._pushed = self._sampled = self._removed = 0
