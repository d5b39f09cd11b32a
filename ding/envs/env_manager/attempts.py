"""Calls into envs that may take too long or fail: deadlines, and attempts that are counted."""

from __future__ import annotations

import signal
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

from ding.utils.time_helper import WatchDog


def call_with_timeout(timeout_s: float | None, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`function(*args, **kwargs)`, broken off after `timeout_s` seconds where that is given.

    Breaking off works by a signal: outside the main thread, and on Windows, there is no limit.

    Raises:
        TimeoutError: the call took longer.
    """
    can_interrupt = hasattr(signal, "SIGALRM") and threading.current_thread() is threading.main_thread()
    if timeout_s is None or not can_interrupt:
        return function(*args, **kwargs)
    with WatchDog(timeout_s):
        return function(*args, **kwargs)


def attempt_again(error: Exception, attempt: Callable[[], Any], times: int, wait_s: float) -> Any:
    """What `attempt()` returns in one of up to `times` calls, made `wait_s` seconds apart after it failed with `error`.

    Raises:
        Exception: the last error, when every attempt failed.
    """
    for _ in range(times):
        time.sleep(wait_s)
        try:
            return attempt()
        except Exception as e:
            error = e
    raise error


def exhausted(env_id: int, method: str, attempts: int, error: Exception) -> RuntimeError:
    """The exception that says which env failed where, with the traceback of its last error; that is its cause, too."""
    if error.__traceback__ is None:  # it comes from another process, and tells what happened there
        text = f"{type(error).__name__}: {error.args[0] if error.args else ''}"
    else:
        text = f"{error!r}\n" + "".join(traceback.format_exception(type(error), error, error.__traceback__))
    failure = RuntimeError(
        f"Env {env_id} {method} has exceeded max retries({attempts}), and the latest exception is: {text}"
    )
    failure.__cause__ = error
    return failure
