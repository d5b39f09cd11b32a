"""Sends the samples of one task to the shards of the replay buffer."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from functools import partial
from itertools import groupby
from operator import attrgetter
from time import monotonic
from typing import Any, NamedTuple

from ding.utils.data.samples import Items, Kind, Table, columns_of, table_of, whole_of
from ding.worker.collector.comm.session import CollectorQueue, CollectorSession, Row, check_metadata
from ding.worker.transport.chunk import decode_chunk, encode_chunk
from ding.worker.transport.ray.shard import Shard, ShardClosed, ShardLost, with_metadata
from ding.worker.transport.stores import PolicyStore

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
        samples: with their metadata.
        last: the metadata of the last one.
    """

    samples: Items
    last: Row
    compressor: str
    size_bytes: int


class ShardSession(CollectorSession):
    """Sends samples to the shards in turn; see `FileSession`.

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

        Those of a table are encoded when they are sent, those of a list at once, as the list may change.
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

    def report(self, rows: Sequence[Row]) -> dict[str, Any]:
        return {"pushed": rows[0] if rows else None}

    def send_metadata(self, metadata: Table | Row | Sequence[Row]) -> None:
        """See `CollectorSession`.

        Raises:
            AssertionError: there is no such chunk.
            Exception: what a shard has raised when it was sent samples before.
        """
        if isinstance(metadata, Table):  # of a SampleSender: complete, and of one chunk
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
        """Wait for the shards.

        Raises:
            TimeoutError: it takes too long.
            Exception: what a shard has raised.
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
        """Wait for chunks and a shard that can take them; None after `close` or an error."""
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
        """Called in any thread."""
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
        """End all waits; calls under way may still arrive. Idempotent."""
        self.queue.close()
        with self._changed:
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_JOIN_S)


def _size_bytes(table: Table) -> int:
    return sum(column.itemsize * len(column) for column in columns_of(table.columns))


def _taken(queue: deque[_Chunk]) -> list[_Chunk]:
    """The chunks of the next call, at least one; they leave the queue."""
    chunks = [queue.popleft()]
    size_bytes = chunks[0].size_bytes
    while queue and size_bytes + queue[0].size_bytes <= _CALL_BYTES:
        chunks.append(queue.popleft())
        size_bytes += chunks[-1].size_bytes
    return chunks


def _encoded(chunks: Sequence[_Chunk]) -> Iterator[tuple[bytes, str]]:
    """Yield the arguments of `ReplayShard.push`; chunks that are alike are encoded together, in the time of one."""
    for compressor, group in groupby(chunks, key=attrgetter("compressor")):
        several = [chunk.samples for chunk in group]
        whole = whole_of(several)
        for samples in [whole] if isinstance(whole, Table) else several:
            yield encode_chunk(samples, compressor), compressor


def _of_shard(rows: Table | list[Row]) -> Items:
    """Metadata as a shard takes them, without those that locate the chunk."""
    if isinstance(rows, Table):
        return rows.without(*_OF_CHUNK)
    complete = ({"collect_iter": row["policy_iter"], **row} for row in rows)
    return [{key: value for key, value in row.items() if key not in _OF_CHUNK} for row in complete]
