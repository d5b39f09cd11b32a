"""Clocks: wall clock, ticks, and a clock that can be frozen."""

from __future__ import annotations

import operator
import time
from abc import ABC, abstractmethod
from typing import Any

from ding.utils.lock_helper import LockContext, LockContextType


class BaseTime(ABC):
    """A clock that never decreases."""

    @abstractmethod
    def time(self) -> float:
        """Returns the current time."""


class NaturalTime(BaseTime):
    """Wall clock time in seconds since the epoch; constant while the system clock is behind an earlier reading."""

    def __init__(self) -> None:
        self._last_time = time.time()

    def time(self) -> float:
        """Returns the current time."""
        self._last_time = max(self._last_time, time.time())
        return self._last_time


class TickTime(BaseTime):
    """A clock that only `step` advances.

    Example:
        >>> clock = TickTime()
        >>> clock.step(), clock.step(3), clock.time()
        (1, 4, 4)
    """

    def __init__(self, init: int = 0) -> None:
        self._tick = init

    def step(self, delta: int = 1) -> int:
        """Advance by `delta` ticks; return the new time.

        Raises:
            TypeError: `delta` is not an integer.
            ValueError: `delta` is less than 1.
        """
        try:
            delta = operator.index(delta)
        except TypeError:
            raise TypeError(f"a tick clock moves by an integer, got {type(delta).__name__} {delta!r}") from None
        if delta < 1:
            raise ValueError(f"a tick clock moves forward by at least 1, got {delta}")
        self._tick += delta
        return self._tick

    def time(self) -> int:
        """Returns the current tick."""
        return self._tick


class TimeProxy(BaseTime):
    """Wraps a clock that can be frozen: `time` is then constant until `unfreeze`.

    A second `freeze` waits for the `unfreeze` of the first. Reading takes no lock.

    Args:
        time_: the wrapped clock.
        frozen: whether to start frozen.
        lock_type: the kind of lock.

    Example:
        >>> clock = TickTime()
        >>> proxy = TimeProxy(clock)
        >>> proxy.freeze()
        >>> clock.step(), proxy.time(), proxy.current_time()
        (1, 0, 1)
    """

    def __init__(
        self, time_: BaseTime, frozen: bool = False, lock_type: LockContextType = LockContextType.THREAD_LOCK
    ) -> None:
        self._time = time_
        self._lock_type = lock_type
        self._lock = LockContext(lock_type)
        self._frozen = False
        self._frozen_time: float = 0
        if frozen:
            self.freeze()

    @property
    def is_frozen(self) -> bool:
        """Whether the time is frozen."""
        return self._frozen

    def freeze(self) -> None:
        """Freeze `time` at the current time; wait while another caller has it frozen."""
        self._lock.acquire()
        self._frozen_time = self._time.time()
        self._frozen = True

    def unfreeze(self) -> None:
        """Unfreeze `time`.

        Raises:
            RuntimeError: the time is not frozen.
        """
        if not self._frozen:
            raise RuntimeError("the time is not frozen; call freeze() before unfreeze()")
        self._frozen = False
        self._lock.release()

    def time(self) -> float:
        """Returns the current time, or while frozen, the time of `freeze`."""
        return self._frozen_time if self._frozen else self._time.time()

    def current_time(self) -> float:
        """Returns the current time, frozen or not."""
        return self._time.time()

    def __getstate__(self) -> dict[str, Any]:
        """Leaves out the lock, which cannot be copied; the copy creates its own."""
        state = self.__dict__.copy()
        del state["_lock"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = LockContext(self._lock_type)
        if self._frozen:
            self._lock.acquire()
