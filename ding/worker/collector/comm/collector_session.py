"""The session of a collecting task: it sends samples and infos, and fetches weights."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from functools import partial
from itertools import groupby
from operator import attrgetter
from time import monotonic
from typing import Any, NamedTuple

from ding.interaction.exception import failure_for
from ding.utils.data.nested import plain
from ding.utils.data.samples import Items, Kind, Table, columns_of, rows_of, table_of, whole_of
from ding.worker.transport.chunk import chunks_of, decode_chunk, encode_chunk, to_text
from ding.worker.transport.comm_worker import WorkerQueue, task_fail
from ding.worker.transport.ray.shard import Shard, ShardClosed, ShardLost, with_metadata
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
        self._pushed: Row | None = None  # the queued entry that counts samples in the shards
        self._last_taken: Any = None  # the chunk of the sample that `take_one` returned last

    def put(self, entries: Sequence[Row | Table], timeout_s: float) -> bool:
        """Wait for capacity, then add all `entries` at once; after `close` it adds nothing and returns False.

        Raises:
            TimeoutError: the coordinator has taken no entry within `timeout_s`.
        """
        with self._changed:
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

    def add_pushed(self, newest: Row, taken: int, dropped: int) -> None:
        """Count samples that the shards have stored, or that were dropped as the buffer is closed, without blocking.

        The coordinator gets a single entry for them: `newest`, the metadata of one sample, with the sums as `pushed`
        and `dropped`.
        """
        with self._changed:
            if self._is_closed:
                return
            if self._pushed is None:
                self._pushed = {"pushed": 0, "dropped": 0}
                self._entries.append(self._pushed)
                self._count += 1
            sums = {"pushed": self._pushed["pushed"] + taken, "dropped": self._pushed["dropped"] + dropped}
            self._pushed.update({**newest, **sums})
            self._is_urgent = True
            self._changed.notify_all()

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
            self._count, self._pushed = 0, None
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


class CollectorSession(ABC):
    """The session of one task, which fetches weights, and sends samples and infos, until it is closed.

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
    def report(self, rows: Items) -> dict[str, Any]:
        """Return what a message to the coordinator says about the samples whose metadata were taken from the queue."""

    @abstractmethod
    def close(self) -> None:
        """End all waits. Further calls do nothing."""


