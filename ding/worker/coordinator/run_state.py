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

# Rates are those of so many seconds, counted in spans of `_SPAN_S`.
_WINDOW_S, _SPAN_S = 5.0, 0.25
_MAX_ERRORS = 20
_MAX_ERROR_CHARS = 4000
# With more evaluations than these, every second one between the first and the last is forgotten.
_MAX_EVALUATIONS = 500


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A point of the learning curve.

    Attributes:
        env_step: env steps of the collectors at its end.
        train_iter: iteration of the weights that played; of several players' weights the latest.
        seconds: since the start of the run.
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
    """How many come in a second, over the last five. Not thread-safe.

    Args:
        start: when the counting begins; on the clock of all other times.

    Example:
        >>> rate = RecentRate(start=0.0)
        >>> rate.add(10.0, 40), rate.add(14.0, 60), rate.per_s(14.5), rate.per_s(18.0)
        (None, None, 20.0, 12.0)
    """

    def __init__(self, start: float) -> None:
        self._start = start
        self._spans: deque[tuple[float, int]] = deque()

    def add(self, now: float, count: int) -> None:
        """So many have come."""
        if self._spans and now - self._spans[-1][0] < _SPAN_S:
            since, before = self._spans.pop()
            self._spans.append((since, before + count))
        else:
            self._spans.append((now, count))
        self._forget(now)

    def per_s(self, now: float) -> float:
        """The rate; before there are five seconds, over those there are, but at least one."""
        self._forget(now)
        return sum(count for _, count in self._spans) / min(_WINDOW_S, max(1.0, now - self._start))

    def _forget(self, now: float) -> None:
        while self._spans and now - self._spans[0][0] >= _WINDOW_S:
            self._spans.popleft()


class RunHistory:
    """Keeps a bounded part of what happens in a run. Thread-safe.

    Args:
        clock: seconds; their zero does not matter.

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
        """How long the run has taken; it stands still when it has ended."""
        return self._now() - self._start

    def _now(self) -> float:
        end = self._end
        return self._clock() if end is None else end

    def add_samples(self, count: int) -> None:
        """Samples were pushed."""
        with self._lock:
            self._samples.add(self._now(), count)

    def add_updates(self, count: int) -> None:
        """The learner has made so many further iterations."""
        with self._lock:
            self._updates.add(self._now(), count)

    def rates(self) -> tuple[float, float]:
        """Samples and updates per second."""
        with self._lock:
            now = self._now()
            return self._samples.per_s(now), self._updates.per_s(now)

    def add_evaluation(self, env_step: int, train_iter: int, mean_return: float) -> None:
        """An evaluation has ended."""
        with self._lock:
            self._evaluations.append(Evaluation(env_step, train_iter, mean_return, self.seconds))
            if len(self._evaluations) > _MAX_EVALUATIONS:
                del self._evaluations[1:-1:2]

    def evaluations(self) -> tuple[Evaluation, ...]:
        """The learning curve."""
        with self._lock:
            return tuple(self._evaluations)

    def add_error(self, text: str) -> None:
        """Something went wrong."""
        if len(text) > _MAX_ERROR_CHARS:
            half = _MAX_ERROR_CHARS // 2
            text = f"{text[:half]}\n...\n{text[-half:]}"
        with self._lock:
            self._errors.append(ErrorNote(text, self.seconds))

    def errors(self) -> tuple[ErrorNote, ...]:
        """The last errors, the newest last."""
        with self._lock:
            return tuple(self._errors)

    def state_dict(self) -> dict[str, Any]:
        """When the run began and how long it has taken, its learning curve and its errors, as plain values."""
        with self._lock:
            return {
                "started_at": self.started_at,
                "seconds": self.seconds,
                "evaluations": [asdict(evaluation) for evaluation in self._evaluations],
                "errors": [asdict(error) for error in self._errors],
            }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with the run that a `state_dict` tells of: its seconds count, those in between do not."""
        with self._lock:
            self.started_at = state["started_at"]
            self._start -= state["seconds"]
            before = state["seconds"]
            later = [replace(evaluation, seconds=evaluation.seconds + before) for evaluation in self._evaluations]
            self._evaluations = [*(Evaluation(**evaluation) for evaluation in state["evaluations"]), *later]
            own = [replace(error, seconds=error.seconds + before) for error in self._errors]
            self._errors = deque([*(ErrorNote(**error) for error in state["errors"]), *own], maxlen=_MAX_ERRORS)

    def end(self) -> None:
        """The run has ended; the clock stops."""
        with self._lock:
            if self._end is None:
                self._end = self._clock()


