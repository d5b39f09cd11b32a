"""A log of rounds: what collectors record, in arrays of a fixed capacity that are written one round after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ding.utils.data.plain_columns import node_of_state, node_state
from ding.utils.data.samples import Column, Kind, Node, Samples, map_node, node_items
from ding.worker.collector.batch import tensorised

# Codes for the end flags in the info of a step, see `_end_code`.
_TERMINATED_TOLD, _TERMINATED, _TRUNCATED_TOLD, _TRUNCATED = 1, 2, 4, 8
_TOLD = _TERMINATED_TOLD | _TRUNCATED_TOLD


def _end_code(info: Any) -> int:
    """The flags `terminated` and `truncated` of an info, and whether it has them, as one small number."""
    if type(info) is dict and info.get("terminated") is False and info.get("truncated") is False:
        return _TOLD  # most steps
    code = 0
    if "terminated" in info:
        code = _TERMINATED_TOLD | _TERMINATED if info["terminated"] else _TERMINATED_TOLD
    if "truncated" in info:
        code |= _TRUNCATED_TOLD | _TRUNCATED if info["truncated"] else _TRUNCATED_TOLD
    return code


class RoundLog:
    """Rounds one after the other, in arrays of a fixed capacity; what is written stays.

    Attributes:
        has_dicts: whether the transitions are somewhere else, but for observations and end flags.
        codes: see `_end_code`.
    """

    def __init__(self, obs: Node, columns: Mapping[str, Node], has_dicts: bool, capacity: int) -> None:
        self.has_dicts = has_dicts
        self._capacity = capacity
        # What fits: nodes without rows.
        self._obs_like = map_node(_emptied, obs)
        self._columns_like = {key: map_node(_emptied, node) for key, node in columns.items()}
        self._obs = map_node(lambda column: _array(column, 2 * capacity), obs)
        self._columns = {key: map_node(lambda column: _array(column, capacity), node) for key, node in columns.items()}
        self._size = self._obs_size = 0
        # Where nothing is written it is false.
        self.codes = np.zeros(capacity, np.uint8)
        self._done = np.zeros(capacity, np.bool_)
        self._flagged_by_all, self._flagged_by_any = _TOLD, 0
        self._iterations: list[tuple[int, int]] = []  # (row, collect_iter from there on)

    def has_room(self, number: int) -> bool:
        """Whether a round of so many envs can be added."""
        return self._size + number <= self._capacity

    def fits(self, obs: Node, columns: Mapping[str, Node], has_dicts: bool) -> bool:
        """Whether such a round can be added."""
        like = self._columns_like
        if self.has_dicts is not has_dicts or like.keys() != columns.keys() or not is_alike(self._obs_like, obs):
            return False
        for key, node in columns.items():  # noqa: SIM110 (a generator doubles the time)
            if not is_alike(like[key], node):
                return False
        return True

    def add_obs(self, obs: Node, some: Sequence[int], number: int) -> int:
        """Append observations of so many envs, or `some` of them; return the row of the first."""
        start = self._obs_size
        if 0 < len(some) < number:
            index = np.array(some)
            obs = map_node(lambda column: column.take(index).compact(), obs)
            number = len(some)
        self._obs_size = start + number
        _write(self._obs, obs, start, self._obs_size)
        return start

    def add(self, columns: Mapping[str, Node], dones: Sequence[Any], infos: Sequence[Any], collect_iter: int) -> int:
        """Append the rest of a round; return its first row."""
        start, stop = self._size, self._size + len(infos)
        self._size = stop
        for key, node in columns.items():
            _write(self._columns[key], node, start, stop)
        if not self._iterations or self._iterations[-1][1] != collect_iter:
            self._iterations.append((start, collect_iter))
        if True in dones and "done" not in columns and not self.has_dicts:
            self._done[start:stop] = dones
        codes = list(map(_end_code, infos))
        if codes.count(_TOLD) == len(codes):  # most rounds
            self.codes[start:stop] = _TOLD
            self._flagged_by_any |= _TOLD
            return start
        self.codes[start:stop] = codes
        for code in codes:
            self._flagged_by_all &= code
            self._flagged_by_any |= code
        return start

    def observations(self, rows: Sequence[int]) -> dict[str, Node]:
        """The columns `obs` and `next_obs` of a trajectory whose observations are these rows."""
        obs = self._obs
        if type(obs) is Column and obs.kind is Kind.TENSOR:
            index = np.array(rows)
            before, after = (Column(obs.kind, obs.data, part, obs.steps) for part in (index[:-1], index[1:]))
            return {"obs": before, "next_obs": after}
        return _shifted(_read(obs, np.array(rows)), np.arange(len(rows) - 1), np.arange(1, len(rows)))

    def columns(self, rows: Sequence[int], obs_rows: Sequence[int]) -> dict[str, Node]:
        """The columns of a trajectory, which may be views of the log."""
        columns = self.observations(obs_rows)
        index = np.array(rows)
        for key, store in self._columns.items():
            columns[key] = _read(store, index)
        self._add_rest(index, columns)
        return columns

    def gathered(self, pieces: Sequence[LoggedSamples]) -> dict[str, Node]:
        """The columns of several trajectories, copied out."""
        rows: list[int] = []
        obs_rows: list[int] = []
        before: list[int] = []  # where in `obs_rows` the observations are
        after: list[int] = []
        ends: dict[int, int] = {}  # the last observation of a piece is often the first one of another
        for piece in pieces:
            rows += piece.rows
            first, *others = piece.obs_rows
            place = ends.get(first)
            if place is None:
                place = len(obs_rows)
                obs_rows.append(first)
            start = len(obs_rows)
            obs_rows += others
            stop = len(obs_rows)
            before.append(place)
            before += range(start, stop - 1)
            after += range(start, stop)
            ends[others[-1]] = stop - 1
        index = np.array(rows)
        columns = _shifted(_copied(self._obs, np.array(obs_rows)), np.array(before), np.array(after))
        for key, store in self._columns.items():
            columns[key] = _copied(store, index)
        self._add_rest(index, columns)
        return columns

    def state_dict(self, rows: Sequence[int], obs_rows: Sequence[int]) -> dict[str, Any] | None:
        """The log with these rows alone, at their places; None where they are not made of plain values."""
        index, obs_index = np.array(rows, np.int64), np.array(obs_rows, np.int64)
        columns = {key: node_state(_taken(node, index)) for key, node in self._columns.items()}
        obs = node_state(_taken(self._obs, obs_index))
        if obs is None or None in columns.values():
            return None
        return {
            "capacity": self._capacity,
            "has_dicts": self.has_dicts,
            "obs_like": node_state(self._obs_like),
            "columns_like": {key: node_state(node) for key, node in self._columns_like.items()},
            "sizes": [self._size, self._obs_size],
            "rows": index,
            "obs_rows": obs_index,
            "obs": obs,
            "columns": columns,
            "codes": self.codes[index],
            "done": self._done[index],
            "told": [self._flagged_by_all, self._flagged_by_any],
            "iterations": np.array(self._iterations, np.int64).reshape(-1, 2),
        }

    @classmethod
    def of_state(cls, state: Mapping[str, Any]) -> RoundLog:
        """The log of a state of `state_dict`."""
        like = {key: node_of_state(plain) for key, plain in state["columns_like"].items()}
        log = cls(node_of_state(state["obs_like"]), like, state["has_dicts"], state["capacity"])
        log._size, log._obs_size = state["sizes"]
        _put(log._obs, node_of_state(state["obs"]), state["obs_rows"])
        for key, plain in state["columns"].items():
            _put(log._columns[key], node_of_state(plain), state["rows"])
        log.codes[state["rows"]] = state["codes"]
        log._done[state["rows"]] = state["done"]
        log._flagged_by_all, log._flagged_by_any = state["told"]
        log._iterations = [(row, collect_iter) for row, collect_iter in state["iterations"].tolist()]
        return log

    def _add_rest(self, rows: np.ndarray, columns: dict[str, Node]) -> None:
        if "done" not in columns:
            columns["done"] = Column(Kind.BOOL, self._done.take(rows))
        starts, iterations = np.array(self._iterations).T
        columns["collect_iter"] = Column(Kind.INT, iterations[starts.searchsorted(rows, side="right") - 1])
        codes = self.codes.take(rows)
        if self._flagged_by_all == _TOLD:
            columns["terminated"] = Column(Kind.BOOL, codes & _TERMINATED != 0)
            columns["truncated"] = Column(Kind.BOOL, codes & _TRUNCATED != 0)
        elif self._flagged_by_any and codes.any():
            columns.update(_end_flags(codes, columns["done"]))


class LoggedSamples(Samples):
    """Transitions that are rows of a log, which is None once a column was set."""

    __slots__ = ("log", "obs_rows", "rows")

    def __init__(self, log: RoundLog, rows: list[int], obs_rows: list[int], chained: bool) -> None:
        super().__init__(partial(log.columns, rows, obs_rows), chained=chained, size=len(rows))
        self.log: RoundLog | None = log
        self.rows, self.obs_rows = rows, obs_rows

    def set_column(self, key: str, column: Node | None) -> None:
        super().set_column(key, column)
        self.log = None

    def compact(self) -> Samples:
        return super().compact() if self.log is None else Samples(self.log.gathered([self]), chained=self.is_chained)


def _shifted(obs: Node, before: np.ndarray, after: np.ndarray) -> dict[str, Node]:
    """The columns `obs` and `next_obs`, both rows of the same arrays."""
    return {
        "obs": map_node(lambda column: column.take(before), obs),
        "next_obs": map_node(lambda column: column.take(after), obs),
    }


def is_alike(one: Node, other: Node) -> bool:
    """Whether the rows of two nodes may stand in one array."""
    if type(one) is Column and type(other) is Column:
        if one.kind is not other.kind or one.steps is not other.steps:
            return False
        if one.kind is Kind.OBJECT:
            return True
        a, b = one.data, other.data
        return bool(a.dtype == b.dtype and a.shape[1:] == b.shape[1:])
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(is_alike(one[key], other[key]) for key in one)
    return len(one) == len(other) and all(map(is_alike, one, other))


def _emptied(column: Column) -> Column:
    return Column(column.kind, [] if column.kind is Kind.OBJECT else column.data[:0].copy(), None, column.steps)


def _array(column: Column, size: int) -> Column:
    """An array for `size` such rows, as they are in samples: those of arrays become tensors, of float64 of float32."""
    if column.kind is Kind.OBJECT:
        return Column(Kind.OBJECT, [None] * size)
    is_array = column.kind is Kind.ARRAY
    dtype = np.float32 if is_array and column.data.dtype == np.float64 else column.data.dtype
    data = np.empty((size, *column.data.shape[1:]), dtype)
    return Column(Kind.TENSOR if is_array else column.kind, data, None, column.steps)


def _taken(store: Node, rows: np.ndarray) -> Node:
    return map_node(lambda column: column.take(rows).compact(), store)


def _put(store: Node, node: Node, rows: np.ndarray) -> None:
    """Write the rows of a node at these places of a store."""
    if type(store) is not Column:
        for key in store if isinstance(store, dict) else range(len(store)):
            _put(store[key], node[key], rows)
    elif store.kind is Kind.OBJECT:
        for row, item in zip(rows.tolist(), node.items(), strict=True):
            store.data[row] = item
    else:
        store.data[rows] = node.values()


def _write(store: Node, node: Node, start: int, stop: int) -> None:
    if type(store) is Column:
        store.data[start:stop] = node.data
        return
    for key in store if isinstance(store, dict) else range(len(store)):
        _write(store[key], node[key], start, stop)


def _copied(store: Node, rows: np.ndarray) -> Node:
    """These rows, as they are in samples, in arrays of their own."""
    if type(store) is Column and store.kind is Kind.TENSOR:
        return Column(Kind.TENSOR, store.data.take(rows, axis=0), None, store.steps)
    return map_node(Column.compact, _read(store, rows))


def _read(store: Node, rows: np.ndarray) -> Node:
    """These rows, as they are in samples."""
    if type(store) is Column and (store.kind is Kind.TENSOR or (store.kind is not Kind.OBJECT and not store.steps)):
        return Column(store.kind, store.data, rows, store.steps)
    if isinstance(store, dict):
        return {key: _read(value, rows) for key, value in store.items()}
    return tensorised(map_node(lambda column: column.take(rows).compact(), store))


def note_end_flags(items: Sequence[dict[str, Any]], codes: np.ndarray) -> None:
    """Put the reported flags into transitions, and into the others those that follow from `done`."""
    for item, code in zip(items, codes.tolist(), strict=True):
        if code & _TRUNCATED_TOLD or "truncated" not in item:
            item["truncated"] = bool(code & _TRUNCATED)
        if code & _TERMINATED_TOLD:
            item["terminated"] = bool(code & _TERMINATED)
        elif "terminated" not in item:
            item["terminated"] = bool(np.all(np.asarray(item["done"]))) and not item["truncated"]


def _end_flags(codes: np.ndarray, done: Node) -> dict[str, Column]:
    """The flags of steps of which some report them; an end without any is terminal."""
    truncated = codes & _TRUNCATED != 0
    terminated = codes & _TERMINATED != 0
    is_untold = codes & _TERMINATED_TOLD == 0
    if is_untold.any():
        ended = np.array([bool(np.all(np.asarray(value))) for value in node_items(done)])
        terminated = np.where(is_untold, ended & ~truncated, terminated)
    return {"terminated": Column(Kind.BOOL, terminated), "truncated": Column(Kind.BOOL, truncated)}
