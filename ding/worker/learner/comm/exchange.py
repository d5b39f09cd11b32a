"""What passes between the thread that serves a learner's coordinator and the threads that load and train."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

from ding.interaction.exception.refusal import failure_for
from ding.worker.transport.task_slot import Exchange
from ding.worker.transport.tasks import task_fail

Info = dict[str, Any]
Rows = list[dict[str, Any]]

# So many batches are asked for before it is known how long one takes.
_FIRST_BATCHES = 8
# Weight of the newest batch in the mean of what one takes.
_NEWEST = 0.1
# Between two messages with infos of a learner that draws its batches itself.
_INFO_INTERVAL_S = 0.1


class LearnerExchange(Exchange):
    """Batches on their way in, infos on their way out; all waits end with `close`, `fail` and `finish`. Thread-safe.

    Args:
        capacity: so many batches may wait to be loaded.
        ahead_s: for so long those that wait should last; where that takes fewer than `capacity`, only so many are asked
            for, but two at least. Batches that are drawn late have newer samples, and newer priorities.

    Example:
        >>> exchange = LearnerExchange(capacity=2)
        >>> exchange.put([[{"data_id": "a"}]])
        >>> exchange.get()
        [{'data_id': 'a'}]
        >>> exchange.tell({"learner_step": 0, "learner_done": True})
        >>> exchange.wait_for_room(timeout_s=10), exchange.take()
        (0, ([{'learner_step': 0, 'learner_done': True}], 0))
    """

    def __init__(self, capacity: int, ahead_s: float = math.inf) -> None:
        if capacity < 1:
            raise ValueError(f"prefetch_batches = {capacity} is not allowed; it must be at least 1")
        super().__init__()
        self._capacity, self._ahead_s = capacity, ahead_s
        self._batch_s = 0.0 if math.isinf(ahead_s) else ahead_s / _FIRST_BATCHES  # what a batch takes
        self._got_s = math.nan  # when the last one was given out
        self._batches: deque[Rows] = deque()
        self._infos: list[Info] = []
        self._given = self._begun = self._loaded = self._dropped = 0
        self._is_loading = self._is_resting = self._is_done = self._is_stopping = False
        self._is_awaited = False  # whether somebody waits for the next info
        self._told_s = -math.inf  # when `wait_for_infos` last found some
        self._moved_at = monotonic()  # when the learner last began or ended to train on a batch, or got one to train on

    def wait_for_room(self, timeout_s: float) -> int:
        """How many batches are wanted, after waiting until half of the room is free; 0 from the learner's last info on.

        Raises:
            TaskFail: the learner has failed, was closed, or has ended with nothing left to take.
        """
        with self._changed:
            self._wait(lambda: not self._is_done and self._is_time(), timeout_s)
            return 0 if self._is_done else self._wanted()

    def wait_for_need(self, limit: int) -> int:
        """How many batches are wanted where at most `limit` may wait, after waiting until half of the room is free.

        0 when no more ever will be, for the learner has told its last info, or has ended.
        """

        def room() -> tuple[int, int]:
            target = min(self._target(), limit)
            return target - len(self._batches), (target + 1) // 2

        with self._changed:
            self._changed.wait_for(lambda: self._is_over() or self._is_done or room()[0] >= room()[1])
            return 0 if self._is_over() or self._is_done else room()[0]

    def wait_for_infos(self, timeout_s: float) -> None:
        """Wait for an info; and then for others, unless it is the last, or there were none to take for long.

        Raises:
            TaskFail: as for `wait_for_room`.
        """
        with self._changed:
            self._wait(lambda: bool(self._infos), timeout_s)
            if self._infos:
                self._wait(lambda: self._is_done, self._told_s + _INFO_INTERVAL_S - monotonic())
                self._told_s = monotonic()

    def wait_for_want(self, timeout_s: float) -> None:
        """Wait until every batch is being loaded, or the learner has given its last info.

        Raises:
            TaskFail: as for `wait_for_room`, or it has not come to that in time.
        """
        with self._changed:
            if not self._wait(lambda: not self._batches, timeout_s):
                raise task_fail(failure_for(f"the learner has wanted no data for {timeout_s:g} s", "TimeoutError"))

    def put(self, batches: Sequence[Rows]) -> None:
        """Give batches; they are dropped after the last info, which may have crossed with them.

        Raises:
            TaskFail: as for `wait_for_room`, or they are more than were wanted.
        """
        with self._changed:
            self._raise_if_over()
            if self._is_done:
                return
            room = self._capacity - len(self._batches)
            if len(batches) > room:
                reason = f"the learner has room for {room} batches; it was sent {len(batches)}"
                raise task_fail(failure_for(reason, "ValueError"))
            if self._is_idle():
                self._moved_at = monotonic()
            self._batches.extend(batches)
            self._given += len(batches)
            self._changed.notify_all()

    def learn(self, batch: Rows, timeout_s: float) -> Info | None:
        """Give one batch and wait for the next info; None if a batch is dropped instead.

        Raises:
            TaskFail: as for `put`, or no info has come in time.
        """
        with self._changed:
            if not self._is_done:
                self._infos.clear()  # a batch may make several, and only the first was waited for
            dropped = self._dropped
            self.put([batch])
            self._is_awaited = True
            has_come = self._wait(lambda: bool(self._infos) or self._dropped > dropped, timeout_s)
            self._is_awaited = False
            if not has_come:
                raise task_fail(failure_for(f"the learner has told nothing for {timeout_s:g} s", "TimeoutError"))
            self._loaded = 0
            return self._infos.pop(0) if self._infos else None

    def take(self) -> tuple[list[Info], int]:
        """The infos, and the number of batches loaded, since the last call.

        Raises:
            TaskFail: the learner has failed.
        """
        with self._changed:
            self._raise_failure()
            return self.rest()

    def rest(self) -> tuple[list[Info], int]:
        """See `take`, of a learner that has ended, however it did."""
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
            # Each thread that is woken keeps the learner from computing for a moment: only if it is for something.
            if not self._batches or self._is_time():
                self._changed.notify_all()
            return batch

    def drop(self) -> None:
        """The batch that was got last will not be trained; it still counts as loaded."""
        with self._changed:
            self._given -= 1
            self._dropped += 1
            self._changed.notify_all()

    def rest_until_next(self) -> None:
        """The learner is through with what it has begun, and wants the next batch."""
        with self._changed:
            self._is_resting = True
            self._moved_at = monotonic()
            if self._begun == self._given:
                self._changed.notify_all()

    def begin(self) -> None:
        """The learner begins to train on a batch."""
        with self._changed:
            self._begun += 1
            self._is_resting = False
            self._moved_at = monotonic()

    def silence_s(self) -> float:
        """Seconds for which the learner, which has a batch to train on, has neither begun nor ended to do so."""
        with self._changed:
            is_idle = self._is_idle() or self._is_done or self._is_over()
            return 0.0 if is_idle else max(0.0, monotonic() - self._moved_at)

    def _is_idle(self) -> bool:
        """Whether there is nothing to train on: not even the first batch."""
        return self._begun >= self._given and (self._is_resting or not self._begun)

    def wait_trained(self, timeout_s: float) -> bool:
        """Whether the learner has trained all batches it was given, or does in time, or has ended."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self._is_over() or (self._is_resting and self._begun == self._given), timeout_s
            )

    def wait_for_work(self, timeout_s: float) -> bool:
        """Whether there is a batch that the learner has not begun, or one comes in time, or the end."""
        with self._changed:
            return self._changed.wait_for(lambda: self._is_closed or self._given > self._begun, timeout_s)

    def wait_for_batches(self, timeout_s: float) -> int | None:
        """How many batches the learner was given and has not begun, after waiting for one; None after `stop`."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._is_stopping or self._given > self._begun, timeout_s)
            return None if self._is_closed or self._is_stopping else self._given - self._begun

    def wait_for_ranks(self) -> None:
        """The learner has waited for a batch of another rank, which counts as a sign of life."""
        with self._changed:
            self._moved_at = monotonic()

    def stop(self) -> None:
        """Have `wait_for_batches` return None; batches that are there stay."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()

    def tell(self, info: Info) -> None:
        """Give an info to the coordinator; one with `learner_done` is the last."""
        with self._changed:
            self._infos.append(info)
            self._is_done = self._is_done or bool(info.get("learner_done"))
            if self._is_done or self._is_awaited:
                self._changed.notify_all()

    def close(self) -> None:
        """End all waits, and drop the batches that wait."""
        with self._changed:
            self._is_closed = True
            self._batches.clear()
            self._changed.notify_all()

    def _target(self) -> int:
        """How many batches should wait."""
        if math.isinf(self._ahead_s):
            return self._capacity
        return min(self._capacity, max(2, math.ceil(self._ahead_s / max(self._batch_s, 1e-6))))

    def _is_time(self) -> bool:
        """Whether there should be other batches."""
        return self._wanted() >= (self._target() + 1) // 2

    def _wanted(self) -> int:
        return max(0, self._target() - len(self._batches))

    def _wait(self, is_there: Callable[[], bool], timeout_s: float) -> bool:
        """Wait for something, or for the end; False when neither came."""
        come = self._changed.wait_for(
            lambda: self._is_over() or (self._is_done and bool(self._infos)) or is_there(), timeout_s
        )
        self._raise_if_over()
        return come

    def _raise_if_over(self) -> None:
        self._raise_failure()
        if self._is_closed:
            raise task_fail(failure_for("the learner has been closed", "LearnerClosed"))
        if self._is_finished and not self._infos:
            raise task_fail(failure_for("the learner has ended, and has told everything", "LearnerClosed"))