class EnvSteps:
    """Counts the env steps of running and finished tasks; tasks tell their own count again and again.

    One thread at a time may change it; any may read `total`, the steps of all tasks so far.

    Example:
        >>> steps = EnvSteps()
        >>> steps.tell("a", 10)
        >>> steps.tell("a", 25)
        >>> steps.tell("b", 5)
        >>> steps.end("a", 30)
        >>> steps.total
        35
    """

    def __init__(self) -> None:
        self.total = 0
        self._running: dict[str, int] = {}

    def count_from(self, total: int) -> None:
        """There were so many steps before, of tasks that are not known any more; fewer than there are is old news."""
        self.total = max(self.total, int(total))

    def tell(self, task_id: str, steps: int) -> None:
        """The task, which runs, has made `steps` steps; a smaller number than before is old news."""
        told = self._running.get(task_id, 0)
        self._running[task_id] = max(told, int(steps))
        self.total += self._running[task_id] - told

    def end(self, task_id: str, steps: int | None = None) -> None:
        """The task has ended after `steps` steps; None for as many as it told last."""
        told = self._running.pop(task_id, 0)
        self.total += 0 if steps is None else int(steps) - told


Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Progress:
    """How a run stands.

    Attributes:
        samples: pushed into the buffers so far.
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


class RunState:
    """Sums up what workers tell, and ends the run when it should. Thread-safe.

    The first end counts and stays: neither a later success nor a later failure changes it.

    Args:
        max_env_step: the run ends as soon as collectors have made so many env steps.

    Attributes:
        failure: what ended the run if it failed, else None.
        reason: why the run has ended, if it did not fail; "" until then.
        env_steps: those of the collecting tasks.
        history: what is kept for those who watch the run.

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
        self._samples = self._train_iter = self._policy_iter = self._stalled_tasks = 0
        self._has_learner_told = False
        self._last_return: float | None = None
        self._best_return: float | None = None

    @property
    def is_over(self) -> bool:
        """Whether the run has ended."""
        return self._over.is_set()

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until the run has ended; False when `timeout_s` has passed first."""
        return self._over.wait(timeout_s)

    def end(self, failure: BaseException | None = None, reason: str = "") -> bool:
        """End the run; False where it has ended before."""
        with self._lock:
            if self._over.is_set():
                return False
            self.failure, self.reason = failure, reason
            self.history.end()
            self._over.set()
            return True

    @property
    def stalled_tasks(self) -> int:
        """How many tasks were abandoned because they made no progress."""
        return self._stalled_tasks

    def count_stalled_task(self) -> None:
        """One more task was abandoned because it made no progress."""
        with self._lock:
            self._stalled_tasks += 1

    def progress(self) -> Progress:
        """How the run stands."""
        with self._lock:
            return Progress(
                samples=self._samples,
                env_steps=self.env_steps.total,
                train_iter=self._train_iter,
                policy_lag=max(0, self._train_iter - self._policy_iter),
                last_return=self._last_return,
                best_return=self._best_return,
            )

    def state_dict(self) -> dict[str, Any]:
        """The counters, the returns and the history, as plain values."""
        with self._lock:
            return {
                "samples": self._samples,
                "env_steps": self.env_steps.total,
                "train_iter": self._train_iter,
                "policy_iter": self._policy_iter,
                "stalled_tasks": self._stalled_tasks,
                "last_return": self._last_return,
                "best_return": self._best_return,
                "history": self.history.state_dict(),
            }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with the run that a `state_dict` tells of; no counter goes back."""
        with self._lock:
            self._samples = max(self._samples, state["samples"])
            self.env_steps.count_from(state["env_steps"])
            self._train_iter = max(self._train_iter, state["train_iter"])
            self._policy_iter = max(self._policy_iter, state["policy_iter"])
            self._stalled_tasks += state.get("stalled_tasks", 0)  # files of before lack it
            if self._last_return is None:
                self._last_return = state["last_return"]
            returns = [value for value in (self._best_return, state["best_return"]) if value is not None]
            self._best_return = max(returns, default=None)
            self.history.load_state_dict(state["history"])

    def take_samples(self, task_id: str, count: int, newest: Row) -> bool:
        """So many samples were pushed, `newest` last; returns whether that ends the run."""
        with self._lock:
            self._samples += count
            self.history.add_samples(count)
            self._policy_iter = max(self._policy_iter, _newest_iter(newest.get("policy_iter")))
            return self._count(task_id, newest)

    def take_collector_info(self, task_id: str, info: Row) -> bool:
        """A collector tells how far it is; returns whether that ends the run."""
        with self._lock:
            return self._count(task_id, info)

    def take_collector_end(self, task_id: str, finished_task: Row) -> bool:
        """A collector task has ended; returns whether that ends the run."""
        with self._lock:
            if not finished_task.get("eval_flag"):
                self.env_steps.end(task_id, finished_task.get("step_count"))
                return self._has_enough()
            if finished_task.get("reward_mean") is not None and finished_task.get("real_episode_count", 1):
                self._last_return = float(finished_task["reward_mean"])
                best = self._best_return
                self._best_return = self._last_return if best is None else max(best, self._last_return)
                train_iter = _newest_iter(finished_task.get("train_iter"))
                self.history.add_evaluation(self.env_steps.total, train_iter, self._last_return)
            return False

    def drop_collector(self, task_id: str) -> None:
        """A collector task was broken off; its steps stay."""
        with self._lock:
            self.env_steps.end(task_id)

    def take_learner_info(self, info: Row) -> bool:
        """A learner tells of an iteration; returns whether it is the first that is told of."""
        with self._lock:
            is_first, self._has_learner_told = not self._has_learner_told, True
            before = self._train_iter
            self._train_iter = max(before, int(info.get("learner_step", 0)) + 1)
            self.history.add_updates(1 if is_first else self._train_iter - before)  # it may begin with any
            return is_first

    def _count(self, task_id: str, told: Row) -> bool:
        if told.get("eval_flag") or told.get("cur_step") is None:
            return False
        self.env_steps.tell(task_id, told["cur_step"])
        return self._has_enough()

    def _has_enough(self) -> bool:
        return not self._over.is_set() and self.env_steps.total >= self._max_env_step


def _newest_iter(policy_iter: Any) -> int:
    """The iteration of a policy; the latest of several players' policies; 0 where it is not told."""
    return 0 if policy_iter is None else int(np.max(policy_iter))
