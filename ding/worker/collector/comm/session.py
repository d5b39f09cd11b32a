"""Sends the samples and infos of a collecting task, by a queue for the coordinator, and fetches its weights."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from functools import partial
from time import monotonic
from typing import Any

from ding.interaction.exception.refusal import failure_for
from ding.worker.transport.chunk import encode_chunk, to_text
from ding.worker.transport.stores import EVALUATED, PolicyStore, SampleStore, write_patiently
from ding.worker.transport.tasks import plain, task_fail
from ding.worker.transport.worker import WorkerQueue

Row = dict[str, Any]

_OF_SAMPLE = frozenset(("data_id", "policy_iter"))
_OF_INFO = frozenset(("collector_done", "cur_episode", "cur_sample", "cur_step"))


class CollectorQueue(WorkerQueue):
    """A bounded queue of metadata of samples and infos for the coordinator. Thread-safe.

    An entry with the key `data_id` is the metadata of a sample, any other an info. An info without `collector_done` may
    be delayed until the next samples. See also `WorkerQueue`.

    Args:
        capacity: limit of the entries in the queue; `put` waits while it is full.
        interval_s: least time between two calls of `take` that return samples, unless the last info has come or half of
            the capacity is used. Longer intervals make fewer messages, with more samples each.

    Example:
        >>> queue = CollectorQueue(capacity=2)
        >>> queue.put([{"data_id": "chunk"}], timeout_s=1), queue.put([{"collector_done": True}], timeout_s=1)
        (True, True)
        >>> queue.take(timeout_s=1)
        ([{'data_id': 'chunk'}], [{'collector_done': True}])
    """

    kind = "collector"

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

    def _has_reports(self) -> bool:
        return bool(self._entries)

    def close(self) -> set[str]:
        """End all waits, and drop the entries; returns the chunks of which no sample was taken."""
        with self._changed:
            self._is_closed = True
            chunks = {entry["data_id"] for entry in self._entries if "data_id" in entry}
            self._entries.clear()
            self._changed.notify_all()
        return chunks - {self._last_taken}


def check_metadata(metadata: Row | Sequence[Row]) -> list[Row]:
    """The metadata of samples, or a single info, as a list.

    Raises:
        AssertionError: keys are missing: `data_id` and `policy_iter` for a sample; `collector_done`, `cur_episode`,
            `cur_sample` and `cur_step` for an info.
    """
    entries = [plain(metadata)] if isinstance(metadata, dict) else list(metadata)
    for entry in entries:
        if not (entry.keys() >= _OF_SAMPLE or entry.keys() >= _OF_INFO):
            raise AssertionError(
                f"metadata needs the keys {sorted(_OF_SAMPLE)} of a sample or {sorted(_OF_INFO)} of an info; "
                f"it has {sorted(entry)}"
            )
    return entries


class CollectorSession(ABC):
    """Fetches the weights of one task, and sends its samples and infos, until it is closed.

    Each task has its own session, so data of an old task cannot reach a new one.

    Attributes:
        is_evaluation: whether to store a copy of the fetched weights as those under evaluation.
    """

    is_evaluation = False

    def __init__(self, policies: PolicyStore, queue: CollectorQueue) -> None:
        self.queue = queue
        self._policies = policies
        self._known: dict[str, Any] = {}  # tokens of the weights that were fetched last, by path

    def get_policy_update_info(self, path: str) -> dict[str, Any] | None:
        """The newest weights, `{'model': ..., 'iter': ...}`; None if they were returned before, or after `close`.

        Raises:
            FileNotFoundError: there are no weights yet.
            ValueError: `path` is outside the folder of the weights.
        """
        if self.queue.is_closed:
            return None
        version = self._policies.read(path, self._known.get(path))
        if version is None:
            return None
        self._known[path] = version.token
        if self.is_evaluation:
            write_patiently(partial(self._policies.write, EVALUATED, version.state), self.queue.wait_closed)
        return version.state

    @abstractmethod
    def send_stepdata(self, path: str, stepdata: Any) -> None:
        """Store a chunk under the name `path`, or keep it until its metadata come."""

    @abstractmethod
    def send_metadata(self, metadata: Any) -> None:
        """Send the metadata of the samples of a chunk, one dict for each, or an info.

        Raises:
            AssertionError: see `check_metadata`.
            TimeoutError: they are not taken in time.
        """

    @abstractmethod
    def report(self, rows: Sequence[Row]) -> dict[str, Any]:
        """What a message to the coordinator says of the samples whose metadata were taken from the queue."""

    @abstractmethod
    def close(self) -> None:
        """End all waits. Idempotent."""


class FileSession(CollectorSession):
    """Writes chunks to a store, and sends the metadata to the coordinator.

    Args:
        send_timeout_s: how long sending may wait for the coordinator.
    """

    def __init__(
        self, samples: SampleStore, policies: PolicyStore, queue: CollectorQueue, send_timeout_s: float
    ) -> None:
        super().__init__(policies, queue)
        self._samples = samples
        self._send_timeout_s = send_timeout_s
        self._unannounced: set[str] = set()  # names of chunks that were written, but not queued for the coordinator

    def send_stepdata(self, path: str, stepdata: Any) -> None:
        """Write `stepdata`, an encoded chunk or a single sample, under the name `path`.

        Raises:
            ValueError: `path` is outside the folder of the samples.
            StorageError: the data cannot be written; see `write_patiently`.
        """
        if self.queue.is_closed:
            return
        data = stepdata if isinstance(stepdata, bytes) else encode_chunk([stepdata], "none")
        self._unannounced.add(os.path.basename(path))
        write_patiently(partial(self._samples.write, path, data), self.queue.wait_closed)
        if self.queue.is_closed:  # meanwhile
            self._delete_unannounced()

    def send_metadata(self, metadata: Row | Sequence[Row]) -> None:
        """Queue the metadata of samples, or an info, for the coordinator; waits while the queue is full."""
        entries = check_metadata(metadata)
        if not entries:
            return
        if self.queue.put(entries, self._send_timeout_s):
            self._unannounced.difference_update(entry.get("data_id", "") for entry in entries)
        else:
            self._delete_unannounced()

    def report(self, rows: Sequence[Row]) -> dict[str, Any]:
        return {"samples": to_text(rows)}

    def _delete_unannounced(self) -> None:
        while self._unannounced:
            self._samples.delete(self._unannounced.pop())

    def close(self) -> None:
        """End all waits, and delete the samples that the coordinator has not received metadata of."""
        for name in self.queue.close():
            self._samples.delete(name)
