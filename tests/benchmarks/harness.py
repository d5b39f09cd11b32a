"""What the benchmarks share: programs that take turns, one JSON line a measure, and an exit status for the goals.

Programs take turns, so that whatever else the machine does slows each of them alike.
"""

import json
import logging
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import torch

Work = Callable[[], int]  # does a part of its work and returns how many units it did


def medians(runs: Mapping[str, Callable[[], float]], turns: int, warm_ups: int = 0) -> dict[str, float | None]:
    """Return the median of what each returned in its turns; None for a peer whose library is not installed.

    Args:
        runs: by name; what is measured.
        turns: the number of measured turns of each.
        warm_ups: the number of turns before them, which do not count.
    """
    found: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(warm_ups + turns):
        for name, run in runs.items():
            try:
                found[name].append(run())
            except ImportError:
                continue
    return {name: statistics.median(values[warm_ups:]) if values else None for name, values in found.items()}


def rates(works: Mapping[str, Work], turns: int = 41, turn_s: float = 0.1) -> dict[str, float | None]:
    """Return the median units a second of each, in turns of at least `turn_s` seconds."""

    def rate(work: Work) -> float:
        count, start = 0, time.perf_counter()
        while True:
            count += work()
            elapsed_s = time.perf_counter() - start
            if elapsed_s >= turn_s:
                return count / elapsed_s

    return medians({name: lambda work=work: rate(work) for name, work in works.items()}, turns, warm_ups=1)


def milliseconds(call: Callable[[], Any], times: int) -> float:
    """Return how long one of so many calls takes."""
    start = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - start) / times * 1e3


def in_new_process(function: Callable[..., float], *args: Any) -> float:
    """Return what `function` returns in a process of its own.

    Memory that another call has given back could hide what this one takes.
    """
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(function, *args).result()


class Report:
    """Prints a line for each measure: ours, the peer's or floor's figure, their ratio, the goal for the ratio."""

    def __init__(self) -> None:
        self._met = True

    def line(
        self,
        what: str,
        unit: str,
        ours: float | None,
        against: str,
        theirs: float | None,
        *,
        at_most: float | None = None,
        at_least: float | None = None,
    ) -> None:
        """One measure. A figure is None where a package for it is not installed; then the goal counts as missed."""
        ratio = None if ours is None or theirs is None else ours / theirs
        met = ratio is not None and (at_most is None or ratio <= at_most) and (at_least is None or ratio >= at_least)
        self._met = self._met and met
        goal = f"<= {at_most}" if at_most is not None else f">= {at_least}"
        values: dict[str, Any] = {
            "what": what, "unit": unit, "ours": _short(ours), against: _short(theirs), "ratio": _short(ratio),
            "goal": goal, "met": met,
        }  # fmt: skip
        print(json.dumps(values), flush=True)

    def exit_status(self) -> int:
        """0 when every goal was met."""
        return 0 if self._met else 1


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


def run(measure: Callable[[Report], None]) -> int:
    """Measure with one thread, without log and in a folder that goes; return the exit status."""
    torch.set_num_threads(1)
    logging.getLogger("ding").setLevel(logging.ERROR)
    report = Report()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        measure(report)
        os.chdir("/")
    return report.exit_status()
