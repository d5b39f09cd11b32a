"""What a run prints: a live line, a table for each evaluation, and the outcome."""

from __future__ import annotations

import logging
import math
import os
import shlex
import sys
import time
from collections.abc import Mapping
from typing import Any

from ding.entry.checks import UNLIMITED
from ding.utils.log_helper import only_shows

# Writes progress to standard error; `logging.getLogger("ding.progress").setLevel("WARNING")` silences it.
_logger = logging.getLogger("ding.progress")


class _Lines(logging.Handler):
    """A log handler that writes to the current `sys.stderr`, above the live line."""

    def emit(self, record: logging.LogRecord) -> None:
        with only_shows("writing the progress to standard error"):
            text = self.format(record)
            if "tqdm" in sys.modules:
                sys.modules["tqdm"].tqdm.write(text, file=sys.stderr)
            else:
                sys.stderr.write(f"{text}\n")


def say(text: str) -> None:
    """Print a line of progress."""
    if not _logger.handlers:
        _logger.addHandler(_Lines())
        _logger.propagate = False
    if _logger.level == logging.NOTSET:
        _logger.setLevel(logging.INFO)
    _logger.info("%s", text)


_REFRESH_S = 0.25  # minimum seconds between two updates of a live line


class ProgressLine:
    """What a run prints: what is trained, a table for each evaluation, the outcome, and on a terminal a live line.

    Args:
        max_env_step: the budget of env steps.
        enabled: whether to print anything; False on ranks other than 0.
        max_train_iter: the budget of iterations, which the line counts if there is none of env steps.

    Attributes:
        env_steps_before: the env steps of a resumed run when it was resumed, which took none of this run's time.
    """

    def __init__(self, max_env_step: int = UNLIMITED, enabled: bool = True, max_train_iter: int = UNLIMITED) -> None:
        self.env_steps_before = 0
        self._is_enabled = enabled
        self._counts_steps = max_env_step < UNLIMITED
        limit = max_env_step if self._counts_steps else max_train_iter
        unit = " steps" if self._counts_steps else " iterations"
        self._last: float | None = None
        self._best: float | None = None
        self._bar: Any = _bar(limit if limit < UNLIMITED else None, unit) if enabled and _is_terminal() else None
        self._start_s = time.perf_counter()

    def say(self, text: str) -> None:
        """Print a line."""
        if self._is_enabled:
            say(text)

    def begin(self, policy: str, env: str, seed: int, exp_name: str) -> None:
        """Print what is trained and the folder of its files."""
        self._start_s = time.perf_counter()
        self.say(f"Training {policy} on {env} with seed {seed}. Files: {_place(exp_name)}")

    def advance(self, envstep: int, train_iter: int, further: str = "") -> None:
        """Update the totals, and what the line says besides."""
        if self._bar is None:
            return
        texts = [f"iteration {train_iter}", f"env step {envstep}", further]
        texts.append(f"return {_shown(self._last)} (best {_shown(self._best)})")
        with only_shows("updating the progress line"):
            self._bar.set_postfix_str(", ".join(filter(None, texts)), refresh=False)
            self._bar.update((envstep if self._counts_steps else train_iter) - self._bar.n)

    def evaluated(
        self,
        mean_return: float,
        train_iter: int | None,
        env_steps: int,
        mean_length: float | None = None,
        train: Mapping[str, float] | None = None,
        success_rate: float | None = None,
    ) -> None:
        """Print an evaluation as a table.

        Args:
            train_iter: the iteration; None prints `-`.
            mean_length: the mean number of env steps of an episode; None to leave it out.
            train: the averages of the learner by name.
            success_rate: the share of successful episodes; None to leave it out.
        """
        self._last = mean_return
        if not math.isnan(mean_return):
            self._best = mean_return if self._best is None else max(self._best, mean_return)
        seconds = time.perf_counter() - self._start_s
        new_steps = env_steps - self.env_steps_before
        eval_ = {
            "ep_len_mean": mean_length,
            "ep_rew_mean": mean_return,
            "best": "-" if self._best is None else self._best,
            "success_rate": success_rate,
        }
        time_ = {
            "iteration": "-" if train_iter is None else train_iter,
            "env_steps": env_steps,
            "steps_per_s": int(new_steps / seconds) if new_steps and seconds > 0 else "-",
            "seconds": int(seconds),
        }
        self.say(_table({"eval": eval_, "time": time_, "train": train or {}}))

    def finish(
        self,
        stop: bool,
        goal: float,
        train_iter: int,
        env_steps: int,
        mean_return: float,
        exp_name: str,
        evaluated_iter: int | None = None,
    ) -> None:
        """End the line, and print the outcome and the command that plots the learning curve.

        Args:
            evaluated_iter: the iteration of the evaluated weights; None for the last one.
        """
        self.close()
        seconds = time.perf_counter() - self._start_s
        reached = "-" if math.isnan(mean_return) else f"{mean_return:.1f}"
        if evaluated_iter not in (None, train_iter):
            reached = f"{reached} at iteration {evaluated_iter}"
        has_goal = stop or goal < UNLIMITED
        self.say(
            f"{'Solved' if stop else 'Over'}: mean return {reached}{f' (goal {goal:g})' if has_goal else ''} "
            f"after {env_steps} env steps, {train_iter} iterations and {seconds:.1f} s. "
            f"Files: {_place(exp_name)}. Learning curve: ding plot {shlex.quote(exp_name)}"
        )

    def close(self) -> None:
        """Show the final counts and end the line. Further calls do nothing."""
        bar, self._bar = self._bar, None
        if bar is not None:
            with only_shows("closing the progress line"):
                bar.close()


def _table(sections: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a table of values by section and name, without None values and empty sections."""
    rows: list[tuple[str, str]] = []
    for section, values in sections.items():
        cells = [
            (f"   {' '.join(name.splitlines())}", _cell(value)) for name, value in values.items() if value is not None
        ]
        rows += [(f"{section}/", ""), *cells] if cells else []
    left, right = (max(map(len, column)) for column in zip(*rows, strict=True))
    rule = "-" * (left + right + 7)
    return "\n".join([rule, *(f"| {name:<{left}} | {cell:<{right}} |" for name, cell in rows), rule])


def _cell(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.1f}" if 100 <= abs(value) < 1e7 else f"{value:.3g}"


def _place(exp_name: str) -> str:
    return exp_name if os.path.isabs(exp_name) else os.path.join(".", exp_name)


def _is_terminal() -> bool:
    """Return whether standard error is a terminal; it may be missing, or be replaced by an object that is closed."""
    try:
        return bool(sys.stderr.isatty())
    except (AttributeError, ValueError):
        return False


def _bar(total: int | None, unit: str) -> Any:
    from tqdm import tqdm

    class Bar(tqdm):  # type: ignore[type-arg]
        monitor_interval = 0  # no watching thread

    return Bar(total=total, unit=unit, dynamic_ncols=True, mininterval=_REFRESH_S)


def _shown(mean_return: float | None) -> str:
    return "-" if mean_return is None else f"{mean_return:.1f}"
