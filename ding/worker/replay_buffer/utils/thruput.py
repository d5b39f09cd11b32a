"""How much goes through a buffer: the limit on pushed / sampled, and the periodic log."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Clock = Callable[[], float]


class Verdict(NamedTuple):
    """Whether a call is allowed, and why; true when it is."""

    allowed: bool
    reason: str

    def __bool__(self) -> bool:
        return self.allowed


_NO_LOWER_LIMIT = Verdict(True, "no lower limit")


class ThruputController:
    """Keeps the ratio pushed / sampled of the recent past within bounds.

    Both histories shrink once a second so that what happened `window_seconds` ago counts for 1 %. They are shrunk when
    they are looked at; there is no thread. Not thread-safe: the owner calls it under its lock.

    Args:
        cfg: has `push_sample_rate_limit.max`, `.min` and `window_seconds`.
        clock: monotonic seconds.

    Raises:
        ValueError: `min` is negative or above `max`.
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
        """Whether `push_size` more items may come in: while the ratio stays <= max; always before the first sample."""
        if self._max == math.inf:
            return Verdict(True, "no upper limit")
        pushed, sampled = self.history_push_count, self.history_sample_count
        if sampled < 1e-5:
            return Verdict(True, "nothing sampled yet")
        rate = (pushed + push_size) / sampled
        return Verdict(rate <= self._max, f"pushed / sampled would be {rate:.4g}, allowed is at most {self._max:.4g}")

    def can_sample(self, sample_size: int) -> Verdict:
        """Whether `sample_size` more items may go out: while the ratio stays >= min."""
        if self._min == 0:
            return _NO_LOWER_LIMIT
        rate = self.history_push_count / (self.history_sample_count + sample_size)
        return Verdict(rate >= self._min, f"pushed / sampled would be {rate:.4g}, allowed is at least {self._min:.4g}")

    def note(self, pushed: int = 0, sampled: int = 0) -> None:
        """Add to the histories."""
        self._decay()
        self._pushed += pushed
        self._sampled += sampled

    @property
    def history_push_count(self) -> float:
        """Items pushed, decayed; assign to add."""
        self._decay()
        return self._pushed

    @history_push_count.setter
    def history_push_count(self, count: float) -> None:
        self._pushed = count

    @property
    def history_sample_count(self) -> float:
        """Items sampled, decayed; assign to add."""
        self._decay()
        return self._sampled

    @history_sample_count.setter
    def history_sample_count(self, count: float) -> None:
        self._sampled = count

    def close(self) -> None:
        """Forget both histories. May be called any number of times."""
        self._pushed = self._sampled = 0.0

    def state_dict(self) -> dict[str, float]:
        """Both histories, as they are now."""
        return {"pushed": self.history_push_count, "sampled": self.history_sample_count}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Go on from these histories; the time between counts for nothing."""
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
    """Logs what went through a buffer in each period of `cfg.seconds`: pushed in, sampled out, removed, held.

    Driven by the calls that change the counts: the first one after a period has ended logs that period. No thread.

    Args:
        name: name of the buffer; TensorBoard tags are `<name>_sec/<key>`, numbered 0, 1, 2, ...
        clock: monotonic seconds.
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
        """Add to the counts of the current period; `valid` replaces the number of items held."""
        with self._lock:
            self._end_period()
            self._pushed += pushed
            self._sampled += sampled
            self._removed += removed
            if valid is not None:
                self._valid = valid

    @property
    def push_data_count(self) -> int:
        """Items pushed in this period."""
        return self._pushed

    @push_data_count.setter
    def push_data_count(self, count: int) -> None:
        self.add(pushed=count - self._pushed)

    @property
    def sample_data_count(self) -> int:
        """Items sampled in this period."""
        return self._sampled

    @sample_data_count.setter
    def sample_data_count(self, count: int) -> None:
        self.add(sampled=count - self._sampled)

    @property
    def remove_data_count(self) -> int:
        """Items removed or overwritten in this period."""
        return self._removed

    @remove_data_count.setter
    def remove_data_count(self, count: int) -> None:
        self.add(removed=count - self._removed)

    @property
    def valid_count(self) -> int:
        """Items held."""
        return self._valid

    @valid_count.setter
    def valid_count(self, count: int) -> None:
        self.add(valid=count)

    def state_dict(self) -> dict[str, float]:
        """The counts of the current period, its number, and how much of it is left."""
        with self._lock:
            left_s = self._period_end - self._clock()
            counts = {"pushed": self._pushed, "sampled": self._sampled, "removed": self._removed, "valid": self._valid}
            return {**counts, "index": self._print_index, "left_s": left_s}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Go on with a period that another monitor has begun."""
        with self._lock:
            self._pushed, self._sampled, self._removed, self._valid, self._print_index = (
                int(state[name]) for name in ("pushed", "sampled", "removed", "valid", "index")
            )
            self._period_end = self._clock() + state["left_s"]

    def close(self) -> None:
        """Log nothing more. May be called any number of times."""
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
