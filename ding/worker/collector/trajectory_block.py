"""The steps of all envs between two collects as one block of columns, from which trajectory pieces are cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ding.envs.env_manager.block import TERMINATED, TERMINATED_TOLD, TOLD, TRUNCATED, Codes
from ding.utils.data.plain_columns import node_of_state, node_state
from ding.utils.data.samples import (
    Column,
    IntArray,
    Kind,
    Node,
    Samples,
    columns_of,
    is_same_structure,
    map_node,
    node_items,
)
from ding.worker.collector.batch import tensorised

NOT_PLAIN = "the unfinished fragments hold values that are not plain; they are dropped"

# From so many bytes on the arrays of rounds are freed one by one while they are joined.
_LARGE = 1 << 20
# The rows of pieces that were taken are dropped once more than half of all are such rows, and there are so many rows or
# bytes.
_MANY_ROWS, _MANY_BYTES = 2048, 1 << 20


class _Rows(NamedTuple):
    """Steps of envs, R of them."""

    ids: IntArray  # of the envs
    obs_rows: IntArray  # of what they were acted on with
    next_rows: IntArray  # of what they returned
    pieces: IntArray  # the pieces that they belong to
    codes: Codes  # see `end_code`
    collect_iter: IntArray

    def at(self, rows: IntArray) -> _Rows:
        """Some of the rows."""
        parts: list[Any] = [part[rows] for part in self]
        return _Rows(*parts)


class TrajectoryBlock:
    """The transitions of each env that no piece was taken of.

    A row is a step of an env; rows are in the order of time. The observation that an env returns is also the one that
    it is acted on with next, and is kept once. Each row belongs to a piece, of which each env has one under way.

    Args:
        env_num: number of envs; their ids are below it.
        chained: see `Samples`.

    Attributes:
        lengths: an array [env_num], the number of transitions of the pieces under way.
        closed_rows: the number of transitions in pieces that were closed and not taken.
        keys: what is recorded besides observations and end flags; None while there are no rows.
    """

    def __init__(self, env_num: int, chained: bool = True) -> None:
        self._env_num = env_num
        self._chained = chained
        self._clear()

    def _clear(self) -> None:
        self.lengths: IntArray = np.zeros(self._env_num, np.int64)
        self.closed_rows = 0
        self.keys: Sequence[str] | None = None
        self._piece: IntArray = np.arange(self._env_num)  # the piece of each env that is under way
        self._next_piece = self._env_num
        self._closed: list[int] = []  # pieces, in the order in which they were closed
        self._at: IntArray = np.full(self._env_num, -1)  # the row of what each env shows; -1 if it is not here
        self._obs_count = self._obs_known = 0  # of all observations, and of those in `_obs`
        # What is written a round at a time, and what it is joined to when somebody needs it.
        self._rounds: list[tuple[Any, ...]] = []  # the fields of `_Rows`, with one `collect_iter` for all
        self._obs_parts: list[Node] = []
        self._column_parts: dict[str, list[Node]] = {}
        none: IntArray = np.zeros(0, np.int64)
        self._rows = _Rows(none, none, none, none, np.zeros(0, np.uint8), none)
        self._obs = _Store()
        self._columns: dict[str, _Store] = {}

    def record(
        self, ids: IntArray, obs: Node, next_obs: Node, columns: dict[str, Node], codes: Codes, collect_iter: int
    ) -> None:
        """Add a transition of each of these envs.

        Args:
            obs: the observations before the step.
            next_obs: those after it.
            columns: the rest of the transitions, but for end flags and `collect_iter`; its keys are `keys`.
            codes: what the infos tell of ends, see `end_code`.
        """
        count, at, shown = len(ids), self._at[ids], self._obs_count
        if self.keys is None:
            self.keys = list(columns)
            self._columns = {key: _Store() for key in columns}
            self._column_parts = {key: [] for key in columns}
        for key, node in columns.items():
            self._column_parts[key].append(node)
        index = (at < 0).nonzero()[0]
        if len(index):
            self._obs_parts.append(obs if len(index) == count else _compact_rows(obs, index))
            at[index] = np.arange(shown, shown + len(index))
            shown += len(index)
        self._obs_count = shown + count
        after = np.arange(shown, self._obs_count)
        self._obs_parts.append(next_obs)
        self._at[ids] = after
        self._rounds.append((ids, at, after, self._piece[ids], codes, collect_iter))
        self.lengths[ids] += 1

    def close(self, ids: IntArray, has_ended: np.ndarray) -> None:
        """The pieces of these envs end with their last step.

        Args:
            has_ended: whether the episode has, so that the env will show another observation than it returned.
        """
        self.closed_rows += sum(self.lengths[ids].tolist())
        self._closed += self._piece[ids].tolist()
        self._begin_pieces(ids)
        self._at[ids[has_ended]] = -1

    def _begin_pieces(self, ids: IntArray) -> None:
        self._piece[ids] = np.arange(self._next_piece, self._next_piece + len(ids))
        self._next_piece += len(ids)
        self.lengths[ids] = 0

    def split(self, env_id: int) -> None:
        """What this env shows next is not the observation that it returned last."""
        self._at[env_id] = -1

    def drop(self, env_ids: Sequence[int]) -> None:
        """Throw the pieces under way of these envs away."""
        ids = np.array(env_ids, np.int64)
        self._begin_pieces(ids)
        self._at[ids] = -1

    def clear(self) -> None:
        """Throw all pieces under way away."""
        if self._closed:
            self.drop(range(self._env_num))
        else:
            self._clear()

    def closed_table(self) -> Samples:
        """The transitions of the closed pieces, with `lengths`."""
        self._settle()
        ranks = self._ranks()[self._rows.pieces]
        rows = np.flatnonzero(ranks >= 0)
        order = ranks[rows]
        lengths = np.bincount(order, minlength=len(self._closed))
        return self._table(rows[order.argsort(kind="stable")], lengths)

    def drop_closed(self) -> None:
        """Throw the closed pieces away; what was taken of them stays valid."""
        self._settle()
        self._closed, self.closed_rows = [], 0
        under_way, count = int(self.lengths.sum()), len(self._rows.ids)
        is_large = count > _MANY_ROWS or self._obs.nbytes > _MANY_BYTES
        if not under_way or (is_large and count > 2 * under_way):
            self._renew()

    def take_closed(self) -> list[Samples]:
        """The transitions of each of the closed pieces; they are here no more."""
        self._settle()
        pieces = [self._table(np.flatnonzero(self._rows.pieces == piece)).compact() for piece in self._closed]
        self.drop_closed()
        return pieces

    def peek(self, env_id: int) -> Samples:
        """The transitions of the piece under way of this env, which stay."""
        self._settle()
        return self._table(np.flatnonzero(self._rows.pieces == self._piece[env_id])).compact()

    def state_dict(self) -> dict[str, Any]:
        """The transitions in plain values; others are left out."""
        self._settle()
        self._renew()
        obs = node_state(self._obs.node)
        columns = {key: node_state(store.node) for key, store in self._columns.items()}
        is_plain = self.keys is None or not (obs is None or None in columns.values())
        return {
            "lengths": self.lengths.tolist(),
            "closed": list(self._closed),
            "closed_rows": self.closed_rows,
            "piece": self._piece.copy(),
            "next_piece": self._next_piece,
            "at": self._at.copy(),
            "rows": list(self._rows) if is_plain else None,
            "obs": obs if is_plain and self.keys is not None else None,
            "obs_count": self._obs_count,
            "columns": columns if is_plain else None,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> list[str]:
        """Restore a state of `state_dict`; return why some transitions are lost, one sentence for each reason.

        Raises:
            ValueError: the state is of another number of envs.
        """
        if len(state["lengths"]) != self._env_num:
            raise ValueError(f"the state is of {len(state['lengths'])} envs, but there are {self._env_num}")
        self._clear()
        if state["rows"] is None:
            return [NOT_PLAIN]
        self.lengths = np.array(state["lengths"], np.int64)
        self._closed, self.closed_rows = list(state["closed"]), state["closed_rows"]
        self._piece, self._next_piece = np.array(state["piece"]), state["next_piece"]
        if not len(state["rows"][0]):
            return []
        self._at = np.array(state["at"])
        self._rows = _Rows(*map(np.array, state["rows"]))
        self._obs_count = self._obs_known = state["obs_count"]
        self._obs = _Store(_compact(node_of_state(state["obs"])), self._obs_count)
        count = len(self._rows.ids)
        self._columns = {key: _Store(_compact(node_of_state(own)), count) for key, own in state["columns"].items()}
        self._column_parts = {key: [] for key in self._columns}
        self.keys = list(self._columns)
        return []

    def _ranks(self) -> IntArray:
        """For each piece its place among the closed ones; -1 for others."""
        ranks = np.full(self._next_piece, -1)
        ranks[self._closed] = np.arange(len(self._closed))
        return ranks

    def _settle(self) -> None:
        """Join the rounds; where that is not possible, all transitions are thrown away."""
        if not self._rounds:
            return
        try:
            self._join_rounds()
        except BaseException:
            self._clear()
            raise

    def _join_rounds(self) -> None:
        *fields, iterations = zip(*self._rounds, strict=True)
        counts = list(map(len, fields[0]))
        fields.append((np.repeat(np.array(iterations, np.int64), counts),))
        if len(self._rows.ids):
            fields = [(known, *parts) for known, parts in zip(self._rows, fields, strict=True)]
        joined: list[Any] = list(map(np.concatenate, fields))
        self._rows = _Rows(*joined)
        self._rounds = []
        known, self._obs_known = self._obs_known, self._obs_count
        obs_parts, self._obs_parts = self._obs_parts, []
        self._obs.append(obs_parts, self._obs_count - known)
        columns, self._column_parts = self._column_parts, {key: [] for key in self._column_parts}
        for key, parts in columns.items():
            self._columns[key].append(parts, sum(counts))

    def _table(self, rows: IntArray, lengths: IntArray | None = None) -> Samples:
        """The transitions in these rows; its columns may be views."""
        if not len(rows):
            return Samples({}, lengths=lengths)
        known = self._rows
        obs, next_obs = self._obs.take(known.obs_rows[rows]), self._obs.take(known.next_rows[rows])
        columns: dict[str, Node] = {"obs": obs, "next_obs": next_obs}
        for key, store in self._columns.items():
            columns[key] = store.take(rows)
        columns["collect_iter"] = Column(Kind.INT, known.collect_iter[rows])
        codes = known.codes[rows]
        if (codes & TOLD == TOLD).all():
            columns["terminated"] = Column(Kind.BOOL, codes & TERMINATED != 0)
            columns["truncated"] = Column(Kind.BOOL, codes & TRUNCATED != 0)
        elif codes.any():
            columns.update(_end_flags(codes, columns["done"]))
        return Samples(columns, chained=self._chained, size=len(rows), lengths=lengths)

    def _renew(self) -> None:
        """Begin new columns with the rows of pieces that are closed or under way."""
        known = self._rows
        is_kept = known.pieces == self._piece[known.ids]
        if self._closed:
            is_kept |= self._ranks()[known.pieces] >= 0
        rows = np.flatnonzero(is_kept)
        if not rows.size:
            self._clear()
            return
        shown = np.unique(np.concatenate([known.obs_rows[rows], known.next_rows[rows]]))
        place = np.full(self._obs_count + 1, -1)  # the last is for what is not here
        place[shown] = np.arange(len(shown))
        kept = known.at(rows)
        pieces = np.unique(np.concatenate([kept.pieces, self._piece]))
        self._piece, self._next_piece = pieces.searchsorted(self._piece), len(pieces)
        self._closed = pieces.searchsorted(self._closed).tolist()
        self._rows = kept._replace(
            obs_rows=place[kept.obs_rows],
            next_rows=place[kept.next_rows],
            pieces=pieces.searchsorted(kept.pieces),
        )
        self._at = place[self._at]
        self._obs = self._obs.only(shown)
        self._obs_count = self._obs_known = len(shown)
        self._columns = {key: store.only(rows) for key, store in self._columns.items()}


def _compact(node: Node) -> Node:
    return map_node(Column.compact, node)


def _compact_rows(node: Node, rows: IntArray) -> Node:
    """A copy of some rows of a node whose columns are compact."""
    if type(node) is Column and node.kind is not Kind.OBJECT:
        return Column(node.kind, node.data[rows], None, node.steps)
    return map_node(lambda column: column.take(rows).compact(), node)


class _Store:
    """Rows of one key as they are in samples, which are appended to; what was appended stays as it is."""

    def __init__(self, node: Node = None, size: int = 0) -> None:
        self._node = node  # compact columns, with room for further rows
        self._size = size

    @property
    def node(self) -> Node:
        """The rows."""
        return None if self._node is None else map_node(lambda column: column.take(slice(self._size)), self._node)

    @property
    def nbytes(self) -> int:
        """The memory of the rows, without that of objects."""
        return 0 if self._node is None else self._size * sum(c.itemsize for c in columns_of(self._node))

    def append(self, parts: list[Node], count: int) -> None:
        """Append the `count` rows of `parts`, which is emptied."""
        more, node, size = tensorised(_joined(parts)), self._node, self._size
        if node is None:
            self._node = more
        elif type(node) is type(more) is Column and node.matches(more):
            self._node = _extended(node, more, size)
        elif _is_alike(node, more):
            self._node = map_node(lambda column, other: _extended(column, other, size), node, more)
        else:
            self._node = _joined([self.node, more])
        self._size += count

    def take(self, rows: IntArray) -> Node:
        """These rows, which may be views."""
        if type(self._node) is Column:
            return Column(self._node.kind, self._node.data, rows, self._node.steps)
        return map_node(lambda column: column.take(rows), self._node)

    def only(self, rows: IntArray) -> _Store:
        """A copy of these rows."""
        return _Store(_compact_rows(self._node, rows), len(rows))


def _is_alike(one: Node, other: Node) -> bool:
    """Whether the rows of two nodes may stand in one array."""
    pairs = zip(columns_of(one), columns_of(other), strict=False)
    return is_same_structure(one, other) and all(column.matches(more) for column, more in pairs)


def _extended(column: Column, more: Column, size: int) -> Column:
    """A column of the first `size` rows of `column`, and those of `more`; with room for as many again if it is new."""
    if column.kind is Kind.OBJECT:
        return Column(Kind.OBJECT, [*column.data[:size], *more.data])
    data, rows = column.data, more.data
    end = size + len(rows)
    if end > len(data):
        data = np.empty((2 * end, *data.shape[1:]), data.dtype)
        data[:size] = column.data[:size]
        column = Column(column.kind, data, None, column.steps)
    data[size:end] = rows
    return column


def _joined(parts: list[Node]) -> Node:
    """The rows of all `parts`, which is emptied, copied into one node."""
    first = parts[0]
    if set(map(type, parts)) == {Column}:
        return _joined_columns(parts)
    if all(is_same_structure(first, part) for part in parts):
        node = map_node(lambda *columns: _joined_columns(list(columns)), first, *parts[1:])
    else:
        node = Column(Kind.OBJECT, [item for part in parts for item in node_items(part)])
    parts.clear()
    return node


def _joined_columns(parts: list[Column]) -> Column:
    first = parts[0]
    kind, steps = first.kind, first.steps
    arrays: list[Any] = []
    for part in parts:  # what `Column.matches` says, without a call for each part
        data = part.data if part.rows is None else part.values()
        if part.kind is not kind or kind is Kind.OBJECT or part.steps is not steps:
            break
        if arrays and (data.dtype != arrays[0].dtype or data.shape[1:] != arrays[0].shape[1:]):
            break
        arrays.append(data)
    if len(arrays) < len(parts):
        return Column(Kind.OBJECT, [item for part in parts for item in part.items()])
    total = sum(map(len, arrays))
    if total * first.itemsize < _LARGE:
        return Column(kind, np.concatenate(arrays), None, steps)
    data = np.empty((total, *arrays[0].shape[1:]), arrays[0].dtype)
    parts.clear()
    arrays.reverse()
    start = 0
    del first, part
    while arrays:
        array = arrays.pop()
        data[start : start + len(array)] = array
        start += len(array)
    return Column(kind, data, None, steps)


def _end_flags(codes: Codes, done: Node) -> dict[str, Column]:
    """The flags of steps of which some report them; an end without any is terminal."""
    truncated = codes & TRUNCATED != 0
    terminated = codes & TERMINATED != 0
    is_untold = codes & TERMINATED_TOLD == 0
    if is_untold.any():
        ended = np.array([bool(np.all(np.asarray(value))) for value in node_items(done)])
        terminated = np.where(is_untold, ended & ~truncated, terminated)
    return {"terminated": Column(Kind.BOOL, terminated), "truncated": Column(Kind.BOOL, truncated)}
