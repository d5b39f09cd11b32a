"""Rates of programs that take turns, so that whatever else the machine does slows each of them alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

Work = Callable[[], int]  # does a part of its work and returns how many units it did


def rates(works: Mapping[str, Work | None], turns: int = 41, turn_s: float = 0.1) -> dict[str, float | None]:
    """Return the median units a second of each; None stays None.

    Args:
        works: by name; each is called once before the first turn.
        turns: the number of measured turns of each.
        turn_s: the least seconds of a turn.
    """
    found: dict[str, list[float]] = {name: [] for name, work in works.items() if work is not None}
    for turn in range(turns + 1):
        for name, work in works.items():
            if work is not None:
                rate = _rate(work, turn_s if turn else 0.0)
                found[name] += [rate] if turn else []
    return {name: statistics.median(found[name]) if name in found else None for name in works}


def _rate(work: Work, turn_s: float) -> float:
    count, start = 0, time.perf_counter()
    while True:
        count += work()
        elapsed_s = time.perf_counter() - start
        if elapsed_s >= turn_s:
            return count / elapsed_s
