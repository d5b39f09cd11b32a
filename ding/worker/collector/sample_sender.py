"""Sends a collector's samples, many at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any

import numpy as np

from ding.worker.transport.chunk import encode_chunk

Row = dict[str, Any]


def check_compressor(name: str) -> None:
    """Find out now, not when the first samples are there, whether samples can be compressed.

    Raises:
        ImportError: the package that it needs is not installed.
    """
    encode_chunk([{}], name)


class SampleSender:
    """Puts samples into chunks, sends each, and then the metadata of its samples.

    Args:
        prefix: of the names of the chunks; no other sender may use it.
        send_stepdata: takes the name and the content of a chunk; what it returns, if anything, goes into the metadata.
        send_metadata: takes the metadata of the samples of a chunk, one dict each.
        compressor: see `encode_chunk`.
        chunk_size: samples of a chunk, at least; a piece of trajectory is never split.
        flush_interval_s: how long a sample may wait for others.

    Attributes:
        sent: how many samples were sent.

    Example:
        >>> chunks, rows = {}, []
        >>> sender = SampleSender("env_a", chunks.__setitem__, rows.extend, "lz4", chunk_size=2, flush_interval_s=0.2)
        >>> sender.on_samples(env_id=3, number=2)
        >>> if sender.is_due():
        ...     sender.send([{"obs": 1.0}, {"obs": 2.0}], {"policy_iter": 7})
        >>> list(chunks), [(row["data_id"], row["data_index"], row["env_id"], row["policy_iter"]) for row in rows]
        (['env_a_0'], [('env_a_0', 0, 3, 7), ('env_a_0', 1, 3, 7)])
    """

    def __init__(
        self,
        prefix: str,
        send_stepdata: Callable[[str, bytes], Any],
        send_metadata: Callable[[list[Row]], None],
        compressor: str,
        chunk_size: int,
        flush_interval_s: float,
    ) -> None:
        self._prefix = prefix
        self._send_stepdata, self._send_metadata = send_stepdata, send_metadata
        self._compressor = compressor
        self._chunk_size, self._flush_interval_s = chunk_size, flush_interval_s
        self._env_ids: deque[int] = deque()  # of the samples that wait
        self._oldest_s = 0.0
        self._chunks = 0
        self.sent = 0

    def on_samples(self, env_id: int, number: int) -> None:
        """So many samples of this env wait now, after those that waited before."""
        if number and not self._env_ids:
            self._oldest_s = monotonic()
        self._env_ids.extend([env_id] * number)

    def is_due(self) -> bool:
        """Whether there are samples enough for a chunk, or one has waited long enough."""
        waiting = len(self._env_ids)
        if waiting >= self._chunk_size:
            return True
        return waiting > 0 and monotonic() - self._oldest_s >= self._flush_interval_s

    def send(self, samples: Sequence[Any], common: Row) -> None:
        """Send `samples`, all those that wait; `common` goes into the metadata of each.

        A sample may say its `priority` (1.0) and its `collect_iter`, the iteration of the policy that made it (else
        `common["policy_iter"]`).
        """
        if not samples:
            return
        name = f"{self._prefix}_{self._chunks}"
        self._chunks += 1
        common = {**common, "data_id": name, "compressor": self._compressor}
        reference = self._send_stepdata(name, encode_chunk(samples, self._compressor))
        if reference:
            common["object_ref"] = reference
        rows = []
        for index, sample in enumerate(samples):
            self.sent += 1
            own = {"data_index": index, "env_id": self._env_ids.popleft(), "cur_sample": self.sent}
            rows.append({**common, **own, **_facts(sample, common["policy_iter"])})
        self._send_metadata(rows)


def _facts(sample: Any, policy_iter: int) -> Row:
    """What a sample tells of itself: a dict, of lists for several steps, or a list of dicts."""
    first = sample[0] if isinstance(sample, list) and sample else sample
    if not isinstance(first, Mapping):
        first = {}
    steps = first.get("collect_iter", policy_iter)
    collect_iter = int(_first(steps))
    if isinstance(sample, list):
        length = len(sample)
    else:
        length = len(steps) if isinstance(steps, list) else 1
    return {
        "policy_iter": collect_iter,
        "collect_iter": collect_iter,
        "unroll_len": length,
        "priority": float(_first(first.get("priority", 1.0))),
    }


def _first(value: Any) -> Any:
    """The number that `value` is, or begins with."""
    return value if isinstance(value, (int, float)) else np.ravel(value)[0]
