"""The state of a run: its counters and returns, how it ended, its learning curve, errors and rates."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from time import monotonic
from typing import Any

import numpy as np

# Rates are means over `_WINDOW_S` seconds, counted in spans of `_SPAN_S`.
_WINDOW_S, _SPAN_S = 5.0, 0.25
_MAX_ERRORS = 20
_MAX_ERROR_CHARS = 4000
# Beyond this number of evaluations, every second one between the first and the last is forgotten.
_MAX_EVALUATIONS = 500


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A point of the learning curve.

    Attributes:
        env_step: env steps of the collectors at its end.
        train_iter: iteration of the evaluated weights; of several players' weights the latest.
        seconds: seconds since the start of the run.
    """

    env_step: int
    train_iter: int
    mean_return: float
    seconds: float


@dataclass(frozen=True, slots=True)
class ErrorNote:
    """An error that was logged, `seconds` after the start of the run; a long text lacks its middle."""

    text: str
    seconds: float


class RecentRate:
    """A mean number per second over the last five seconds. Not thread-safe.

    Args:
        start: when counting begins, on the same clock as all other times.

    Example:
        >>> rate = RecentRate(start=0.0)
        >>> rate.add(10.0, 40), rate.add(14.0, 60), rate.per_s(14.5), rate.per_s(18.0)
        (None, None, 20.0, 12.0)
    """

    def __init__(self, start: float) -> None:
        self._start = start
        self._spans: deque[tuple[float, int]] = deque()

    def add(self, now: float, count: int) -> None:
        """Count `count` events at the time `now`."""
        if self._spans and now - self._spans[-1][0] < _SPAN_S:
            since, before = self._spans.pop()
            self._spans.append((since, before + count))
        else:
            self._spans.append((now, count))
        self._forget(now)

    def per_s(self, now: float) -> float:
        """The rate; before five seconds have passed, over the time so far, but at least one second."""
        self._forget(now)
        return sum(count for _, count in self._spans) / min(_WINDOW_S, max(1.0, now - self._start))

    def _forget(self, now: float) -> None:
        while self._spans and now - self._spans[0][0] >= _WINDOW_S:
            self._spans.popleft()


class RunHistory:
    """Keeps a bounded part of the events of a run for display. Thread-safe.

    Args:
        clock: returns seconds; their zero does not matter.

    Attributes:
        started_at: when the run began, as an ISO 8601 time in UTC.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.started_at = datetime.now(timezone.utc).isoformat(timespec="seconds")
        self._clock, self._start = clock, clock()
        self._end: float | None = None
        self._lock = threading.Lock()
        self._samples, self._updates = RecentRate(self._start), RecentRate(self._start)
        self._evaluations: list[Evaluation] = []
        self._errors: deque[ErrorNote] = deque(maxlen=_MAX_ERRORS)

    @property
    def seconds(self) -> float:
        """The duration of the run so far; constant after its end."""
        return self._now() - self._start

    def _now(self) -> float:
        end = self._end
        return self._clock() if end is None else end

    def add_samples(self, count: int) -> None:
        """Count pushed samples."""
        with self._lock:
            self._samples.add(self._now(), count)

    def add_updates(self, count: int) -> None:
        """Count iterations of the learner."""
        with self._lock:
            self._updates.add(self._now(), count)

    def rates(self) -> tuple[float, float]:
        """Samples and updates per second."""
        with self._lock:
            now = self._now()
            return self._samples.per_s(now), self._updates.per_s(now)

    def add_evaluation(self, env_step: int, train_iter: int, mean_return: float) -> None:
        """Append an evaluation to the learning curve."""
        with self._lock:
            self._evaluations.append(Evaluation(env_step, train_iter, mean_return, self.seconds))
            if len(self._evaluations) > _MAX_EVALUATIONS:
                del self._evaluations[1:-1:2]

    def evaluations(self) -> tuple[Evaluation, ...]:
        """The learning curve."""
        with self._lock:
            return tuple(self._evaluations)

    def add_error(self, text: str) -> None:
        """Keep an error."""
        if len(text) > _MAX_ERROR_CHARS:
            half = _MAX_ERROR_CHARS // 2
            text = f"{text[:half]}\n...\n{text[-half:]}"
        with self._lock:
            self._errors.append(ErrorNote(text, self.seconds))

    def errors(self) -> tuple[ErrorNote, ...]:
        """The last errors, newest last."""
        with self._lock:
            return tuple(self._errors)

    def state_dict(self) -> dict[str, Any]:
        """Start, duration, learning curve and errors of the run, as plain values."""
        with self._lock:
            return {
                "started_at": self.started_at,
                "seconds": self.seconds,
                "evaluations": [asdict(evaluation) for evaluation in self._evaluations],
                "errors": [asdict(error) for error in self._errors],
            }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume the run of a `state_dict`; the time between its end and this run does not count."""
        with self._lock:
            self.started_at = state["started_at"]
            self._start -= state["seconds"]
            before = state["seconds"]
            later = [replace(evaluation, seconds=evaluation.seconds + before) for evaluation in self._evaluations]
            self._evaluations = [*(Evaluation(**evaluation) for evaluation in state["evaluations"]), *later]
            own = [replace(error, seconds=error.seconds + before) for error in self._errors]
            self._errors = deque([*(ErrorNote(**error) for error in state["errors"]), *own], maxlen=_MAX_ERRORS)

    def end(self) -> None:
        """Stop the clock."""
        with self._lock:
            if self._end is None:
                self._end = self._clock()


