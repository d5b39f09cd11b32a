"""The monitor of a run: its counters and returns, how it ended, its learning curve, errors and rates."""

from __future__ import annotations

import math
import threading
import traceback
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from time import monotonic
from typing import Any

import numpy as np

from ding.worker.transport.transport import TaskFailed, WorkerLost

_WINDOW_S = 5.0  # rates are means over so many seconds
_MAX_ERRORS = 20
_MAX_ERROR_CHARS = 4000
# Beyond this number of evaluations, every second one between the first and the last is forgotten.
_MAX_EVALUATIONS = 500
# Beyond this number of marks of env steps, every second one is forgotten.
_MAX_MARKS = 10_000
# The names, in a state, of the counters, which only grow.
_COUNTERS = ("samples", "train_iter", "policy_iter")


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A point of the learning curve.

    Attributes:
        env_step: env steps of the collectors when the learner had made the weights.
        train_iter: iteration of the evaluated weights; the latest one for several players.
        seconds: seconds since the start of the run.
    """

    env_step: int
    train_iter: int
    mean_return: float
    seconds: float


@dataclass(frozen=True, slots=True)
class ErrorNote:
    """An error that was logged, `seconds` after the start of the run; a long text is cut in the middle."""

    text: str
    seconds: float


class RecentRate:
    """A number of events per second, the mean over the last five seconds. This class is not thread-safe.

    Args:
        start: when counting begins, in seconds on the same clock as all other times.

    Example:
        >>> rate = RecentRate(start=0.0)
        >>> rate.add(10.0, 40), rate.add(14.0, 60), rate.per_s(14.5), rate.per_s(18.0)
        (None, None, 20.0, 12.0)
    """

    def __init__(self, start: float) -> None:
        self._start = start
        self._counts: deque[tuple[float, int]] = deque()  # times and numbers

    def add(self, now: float, count: int) -> None:
        """Count `count` events at the time `now`."""
        self._counts.append((now, count))
        while now - self._counts[0][0] >= _WINDOW_S:
            self._counts.popleft()

    def per_s(self, now: float) -> float:
        """Return the rate; in the first five seconds, it is the rate over the time so far, but at least one second."""
        recent = sum(count for since, count in self._counts if now - since < _WINDOW_S)
        return float(recent / min(_WINDOW_S, max(1.0, now - self._start)))


class EnvSteps:
    """The count of the env steps of running and finished tasks; a task reports its own count repeatedly.

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

    def report(self, task_id: str, steps: int) -> None:
        """Note that a running task has made `steps` steps; a smaller number than before is out of date."""
        before = self._running.get(task_id, 0)
        self._running[task_id] = max(before, int(steps))
        self.total += self._running[task_id] - before

    def end(self, task_id: str, steps: int | None = None) -> None:
        """Note that a task has ended after `steps` steps; None stands for its last report."""
        before = self._running.pop(task_id, 0)
        self.total += 0 if steps is None else int(steps) - before


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a run.

    Attributes:
        samples: samples pushed into the buffers so far.
        env_steps: env steps of the collectors so far, without those of evaluations.
        train_iter: iterations of the learner.
        policy_lag: iterations by which the policy that made the newest samples is behind the learner.
        last_return, best_return: mean returns of evaluations; None before the first.
    """

    samples: int
    env_steps: int
    train_iter: int
    policy_lag: int
    last_return: float | None
    best_return: float | None


@dataclass(frozen=True, slots=True)
class RunReport:
    """The report of a `RunMonitor` about a run.

    Attributes:
        started_at: time of the start, ISO 8601 in UTC.
        seconds: duration, up to the end of the run if it is over.
        is_over: whether the run has ended.
        reason: why it has ended, with the traceback of a failure; None while it runs.
        samples_per_s, updates_per_s: means over the last five seconds.
        stalled_tasks: number of tasks that were abandoned because they made no progress.
        evaluations: the learning curve, thinned out if it is very long.
        errors: the last errors, newest last.
    """

    started_at: str
    seconds: float
    is_over: bool
    is_failed: bool
    reason: str | None
    progress: Progress
    samples_per_s: float
    updates_per_s: float
    stalled_tasks: int
    evaluations: tuple[Evaluation, ...]
    errors: tuple[ErrorNote, ...]


def failure_text(error: BaseException) -> str:
    """Return the text for the failure of a run: the worker's traceback if it failed there, otherwise the local one."""
    if isinstance(error, (TaskFailed, WorkerLost)):
        return str(error)
    return "".join(traceback.format_exception(type(error), error, error.__traceback__))


