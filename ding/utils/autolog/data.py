"""Recent values with the times at which they were recorded."""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import Any, Generic, TypeVar

from ding.utils.autolog.time_ctl import BaseTime

_T = TypeVar("_T")


class RangedData(ABC, Generic[_T]):
    """Keeps the values of the last `expire` units of time, and the value that was current when that span began.

    So the newest value stays however old it is. Only one thread may write.

    Raises:
        TypeError: `expire` is not a number.
        ValueError: `expire` is not positive.
    """

    def __init__(self, expire: float) -> None:
        if not isinstance(expire, numbers.Real) or isinstance(expire, bool):
            raise TypeError(f"expire must be a number, got {type(expire).__name__} {expire!r}")
        if expire <= 0:
            raise ValueError(f"expire must be positive, got {expire}")
        self._expire: float = expire if isinstance(expire, int) else float(expire)
        self._times: deque[float] = deque()
        self._values: deque[_T] = deque()

    @abstractmethod
    def _get_time(self) -> float:
        """Returns the current time, which must never decrease."""

    @property
    def expire(self) -> float:
        """How long a value is kept."""
        return self._expire

    def append(self, data: _T) -> RangedData[_T]:
        """Record one value now; return self.

        Raises:
            ValueError: the time has decreased.
        """
        self.append_at(self._get_time(), data)
        return self

    def append_at(self, now: float, data: _T) -> None:
        """Record one value at the time `now`.

        Raises:
            ValueError: there is a value of a later time.
        """
        times = self._times
        if times and now < times[-1]:
            raise ValueError(f"time went back: the newest value is of {times[-1]}, now is {now}")
        times.append(now)
        self._values.append(data)
        if times[0] < now - 2 * self._expire:  # not each time: what reads the values drops the rest
            self._drop_expired(now)

    def extend(self, iter_: Iterable[_T]) -> RangedData[_T]:
        """Record each value now; return self.

        Raises:
            ValueError: the time has decreased.
        """
        for item in iter_:
            self.append(item)
        return self

    def current(self) -> _T:
        """Returns the newest value.

        Raises:
            ValueError: nothing is recorded.
        """
        if not self._values:
            raise ValueError("nothing was recorded yet")
        return self._values[-1]

    def history(self) -> list[tuple[float, _T]]:
        """Returns (time, value) of all kept values in order; a value older than the span has the span's start time.

        If time has passed since the newest value, it is repeated at the end with the current time.
        """
        now = self._advance()
        begin = now - self._expire
        result = [(max(time_, begin), value) for time_, value in zip(self._times, self._values, strict=True)]
        if self._times and now > self._times[-1]:
            result.append((now, self._values[-1]))
        return result

    def window(self) -> list[_T]:
        """Returns the values of the intervals in `history`: all kept values, without the last if no time has passed."""
        now = self._advance()
        values = list(self._values)
        if values and now <= self._times[-1]:
            values.pop()
        return values

    def mean(self) -> float:
        """Returns the unweighted mean of `window`, 0.0 if it is empty. For numbers only."""
        now = self._get_time()
        times = self._times
        if not times:
            return 0.0
        if times[0] < now - self._expire:
            self._drop_expired(now)
        values: Iterable[Any] = self._values
        count = len(times)
        if now <= times[-1]:
            count -= 1
            values = islice(values, count)
        total: float = sum(values)
        return total / count if count else 0.0

    def __bool__(self) -> bool:
        return bool(self._values)

    def _advance(self) -> float:
        now = self._get_time()
        self._drop_expired(now)
        return now

    def _drop_expired(self, now: float) -> None:
        """Drop expired values; keep one that is older than the span."""
        begin, times, values = now - self._expire, self._times, self._values
        while len(times) > 1 and times[1] < begin:
            times.popleft()
            values.popleft()


class TimeRangedData(RangedData[_T]):
    """`RangedData` on a given clock.

    Example:
        >>> from ding.utils.autolog import TickTime
        >>> clock = TickTime()
        >>> data = TimeRangedData(clock, expire=2)
        >>> for value in "abcde":
        ...     _, _ = data.append(value), clock.step()
        >>> data.history()
        [(3, 'c'), (3, 'd'), (4, 'e'), (5, 'e')]
    """

    def __init__(self, time_: BaseTime, expire: float) -> None:
        super().__init__(expire)
        self._time = time_
        self._get_time = time_.time  # type: ignore[method-assign]  # saves one call per value

    def _get_time(self) -> float:
        return self._time.time()

    @property
    def time(self) -> BaseTime:
        """The clock."""
        return self._time