class FileSession(CollectorSession):
    """A session that writes chunks to a store, and sends their metadata to the coordinator.

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

    def send_metadata(self, metadata: Table | Row | Sequence[Row]) -> None:
        """Queue the metadata of samples, or an info, for the coordinator; wait while the queue is full."""
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

    def report(self, rows: Items) -> dict[str, Any]:
        return {"samples": to_text(rows)}

    def _delete_unannounced(self) -> None:
        while self._unannounced:
            self._samples.delete(self._unannounced.pop())

    def close(self) -> None:
        """End all waits, and delete the samples whose metadata the coordinator has not received."""
        for name in self.queue.close():
            self._samples.delete(name)


# Metadata that locate a chunk; shards keep no chunks.
_OF_CHUNK = frozenset(("data_id", "compressor", "object_ref"))
# How long a lost shard is not called, in seconds.
_PAUSE_S = 0.1
# Chunks that wait for a shard are sent in one call, up to this size of their samples. Encoded they mostly take less
# than the 100 kB up to which Ray sends arguments without its object store.
_CALL_BYTES = 160 * 2**10
_JOIN_S = 5.0


class _Chunk(NamedTuple):
    """Samples that wait for a shard, or that were sent to one.

    Attributes:
        samples: the samples with their metadata.
        last: the metadata of the last one.
    """

    samples: Items
    last: Row
    compressor: str
    size_bytes: int


class ShardSession(CollectorSession):
    """A session that sends samples to the shards of a replay buffer in turn.

    A thread makes one call at a time to each shard; chunks that gather meanwhile are encoded together
    and sent in the next call. Chunks that a lost shard has not acknowledged are sent to the next one. Samples for a
    closed buffer are dropped. An info that says `collector_done` waits until all samples are acknowledged. Only one
    thread may send.

    Args:
        limit_bytes: size of the samples that may wait or be under way; sending more blocks. A single chunk may be
            larger.
        send_timeout_s: how long sending may wait for the shards, or the coordinator.
    """

    def __init__(
        self,
        shards: Sequence[Shard],
        policies: PolicyStore,
        queue: CollectorQueue,
        limit_bytes: int,
        send_timeout_s: float,
    ) -> None:
        super().__init__(policies, queue)
        self._shards, self._limit_bytes, self._send_timeout_s = list(shards), limit_bytes, send_timeout_s
        self._unannounced: dict[str, tuple[Table | bytes, str | None]] = {}  # chunks without metadata so far
        self._changed = threading.Condition()
        # By shard: chunks to send, whether it is idle, and from when on it may be called.
        self._queues: list[deque[_Chunk]] = [deque() for _ in self._shards]
        self._is_idle = [True] * len(self._shards)
        self._begin_s = [0.0] * len(self._shards)
        self._bytes = self._count = 0  # size of the chunks that are not acknowledged, and how many chunks there were
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None

    def send_stepdata(self, path: str, stepdata: Any) -> None:
        """Keep `stepdata` until its metadata come: the content of a chunk, encoded or as samples, or one sample.

        The samples of a table are encoded when they are sent, those of a list at once, as the list may change.
        """
        if self.queue.is_closed:
            return
        table = table_of(stepdata)
        kept: tuple[Table | bytes, str | None]
        if isinstance(stepdata, bytes):
            kept = stepdata, None
        elif table is not None and all(column.kind is not Kind.OBJECT for column in columns_of(table.columns)):
            has_rows = any(column.rows is not None for column in columns_of(table.columns))
            kept = (table.compact() if has_rows else table), None  # rows hold the arrays of whole trajectories
        else:  # objects may change until they are sent
            kept = encode_chunk(stepdata if isinstance(stepdata, list | Table) else [stepdata], "none"), "none"
        self._unannounced[os.path.basename(path)] = kept

    send_stepdata.takes_samples = True  # type: ignore[attr-defined]

    def report(self, rows: Items) -> dict[str, Any]:
        return {"pushed": rows_of(rows)[0] if rows else None}

    def send_metadata(self, metadata: Table | Row | Sequence[Row]) -> None:
        """Send the metadata of the samples of a chunk, or an info; see `CollectorSession`.

        Raises:
            AssertionError: there is no such chunk.
            Exception: an earlier call to a shard has raised it.
        """
        if isinstance(metadata, Table):  # a SampleSender has made it: it is complete, and belongs to one chunk
            self._push(metadata)
            return
        entries = check_metadata(metadata)
        rows = [entry for entry in entries if "data_id" in entry]
        for name in dict.fromkeys(row["data_id"] for row in rows):
            self._push([row for row in rows if row["data_id"] == name])
        infos = [entry for entry in entries if "data_id" not in entry]
        if any(info.get("collector_done") for info in infos):
            self._wait(lambda: not self._bytes)
        if infos:
            self.queue.put(infos, self._send_timeout_s)

    send_metadata.takes_table = True  # type: ignore[attr-defined]

    def _push(self, rows: Table | list[Row]) -> None:
        last = rows.take(slice(-1, None)).rows()[0] if isinstance(rows, Table) else dict(rows[-1])
        name = str(last["data_id"])
        kept = self._unannounced.pop(os.path.basename(name), None)
        if self.queue.is_closed:
            return
        if kept is None:
            raise AssertionError(f"metadata name the chunk {name!r}, which was not sent before, or was sent twice")
        content, compressor = kept
        if compressor is None:
            compressor = str(last.get("compressor", "none"))
        size_bytes = len(content) if isinstance(content, bytes) else _size_bytes(content)
        samples = with_metadata(
            decode_chunk(content, compressor) if isinstance(content, bytes) else content, _of_shard(rows)
        )
        self._wait(lambda: not self._bytes or self._bytes + size_bytes <= self._limit_bytes)
        if self.queue.is_closed:
            return
        with self._changed:
            self._bytes += size_bytes
            self._queues[self._count % len(self._queues)].append(_Chunk(samples, last, compressor, size_bytes))
            self._count += 1
            self._changed.notify_all()
        if self._thread is None:
            self._thread = threading.Thread(target=self._send_chunks, name="push_samples", daemon=True)
            self._thread.start()

    def _wait(self, is_there: Callable[[], bool]) -> None:
        """Wait for the shards until `is_there` returns True.

        Raises:
            TimeoutError: it takes too long.
            Exception: a call to a shard has raised it.
        """
        with self._changed:
            is_over = self._changed.wait_for(
                lambda: self.queue.is_closed or self._error is not None or is_there(), self._send_timeout_s
            )
            if self._error is not None:
                raise self._error
            if not is_over:
                raise TimeoutError(
                    f"the shards of the replay buffer have taken nothing for {self._send_timeout_s:g} s, and "
                    f"{self._bytes} bytes of samples wait for them"
                )

    # ---- the thread that calls the shards

    def _send_chunks(self) -> None:
        while (call := self._next_call()) is not None:
            shard, chunks = call
            try:
                parts = list(_encoded(chunks))
            except Exception as e:  # the collector raises it when it sends next
                self._fail(e)
                return
            future = self._shards[shard].call("push", parts)
            future.add_done_callback(partial(self._take_answer, shard, chunks))

    def _next_call(self) -> tuple[int, list[_Chunk]] | None:
        """Wait for chunks and a shard that can take them, and return both; None after `close` or an error."""
        with self._changed:
            while not (self.queue.is_closed or self._error):
                waiting = [shard for shard, queue in enumerate(self._queues) if queue and self._is_idle[shard]]
                now = monotonic()
                for shard in waiting:
                    if self._begin_s[shard] <= now:
                        self._is_idle[shard] = False
                        return shard, _taken(self._queues[shard])
                self._changed.wait(min((self._begin_s[shard] - now for shard in waiting), default=None))
        return None

    def _take_answer(self, shard: int, chunks: list[_Chunk], future: Future[int]) -> None:
        """Handle the answer of a shard to a call; any thread may call this."""
        error = CancelledError() if future.cancelled() else future.exception()
        with self._changed:
            self._is_idle[shard] = True
            if isinstance(error, (ShardLost, CancelledError)):
                self._begin_s[shard] = monotonic() + _PAUSE_S
                self._queues[(shard + 1) % len(self._queues)].extendleft(reversed(chunks))
            elif error is None or isinstance(error, ShardClosed):
                taken, dropped = (future.result(), 0) if error is None else (0, sum(len(c.samples) for c in chunks))
                self._bytes -= sum(chunk.size_bytes for chunk in chunks)
                self.queue.add_pushed(chunks[-1].last, taken, dropped)
            else:
                self._error = self._error or error
            self._changed.notify_all()

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()

    def close(self) -> None:
        """End all waits; calls under way may still arrive. Further calls do nothing."""
        self.queue.close()
        with self._changed:
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_JOIN_S)


def _size_bytes(table: Table) -> int:
    return sum(column.itemsize * len(column) for column in columns_of(table.columns))


def _taken(queue: deque[_Chunk]) -> list[_Chunk]:
    """Remove the chunks of the next call, at least one, from the queue and return them."""
    chunks = [queue.popleft()]
    size_bytes = chunks[0].size_bytes
    while queue and size_bytes + queue[0].size_bytes <= _CALL_BYTES:
        chunks.append(queue.popleft())
        size_bytes += chunks[-1].size_bytes
    return chunks


def _encoded(chunks: Sequence[_Chunk]) -> Iterator[tuple[bytes, str]]:
    """Yield the arguments of `ReplayShard.push`; chunks of one form are encoded together, in the time of one."""
    for compressor, group in groupby(chunks, key=attrgetter("compressor")):
        several = [chunk.samples for chunk in group]
        whole = whole_of(several)
        for samples in [whole] if isinstance(whole, Table) else several:
            yield encode_chunk(samples, compressor), compressor


def _of_shard(rows: Table | list[Row]) -> Items:
    """Return the metadata as a shard takes them, without the entries that locate the chunk."""
    if isinstance(rows, Table):
        return rows.without(*_OF_CHUNK)
    complete = ({"collect_iter": row["policy_iter"], **row} for row in rows)
    return [{key: value for key, value in row.items() if key not in _OF_CHUNK} for row in complete]
