"""The steps of all envs between two collects as one block of columns, from which trajectory pieces are cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ding.envs.env_manager.block import TERMINATED, TERMINATED_TOLD, TOLD, TRUNCATED, Codes
from ding.utils.data.plain_columns import node_of_state, node_state
from ding.utils.data.samples import (
    Column,
    IntArray,
    Kind,
    Node,
    Table,
    columns_of,
    is_same_structure,
    map_node,
    node_items,
)
from ding.utils.object_state import SavedAttributes
from ding.worker.collector.env_round import tensorised

NOT_PLAIN = "the unfinished fragments hold values that are not plain; they are dropped"

# The rows of pieces that were taken are dropped once they are more than half of all, and there are that many rows or
# bytes of observations. New arrays have room for as many rows as there were then, and some more.
_MANY_ROWS, _MANY_BYTES, _SPARE = 2048, 1 << 20, 1.25
# The numbers of a row: its env, the rows of the observations before and after the step, the piece that it belongs to,
# what the info says about the end (see `end_code`), and the iteration of the policy.
_ID, _OBS, _NEXT, _PIECE, _CODE, _ITER = range(6)


class TrajectoryBlock(SavedAttributes):
    """The transitions of all envs that were not taken yet, in columns.

    A row is a step of an env; rows are in the order of time. The observation that an env returns is also the one that
    the policy acts on next, and is kept once. Each row belongs to a piece; each env has one piece under way.

    Args:
        env_num: number of envs; their ids are below it.
        chained: see `Table`.

    Attributes:
        lengths: an array [env_num], the number of transitions of the pieces under way.
        closed_rows: the number of transitions in pieces that were closed and not taken.
        keys: the keys that are recorded besides observations and end flags; None while there are no rows.
    """

    _saved = ("lengths", "_closed", "closed_rows", "_piece", "_next_piece")

    def __init__(self, env_num: int, chained: bool = True) -> None:
        self._env_num = env_num
        self._chained = chained
        self._room = 0  # the number of rows when pieces were taken last, and that of observations
        self._obs_room = 0
        self._clear()

    def _clear(self) -> None:
        self.lengths: IntArray = np.zeros(self._env_num, np.int64)
        self.closed_rows = 0
        self.keys: Sequence[str] | None = None
        self._piece: IntArray = np.arange(self._env_num)  # the piece of each env that is under way
        self._next_piece = self._env_num
        self._closed: list[int] = []  # pieces, in the order in which they were closed
        self._at: IntArray = np.full(self._env_num, -1)  # the row of the observation that each env shows; -1 if unknown
        self._count = 0  # number of rows
        self._numbers: IntArray = np.empty((6, self._room), np.int64)  # by row, with room for further rows
        self._obs = _Store(room=self._obs_room)
        self._columns: dict[str, _Store] = {}

    def record(
        self, ids: IntArray, obs: Node, next_obs: Node, columns: dict[str, Node], codes: Codes, collect_iter: int
    ) -> None:
        """Add a transition for each of these envs.

        Args:
            obs: the observations before the step.
            next_obs: the observations after it.
            columns: the rest of the transitions, except end flags and `collect_iter`; its keys are `keys`.
            codes: what the infos say about the end, see `end_code`.
        """
        count, first, at = len(ids), self._count, self._at[ids]
        if self.keys is None:
            self.keys = list(columns)
            self._columns = {key: _Store(room=self._room) for key in columns}
        for key, node in columns.items():
            self._columns[key].append(node, count)
        shown, index = self._obs.size, (at < 0).nonzero()[0]
        if len(index):
            at[index] = np.arange(shown, shown + len(index))
            shown += len(index)
            self._obs.append(obs if len(index) == count else _rows_of(obs, index), len(index))
        self._obs.append(next_obs, count)
        end = first + count
        if end > self._numbers.shape[1]:
            self._numbers = np.concatenate([self._numbers[:, :first], np.empty((6, 2 * end - first), np.int64)], axis=1)
        row = self._numbers[:, first:end]
        row[_ID], row[_OBS], row[_PIECE], row[_CODE], row[_ITER] = ids, at, self._piece[ids], codes, collect_iter
        row[_NEXT] = self._at[ids] = np.arange(shown, shown + count)
        self._count = end
        self.lengths[ids] += 1

    def close(self, ids: IntArray, has_ended: np.ndarray) -> None:
        """End the pieces of these envs with their last step.

        Args:
            has_ended: bools, whether the episode has ended, so that the env shows a new observation next.
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
        """Note that the next observation of this env is not the one that it returned last."""
        self._at[env_id] = -1

    def drop(self, env_ids: Sequence[int]) -> None:
        """Drop the pieces under way of these envs."""
        ids = np.array(env_ids, np.int64)
        self._begin_pieces(ids)
        self._at[ids] = -1

    def clear(self) -> None:
        """Drop all pieces under way, and what an exception has left of a round."""
        if self._closed:
            self.drop(range(self._env_num))
            self._renew()
        else:
            self._clear()

    def closed_table(self) -> Table:
        """Return the transitions of the closed pieces, with `lengths`."""
        ranks = self._ranks()[self._numbers[_PIECE, : self._count]]
        rows = (ranks >= 0).nonzero()[0]
        order = ranks[rows]
        lengths = np.bincount(order, minlength=len(self._closed))
        return self._table(rows[order.argsort(kind="stable")], lengths)

    def drop_closed(self) -> None:
        """Drop the closed pieces; tables that were taken from them stay valid."""
        self._closed, self.closed_rows = [], 0
        is_large = self._count > _MANY_ROWS or self._obs.nbytes > _MANY_BYTES
        if is_large and self._count > 2 * sum(self.lengths.tolist()):
            self._room, self._obs_room = int(_SPARE * self._count), int(_SPARE * self._obs.size)
            self._renew()

    def take_closed(self) -> list[Table]:
        """Remove the closed pieces, and return the transitions of each."""
        pieces = [self._piece_of(piece) for piece in self._closed]
        self.drop_closed()
        return pieces

    def peek(self, env_id: int) -> Table:
        """Return the transitions of the piece under way of this env, without removing them."""
        return self._piece_of(self._piece[env_id])

    def _piece_of(self, piece: int) -> Table:
        return self._table((self._numbers[_PIECE, : self._count] == piece).nonzero()[0]).compact()

    def state_dict(self) -> dict[str, Any]:
        """Return the transitions in plain values; those with other values are left out."""
        self._renew()
        obs = node_state(self._obs.rows)
        columns = {key: node_state(store.rows) for key, store in self._columns.items()}
        is_plain = self.keys is None or not (obs is None or None in columns.values())
        return {
            **super().state_dict(),
            "at": self._at.copy(),
            "rows": self._numbers[:, : self._count].copy() if is_plain else None,
            "obs": obs if is_plain and self.keys is not None else None,
            "obs_count": self._obs.size,
            "columns": columns if is_plain else None,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> list[str]:
        """Restore a state of `state_dict`; return why some transitions are lost, one sentence for each reason.

        Raises:
            ValueError: the state is from another number of envs.
        """
        if len(state["lengths"]) != self._env_num:
            raise ValueError(f"the state is of {len(state['lengths'])} envs, but there are {self._env_num}")
        self._clear()
        if state["rows"] is None:
            return [NOT_PLAIN]
        problems = super().load_state_dict(state)
        self._numbers = np.array(state["rows"])
        self._count = self._numbers.shape[1]
        if self._count:
            self._at = np.array(state["at"])
            self._obs = _Store(node_of_state(state["obs"]), state["obs_count"])
            self._columns = {key: _Store(node_of_state(own), self._count) for key, own in state["columns"].items()}
            self.keys = list(self._columns)
        return problems

    def _ranks(self) -> IntArray:
        """Return for each piece its place among the closed ones; -1 for others."""
        ranks = np.full(self._next_piece, -1)
        ranks[self._closed] = np.arange(len(self._closed))
        return ranks

    def _table(self, rows: IntArray, lengths: IntArray | None = None) -> Table:
        """Return a table of the transitions in these rows; its columns may be views."""
        if not len(rows):
            return Table({}, lengths=lengths)
        numbers = self._numbers[:, rows]
        columns: dict[str, Node] = {"obs": self._obs.take(numbers[_OBS]), "next_obs": self._obs.take(numbers[_NEXT])}
        for key, store in self._columns.items():
            columns[key] = store.take(rows)
        columns["collect_iter"] = Column(Kind.INT, numbers[_ITER])
        codes = numbers[_CODE]
        if (codes & TOLD == TOLD).all():
            columns["terminated"] = Column(Kind.BOOL, codes & TERMINATED != 0)
            columns["truncated"] = Column(Kind.BOOL, codes & TRUNCATED != 0)
        elif codes.any():
            columns.update(_end_flags(codes, columns["done"]))
        return Table(columns, chained=self._chained, size=len(rows), lengths=lengths)

    def _renew(self) -> None:
        """Build new columns that hold only the rows of pieces that are closed or under way."""
        ids, pieces = self._numbers[_ID, : self._count], self._numbers[_PIECE, : self._count]
        is_kept = pieces == self._piece[ids]
        if self._closed:
            is_kept |= self._ranks()[pieces] >= 0
        rows = is_kept.nonzero()[0]
        if not len(rows):
            self._clear()
            return
        numbers = self._numbers[:, rows]
        shown = np.unique(numbers[[_OBS, _NEXT]])
        place = np.full(self._obs.size + 1, -1)  # the last entry is for observations that are not here
        place[shown] = np.arange(len(shown))
        kept = np.unique(np.concatenate([numbers[_PIECE], self._piece]))
        self._piece, self._next_piece = kept.searchsorted(self._piece), len(kept)
        self._closed = kept.searchsorted(self._closed).tolist()
        numbers[_PIECE] = kept.searchsorted(numbers[_PIECE])
        numbers[_OBS], numbers[_NEXT] = place[numbers[_OBS]], place[numbers[_NEXT]]
        self._numbers = np.empty((6, max(self._room, len(rows))), np.int64)
        self._numbers[:, : len(rows)] = numbers
        self._count = len(rows)
        self._at = place[self._at]
        self._obs = self._obs.only(shown, self._obs_room)
        self._columns = {key: store.only(rows, self._room) for key, store in self._columns.items()}


class _Store:
    """The rows of one key, in the form that they have in samples; rows may be appended, but do not change.

    Args:
        room: expected number of rows.

    Attributes:
        size: number of rows.
    """

    def __init__(self, rows: Node = None, size: int = 0, room: int = 0) -> None:
        self.size, self._room = 0, room
        self._node: Node = None  # compact columns, with room for further rows
        # Kinds and shape of columns whose rows may be written to that of an array as they are.
        self._kinds: Sequence[Kind] = ()
        self._shape: tuple[int, ...] = ()
        if size:
            self._extend(map_node(Column.compact, rows), size)

    @property
    def rows(self) -> Node:
        """The rows, which may be views."""
        return None if self._node is None else map_node(lambda column: column.take(slice(self.size)), self._node)

    @property
    def nbytes(self) -> int:
        """The bytes of the rows, without those of objects."""
        return 0 if self._node is None else self.size * sum(c.itemsize for c in columns_of(self._node))

    def append(self, node: Node, count: int) -> None:
        """Append the `count` rows of a node."""
        known, end = self._node, self.size + count
        if type(node) is Column and node.kind in self._kinds and node.rows is None and node.steps is known.steps:
            ours, data = known.data, node.data  # the usual case, without further calls
            is_same = data.dtype == ours.dtype
            if not is_same and node.kind is Kind.ARRAY:  # float64 is float32 in samples
                is_same = data.dtype == np.float64 and ours.dtype == np.float32
            if is_same and data.shape[1:] == self._shape and end <= len(ours):
                ours[self.size : end] = data
                self.size = end
                return
        self._extend(map_node(Column.compact, tensorised(node)), count)

    def _extend(self, more: Node, count: int) -> None:
        known, size, room = self._node, self.size, max(self._room, 2 * (self.size + count))
        if known is None:
            self._node = map_node(lambda other: _extended(other, other, 0, room), more)
        elif is_same_structure(known, more) and all(map(Column.matches, columns_of(known), columns_of(more))):
            self._node = map_node(lambda column, other: _extended(column, other, size, room), known, more)
        else:
            self._node = Column(Kind.OBJECT, node_items(self.rows) + node_items(more))
        self.size += count
        kind = self._node.kind if type(self._node) is Column else Kind.OBJECT
        self._kinds = () if kind is Kind.OBJECT else (kind, Kind.ARRAY) if kind is Kind.TENSOR else (kind,)
        self._shape = self._node.data.shape[1:] if self._kinds else ()

    def take(self, rows: IntArray) -> Node:
        """Return these rows, which may be views."""
        if type(self._node) is Column:
            return Column(self._node.kind, self._node.data, rows, self._node.steps)
        return map_node(lambda column: column.take(rows), self._node)

    def only(self, rows: IntArray, room: int) -> _Store:
        """Return a copy of these rows, with room for further ones."""
        return _Store(self.take(rows), len(rows), room)


def _extended(column: Column, more: Column, size: int, room: int) -> Column:
    """Return a column of `size` rows of `column`, then those of `more`; a new column has room for `room` rows."""
    if column.kind is Kind.OBJECT:
        return Column(Kind.OBJECT, [*column.data[:size], *more.data])
    data, rows = column.data, more.data
    end = size + len(rows)
    if end > len(data) or not size:
        data = np.empty((room, *data.shape[1:]), data.dtype)
        data[:size] = column.data[:size]
        column = Column(column.kind, data, None, column.steps)
    data[size:end] = rows
    return column


def _rows_of(node: Node, rows: IntArray) -> Node:
    """Return a copy of some rows of a node whose columns are compact."""
    if type(node) is Column and node.kind is not Kind.OBJECT:
        return Column(node.kind, node.data[rows], None, node.steps)
    return map_node(lambda column: column.take(rows).compact(), node)


def _end_flags(codes: Codes, done: Node) -> dict[str, Column]:
    """Return the end flags of steps of which only some report them; an end that is not reported counts as terminal."""
    truncated = codes & TRUNCATED != 0
    terminated = codes & TERMINATED != 0
    is_untold = codes & TERMINATED_TOLD == 0
    if is_untold.any():
        ended = np.array([bool(np.all(np.asarray(value))) for value in node_items(done)])
        terminated = np.where(is_untold, ended & ~truncated, terminated)
    return {"terminated": Column(Kind.BOOL, terminated), "truncated": Column(Kind.BOOL, truncated)}
