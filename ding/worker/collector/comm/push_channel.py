"""The way of one task's samples into the shards of the replay buffer, and of its infos and weights."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future
from functools import partial
from time import monotonic
from typing import Any, NamedTuple

from ding.utils.data.samples import Samples
from ding.worker.collector.comm.channel import WeightsChannel, check_metadata
from ding.worker.collector.comm.exchange import CollectorExchange
from ding.worker.transport.chunk import encode_chunk
from ding.worker.transport.ray.shard import Shard, ShardClosed, ShardLost
from ding.worker.transport.stores import PolicyStore

# Metadata that say where a chunk lies: in a shard there are no chunks.
_OF_CHUNK = frozenset(("data_id", "compressor", "object_ref"))
# Before what a lost shard has not taken is sent to another.
_PAUSE_S = 0.1


class _Chunk(NamedTuple):
    """Samples on their way."""

    data: bytes
    rows: bytes
    compressor: str
    size: int
    newest: dict[str, Any]
    number: int  # counts the attempts, too

    @property
    def size_bytes(self) -> int:
        return len(self.data) + len(self.rows)


class PushChannel(WeightsChannel):
    """Sends samples to the shards in turn; see `TaskChannel`.

    What a lost shard has not acknowledged is sent to the next one; samples for a closed buffer are dropped. An info
    that says `collector_done` waits until all samples are acknowledged. One thread sends.

    Args:
        limit_bytes: what may be on its way; whoever sends more has to wait. One chunk may always be.
        send_timeout_s: how long sending may wait for the shards, or the coordinator.
    """

    def __init__(
        self,
        shards: Sequence[Shard],
        policies: PolicyStore,
        exchange: CollectorExchange,
        limit_bytes: int,
        send_timeout_s: float,
    ) -> None:
        super().__init__(policies, exchange)
        self._shards, self._limit_bytes, self._send_timeout_s = list(shards), limit_bytes, send_timeout_s
        self._unannounced: dict[str, bytes] = {}  # chunks whose metadata have not come yet
        self._changed = threading.Condition()
        self._bytes = 0  # on their way
        self._again: deque[_Chunk] = deque()  # those that were lost on their way
        self._error: BaseException | None = None
        self._number = 0

    def send_stepdata(self, path: str, stepdata: Any) -> None:
        """Keep `stepdata` for the metadata that name it: the content of a chunk, or else one sample."""
        if not self.exchange.is_closed:
            data = stepdata if isinstance(stepdata, bytes) else encode_chunk([stepdata], "none")
            self._unannounced[os.path.basename(path)] = data

    def send_metadata(self, metadata: dict[str, Any] | Sequence[dict[str, Any]]) -> None:
        """Send the samples of a chunk with their metadata, one dict for each, to a shard; or queue an info.

        Raises:
            AssertionError: see `check_metadata`; or there is no such chunk.
            TimeoutError: neither the shards nor the coordinator take anything.
            Exception: what a shard has raised when it was sent samples before.
        """
        entries = check_metadata(metadata)
        rows = [entry for entry in entries if "data_id" in entry]
        if rows:
            self._push(rows)
        infos = [entry for entry in entries if "data_id" not in entry]
        if any(info.get("collector_done") for info in infos):
            self._wait(lambda: not self._bytes)
        if infos:
            self.exchange.put(infos, self._send_timeout_s)

    def _push(self, rows: Sequence[dict[str, Any]]) -> None:
        for name, own in _by_chunk(rows).items():
            data = self._unannounced.pop(os.path.basename(name), None)
            if self.exchange.is_closed:
                return
            if data is None:
                raise AssertionError(f"metadata name the chunk {name!r}, which was not sent before, or was sent twice")
            newest = dict(own[-1])
            self._number += 1
            chunk = _Chunk(data, _encoded(own), str(newest.get("compressor", "none")), len(own), newest, self._number)
            self._wait(lambda chunk=chunk: not self._bytes or self._bytes + chunk.size_bytes <= self._limit_bytes)
            if self.exchange.is_closed:
                return
            with self._changed:
                self._bytes += chunk.size_bytes
            self._send(chunk)

    def _send(self, chunk: _Chunk) -> None:
        shard = self._shards[chunk.number % len(self._shards)]
        future = shard.call("push", chunk.data, chunk.rows, chunk.compressor)
        future.add_done_callback(partial(self._take_answer, chunk))

    def _take_answer(self, chunk: _Chunk, future: Future[int]) -> None:
        """Called in any thread."""
        error = CancelledError() if future.cancelled() else future.exception()
        with self._changed:
            if isinstance(error, (ShardLost, CancelledError)):
                self._again.append(chunk._replace(number=chunk.number + 1))
            else:
                self._bytes -= chunk.size_bytes
                if error is None:
                    self.exchange.tell_pushed(chunk.newest, future.result(), 0)
                elif isinstance(error, ShardClosed):
                    self.exchange.tell_pushed(chunk.newest, 0, chunk.size)
                else:
                    self._error = self._error or error
            self._changed.notify_all()

    def _wait(self, is_there: Any) -> None:
        """Wait for the shards, and send again what was lost on its way."""
        deadline = monotonic() + self._send_timeout_s
        while not self.exchange.is_closed:
            with self._changed:
                self._changed.wait_for(
                    lambda: self.exchange.is_closed or self._error or self._again or is_there(), deadline - monotonic()
                )
                if self._error is not None:
                    raise self._error
                again = list(self._again)
                self._again.clear()
                if not again and is_there():
                    return
            if monotonic() >= deadline:
                raise TimeoutError(
                    f"the shards of the replay buffer have taken nothing for {self._send_timeout_s:g} s, and "
                    f"{self._bytes} bytes of samples wait for them"
                )
            if again:
                self.exchange.wait_closed(_PAUSE_S)
            for chunk in again:
                self._send(chunk)

    def close(self) -> None:
        """End all waits; what is on its way may still arrive. Idempotent."""
        self.exchange.close()
        with self._changed:
            self._changed.notify_all()


def _by_chunk(rows: Sequence[dict[str, Any]]) -> dict[str, Sequence[dict[str, Any]]]:
    names = [row["data_id"] for row in rows]
    if names.count(names[0]) == len(names):
        return {names[0]: rows}
    return {name: [row for row in rows if row["data_id"] == name] for name in dict.fromkeys(names)}


def _encoded(rows: Sequence[dict[str, Any]]) -> bytes:
    """Metadata as a shard takes them, without what says where the chunk lies."""
    samples = Samples.of(rows)
    columns = None if samples is None else samples.columns
    if columns is not None and "collect_iter" in columns:
        kept = {key: node for key, node in columns.items() if key not in _OF_CHUNK}
        return encode_chunk(Samples(kept, size=len(rows)), "none")
    told = [{"collect_iter": row["policy_iter"], **row} for row in rows]
    return encode_chunk([{key: value for key, value in row.items() if key not in _OF_CHUNK} for row in told], "none")
