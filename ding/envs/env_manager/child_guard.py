"""What keeps the process of an env to its place: threads, random numbers, time limits."""

from __future__ import annotations

import random
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np


def use_one_thread() -> None:
    """Leave the other cores to the other envs; to be called again after imports."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)


def seed_globals(words: Sequence[int]) -> None:
    """Seed the global generators from `words`: forked processes would all go on with the same numbers."""
    state = np.random.SeedSequence(words).generate_state(8)
    np.random.seed(state)
    random.seed(state.tobytes())
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(int(state[0]))


class Alarm:
    """Breaks off calls in the main thread after a time.

    It has the process's alarm timer to itself. Where there is none, nothing is broken off.
    """

    def __init__(self) -> None:
        self._text = ""
        self._is_able = hasattr(signal, "setitimer")
        if self._is_able:
            signal.signal(signal.SIGALRM, self._ring)

    def call(self, timeout_s: float, key: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """`function(*args, **kwargs)`.

        Raises:
            TimeoutError: it took longer than `timeout_s`, which the config key `key` says.
        """
        if not self._is_able:
            return function(*args, **kwargs)
        self._text = f"it took longer than {key} = {timeout_s} s"
        signal.setitimer(signal.ITIMER_REAL, timeout_s)
        try:
            return function(*args, **kwargs)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _ring(self, signum: int, frame: Any) -> NoReturn:
        raise TimeoutError(self._text)
