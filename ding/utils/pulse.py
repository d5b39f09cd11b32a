"""The pulse of a long run: loops look at its time, and whoever shows the progress is called when that has come.

Loops of this package look at `PULSE.due` once a round, which costs as much as reading a clock, and no thread is needed:

    if perf_counter() > PULSE.due:
        PULSE.beat(steps)
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from time import perf_counter


class Pulse:
    """Calls one function each few seconds, from the loop that happens to run then.

    Attributes:
        due: when the function is called next, a time of `perf_counter`.
    """

    def __init__(self) -> None:
        self.due = inf
        self._period_s = inf
        self._beat: Callable[[int], None] | None = None

    def start(self, period_s: float, beat: Callable[[int], None]) -> None:
        """Call `beat(steps)` each `period_s` seconds from now, instead of the function of before."""
        self._beat, self._period_s = beat, period_s
        self.due = perf_counter() + period_s

    def stop(self, beat: Callable[[int], None]) -> None:
        """Stop calling `beat`."""
        if self._beat == beat:
            self._beat, self.due = None, inf

    def beat(self, steps: int = 0) -> None:
        """Call the function.

        Args:
            steps: env steps of the rollout that runs; 0 outside of rollouts.
        """
        self.due = perf_counter() + self._period_s
        if self._beat is not None:
            self._beat(steps)


PULSE = Pulse()
