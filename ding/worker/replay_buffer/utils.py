"""Components of the replay buffers: unique ids, deletion of used data, limits and logs of the throughput."""

from __future__ import annotations

import logging
import math
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, overload

from ding.utils.log_helper import only_shows
from ding.utils.segment_tree import IntArray

__all__ = [
    "PeriodicThruputMonitor",
    "ThruputController",
    "UniqueIds",
    "UsedDataRemover",
    "LimitCheck",
    "generate_id",
]

Clock = Callable[[], float]


def generate_id(name: str, n: int) -> str:
    """Return the id of the n-th item stored by the buffer `name`.

    Example:
        >>> generate_id("demo", 3)
        'demo_3'
    """
    return f"{name}_{n}"


class UniqueIds(Sequence[str]):
    """The ids of sampled items, formatted on access; `update` of the same buffer reads `numbers` directly.

    Args:
        name: Name of the buffer.
        numbers: int64 [n], the numbers in the ids.

    Example:
        >>> import numpy as np
        >>> UniqueIds("demo", np.array([3, 5]))[1]
        'demo_5'
    """

    def __init__(self, name: str, numbers: IntArray) -> None:
        self.name, self.numbers = name, numbers

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, key: int) -> str: ...
    @overload
    def __getitem__(self, key: slice) -> UniqueIds: ...
    def __getitem__(self, key: int | slice) -> str | UniqueIds:
        if isinstance(key, slice):
            return UniqueIds(self.name, self.numbers[key])
        return generate_id(self.name, int(self.numbers[key]))

    def __iter__(self) -> Iterator[str]:
        prefix = generate_id(self.name, 0)[:-1]
        return iter([f"{prefix}{number}" for number in self.numbers.tolist()])

    def __eq__(self, other: object) -> bool:
        return list(self) == (list(other) if isinstance(other, UniqueIds) else other)

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)


class UsedDataRemover:
    """A remover of the files that `data_id` of the added items names, in a thread that `start` starts and `close` ends.

    Without `start`, `close` deletes the files. A warning is logged for each file that cannot be deleted. This class is
    thread-safe.
    """

    def __init__(self) -> None:
        self._used_data: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, unless it is running."""
        if self._thread is None:
            self._thread = threading.Thread(target=self.delete_used_data, name="delete_used_data", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Delete the remaining files and end the thread. Further calls do nothing."""
        self._used_data.put(None)
        if self._thread is None:
            self.delete_used_data()
        else:
            self._thread.join()
            self._thread = None

    def add_used_data(self, data: Any) -> None:
        """Queue the file of an item for deletion.

        Raises:
            AssertionError: If `data` is not a dict with the key `data_id`.
        """
        if not isinstance(data, dict) or "data_id" not in data:
            raise AssertionError(
                f"with enable_track_used_data each item must be a dict with 'data_id', got {data!r:.200}"
            )
        self._used_data.put(data["data_id"])

    def delete_used_data(self) -> None:
        """Delete queued files until `close` is called and the queue is empty."""
        while (data_id := self._used_data.get()) is not None:
            try:
                os.remove(data_id)
            except FileNotFoundError:  # already deleted
                continue
            except (OSError, TypeError, ValueError) as error:  # a folder, for example
                logging.getLogger("ding").warning("cannot delete the used data file %s: %s", data_id, error)


class LimitCheck(NamedTuple):
    """The answer whether a call is allowed, with the reason; it is true if the call is allowed."""

    allowed: bool
    reason: str

    def __bool__(self) -> bool:
        return self.allowed


_NO_LOWER_LIMIT = LimitCheck(True, "no lower limit")


