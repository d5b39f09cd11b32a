"""Timers, a profiler, and a watchdog for calls that may not return."""

from __future__ import annotations

import atexit
import cProfile
import functools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any


def _now(synchronise: bool) -> float:
    # Only a program that has used CUDA, and so has imported torch, can have queued work.
    torch = sys.modules.get("torch") if synchronise else None
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return time.perf_counter()


class EasyTimer:
    """Timer of the seconds spent in its `with` block.

    Timers are independent, and a timer may be nested in itself. With `cuda`, if CUDA is in use, both ends wait for the
    device, so that the time includes queued work.

    Attributes:
        value: seconds of the last block that ended; 0.0 before.

    Example:
        >>> timer = EasyTimer(cuda=False)
        >>> with timer:
        ...     total = sum(range(10))
        >>> timer.value >= 0
        True
    """

    def __init__(self, cuda: bool = True) -> None:
        self.value = 0.0
        self._cuda = cuda
        self._starts: list[float] = []

    def __enter__(self) -> EasyTimer:
        self._starts.append(_now(self._cuda))
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.value = _now(self._cuda) - self._starts.pop()


class TimeWrapperTime:
    """A timer of wall clock time at class level, for each thread: `start_time` ... `end_time`, or around a function."""

    _cuda = False
    _local = threading.local()

    @classmethod
    def start_time(cls) -> None:
        """Start the timer; calls may be nested."""
        cls._local.__dict__.setdefault("starts", []).append(_now(cls._cuda))

    @classmethod
    def end_time(cls) -> float:
        """Return the seconds since the matching `start_time`.

        Raises:
            RuntimeError: there is none in this thread.
        """
        starts = cls._local.__dict__.get("starts")
        if not starts:
            raise RuntimeError("end_time has no matching start_time in this thread; call start_time first")
        seconds: float = _now(cls._cuda) - starts.pop()
        return seconds

    @classmethod
    def wrapper(cls, fn: Callable[..., Any]) -> Callable[..., tuple[Any, float]]:
        """Decorate `fn` to return `(result, seconds)`."""

        @functools.wraps(fn)
        def timed(*args: Any, **kwargs: Any) -> tuple[Any, float]:
            with EasyTimer(cls._cuda) as timer:
                result = fn(*args, **kwargs)
            return result, timer.value

        return timed


TimeWrapper = TimeWrapperTime  # under its other name in DI-engine


class TimeWrapperCuda(TimeWrapperTime):
    """A timer of wall clock time that waits for the CUDA device at both ends."""

    _cuda = True
    _local = threading.local()


def build_time_helper(cfg: Any = None, wrapper_type: str | None = None) -> type[TimeWrapperTime]:
    """Return the timer class for `wrapper_type`, or for `cfg.common.time_wrapper_type`: `time` or `cuda`.

    Without a CUDA device, `cuda` is the same as `time`.

    Raises:
        RuntimeError: neither argument is given.
        KeyError: the type is unknown.
    """
    if wrapper_type is None:
        if cfg is None:
            raise RuntimeError("cfg = None, wrapper_type = None is not allowed; pass cfg or wrapper_type")
        wrapper_type = cfg.common.time_wrapper_type
    if wrapper_type not in ("time", "cuda"):
        raise KeyError(f"unknown time wrapper type {wrapper_type!r}; it must be 'time' or 'cuda'")
    if wrapper_type == "cuda":
        import torch

        return TimeWrapperCuda if torch.cuda.is_available() else TimeWrapperTime
    return TimeWrapperTime


class WatchDog:
    """Watchdog that raises `TimeoutError` in the main thread if `stop` is not called within `timeout` seconds.

    It uses the process-wide real-time timer, so only one can run at a time, and only in the main thread.

    Args:
        timeout: Seconds.
        message: text of the error; by default it names the timeout.

    Raises:
        ValueError: `timeout` is not positive.

    Example:
        >>> dog = WatchDog(timeout=2.5)
        >>> dog.start()
        >>> dog.stop()
    """

    def __init__(self, timeout: float = 1, message: str | None = None) -> None:
        if not timeout > 0:
            raise ValueError(f"timeout = {timeout!r} is not allowed; it must be a number of seconds > 0")
        self._timeout_s = timeout
        self._message = f"the call did not finish within {timeout} s" if message is None else message
        self._previous: Any = None
        self._is_running = False

    def start(self) -> None:
        """Start or restart the countdown.

        Raises:
            ValueError: called outside the main thread.
        """
        if not self._is_running:
            self._previous = signal.signal(signal.SIGALRM, self._on_alarm)
            self._is_running = True
        signal.setitimer(signal.ITIMER_REAL, self._timeout_s)

    def stop(self) -> None:
        """Stop the countdown and restore the previous signal handler."""
        if not self._is_running:
            return
        signal.setitimer(signal.ITIMER_REAL, 0)
        # None: the previous handler was not installed from Python and cannot be restored.
        signal.signal(signal.SIGALRM, signal.SIG_DFL if self._previous is None else self._previous)
        self._is_running = False

    def _on_alarm(self, signum: int, frame: FrameType | None) -> None:
        self.stop()
        raise TimeoutError(self._message)

    def __enter__(self) -> WatchDog:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()


def register_profiler(
    write_profile: Callable[[cProfile.Profile, str], None], pr: cProfile.Profile, folder_path: str
) -> None:
    """Call `write_profile(pr, folder_path)` when the interpreter exits."""
    atexit.register(write_profile, pr, folder_path)


class Profiler:
    """Profiler of the calling thread from `profile` until `stop`, or until the interpreter exits.

    It writes `profile_<pid>.prof` for `pstats` and its viewers, and two tables, `profile_<pid>_cumulative.txt` and
    `profile_<pid>_tottime.txt`.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     profiler = Profiler()
        ...     profiler.profile(folder)
        ...     total = sum(range(10))
        ...     profiler.stop()
        ...     len(os.listdir(folder))
        3
    """

    def __init__(self) -> None:
        self.pr = cProfile.Profile()
        self._folder_path: str | None = None

    def profile(self, folder_path: str = "./tmp") -> None:
        """Start the profiler, which will write its files to the folder `folder_path`, created if missing.

        Raises:
            RuntimeError: the profiler is running.
        """
        if self._folder_path is not None:
            raise RuntimeError(f"the profiler is running for {self._folder_path}; call stop() first")
        os.makedirs(folder_path, exist_ok=True)
        self._folder_path = folder_path
        register_profiler(self.write_profile, self.pr, folder_path)
        self.pr.enable()

    def stop(self) -> None:
        """Stop the profiler and write the files; further calls do nothing."""
        if self._folder_path is None:
            return
        atexit.unregister(self.write_profile)
        folder_path, self._folder_path = self._folder_path, None
        self.write_profile(self.pr, folder_path)

    def write_profile(self, pr: cProfile.Profile, folder_path: str) -> None:
        """Disable `pr` and write its files."""
        import pstats

        pr.disable()
        base = os.path.join(folder_path, f"profile_{os.getpid()}")
        pr.dump_stats(f"{base}.prof")
        for order in ("cumulative", "tottime"):
            with open(f"{base}_{order}.txt", "w", encoding="utf-8") as file:
                pstats.Stats(pr, stream=file).sort_stats(order).print_stats()
