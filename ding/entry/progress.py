"""What a run prints: a live line, a table for each evaluation, and the outcome."""

from __future__ import annotations

import logging
import math
import os
import shlex
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ding.entry.checks import UNLIMITED
from ding.entry.run_folder import write_readme
from ding.utils.log_helper import only_shows
from ding.utils.time_helper import PULSE

if TYPE_CHECKING:
    from ding.worker.coordinator.run_monitor import Progress


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


# Minimum seconds between two updates of a live line.
_REFRESH_S = 0.25
# Seconds between two lines of progress where there is no terminal.
_LINE_S = 30.0
# Seconds over which the rates of a serial run are averaged, as evaluations interrupt the counts.
_LONG_S = 30.0


class _Display:
    """What a run prints: what is trained, a table for each evaluation, the outcome, and a line with the progress.

    The line is updated on a terminal, and printed from time to time elsewhere.

    Args:
        limits: the budgets of env steps and iterations. The time left is shown only if there is a budget.
        enabled: whether to print; False on ranks other than 0.

    Attributes:
        env_steps_before: the env steps of a resumed run when it was resumed, which took none of this run's time.
    """

    def __init__(self, limits: tuple[int, int], enabled: bool = True) -> None:
        self.enabled = enabled
        self.best = -math.inf
        self.env_steps_before = 0
        self._start_s = self._shown_s = time.perf_counter()
        self._limits = limits
        self._bar: Any = _bar(bar_format="{desc}") if enabled and _is_terminal() else None

    def say(self, text: str) -> None:
        """Print a line."""
        if self.enabled:
            say(text)

    def begin(self, policy: str, env: str, seed: int, exp_name: str) -> None:
        """Print what is trained and the folder of its files, and write a README there."""
        self._start_s = time.perf_counter()
        if self.enabled:
            write_readme(exp_name)
        self.say(f"Training {policy} on {env} with seed {seed}. Files: {_place(exp_name)}")

    def row(
        self,
        train_iter: int | None,
        env_steps: int,
        mean_return: float,
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
        if not math.isnan(mean_return):
            self.best = max(self.best, mean_return)
        seconds = time.perf_counter() - self._start_s
        new_steps = env_steps - self.env_steps_before
        eval_ = {
            "ep_len_mean": mean_length,
            "ep_rew_mean": mean_return,
            "best": "-" if self.best == -math.inf else self.best,
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

    def _write_line(
        self, now_s: float, shown: Sequence[str], counts: Sequence[int], rates: Sequence[float], doing: str = ""
    ) -> None:
        """Show the texts in `shown`, the time until the first of the limits, and what the run is doing."""
        self._shown_s = now_s
        budgets = zip(self._limits, counts, rates, strict=True)
        left = [(limit - count) / rate for limit, count, rate in budgets if limit < UNLIMITED and rate > 0]
        text = ", ".join([*shown, *([f"{_duration(min(left))} left"] if left else [])]) + doing
        if self._bar is None:
            self.say(f"After {_duration(now_s - self._start_s)}: {text}")
            return
        with only_shows("updating the progress line"):
            self._bar.set_description_str(text)

    def close(self) -> None:
        """End the line. Further calls do nothing."""
        if self._bar is not None:
            with only_shows("closing the progress line"):
                self._bar.close()
            self._bar = None


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


class ProgressLine(_Display):
    """A live line with iterations, env steps, their rate, the last and the best return, and the time left.

    On a terminal the line is updated at most a few times a second, elsewhere a line is printed every 30 s. This also
    happens within a long collection, update phase or evaluation, whose loops beat the `PULSE`.

    Args:
        max_env_step: the budget of env steps.
        enabled: whether to print anything.
        max_train_iter: the budget of iterations. The time left is shown only if there is a budget.
    """

    def __init__(self, max_env_step: int = UNLIMITED, enabled: bool = True, max_train_iter: int = UNLIMITED) -> None:
        super().__init__((max_env_step, max_train_iter), enabled)
        self._period_s = math.inf if not enabled else _LINE_S if self._bar is None else _REFRESH_S
        if self._bar is not None:
            self._shown_s = -math.inf
        self._rates = _Rate(_LONG_S), _Rate(_LONG_S)
        self._counts = 0, 0
        self._last: float | None = None
        self._is_evaluating = False
        self._count: Callable[[], tuple[int, int]] = lambda: self._counts

    def watch(self, count: Callable[[], tuple[int, int]]) -> None:
        """Call `count` for the env steps and the iterations so far whenever the progress is shown within a round."""
        self._count, self._counts = count, count()
        for rate, number in zip(self._rates, self._counts, strict=True):
            rate.at(time.perf_counter(), number)
        PULSE.start(self._period_s, self._beat)

    def advance(self, envstep: int, train_iter: int) -> None:
        """Update the totals."""
        self._counts = envstep, train_iter
        now_s = time.perf_counter()
        if now_s - self._shown_s >= self._period_s:
            self._show(now_s)

    def _beat(self, steps: int) -> None:
        """Show the progress within a round.

        Args:
            steps: env steps of the running rollout; 0 if none runs.
        """
        before, self._counts = self._counts, self._count()
        doing = "evaluating" if self._is_evaluating else "collecting"
        is_long = steps and self._counts == before
        self._show(time.perf_counter(), f"; {doing}, {steps} steps so far" if is_long else "")

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Show within the `with` block that the run evaluates."""
        self._is_evaluating = True
        try:
            yield
        finally:
            self._is_evaluating = False

    def evaluated(
        self,
        mean_return: float,
        train_iter: int,
        env_steps: int,
        mean_length: float | None = None,
        train: Mapping[str, float] | None = None,
        success_rate: float | None = None,
    ) -> None:
        """Print an evaluation; see `row`."""
        self.row(train_iter, env_steps, mean_return, mean_length, train, success_rate)
        self._last = mean_return
        if self._bar is not None:
            self._counts = env_steps, train_iter
            self._show(time.perf_counter())

    def _show(self, now_s: float, doing: str = "") -> None:
        rates = [rate.at(now_s, count) for rate, count in zip(self._rates, self._counts, strict=True)]
        (max_env_step, max_train_iter), (env_steps, train_iter) = self._limits, self._counts
        shown = [f"iteration {_of(train_iter, max_train_iter)}"]
        if env_steps:
            shown += [f"env step {_of(env_steps, max_env_step)}", f"{rates[0]:.0f} steps/s"]
        else:
            shown.append(f"{rates[1]:.0f} iterations/s")
        shown.append(f"return {_shown(self._last)} (best {_shown(None if self.best == -math.inf else self.best)})")
        self._write_line(now_s, shown, self._counts, rates, doing)

    def close(self) -> None:
        """Show the final counts and end the line. Further calls do nothing."""
        PULSE.stop(self._beat)
        if self._bar is not None:
            self._show(time.perf_counter())
        super().close()


def _of(count: int, limit: int) -> str:
    return f"{count}/{limit}" if limit < UNLIMITED else str(count)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(max(int(seconds), 0), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"


def _is_terminal() -> bool:
    """Return whether standard error is a terminal; it may be missing, or be replaced by an object that is closed."""
    try:
        return bool(sys.stderr.isatty())
    except (AttributeError, ValueError):
        return False


def _bar(**kwargs: Any) -> Any:
    from tqdm import tqdm

    class Bar(tqdm):  # type: ignore[type-arg]
        monitor_interval = 0  # no watching thread

    return Bar(dynamic_ncols=True, **kwargs)


class ParallelProgressLine(_Display):
    """A live line with samples and updates per second, the policy lag, the last and best return, and the time left.

    Without a terminal, a line is printed every 30 s.

    Args:
        max_env_step, max_train_iter: the budgets.
    """

    def __init__(self, max_env_step: int = UNLIMITED, max_train_iter: int = UNLIMITED) -> None:
        super().__init__((max_env_step, max_train_iter))
        self._steps, self._samples, self._updates = _Rate(_LONG_S), _Rate(), _Rate()

    def show(self, progress: Progress) -> None:
        """Show the progress of a run."""
        now_s = time.perf_counter()
        samples, updates = self._samples.at(now_s, progress.samples), self._updates.at(now_s, progress.train_iter)
        steps = self._steps.at(now_s, progress.env_steps)
        if self._bar is None and now_s - self._shown_s < _LINE_S:
            return
        text = (
            f"{progress.env_steps} steps, {samples:.0f} samples/s, {progress.train_iter} iter, "
            f"{updates:.0f} updates/s, policy lag {progress.policy_lag}, return {_shown(progress.last_return)}, "
            f"best {_shown(progress.best_return)}"
        )
        self._write_line(now_s, [text], (progress.env_steps, progress.train_iter), (steps, updates))


def _shown(mean_return: float | None) -> str:
    return "-" if mean_return is None else f"{mean_return:.1f}"


class _Rate:
    """The rate of a count over about the last `memory_s` seconds."""

    def __init__(self, memory_s: float = 3.0) -> None:
        self._memory_s = memory_s
        self._seen: deque[tuple[float, int]] = deque()

    def at(self, now_s: float, count: int) -> float:
        """Add the count at the time `now_s`, and return the rate per second."""
        self._seen.append((now_s, count))
        while len(self._seen) > 2 and now_s - self._seen[1][0] > self._memory_s:
            self._seen.popleft()
        first_s, first = self._seen[0]
        return (count - first) / (now_s - first_s) if now_s > first_s else 0.0
