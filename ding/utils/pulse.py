"""The pulse of a long run: a function, such as a display of the progress, that loops call when its time has come.

Loops of this package check `PULSE.due` once a round, which costs as much as reading a clock and needs no thread:

    if perf_counter() > PULSE.due:
        PULSE.beat(steps)
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from time import perf_counter


class Pulse:
    """Regular call of one function every few seconds, from whatever loop runs then.

    A run within a run, such as a training in `on_evaluation`, takes over the pulse until it ends.

    Attributes:
        due: the time of the next call, by `perf_counter`.
    """

    def __init__(self) -> None:
        self.due = inf
        self._started: list[tuple[float, Callable[[int], None]]] = []  # periods and functions, the last one is called

    def start(self, period_s: float, beat: Callable[[int], None]) -> None:
        """Call `beat(steps)` every `period_s` seconds from now on, instead of the earlier function."""
        self._started.append((period_s, beat))
        self._wait()

    def stop(self, beat: Callable[[int], None]) -> None:
        """Stop calling `beat`; the earlier function is called again, unless it was stopped."""
        for entry in list(self._started):  # in place: another thread may start or stop, too
            if entry[1] == beat:
                self._started.remove(entry)
        self._wait()

    def beat(self, steps: int = 0) -> None:
        """Call the function.

        Args:
            steps: the number of env steps of the current rollout; 0 outside of rollouts.
        """
        self._wait()
        for _, beat in self._started[-1:]:
            beat(steps)

    def _wait(self) -> None:
        self.due = min((perf_counter() + period_s for period_s, _ in self._started[-1:]), default=inf)


PULSE = Pulse()