class ThruputController:
    """A limit on the recent ratio pushed / sampled.

    Both counts decay once a second, so that what happened `window_seconds` ago counts for 1 %. The decay is computed
    on access; there is no thread. It is not thread-safe: the owner calls it under its lock.

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

    def can_push(self, push_size: int) -> LimitCheck:
        """Return whether the ratio stays <= max if `push_size` items are pushed; True before the first sample."""
        if self._max == math.inf:
            return LimitCheck(True, "no upper limit")
        pushed, sampled = self.history_push_count, self.history_sample_count
        if sampled < 1e-5:
            return LimitCheck(True, "nothing sampled yet")
        rate = (pushed + push_size) / sampled
        return LimitCheck(
            rate <= self._max, f"pushed / sampled would be {rate:.4g}, allowed is at most {self._max:.4g}"
        )

    def can_sample(self, sample_size: int) -> LimitCheck:
        """Return whether the ratio stays >= min if `sample_size` items are sampled."""
        if self._min == 0:
            return _NO_LOWER_LIMIT
        rate = self.history_push_count / (self.history_sample_count + sample_size)
        return LimitCheck(
            rate >= self._min, f"pushed / sampled would be {rate:.4g}, allowed is at least {self._min:.4g}"
        )

    def add(self, pushed: int = 0, sampled: int = 0) -> None:
        """Add to the counts."""
        if self._clock() - self._decayed_at >= 1:
            self._decay()
        self._pushed += pushed
        self._sampled += sampled

    @property
    def history_push_count(self) -> float:
        """Decayed number of pushed items; it may be set."""
        self._decay()
        return self._pushed

    @history_push_count.setter
    def history_push_count(self, count: float) -> None:
        self._pushed = count

    @property
    def history_sample_count(self) -> float:
        """Decayed number of sampled items; it may be set."""
        self._decay()
        return self._sampled

    @history_sample_count.setter
    def history_sample_count(self, count: float) -> None:
        self._sampled = count

    def close(self) -> None:
        """Reset both counts to 0. Further calls do nothing."""
        self._pushed = self._sampled = 0.0

    def state_dict(self) -> dict[str, float]:
        """Return both decayed counts."""
        return {"pushed": self.history_push_count, "sampled": self.history_sample_count}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Replace both counts by those of a state; they do not decay for the time since then."""
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
    """A monitor that logs the numbers of pushed, sampled, removed and stored items once per period of `cfg.seconds`.

    There is no thread: the first call of `add` after the end of a period logs it. It is not thread-safe: the owner
    calls it under its lock.

    Args:
        name: Name of the buffer. TensorBoard tags are `<name>_sec/<key>`, with steps 0, 1, 2, ...
        clock: Returns monotonic seconds.

    Attributes:
        push_data_count, sample_data_count, remove_data_count: Numbers of items in this period; they may be set.
        valid_count: Number of stored items; it may be set.
    """

    _counts = ("push_data_count", "sample_data_count", "remove_data_count", "valid_count")

    def __init__(
        self, name: str, cfg: Any, logger: logging.Logger, tb_logger: Any, clock: Clock = time.monotonic
    ) -> None:
        self._name, self._logger, self._tb_logger = name, logger, tb_logger
        self._warned: set[str] = set()
        self._seconds = cfg.seconds
        self._clock = clock
        self._period_end = clock() + self._seconds
        self._print_index = 0
        self._closed = False
        self.push_data_count = self.sample_data_count = self.remove_data_count = self.valid_count = 0

    def add(self, pushed: int = 0, sampled: int = 0, removed: int = 0, valid: int | None = None) -> None:
        """Add to the counts of the current period, and set the number of stored items to `valid`, if given."""
        if self._clock() >= self._period_end and not self._closed:
            self._end_period()
        self.push_data_count += pushed
        self.sample_data_count += sampled
        self.remove_data_count += removed
        if valid is not None:
            self.valid_count = valid

    def close(self) -> None:
        """Stop logging. Further calls do nothing."""
        self._closed = True

    def _end_period(self) -> None:
        self._period_end = self._clock() + self._seconds
        names = ("pushed_in", "sampled_out", "removed", "current_have")
        counts = {name: getattr(self, own) for name, own in zip(names, self._counts, strict=True)}
        self._logger.info(
            "in the last %s s: %s", self._seconds, ", ".join(f"{key} {count}" for key, count in counts.items())
        )
        if self._tb_logger is not None:
            with only_shows(f"writing the log of {self._name}", self._warned):
                for key, count in counts.items():
                    self._tb_logger.add_scalar(f"{self._name}_sec/{key}", count, self._print_index)
        self._print_index += 1
        self.push_data_count = self.sample_data_count = self.remove_data_count = 0
