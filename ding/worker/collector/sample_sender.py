"""Sends a collector's samples in chunks, each followed by the metadata of its samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any, NamedTuple

import numpy as np

from ding.utils.data.samples import Column, Kind, Node, Samples, map_node, node_items, pack, whole_of
from ding.worker.transport.chunk import encode_chunk

Row = dict[str, Any]


def check_compressor(name: str) -> None:
    """Check the compressor before the first samples arrive.

    Raises:
        ImportError: the package that it needs is not installed.
    """
    encode_chunk([{}], name)


class Piece(NamedTuple):
    """Metadata of consecutive samples of a chunk.

    Attributes:
        size: number of samples.
        common: the entries that all of them share.
        columns: what differs: arrays [size] of int64, or of float64 for `priority`.
    """

    size: int
    common: Row
    columns: dict[str, np.ndarray]

    def is_like(self, other: Piece) -> bool:
        """Whether both may stand in one `Metadata`."""
        return self.common.keys() == other.common.keys() and self.columns.keys() == other.columns.keys()


class Metadata(Samples):
    """The metadata of the samples of a chunk: one dict for each, made when one is first read.

    Making this and joining it with others (`joined_metadata`) takes an eighth of the time of making the dicts.
    """

    __slots__ = ("pieces",)

    def __init__(self, pieces: Sequence[Piece]) -> None:
        super().__init__(self._columns_of_pieces, size=sum(piece.size for piece in pieces))
        self.pieces = list(pieces)

    def last(self) -> Row:
        """The metadata of the last sample, without making those of the others."""
        piece = self.pieces[-1]
        return {**piece.common, **{key: values[-1].item() for key, values in piece.columns.items()}}

    def _columns_of_pieces(self) -> dict[str, Node]:
        pieces = self.pieces
        owner = np.repeat(np.arange(len(pieces)), [piece.size for piece in pieces])  # of each sample
        columns: dict[str, Node] = {}
        for key in pieces[0].common:
            values = pack([piece.common[key] for piece in pieces])
            columns[key] = map_node(lambda column: column.take(owner), values)
        for key in pieces[0].columns:
            kind = Kind.FLOAT if key == "priority" else Kind.INT
            columns[key] = Column(kind, np.concatenate([piece.columns[key] for piece in pieces]))
        return columns


def joined_metadata(parts: Sequence[Metadata]) -> Metadata | None:
    """The metadata of several chunks in order; None if they have different keys, or an item has been read."""
    pieces = [piece for part in parts if part.has_columns for piece in part.pieces]
    is_alike = all(part.has_columns for part in parts) and all(map(pieces[0].is_like, pieces))
    return Metadata(pieces) if is_alike else None


class SampleSender:
    """Puts samples into chunks, sends each, and then the metadata of its samples.

    Args:
        prefix: of the names of the chunks; no other sender may use it.
        send_stepdata: takes the name and the content of a chunk; its return value, if any, goes into the metadata.
            A function with a true attribute `takes_samples` gets the samples themselves, which it must not change,
            and their metadata come in columns (`Metadata`); any other gets encoded samples.
        send_metadata: takes the metadata of the samples of a chunk, one dict each.
        compressor: see `encode_chunk`.
        chunk_size: samples of a chunk, at least; a piece of trajectory is never split.
        flush_interval_s: how long a sample may wait for others.

    Attributes:
        sent: how many samples were sent.

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
        send_metadata: Callable[[list[Row]], None],
        compressor: str,
        chunk_size: int,
        flush_interval_s: float,
    ) -> None:
        self._prefix = prefix
        self._send_stepdata, self._send_metadata = send_stepdata, send_metadata
        self._compressor = compressor
        self._chunk_size, self._flush_interval_s = chunk_size, flush_interval_s
        self._waiting: list[tuple[Sequence[Any], Row]] = []  # samples, and the metadata they share
        self._count = 0  # of samples that wait
        self._oldest_s = 0.0
        self._chunks = 0
        self.sent = 0

    def add(self, samples: Sequence[Any], env_id: int, collect_iter: int, **more: Any) -> None:
        """`samples` wait now, after those that waited before.

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
        """Whether there are samples enough for a chunk, or one has waited long enough."""
        if self._count >= self._chunk_size:
            return True
        return self._count > 0 and monotonic() - self._oldest_s >= self._flush_interval_s

    def send(self, common: Row) -> None:
        """Send all samples that wait; `common` goes into the metadata of each.

        A sample may say its `priority` (1.0) and its `collect_iter`.
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
        metadata = self._metadata(waiting, common) if takes_samples else None
        self._send_metadata(self._rows(waiting, common) if metadata is None else metadata)

    def _metadata(self, waiting: Sequence[tuple[Sequence[Any], Row]], common: Row) -> Metadata | None:
        """The metadata of all samples in columns; None if the samples have to be read one by one."""
        pieces: list[Piece] = []
        start = 0
        for samples, own in waiting:
            piece = self._piece(samples, {**common, **own}, start)
            if piece is None or (pieces and not piece.is_like(pieces[0])):
                return None
            pieces.append(piece)
            start += piece.size
        self.sent += start
        return Metadata(pieces)

    def _piece(self, samples: Sequence[Any], common: Row, start: int) -> Piece | None:
        """The metadata of samples in columns; None if the samples have to be read one by one."""
        columns = samples.columns if isinstance(samples, Samples) else None
        if columns is None:
            return None
        size = len(samples)
        index = np.arange(start, start + size)
        own: dict[str, np.ndarray] = {"data_index": index, "cur_sample": index + (self.sent + 1)}
        common = {**common, "collect_iter": int(_first(common["collect_iter"])), "unroll_len": 1, "priority": 1.0}
        for key, dtype in (("collect_iter", np.int64), ("priority", np.float64)):
            column = columns.get(key)
            if column is None:
                continue
            if not isinstance(column, Column) or column.kind is Kind.OBJECT:
                return None
            values = column.values()
            own[key] = values.reshape(size, -1)[:, 0].astype(dtype)
            if key == "collect_iter" and column.steps:
                common["unroll_len"] = values.shape[1]
        if "policy_iter" not in common:
            if "collect_iter" in own:
                own["policy_iter"] = own["collect_iter"]
            else:
                common["policy_iter"] = common["collect_iter"]
        return Piece(size, {key: value for key, value in common.items() if key not in own}, own)

    def _rows(self, waiting: Sequence[tuple[Sequence[Any], Row]], common: Row) -> list[Row]:
        rows: list[Row] = []
        for samples, own in waiting:
            for facts in _facts_of_all(samples, own["collect_iter"]):
                self.sent += 1
                place = {"data_index": len(rows), "cur_sample": self.sent, "policy_iter": facts["collect_iter"]}
                rows.append({**common, **place, **own, **facts})
        return rows


