"""The sending of a collector's samples in chunks, each followed by the metadata of its samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any

import numpy as np
import numpy.typing as npt

from ding.utils.data.samples import (
    Column,
    IntArray,
    Items,
    Kind,
    Table,
    map_node,
    node_items,
    pack,
    rows_of,
    table_of,
    whole_of,
)
from ding.worker.transport.chunk import encode_chunk

Row = dict[str, Any]
FloatArray = npt.NDArray[np.float64]


class SampleSender:
    """A sender that puts samples into chunks, and sends each chunk and then the metadata of its samples.

    Args:
        prefix: prefix of the names of the chunks; no other sender may use it.
        send_stepdata: takes the name and the content of a chunk; its return value, if any, goes into the metadata.
            A function with a true attribute `takes_samples` gets the samples themselves, which it must not change;
            any other gets encoded samples.
        send_metadata: takes the metadata of the samples of a chunk, one dict each; a function with a true attribute
            `takes_table` gets a `Table`.
        compressor: see `encode_chunk`.
        chunk_size: least number of samples of a chunk; a piece of trajectory is never split.
        flush_interval_s: how long a sample may wait for others.

    Attributes:
        sent: number of samples sent.

    Example:
        >>> chunks, rows = {}, []
        >>> sender = SampleSender("env_a", chunks.__setitem__, rows.extend, "lz4", chunk_size=2, flush_interval_s=0.2)
        >>> sender.add([{"obs": 1.0}, {"obs": 2.0}], env_id=3, collect_iter=7)
        >>> if sender.is_due():
        ...     sender.send({"cur_step": 2})
        >>> list(chunks), [(row["data_id"], row["data_index"], row["env_id"], row["policy_iter"]) for row in rows]
        (['env_a_0'], [('env_a_0', 0, 3, 7), ('env_a_0', 1, 3, 7)])
    """

    def __init__(
        self,
        prefix: str,
        send_stepdata: Callable[[str, Any], Any],
        send_metadata: Callable[[Any], None],
        compressor: str,
        chunk_size: int,
        flush_interval_s: float,
    ) -> None:
        self._prefix = prefix
        self._send_stepdata, self._send_metadata = send_stepdata, send_metadata
        self._compressor = compressor
        self._chunk_size, self._flush_interval_s = chunk_size, flush_interval_s
        self._waiting: list[tuple[Items, Row]] = []  # samples, and the metadata they share
        self._count = 0  # number of samples that wait
        self._oldest_s = 0.0
        self._chunks = 0
        self.sent = 0

    def add(self, samples: Items, env_id: int, collect_iter: int, **more: Any) -> None:
        """Add `samples` to those that wait to be sent.

        Args:
            collect_iter: the iteration of the policy that made them, where a sample does not say so itself.
            more: goes into their metadata; `policy_iter` is the sample's `collect_iter` unless it is given here.
        """
        if not samples:
            return
        if not self._waiting:
            self._oldest_s = monotonic()
        self._waiting.append((samples, {"env_id": env_id, "collect_iter": collect_iter, **more}))
        self._count += len(samples)

    def is_due(self) -> bool:
        """Return whether there are enough samples for a chunk, or one has waited long enough."""
        if self._count >= self._chunk_size:
            return True
        return self._count > 0 and monotonic() - self._oldest_s >= self._flush_interval_s

    def send(self, common: Row) -> None:
        """Send all samples that wait; the entries of `common` go into the metadata of each.

        A sample may state its `priority` (default 1.0) and its `collect_iter`; None counts as not stated.

        Raises:
            TypeError: one of them is neither a number nor None.
        """
        if not self._waiting:
            return
        waiting, self._waiting, self._count = self._waiting, [], 0
        name = f"{self._prefix}_{self._chunks}"
        self._chunks += 1
        common = {**common, "data_id": name, "compressor": self._compressor}
        whole = whole_of([samples for samples, _ in waiting])
        takes_samples = getattr(self._send_stepdata, "takes_samples", False)
        reference = self._send_stepdata(name, whole if takes_samples else encode_chunk(whole, self._compressor))
        if reference:
            common["object_ref"] = reference
        metadata = self._metadata(whole, [{**common, **own} for _, own in waiting], [len(part) for part, _ in waiting])
        self._send_metadata(metadata if getattr(self._send_metadata, "takes_table", False) else metadata.rows())

    def _metadata(self, samples: Items, shared: list[Row], sizes: list[int]) -> Table:
        """Return the metadata of samples; the first `sizes[0]` of them share `shared[0]`, and so on."""
        owner = np.repeat(np.arange(len(sizes)), sizes)
        columns = {key: pack([row[key] for row in shared]) for key in shared[0]}
        columns = {key: map_node(lambda column: column.take(owner).compact(), node) for key, node in columns.items()}
        iterations, lengths, priorities = _facts(samples, [row["collect_iter"] for row in shared], owner)
        columns["collect_iter"] = Column(Kind.INT, iterations)
        columns["unroll_len"] = Column(Kind.INT, lengths)
        columns["priority"] = Column(Kind.FLOAT, priorities)
        columns["data_index"] = Column(Kind.INT, np.arange(len(owner)))
        columns["cur_sample"] = Column(Kind.INT, np.arange(len(owner)) + (self.sent + 1))
        columns.setdefault("policy_iter", columns["collect_iter"])
        self.sent += len(owner)
        return Table(columns)


Facts = tuple[IntArray, IntArray, FloatArray]


def _facts(samples: Items, iterations: list[Any], owner: IntArray) -> Facts:
    """Return iterations, lengths and priorities of samples; `iterations[owner[i]]` where sample i has no iteration."""
    table = table_of(samples)
    if table is None:
        return _facts_of_items(rows_of(samples), iterations, owner)
    held = {key: table.columns[key] for key in ("collect_iter", "priority") if key in table.columns}
    if any(not isinstance(column, Column) or column.kind is Kind.OBJECT for column in held.values()):
        items = [dict(zip(held, item, strict=True)) for item in zip(*map(node_items, held.values()), strict=True)]
        return _facts_of_items(items, iterations, owner)
    size = len(owner)
    values = {key: column.values().reshape(size, -1) for key, column in held.items()}
    own = values["collect_iter"] if "collect_iter" in held else np.array(list(map(_first, iterations)))[owner, None]
    length = held["collect_iter"].values().shape[1] if "collect_iter" in held and held["collect_iter"].steps else 1
    priorities = values["priority"][:, 0] if "priority" in held else np.ones(size)
    return own[:, 0].astype(np.int64), np.full(size, length), priorities.astype(np.float64)


def _facts_of_items(items: Sequence[Any], iterations: list[Any], owner: IntArray) -> Facts:
    facts = []
    for item, number in zip(items, owner.tolist(), strict=True):
        # A dict, of lists for several steps; a list of dicts; or something else.
        first = item[0] if isinstance(item, list) and item else item
        first = first if isinstance(first, Mapping) else {}
        steps = first.get("collect_iter", iterations[number])
        of_steps = item if isinstance(item, list) else steps
        length = len(of_steps) if isinstance(of_steps, list) else 1
        iteration = _number("collect_iter", steps, iterations[number])
        facts.append((int(iteration), length, _number("priority", first.get("priority"), 1.0)))
    of_all, lengths, priorities = zip(*facts, strict=True)
    return np.array(of_all, np.int64), np.array(lengths, np.int64), np.array(priorities, np.float64)


def _number(key: str, said: Any, default: Any) -> float:
    """Return the number that a sample states under a key; `default` if it is None."""
    try:
        first = _first(said)
        return float(_first(default) if first is None else first)
    except (TypeError, ValueError, IndexError) as e:
        raise TypeError(f"a sample says {key} = {said!r:.200}; it must be a number, or None if it says nothing") from e


def _first(value: Any) -> Any:
    """Return `value` if it is a number, else the first number in it."""
    return value if isinstance(value, (int, float)) else np.ravel(value)[0]
