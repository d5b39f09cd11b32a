"""The queue between the thread that serves the coordinator and the threads that load and train, and its source."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

from ding.interaction.exception.refusal import failure_for
from ding.worker.learner.base_learner import BaseLearner
from ding.worker.transport.tasks import task_fail
from ding.worker.transport.worker import WorkerQueue

Info = dict[str, Any]
Rows = list[dict[str, Any]]

# How many batches to request before the time of a batch is known.
_FIRST_BATCHES = 8
# Weight of the newest batch in the running mean of the time of a batch.
_NEWEST = 0.1
# Least time between two messages with infos, for a learner that draws its batches itself.
_INFO_INTERVAL_S = 0.1


class LearnerQueue(WorkerQueue):
    """A queue of batches for the learner, and one of its infos for the coordinator. Thread-safe.

    See also `WorkerQueue`.

    Args:
        capacity: limit of the batches that wait to be loaded.
        ahead_s: time for which the waiting batches should last. If fewer than `capacity` suffice for it, only these are
            requested, but at least two: batches that are drawn late have newer samples and newer priorities.

    Example:
        >>> queue = LearnerQueue(capacity=2)
        >>> queue.put([[{"data_id": "a"}]])
        >>> queue.get()
        [{'data_id': 'a'}]
        >>> queue.report({"learner_step": 0, "learner_done": True})
        >>> queue.wait_for_capacity(timeout_s=10), queue.take()
        (0, ([{'learner_step': 0, 'learner_done': True}], 0))
    """

    kind = "learner"

    def __init__(self, capacity: int, ahead_s: float = math.inf) -> None:
        if capacity < 1:
            raise ValueError(f"prefetch_batches = {capacity} is not allowed; it must be at least 1")
        super().__init__()
        self._capacity, self._ahead_s = capacity, ahead_s
        self._batch_s = 0.0 if math.isinf(ahead_s) else ahead_s / _FIRST_BATCHES  # time of a batch
        self._got_s = math.nan  # when `get` returned the last one
        self._batches: deque[Rows] = deque()
        self._infos: list[Info] = []
        self._given = self._begun = self._loaded = self._dropped = 0
        self._is_loading = self._is_resting = self._is_done = self._is_stopping = False
        self._is_awaited = False  # whether `learn` waits for the next info
        self._infos_s = -math.inf  # when `wait_for_infos` last returned some
        self._moved_at = monotonic()  # when the learner last began or finished a batch, or got one while it was idle

    def wait_for_capacity(self, timeout_s: float) -> int:
        """Wait until half of the capacity is free; returns how many batches to send, 0 after the last info.

        Raises:
            TaskFail: the learner has failed, was closed, or has ended and all its infos were taken.
        """
        with self._changed:
            self._wait(lambda: not self._is_done and self._is_time(), timeout_s)
            return 0 if self._is_done else self._wanted()

    def wait_for_need(self, limit: int) -> int:
        """As `wait_for_capacity`, with at most `limit` batches in the queue.

        Returns 0 if no more batches will be needed: the learner has sent its last info, or has ended.
        """

        def free() -> tuple[int, int]:
            target = min(self._target(), limit)
            return target - len(self._batches), (target + 1) // 2

        with self._changed:
            self._changed.wait_for(lambda: self._is_over() or self._is_done or free()[0] >= free()[1])
            return 0 if self._is_over() or self._is_done else free()[0]

    def wait_for_infos(self, timeout_s: float) -> None:
        """Wait for an info, and then for the least time between two messages, unless it is the last info.

        Raises:
            TaskFail: as for `wait_for_capacity`.
        """
        with self._changed:
            self._wait(lambda: bool(self._infos), timeout_s)
            if self._infos:
                self._wait(lambda: self._is_done, self._infos_s + _INFO_INTERVAL_S - monotonic())
                self._infos_s = monotonic()

    def wait_for_want(self, timeout_s: float) -> None:
        """Wait until no batch waits to be loaded, or the learner has sent its last info.

        Raises:
            TaskFail: as for `wait_for_capacity`, or batches still wait after `timeout_s`.
        """
        with self._changed:
            if not self._wait(lambda: not self._batches, timeout_s):
                raise task_fail(failure_for(f"the learner has wanted no data for {timeout_s:g} s", "TimeoutError"))

    def put(self, batches: Sequence[Rows]) -> None:
        """Add batches. After the last info they are dropped: the coordinator may have sent them before it arrived.

        Raises:
            TaskFail: as for `wait_for_capacity`, or they exceed the capacity.
        """
        with self._changed:
            self._raise_if_over()
            if self._is_done:
                return
            free = self._capacity - len(self._batches)
            if len(batches) > free:
                reason = f"the learner has capacity for {free} batches; it was sent {len(batches)}"
                raise task_fail(failure_for(reason, "ValueError"))
            if self._is_idle():
                self._moved_at = monotonic()
            self._batches.extend(batches)
            self._given += len(batches)
            self._changed.notify_all()

    def learn(self, batch: Rows, timeout_s: float) -> Info | None:
        """Add one batch, and wait for the next info; None if the batch is dropped instead.

        Raises:
            TaskFail: as for `put`, or there is no info in time.
        """
        with self._changed:
            if not self._is_done:
                self._infos.clear()  # a batch may make several; the last call has returned the first
            dropped = self._dropped
            self.put([batch])
            self._is_awaited = True
            has_come = self._wait(lambda: bool(self._infos) or self._dropped > dropped, timeout_s)
            self._is_awaited = False
            if not has_come:
                raise task_fail(failure_for(f"the learner has reported nothing for {timeout_s:g} s", "TimeoutError"))
            self._loaded = 0
            return self._infos.pop(0) if self._infos else None

    def take(self) -> tuple[list[Info], int]:
        """Return the infos, and the number of batches loaded, since the last call.

        Raises:
            TaskFail: the learner has failed.
        """
        with self._changed:
            self._raise_failure()
            return self.rest()

    def rest(self) -> tuple[list[Info], int]:
        """As `take`, without raising for a learner that has failed."""
        with self._changed:
            taken = self._infos, self._loaded
            self._infos, self._loaded = [], 0
            return taken

    def get(self) -> Rows | None:
        """The next batch; None after `close`. The one before it counts as loaded with this call."""
        with self._changed:
            if self._is_loading:
                self._loaded += 1
                self._batch_s += _NEWEST * (monotonic() - self._got_s - self._batch_s)
            self._is_loading = False
            self._changed.wait_for(lambda: self._is_closed or bool(self._batches))
            if self._is_closed:
                return None
            self._is_loading, self._got_s = True, monotonic()
            batch = self._batches.popleft()
            # Each thread that wakes up delays the learner for a moment: only notify if there is something to do.
            if not self._batches or self._is_time():
                self._changed.notify_all()
            return batch

    def drop(self) -> None:
        """Mark the batch that `get` returned last as not to be trained; it still counts as loaded."""
        with self._changed:
            self._given -= 1
            self._dropped += 1
            self._changed.notify_all()

    def rest_until_next(self) -> None:
        """Mark the learner as waiting for the next batch."""
        with self._changed:
            self._is_resting = True
            self._moved_at = monotonic()
            if self._begun == self._given:
                self._changed.notify_all()

    def begin(self) -> None:
        """Mark the beginning of a batch."""
        with self._changed:
            self._begun += 1
            self._is_resting = False
            self._moved_at = monotonic()

    def silence_s(self) -> float:
        """Seconds without progress of a learner that has a batch to train on; 0 if it has none."""
        with self._changed:
            is_idle = self._is_idle() or self._is_done or self._is_over()
            return 0.0 if is_idle else max(0.0, monotonic() - self._moved_at)

    def _is_idle(self) -> bool:
        """Whether all batches so far were trained."""
        return self._begun >= self._given and (self._is_resting or not self._begun)

    def wait_trained(self, timeout_s: float) -> bool:
        """Wait until all batches so far were trained, or the learner has ended; returns False after the timeout."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self._is_over() or (self._is_resting and self._begun == self._given), timeout_s
            )

    def wait_for_work(self, timeout_s: float) -> bool:
        """Wait until there is a batch to begin, or the end; returns False after the timeout."""
        with self._changed:
            return self._changed.wait_for(lambda: self._is_closed or self._given > self._begun, timeout_s)

    def wait_for_batches(self, timeout_s: float) -> int | None:
        """Wait for a batch; returns how many there are to begin, None after `stop`."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._is_stopping or self._given > self._begun, timeout_s)
            return None if self._is_closed or self._is_stopping else self._given - self._begun

    def wait_for_ranks(self) -> None:
        """Mark that the learner has waited for other ranks, which counts as progress."""
        with self._changed:
            self._moved_at = monotonic()

    def stop(self) -> None:
        """Make `wait_for_batches` return None. The batches in the queue are kept."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()

    def report(self, info: Info) -> None:
        """Add an info for the coordinator; one with `learner_done` is the last."""
        with self._changed:
            self._infos.append(info)
            self._is_done = self._is_done or bool(info.get("learner_done"))
            if self._is_done or self._is_awaited:
                self._changed.notify_all()

    def close(self) -> None:
        """End all waits, and drop the batches."""
        with self._changed:
            self._is_closed = True
            self._batches.clear()
            self._changed.notify_all()

    def _target(self) -> int:
        """How many batches should be in the queue."""
        if math.isinf(self._ahead_s):
            return self._capacity
        return min(self._capacity, max(2, math.ceil(self._ahead_s / max(self._batch_s, 1e-6))))

    def _is_time(self) -> bool:
        """Whether to request batches."""
        return self._wanted() >= (self._target() + 1) // 2

    def _wanted(self) -> int:
        return max(0, self._target() - len(self._batches))

    def _has_reports(self) -> bool:
        return bool(self._infos)

    def _wait(self, is_there: Callable[[], bool], timeout_s: float) -> bool:
        """See `WorkerQueue._wait`; the last info ends the wait, too."""
        return super()._wait(lambda: (self._is_done and bool(self._infos)) or is_there(), timeout_s)


class SampleSource:
    """Where the samples of a learner task come from: it makes batches of what is in the queue.

    Attributes:
        error: the last error for which samples were left out.
        level: number of samples in a buffer from which this source draws batches itself; None if the coordinator draws.
    """

    error: Exception | None = None
    level: int | None = None

    def start(self, learner: BaseLearner, queue: LearnerQueue) -> None:
        """Begin, for this learner."""
        raise NotImplementedError

    def load(self, entry: list[Any]) -> tuple[list[Any] | None, int]:
        """Return the batch for an entry of the queue, or None if there is none now; and how many samples could be read.

        Raises:
            ValueError: the entry is invalid.
        """
        return entry, len(entry)

    @property
    def losses(self) -> dict[str, int]:
        """Counts of what could not be trained on so far."""
        return {}

    def take_priorities(self, info: Info) -> Info:
        """Take the priorities in an info, unless the coordinator has the buffer; return the info for the coordinator.

        Raises:
            PriorityError, ValueError: they are not allowed.
        """
        return info

    def stop(self) -> None:
        """End all waits, and release the samples. Idempotent."""

    def close(self) -> None:
        """Stop, and wait for the threads. Idempotent."""
        self.stop()
