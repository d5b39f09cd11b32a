"""The session of a collecting task: it sends samples and infos, and fetches weights."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Collection, Sequence
from functools import partial
from time import monotonic
from typing import Any

from ding.interaction.exception import failure_for
from ding.utils.data.nested import plain
from ding.utils.data.samples import Items, Table, whole_of
from ding.worker.transport.chunk import chunks_of, encode_chunk
from ding.worker.transport.comm_worker import WorkerQueue, task_fail
from ding.worker.transport.stores import EVALUATED, PolicyStore, SampleStore, write_patiently

Row = dict[str, Any]

_OF_SAMPLE = frozenset(("data_id", "policy_iter"))
_OF_INFO = frozenset(("collector_done", "cur_episode", "cur_sample", "cur_step"))


class CollectorQueue(WorkerQueue):
    """A bounded queue of metadata of samples and infos for the coordinator. This class is thread-safe.

    A table has the metadata of several samples; a dict with the key `data_id` that of one, and any other dict is an
    info. An info without `collector_done` may be delayed until the next samples. See also `WorkerQueue`.

    Args:
        capacity: limit of the samples and infos in the queue; `put` waits while it is full.
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
        self._entries: deque[Row | Table] = deque()
        self._count = 0  # number of samples and infos in them
        self._is_urgent = self._is_last = False
        self._last_taken: Any = None  # the chunk of the sample that `take_one` returned last

    def put(self, entries: Sequence[Row | Table], timeout_s: float | None) -> bool:
        """Wait for capacity, then add all `entries` at once; after `close` it adds nothing and returns False.

        Args:
            timeout_s: None for no limit.

        Raises:
            TimeoutError: the coordinator has taken no entry within `timeout_s`.
        """
        with self._changed:
            if self._count >= self._capacity:
                self._is_urgent = True
                self._changed.notify_all()
            if not self._changed.wait_for(lambda: self._is_closed or self._count < self._capacity, timeout_s):
                raise TimeoutError(
                    f"the coordinator has taken nothing for {timeout_s:g} s, and {self._count} samples and infos wait "
                    "for it"
                )
            if self._is_closed:
                return False
            self._entries.extend(entries)
            self._count += sum(1 if isinstance(entry, dict) else len(entry) for entry in entries)
            self._is_last = self._is_last or any(isinstance(e, dict) and e.get("collector_done") for e in entries)
            self._is_urgent = self._is_urgent or self._is_last or any("data_id" in _keys(entry) for entry in entries)
            self._changed.notify_all()
        return True

    def take(self, timeout_s: float) -> tuple[Items, list[Row]]:
        """Wait for a sample or the last info, then return the metadata of all samples and all infos.

        Both are empty if none came in time. The interval between two calls may add to `timeout_s`.

        Raises:
            TaskFail: the collector has failed, was closed, or has ended and the queue is empty.
        """
        with self._changed:
            self._wait(lambda: self._is_urgent, timeout_s)
            if self._is_urgent:
                half = (self._capacity + 1) // 2
                self._wait(lambda: self._is_last or self._count >= half, self._due_s - monotonic())
                self._due_s = monotonic() + self._interval_s
            self._is_urgent = False
            entries = list(self._entries)
            self._entries.clear()
            self._count = 0
            self._changed.notify_all()
        samples = [entry if isinstance(entry, Table) else [entry] for entry in entries if "data_id" in _keys(entry)]
        infos = [entry for entry in entries if isinstance(entry, dict) and "data_id" not in entry]
        return whole_of(samples), infos

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
            if isinstance(entry, Table):
                entry, *others = entry.rows()
                self._entries.extendleft(reversed(others))
            self._count -= 1
            self._last_taken = entry.get("data_id", self._last_taken)
            self._changed.notify_all()
        return entry

    def _has_reports(self) -> bool:
        return bool(self._entries)

    def close(self) -> set[str]:
        """End all waits, drop the entries, and return the chunks of which no sample was taken."""
        with self._changed:
            self._is_closed = True
            chunks = {name for entry in self._entries for name in _chunks_of(entry)}
            self._entries.clear()
            self._count = 0
            self._changed.notify_all()
        return chunks - {self._last_taken}


def _keys(entry: Row | Table) -> Collection[str]:
    return entry.columns if isinstance(entry, Table) else entry


def _chunks_of(entry: Row | Table) -> list[str]:
    return chunks_of(entry if isinstance(entry, Table) else [entry])


def check_metadata(metadata: Row | Sequence[Row]) -> list[Row]:
    """Check the metadata of samples, or a single info, and return them as a list.

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


class CollectorSession:
    """The session of one task, which fetches weights, and sends samples and infos, until it is closed.

    Each task has its own session, so data of an old task cannot reach a new one.

    Args:
        send_timeout_s: how long sending may wait for the coordinator; None for any time.
        is_evaluation: whether to store a copy of the fetched weights as those under evaluation.
    """

    def __init__(
        self,
        samples: SampleStore,
        policies: PolicyStore,
        queue: CollectorQueue,
        send_timeout_s: float | None,
        is_evaluation: bool = False,
    ) -> None:
        self.queue = queue
        self._samples, self._policies = samples, policies
        self._send_timeout_s, self._is_evaluation = send_timeout_s, is_evaluation
        self._known: dict[str, Any] = {}  # tokens of the weights that were fetched last, by path
        self._unannounced: set[str] = set()  # names of chunks that were written, but not queued for the coordinator

    def get_policy_update_info(self, path: str) -> dict[str, Any] | None:
        """Return the newest weights, `{'model': ..., 'iter': ...}`, once; None after that, or after `close`.

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
        if self._is_evaluation:
            write_patiently(partial(self._policies.write, EVALUATED, version.state), self.queue.wait_closed)
        return version.state

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

    def send_metadata(self, metadata: Table | Row | Sequence[Row]) -> None:
        """Queue the metadata of the samples of a chunk, or an info, for the coordinator; wait while the queue is full.

        Raises:
            AssertionError: see `check_metadata`.
            TimeoutError: they are not taken in time.
        """
        # A table is that of a `SampleSender`, which is complete.
        entries = [metadata] if isinstance(metadata, Table) else check_metadata(metadata)
        if not entries:
            return
        if self.queue.put(entries, self._send_timeout_s):
            for entry in entries:
                self._unannounced.difference_update(_chunks_of(entry))
        else:
            self._delete_unannounced()

    send_metadata.takes_table = True  # type: ignore[attr-defined]

    def _delete_unannounced(self) -> None:
        while self._unannounced:
            self._samples.delete(self._unannounced.pop())

    def take(self, timeout_s: float) -> tuple[Items, list[Row]]:
        """Return metadata of samples, which can be read, and infos; see `CollectorQueue.take`."""
        taken = self.queue.take(timeout_s)
        write_patiently(self._samples.flush, self.queue.wait_closed)
        return taken

    def take_one(self, timeout_s: float) -> Row:
        """Return the metadata of a sample, which can be read, or an info; see `CollectorQueue.take_one`."""
        entry = self.queue.take_one(timeout_s)
        write_patiently(self._samples.flush, self.queue.wait_closed)
        return entry

    def close(self) -> None:
        """End all waits, and delete the samples whose metadata the coordinator has not received."""
        chunks = self.queue.close()
        if chunks:
            self._samples.delete(*chunks)
