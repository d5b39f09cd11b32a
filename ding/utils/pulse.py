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

    A run within a run, such as a training that `on_evaluation` does, takes the pulse over until it ends.

    Attributes:
        due: when the function is called next, a time of `perf_counter`.
    """

    def __init__(self) -> None:
        self.due = inf
        self._started: list[tuple[float, Callable[[int], None]]] = []  # periods and functions, the last one is called

    def start(self, period_s: float, beat: Callable[[int], None]) -> None:
        """Call `beat(steps)` each `period_s` seconds from now, instead of the function of before."""
        self._started.append((period_s, beat))
        self._wait()

    def stop(self, beat: Callable[[int], None]) -> None:
        """Stop calling `beat`; the function of before is called again, if it was not stopped."""
        for entry in list(self._started):  # in place: another thread may start or stop, too
            if entry[1] == beat:
                self._started.remove(entry)
        self._wait()

    def beat(self, steps: int = 0) -> None:
        """Call the function.

        Args:
            steps: env steps of the rollout that runs; 0 outside of rollouts.
        """
        self._wait()
        for _, beat in self._started[-1:]:
            beat(steps)

    def _wait(self) -> None:
        self.due = min((perf_counter() + period_s for period_s, _ in self._started[-1:]), default=inf)


PULSE = Pulse()
