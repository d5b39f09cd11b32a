"""The queue between the thread that collects and the thread that serves the coordinator."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

from ding.interaction.exception.refusal import failure_for
from ding.worker.transport.task_slot import Exchange
from ding.worker.transport.tasks import task_fail

Row = dict[str, Any]


class CollectorExchange(Exchange):
    """A bounded queue of metadata of samples and infos for the coordinator. Thread-safe.

    An entry with the key `data_id` is the metadata of a sample, any other an info. An info without `collector_done` may
    be delayed until the next samples. `close` and `fail` end all waits.

    Args:
        capacity: limit of the entries in the queue; `put` waits while it is full.
        interval_s: least time between two calls of `take` that return samples, unless the last info has come or half of
            the capacity is used. Longer intervals make fewer messages, with more samples each.

    Example:
        >>> exchange = CollectorExchange(capacity=2)
        >>> exchange.put([{"data_id": "chunk"}], timeout_s=1), exchange.put([{"collector_done": True}], timeout_s=1)
        (True, True)
        >>> exchange.take(timeout_s=1)
        ([{'data_id': 'chunk'}], [{'collector_done': True}])
    """

    def __init__(self, capacity: int, interval_s: float = 0.0) -> None:
        if capacity < 1:
            raise ValueError(f"queue_size = {capacity} is not allowed; it must be at least 1")
        super().__init__()
        self._capacity, self._interval_s = capacity, interval_s
        self._due_s = float("-inf")  # when samples may be taken again
        self._entries: deque[Row] = deque()
        self._is_urgent = self._is_last = False
        self._pushed: Row | None = None  # the queued entry that counts samples in the shards
        self._last_taken: Any = None  # the chunk of the sample that `take_one` returned last

    def put(self, entries: Sequence[Row], timeout_s: float) -> bool:
        """Wait for capacity, then add all `entries` at once; after `close` it adds nothing and returns False.

        Raises:
            TimeoutError: the coordinator has taken no entry within `timeout_s`.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._is_closed or len(self._entries) < self._capacity, timeout_s):
                raise TimeoutError(
                    f"the coordinator has taken nothing for {timeout_s:g} s, and {len(self._entries)} samples and "
                    "infos wait for it"
                )
            if self._is_closed:
                return False
            self._entries.extend(entries)
            self._is_last = self._is_last or any(entry.get("collector_done") for entry in entries)
            self._is_urgent = self._is_urgent or self._is_last or any("data_id" in entry for entry in entries)
            self._changed.notify_all()
        return True

    def add_pushed(self, newest: Row, taken: int, dropped: int) -> None:
        """Count samples that the shards have stored, or that were dropped since the buffer is closed. Never blocks.

        The coordinator gets a single entry for them: `newest`, the metadata of one sample, with the sums as `pushed`
        and `dropped`.
        """
        with self._changed:
            if self._is_closed:
                return
            if self._pushed is None:
                self._pushed = {"pushed": 0, "dropped": 0}
                self._entries.append(self._pushed)
            sums = {"pushed": self._pushed["pushed"] + taken, "dropped": self._pushed["dropped"] + dropped}
            self._pushed.update({**newest, **sums})
            self._is_urgent = True
            self._changed.notify_all()

    def take(self, timeout_s: float) -> tuple[list[Row], list[Row]]:
        """Wait for a sample or the last info, then return the metadata of all samples and all infos.

        Both are empty if none came in time. The interval between two calls may add to `timeout_s`.

        Raises:
            TaskFail: the collector has failed, was closed, or has ended and the queue is empty.
        """
        with self._changed:
            self._wait(lambda: self._is_urgent, timeout_s)
            if self._is_urgent:
                half = (self._capacity + 1) // 2
                self._wait(lambda: self._is_last or len(self._entries) >= half, self._due_s - monotonic())
                self._due_s = monotonic() + self._interval_s
            self._is_urgent = False
            rows = [entry for entry in self._entries if "data_id" in entry]
            infos = [entry for entry in self._entries if "data_id" not in entry]
            self._entries.clear()
            self._pushed = None
            self._changed.notify_all()
        return rows, infos

    def take_one(self, timeout_s: float) -> Row:
        """Wait for an entry, and return the oldest.

        Raises:
            TaskFail: as for `take`, or there was none in time.
        """
        with self._changed:
            self._wait(lambda: bool(self._entries), timeout_s)
            if not self._entries:
                raise task_fail(failure_for(f"the collector has reported nothing for {timeout_s:g} s", "TimeoutError"))
            entry = self._entries.popleft()
            self._last_taken = entry.get("data_id", self._last_taken)
            self._changed.notify_all()
        return entry

    def _wait(self, is_there: Callable[[], bool], timeout_s: float) -> None:
        self._changed.wait_for(lambda: self._is_over() or is_there(), timeout_s)
        self._raise_failure()
        if self._is_closed:
            raise task_fail(failure_for("the collector has been closed", "CollectorClosed"))
        if self._is_finished and not self._entries:
            raise task_fail(failure_for("the collector has ended, and all its reports were taken", "CollectorClosed"))

    def close(self) -> set[str]:
        """End all waits, and drop the entries; returns the chunks of which no sample was taken."""
        with self._changed:
            self._is_closed = True
            chunks = {entry["data_id"] for entry in self._entries if "data_id" in entry}
            self._entries.clear()
            self._changed.notify_all()
        return chunks - {self._last_taken}