def _facts_of_all(samples: Sequence[Any], collect_iter: int) -> list[Row]:
    """The facts that each sample holds; `collect_iter` is for samples without their own."""
    columns = samples.columns if isinstance(samples, Samples) else None
    if columns is None:
        return [_facts(sample, collect_iter) for sample in samples]
    keys = [key for key in ("collect_iter", "priority") if key in columns]
    held = [dict(zip(keys, row, strict=True)) for row in zip(*(node_items(columns[key]) for key in keys), strict=True)]
    return [_facts(sample, collect_iter) for sample in held or [{}] * len(samples)]


def _facts(sample: Any, collect_iter: int) -> Row:
    """The facts that a sample holds: a dict, of lists for several steps, or a list of dicts."""
    first = sample[0] if isinstance(sample, list) and sample else sample
    if not isinstance(first, Mapping):
        first = {}
    steps = first.get("collect_iter", collect_iter)
    if isinstance(sample, list):
        length = len(sample)
    else:
        length = len(steps) if isinstance(steps, list) else 1
    return {
        "collect_iter": int(_first(steps)),
        "unroll_len": length,
        "priority": float(_first(first.get("priority", 1.0))),
    }


def _first(value: Any) -> Any:
    """The number that `value` is, or begins with."""
    return value if isinstance(value, (int, float)) else np.ravel(value)[0]