class EnvSteps:
    """Counts the env steps of running and finished tasks; a task reports its own count repeatedly.

    One thread at a time may change it; any may read `total`, the steps of all tasks so far.

    Example:
        >>> steps = EnvSteps()
        >>> steps.report("a", 10)
        >>> steps.report("a", 25)
        >>> steps.report("b", 5)
        >>> steps.end("a", 30)
        >>> steps.total
        35
    """

    def __init__(self) -> None:
        self.total = 0
        self._running: dict[str, int] = {}

    def count_from(self, total: int) -> None:
        """Raise the total to `total`, if it is lower: the steps of a resumed run."""
        self.total = max(self.total, int(total))

    def report(self, task_id: str, steps: int) -> None:
        """A running task has made `steps` steps; a smaller number than before is out of date."""
        before = self._running.get(task_id, 0)
        self._running[task_id] = max(before, int(steps))
        self.total += self._running[task_id] - before

    def end(self, task_id: str, steps: int | None = None) -> None:
        """A task has ended after `steps` steps; None means its last report."""
        before = self._running.pop(task_id, 0)
        self.total += 0 if steps is None else int(steps) - before


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a run.

    Attributes:
        samples: samples pushed into the buffers so far.
        env_steps: env steps of the collectors so far, without those of evaluations.
        train_iter: iterations of the learner.
        policy_lag: iterations by which the policy of the newest samples is behind the learner.
        last_return, best_return: mean returns of evaluations; None before the first.
    """

    samples: int
    env_steps: int
    train_iter: int
    policy_lag: int
    last_return: float | None
    best_return: float | None


@dataclass(slots=True)
class _Counts:
    samples: int = 0
    train_iter: int = 0
    policy_iter: int = 0  # of the newest samples
    stalled_tasks: int = 0
    last_return: float | None = None
    best_return: float | None = None


class RunState:
    """Sums up the workers' reports, and ends the run at its limits. Thread-safe.

    The first end counts: neither a later success nor a later failure changes it.

    Args:
        max_env_step: the run ends as soon as collectors have made this number of env steps.

    Attributes:
        failure: the error that ended the run, or None.
        reason: why the run has ended, if it did not fail; "" until then.
        env_steps: the env steps of the collecting tasks.
        history: what is kept for display.

    Example:
        >>> state = RunState(max_env_step=100)
        >>> state.take_samples("task", 64, {"policy_iter": 3, "cur_step": 70})
        False
        >>> state.take_collector_info("task", {"cur_step": 100})
        True
        >>> state.end(), state.end(RuntimeError("too late")), state.failure
        (True, False, None)
    """

    def __init__(self, max_env_step: float = math.inf) -> None:
        self.failure: BaseException | None = None
        self.reason = ""
        self.env_steps = EnvSteps()
        self.history = RunHistory()
        self._max_env_step = max_env_step
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._counts = _Counts()
        self._has_learner_info = False

    @property
    def is_over(self) -> bool:
        """Whether the run has ended."""
        return self._over.is_set()

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until the run has ended; returns False if `timeout_s` has passed first."""
        return self._over.wait(timeout_s)

    def end(self, failure: BaseException | None = None, reason: str = "") -> bool:
        """End the run; returns False if it has already ended."""
        with self._lock:
            if self._over.is_set():
                return False
            self.failure, self.reason = failure, reason
            self.history.end()
            self._over.set()
            return True

    @property
    def stalled_tasks(self) -> int:
        """The number of tasks that were abandoned because they made no progress."""
        return self._counts.stalled_tasks

    def count_stalled_task(self) -> None:
        """Count a task that was abandoned because it made no progress."""
        with self._lock:
            self._counts.stalled_tasks += 1

    def progress(self) -> Progress:
        """The progress of the run."""
        with self._lock:
            counts, steps = self._counts, self.env_steps.total
            lag = max(0, counts.train_iter - counts.policy_iter)
            return Progress(counts.samples, steps, counts.train_iter, lag, counts.last_return, counts.best_return)

    def state_dict(self) -> dict[str, Any]:
        """The counters, the returns and the history, as plain values."""
        with self._lock:
            return {
                **asdict(self._counts),
                "env_steps": self.env_steps.total,
                "history": self.history.state_dict(),
            }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume the run of a `state_dict`; no counter decreases."""
        with self._lock:
            counts = self._counts
            for name in ("samples", "train_iter", "policy_iter"):
                setattr(counts, name, max(getattr(counts, name), state[name]))
            self.env_steps.count_from(state["env_steps"])
            counts.stalled_tasks += state.get("stalled_tasks", 0)  # missing in older files
            if counts.last_return is None:
                counts.last_return = state["last_return"]
            returns = [value for value in (counts.best_return, state["best_return"]) if value is not None]
            counts.best_return = max(returns, default=None)
            self.history.load_state_dict(state["history"])

    def take_samples(self, task_id: str, count: int, newest: Mapping[str, Any]) -> bool:
        """Count pushed samples, `newest` being the last; returns whether that ends the run."""
        with self._lock:
            self._counts.samples += count
            self.history.add_samples(count)
            self._counts.policy_iter = max(self._counts.policy_iter, _newest_iter(newest.get("policy_iter")))
            return self._count_steps(task_id, newest)

    def take_collector_info(self, task_id: str, info: Mapping[str, Any]) -> bool:
        """Take the progress of a collector; returns whether that ends the run."""
        with self._lock:
            return self._count_steps(task_id, info)

    def take_collector_end(self, task_id: str, finished_task: Mapping[str, Any]) -> bool:
        """Take the result of a collector task; returns whether that ends the run."""
        with self._lock:
            if not finished_task.get("eval_flag"):
                self.env_steps.end(task_id, finished_task.get("step_count"))
                return self._has_enough()
            if finished_task.get("reward_mean") is not None and finished_task.get("real_episode_count", 1):
                value, best = float(finished_task["reward_mean"]), self._counts.best_return
                self._counts.last_return = value
                self._counts.best_return = value if best is None else max(best, value)
                train_iter = _newest_iter(finished_task.get("train_iter"))
                self.history.add_evaluation(self.env_steps.total, train_iter, value)
            return False

    def drop_collector(self, task_id: str) -> None:
        """Forget a collector task that was abandoned; its steps still count."""
        with self._lock:
            self.env_steps.end(task_id)

    def take_learner_info(self, info: Mapping[str, Any]) -> bool:
        """Take the report of a learner's iteration; returns whether it is the first one."""
        with self._lock:
            is_first, self._has_learner_info = not self._has_learner_info, True
            before = self._counts.train_iter
            self._counts.train_iter = max(before, int(info.get("learner_step", 0)) + 1)
            self.history.add_updates(1 if is_first else self._counts.train_iter - before)  # it may begin with any
            return is_first

    def _count_steps(self, task_id: str, report: Mapping[str, Any]) -> bool:
        if report.get("eval_flag") or report.get("cur_step") is None:
            return False
        self.env_steps.report(task_id, report["cur_step"])
        return self._has_enough()

    def _has_enough(self) -> bool:
        return not self._over.is_set() and self.env_steps.total >= self._max_env_step


def _newest_iter(policy_iter: Any) -> int:
    """The iteration of a policy; the latest of several players' policies; 0 if missing."""
    return 0 if policy_iter is None else int(np.max(policy_iter))