class RunMonitor:
    """The monitor of a run, which sums up the workers' reports, and ends the run at its limits.

    This class is thread-safe.

    The first end counts: neither a later success nor a later failure changes it. The clock stops at the end.

    Args:
        max_env_step: the run ends as soon as collectors have made this number of env steps.
        clock: returns the seconds since any fixed time.
        tell: called with the line to log when the run ends at that limit.

    Attributes:
        failure: the error that ended the run, or None.
        reason: why the run has ended, if it did not fail; "" until then.
        env_steps: the env steps of the collecting tasks.

    Example:
        >>> monitor = RunMonitor(max_env_step=100)
        >>> monitor.take_samples("task", 64, {"policy_iter": 3, "cur_step": 70})
        >>> monitor.is_over, monitor.take_collector_info("task", {"cur_step": 100}), monitor.is_over
        (False, None, True)
        >>> monitor.end(RuntimeError("too late")), monitor.failure, monitor.reason
        (False, None, 'max_env_step is reached')
    """

    def __init__(
        self,
        max_env_step: float = math.inf,
        clock: Callable[[], float] = monotonic,
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.failure: BaseException | None = None
        self.reason = ""
        self.env_steps = EnvSteps()
        self._max_env_step, self._clock, self._tell = max_env_step, clock, tell
        self._started_at = datetime.now(timezone.utc).isoformat(timespec="seconds")
        self._start, self._end = clock(), math.inf
        self._lock = threading.RLock()
        self._over = threading.Event()
        self._samples = self._train_iter = self._stalled_tasks = 0
        self._policy_iter = 0  # the iteration of the newest samples
        self._best_return: float | None = None
        self._evaluations: list[Evaluation] = []
        self._errors: deque[ErrorNote] = deque(maxlen=_MAX_ERRORS)
        self._marks = [(0, 0)]  # iterations of the learner, and the env steps when it reported them
        self._sample_rate, self._update_rate = RecentRate(self._start), RecentRate(self._start)
        self._has_learner_info = False

    @property
    def is_over(self) -> bool:
        """Whether the run has ended."""
        return self._over.is_set()

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until the run has ended; return False if `timeout_s` has passed first."""
        return self._over.wait(timeout_s)

    def end(self, failure: BaseException | None = None, reason: str = "") -> bool:
        """End the run; return False if it has already ended."""
        with self._lock:
            if self._over.is_set():
                return False
            self.failure, self.reason = failure, reason
            self._end = self._clock()
            self._over.set()
            return True

    def progress(self) -> Progress:
        """Return the progress of the run."""
        with self._lock:
            return Progress(
                samples=self._samples,
                env_steps=self.env_steps.total,
                train_iter=self._train_iter,
                policy_lag=max(0, self._train_iter - self._policy_iter),
                last_return=self._evaluations[-1].mean_return if self._evaluations else None,
                best_return=self._best_return,
            )

    def report(self, is_closed: bool = False) -> RunReport:
        """Return a report of the run; `is_closed` says that the run was closed, perhaps before its end."""
        with self._lock:
            now, reason = self._now(), self.reason
            if self.failure is not None:
                reason = failure_text(self.failure)
            elif is_closed and not self.is_over:
                reason = "it was closed"
            return RunReport(
                started_at=self._started_at,
                seconds=now - self._start,
                is_over=self.is_over or is_closed,
                is_failed=self.failure is not None,
                reason=reason if self.is_over or is_closed else None,
                progress=self.progress(),
                samples_per_s=self._sample_rate.per_s(now),
                updates_per_s=self._update_rate.per_s(now),
                stalled_tasks=self._stalled_tasks,
                evaluations=tuple(self._evaluations),
                errors=tuple(self._errors),
            )

    def _now(self) -> float:
        return min(self._clock(), self._end)

    # The run as a state that another monitor can resume.

    def state_dict(self) -> dict[str, Any]:
        """Return the counters, the returns, the learning curve and the errors, as plain values."""
        with self._lock:
            return {
                **{name: getattr(self, f"_{name}") for name in (*_COUNTERS, "stalled_tasks", "best_return")},
                "env_steps": self.env_steps.total,
                "started_at": self._started_at,
                "seconds": self._now() - self._start,
                "evaluations": [asdict(evaluation) for evaluation in self._evaluations],
                "errors": [asdict(error) for error in self._errors],
            }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume the run of a `state_dict`, before anything else is reported; the time since then does not count."""
        with self._lock:
            for name in (*_COUNTERS, "stalled_tasks", "best_return", "started_at"):
                setattr(self, f"_{name}", state[name])
            self.env_steps.total = state["env_steps"]
            self._marks = [(0, state["env_steps"])]
            self._start -= state["seconds"]
            self._evaluations = [Evaluation(**point) for point in state["evaluations"]]
            self._errors.extend(ErrorNote(**error) for error in state["errors"])

    # Reports of the workers, and what the coordinator notes.

    def take_samples(self, task_id: str, count: int, newest: Mapping[str, Any]) -> None:
        """Count pushed samples, `newest` being the last."""
        with self._lock:
            self._samples += count
            self._sample_rate.add(self._now(), count)
            self._policy_iter = max(self._policy_iter, _newest_iter(newest.get("policy_iter")))
            self.take_collector_info(task_id, newest)

    def take_collector_info(self, task_id: str, info: Mapping[str, Any]) -> None:
        """Note the progress of a collector."""
        if info.get("cur_step") is None or info.get("eval_flag"):
            return
        with self._lock:
            self.env_steps.report(task_id, info["cur_step"])
            self._check_limit()

    def take_collector_end(self, task_id: str, finished_task: Mapping[str, Any]) -> None:
        """Note the result of a collector task."""
        with self._lock:
            if not finished_task.get("eval_flag"):
                self.env_steps.end(task_id, finished_task.get("step_count"))
                self._check_limit()
            elif finished_task.get("reward_mean") is not None and finished_task.get("real_episode_count", 1):
                train_iter = _newest_iter(finished_task.get("train_iter"))
                env_step = finished_task.get("env_step", self.env_steps.total)
                self.add_evaluation(env_step, train_iter, float(finished_task["reward_mean"]))

    def add_evaluation(self, env_step: int, train_iter: int, mean_return: float) -> None:
        """Append an evaluation to the learning curve."""
        with self._lock:
            best = self._best_return
            self._best_return = mean_return if best is None else max(mean_return, best)
            self._evaluations.append(Evaluation(env_step, train_iter, mean_return, self._now() - self._start))
            if len(self._evaluations) > _MAX_EVALUATIONS:
                del self._evaluations[1:-1:2]

    def drop_collector(self, task_id: str) -> None:
        """Forget a collector task that was abandoned; its steps still count."""
        with self._lock:
            self.env_steps.end(task_id)

    def take_learner_info(self, info: Mapping[str, Any]) -> bool:
        """Note the report of a learner's iteration; return whether it is the first one."""
        with self._lock:
            is_first, self._has_learner_info = not self._has_learner_info, True
            before, self._train_iter = self._train_iter, max(self._train_iter, int(info.get("learner_step", 0)) + 1)
            self._update_rate.add(self._now(), 1 if is_first else self._train_iter - before)  # it may begin with any
            if self.env_steps.total > self._marks[-1][1]:
                self._marks.append((self._train_iter, self.env_steps.total))
                if len(self._marks) > _MAX_MARKS:
                    del self._marks[1:-1:2]
            return is_first

    def env_steps_at(self, train_iter: Any) -> int:
        """Return the env steps when the learner reached this iteration, or the latest one for several players."""
        with self._lock:
            index = bisect_right(self._marks, _newest_iter(train_iter), key=lambda mark: mark[0])
            return self._marks[max(0, index - 1)][1]

    def count_stalled_task(self) -> None:
        """Count a task that was abandoned because it made no progress."""
        with self._lock:
            self._stalled_tasks += 1

    def add_error(self, text: str) -> None:
        """Keep an error."""
        if len(text) > _MAX_ERROR_CHARS:
            half = _MAX_ERROR_CHARS // 2
            text = f"{text[:half]}\n...\n{text[-half:]}"
        with self._lock:
            self._errors.append(ErrorNote(text, self._now() - self._start))

    def _check_limit(self) -> None:
        steps = self.env_steps.total
        if steps >= self._max_env_step and self.end(reason="max_env_step is reached"):
            self._tell(f"the run ends after {steps} env steps, as max_env_step says")


def _newest_iter(policy_iter: Any) -> int:
    """Return the iteration of a policy; the latest one for several players; 0 if it is missing."""
    return 0 if policy_iter is None else int(np.max(policy_iter))
