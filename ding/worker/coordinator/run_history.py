"""What a run remembers for those who watch it: its curve, its errors, how fast it goes, when it began and ended."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from time import monotonic
from typing import Any

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
