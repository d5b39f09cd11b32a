"""The steps of all envs between two collects as one block of columns, from which trajectory pieces are cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from ding.envs.env_manager.block import TERMINATED, TERMINATED_TOLD, TOLD, TRUNCATED, TRUNCATED_TOLD, Codes
from ding.utils.data.plain_columns import node_of_state, node_state
from ding.utils.data.samples import (
    Column,
    IntArray,
    Kind,
    Node,
    Samples,
    is_same_structure,
    map_node,
    node_items,
)
from ding.utils.msgpack_helper import can_pack
from ding.worker.collector.batch import as_tensor, tensorised

# In a transition dict: the observation that the env was acted on with, or that it returned, which is in a column.
IN_COLUMN = object()

# From so many bytes on the arrays of rounds are freed one by one while they are joined.
_LARGE = 1 << 20
# Columns are made anew, without the rows of pieces that were taken, once there are so many rows and half are taken.
_MANY_ROWS = 256


class _Round(NamedTuple):
    """The steps of some envs: R rows."""

    ids: IntArray  # of the envs
    obs_rows: IntArray  # of what they were acted on with
    next_rows: IntArray  # of what they returned
    pieces: IntArray  # the pieces that they belong to
    codes: Codes  # see `end_code`
    collect_iter: IntArray

    def at(self, rows: IntArray) -> _Round:
        """Some of the rows."""
        parts: list[Any] = [part[rows] for part in self]
        return _Round(*parts)


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
    """

    def __init__(self, env_num: int, chained: bool = True) -> None:
        self._env_num = env_num
        self._chained = chained
        self._clear()

    def _clear(self) -> None:
        self.lengths: IntArray = np.zeros(self._env_num, np.int64)
        self.closed_rows = 0
        self._piece: IntArray = np.arange(self._env_num)  # the piece of each env that is under way
        self._next_piece = self._env_num
        self._closed: list[int] = []  # pieces, in the order in which they were closed
        self._at: IntArray = np.full(self._env_num, -1)  # the row of what each env shows; -1 if it is not here
        self._count = self._obs_count = 0
        # What is written a round at a time, and what it is joined to when somebody needs it.
        self._rounds: list[tuple[Any, ...]] = []  # the fields of a `_Round`, with one `collect_iter` for all rows
        self._obs_parts: list[Node] = []
        self._column_parts: dict[str, list[Node]] = {}
        self._dicts: list[dict[str, Any]] | None = None  # transitions that a policy has put together
        none: IntArray = np.zeros(0, np.int64)
        self._rows = _Round(none, none, none, none, np.zeros(0, np.uint8), none)
        self._obs = _Store()
        self._columns: dict[str, _Store] = {}

    def record(
        self,
        ids: IntArray,
        obs: Node,
        next_obs: Node,
        columns: dict[str, Node],
        codes: Codes,
        collect_iter: int,
        dicts: list[dict[str, Any]] | None = None,
    ) -> None:
        """Add a transition of each of these envs.

        Args:
            obs: the observations before the step.
            next_obs: those after it.
            columns: the rest of the transitions, but for end flags and `collect_iter`.
            codes: what the infos tell of ends, see `end_code`.
            dicts: transitions that a policy has put together, with `IN_COLUMN` for `obs` and `next_obs`; end flags are
                added to them, and of the rest nothing is recorded.
        """
        count = len(ids)
        if self._count and (
            dicts is not None or self._dicts is not None or columns.keys() != self._column_parts.keys()
        ):
            self._to_dicts()
            dicts = _dicts_of(columns, collect_iter, count) if dicts is None else dicts
        if dicts is not None:
            self._dicts = [] if self._dicts is None else self._dicts
            self._dicts += dicts
            columns = {}
        if not self._count:
            self._column_parts = {key: [] for key in columns}
        self._count += count
        for key, node in columns.items():
            self._column_parts[key].append(node)
        at = self._at[ids]
        unknown = at < 0
        if unknown.any():
            index = np.flatnonzero(unknown)
            fresh = obs if len(index) == count else map_node(lambda column: column.take(index).compact(), obs)
            at[index] = np.arange(self._obs_count, self._obs_count + len(index))
            self._obs_parts.append(fresh)
            self._obs_count += len(index)
        after = np.arange(self._obs_count, self._obs_count + count)
        self._obs_parts.append(next_obs)
        self._obs_count += count
        self._at[ids] = after
        self._rounds.append((ids, at, after, self._piece[ids], codes, collect_iter))
        self.lengths[ids] += 1

    def close(self, ids: IntArray, has_ended: np.ndarray) -> None:
        """The pieces of these envs end with their last step.

        Args:
            has_ended: whether the episode has, so that the env will show another observation than it returned.
        """
        self.closed_rows += int(self.lengths[ids].sum())
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

    def closed_table(self) -> Samples | None:
        """The transitions of the closed pieces, with `lengths`; None where policies have put them together."""
        self._settle()
        if self._dicts is not None:
            return None
        rank = self._ranks()[self._rows.pieces]
        rows = np.flatnonzero(rank >= 0)
        order = rank[rows]
        lengths = np.bincount(order, minlength=len(self._closed))
        return Samples(self._at_rows(rows[order.argsort(kind="stable")]), chained=self._chained, lengths=lengths)

    def drop_closed(self) -> None:
        """Throw the closed pieces away; what was taken of them stays valid."""
        self._settle()
        self._drop_closed()

    def _drop_closed(self) -> None:
        self._closed, self.closed_rows = [], 0
        under_way = int(self.lengths.sum())
        if self._count > max(2 * under_way, _MANY_ROWS) or not under_way:
            self._renew()

    def take_closed(self) -> list[list[Any]]:
        """The transitions of each of the closed pieces, as `Samples` where they are alike; they are here no more."""
        self._settle()
        pieces = [self._taken(np.flatnonzero(self._rows.pieces == piece)) for piece in self._closed]
        self._drop_closed()
        return pieces

    def peek(self, env_id: int) -> list[Any]:
        """The transitions of the piece under way of this env, which stay."""
        self._settle()
        return self._taken(np.flatnonzero(self._rows.pieces == self._piece[env_id]))

    def state_dict(self) -> dict[str, Any]:
        """The transitions in plain values; others are left out."""
        self._settle()
        self._renew()
        obs = node_state(self._obs.node)
        columns = {key: node_state(store.node) for key, store in self._columns.items()}
        dicts = None if self._dicts is None else [_plain_dict(transition) for transition in self._dicts]
        is_plain = can_pack(dicts) and (not self._count or not (obs is None or None in columns.values()))
        return {
            "lengths": self.lengths.tolist(),
            "closed": list(self._closed),
            "closed_rows": self.closed_rows,
            "piece": self._piece.copy(),
            "next_piece": self._next_piece,
            "at": self._at.copy(),
            "rows": list(self._rows) if is_plain else None,
            "obs": obs if is_plain and self._count else None,
            "columns": columns if is_plain else None,
            "dicts": dicts if is_plain else None,
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
            return ["the unfinished fragments hold values that are not plain; they are dropped"]
        self.lengths = np.array(state["lengths"], np.int64)
        self._closed, self.closed_rows = list(state["closed"]), state["closed_rows"]
        self._piece, self._next_piece = np.array(state["piece"]), state["next_piece"]
        if not len(state["rows"][0]):
            return []
        self._at = np.array(state["at"])
        self._rows = _Round(*map(np.array, state["rows"]))
        self._count = len(self._rows.ids)
        self._obs = _Store(node_of_state(state["obs"]))
        self._obs_count = len(self._obs)
        self._columns = {key: _Store(node_of_state(plain)) for key, plain in state["columns"].items()}
        self._column_parts = {key: [] for key in self._columns}
        self._dicts = None if state["dicts"] is None else [_dict_of(plain) for plain in state["dicts"]]
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
        self._rows = _Round(*joined)
        self._rounds = []
        obs_parts, self._obs_parts = self._obs_parts, []
        self._obs.append(obs_parts)
        for key, parts in self._column_parts.items():
            store = self._columns.get(key)
            if store is None:
                store = self._columns[key] = _Store()
            store.append(parts)
        self._column_parts = {key: [] for key in self._column_parts}

    def _at_rows(self, rows: IntArray) -> dict[str, Node]:
        """The columns of these rows, which may be views."""
        known = self._rows
        columns = self._observations(rows)
        for key, store in self._columns.items():
            columns[key] = store.take(rows)
        columns["collect_iter"] = Column(Kind.INT, known.collect_iter[rows])
        codes = known.codes[rows]
        if codes.size and (codes & TOLD == TOLD).all():
            columns["terminated"] = Column(Kind.BOOL, codes & TERMINATED != 0)
            columns["truncated"] = Column(Kind.BOOL, codes & TRUNCATED != 0)
        elif codes.any():
            columns.update(_end_flags(codes, columns["done"]))
        return columns

    def _observations(self, rows: IntArray) -> dict[str, Node]:
        known = self._rows
        return {"obs": self._obs.take(known.obs_rows[rows]), "next_obs": self._obs.take(known.next_rows[rows])}

    def _taken(self, rows: IntArray) -> list[Any]:
        """Copies of these transitions."""
        if not rows.size:
            return []
        if self._dicts is not None:
            observations = Samples(self._observations(rows)).compact().columns or {}
            dicts = [self._dicts[row] for row in rows.tolist()]
            return _from_dicts(dicts, observations, self._rows.codes[rows], self._chained)
        return Samples(self._at_rows(rows), chained=self._chained).compact()

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
        self._count = len(rows)
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
        self._obs_count = len(shown)
        self._columns = {key: store.only(rows) for key, store in self._columns.items()}
        if self._dicts is not None:
            self._dicts = [self._dicts[row] for row in rows.tolist()]

    def _to_dicts(self) -> None:
        """Go on with dicts, as transitions that are not alike have come."""
        if self._dicts is None:
            self._settle()
            columns = {key: store.node for key, store in self._columns.items()}
            dicts = _dicts_of(columns, 0, self._count)
            for transition, collect_iter in zip(dicts, self._rows.collect_iter.tolist(), strict=True):
                transition["collect_iter"] = collect_iter
            self._dicts, self._columns, self._column_parts = dicts, {}, {}


class _Store:
    """Rows of one key as they are in samples, which are appended to; what was appended stays as it is."""

    def __init__(self, node: Node = None) -> None:
        self._node = None if node is None else map_node(Column.compact, node)  # with room for further rows
        self._size = 0 if node is None else _length(node)

    def __len__(self) -> int:
        return self._size

    @property
    def node(self) -> Node:
        """The rows."""
        if self._node is None or self._size == _length(self._node):
            return self._node
        return map_node(lambda column: column.take(slice(self._size)), self._node)

    def append(self, parts: list[Node]) -> None:
        """Append the rows of `parts`, which is emptied."""
        more = tensorised(_joined(parts))
        if self._node is None:
            self._node, self._size = more, _length(more)
            return
        size = self._size + _length(more)
        if not _is_alike(self._node, more):
            self._node = _joined([self.node, more])
        elif size > _length(self._node):
            self._node = map_node(lambda column, other: _grown(column, other, self._size), self._node, more)
        else:
            map_node(lambda column, other: _write(column, other, self._size), self._node, more)
        self._size = size

    def take(self, rows: IntArray) -> Node:
        """These rows, which may be views."""
        if type(self._node) is Column:
            return Column(self._node.kind, self._node.data, rows, self._node.steps)
        return map_node(lambda column: column.take(rows), self._node)

    def only(self, rows: IntArray) -> _Store:
        """A copy of these rows."""
        return _Store(map_node(lambda column: column.take(rows), self._node))


def _length(node: Node) -> int:
    while not isinstance(node, Column):
        node = next(iter(node.values())) if isinstance(node, dict) else node[0]
    return len(node)


def _is_alike(one: Node, other: Node) -> bool:
    """Whether the rows of two nodes may stand in one array."""
    if type(one) is Column and type(other) is Column:
        return one.matches(other)
    alike: list[bool] = []
    if not is_same_structure(one, other):
        return False
    map_node(lambda a, b: alike.append(a.matches(b)), one, other)
    return all(alike)


def _write(column: Column, more: Column, start: int) -> None:
    if column.kind is Kind.OBJECT:
        column.data[start : start + len(more)] = more.data
    else:
        column.data[start : start + len(more)] = more.values()


def _grown(column: Column, more: Column, size: int) -> Column:
    """A column with room for twice as many rows as these two have."""
    if column.kind is Kind.OBJECT:
        return Column(Kind.OBJECT, [*column.data[:size], *more.items()])
    data = np.empty((2 * (size + len(more)), *column.data.shape[1:]), column.data.dtype)
    data[:size] = column.data[:size]
    grown = Column(column.kind, data, None, column.steps)
    _write(grown, more, size)
    return grown


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


# --- transitions that a policy has put together ---


def _plain_dict(transition: Mapping[str, Any]) -> list[Any]:
    """The entries `[key, whether it is in a column, value]`."""
    return [[key, value is IN_COLUMN, None if value is IN_COLUMN else value] for key, value in transition.items()]


def _dict_of(plain: Sequence[Any]) -> dict[str, Any]:
    return {key: IN_COLUMN if is_in_column else value for key, is_in_column, value in plain}


def _dicts_of(columns: Mapping[str, Node], collect_iter: int, count: int) -> list[dict[str, Any]]:
    """Transitions in columns as dicts like those that a policy has put together."""
    rest = {key: node_items(node) for key, node in columns.items()}
    return [
        {
            "obs": IN_COLUMN,
            "next_obs": IN_COLUMN,
            **{key: values[row] for key, values in rest.items()},
            "collect_iter": collect_iter,
        }
        for row in range(count)
    ]


def _from_dicts(dicts: Sequence[dict[str, Any]], columns: dict[str, Node], codes: Codes, chained: bool) -> list[Any]:
    """The transitions `dicts`, with `columns` in the place of `IN_COLUMN`, as `Samples` where they are alike."""
    items = [dict(transition) for transition in dicts]
    if codes.any() and all("done" in item for item in items):
        _note_end_flags(items, codes)
    whole = {key for key in columns if all(item.get(key) is IN_COLUMN for item in items)}
    observed = None
    if any(item.get(key) is IN_COLUMN for key in columns.keys() - whole for item in items):
        whole, observed = set(), list(Samples(columns, chained=chained))
    rest = [
        {
            key: observed[i][key] if value is IN_COLUMN and observed else as_tensor(value)
            for key, value in item.items()
            if key not in whole
        }
        for i, item in enumerate(items)
    ]
    packed = Samples.of(rest)
    copies: dict[int, Any] = {}
    if packed is not None and packed.columns is not None:
        own = map_node(lambda column: _with_copies(column, copies), packed.columns)
        return Samples({key: columns[key] if key in whole else own[key] for key in items[0]}, chained=chained)
    rest = [{key: _copy(value, copies) for key, value in item.items()} for item in rest]
    if whole:
        for item, observation in zip(
            rest, list(Samples({key: columns[key] for key in whole}, chained=chained)), strict=True
        ):
            item.update(observation)
    return rest


def _note_end_flags(items: Sequence[dict[str, Any]], codes: Codes) -> None:
    """Put the reported flags into transitions, and into the others those that follow from `done`."""
    for item, code in zip(items, codes.tolist(), strict=True):
        if code & TRUNCATED_TOLD or "truncated" not in item:
            item["truncated"] = bool(code & TRUNCATED)
        if code & TERMINATED_TOLD:
            item["terminated"] = bool(code & TERMINATED)
        elif "terminated" not in item:
            item["terminated"] = bool(np.all(np.asarray(item["done"]))) and not item["truncated"]


def _with_copies(column: Column, copies: dict[int, Any]) -> Column:
    """A column whose objects share no memory with a batch, which would live as long as they do."""
    if column.kind is not Kind.OBJECT:
        return column
    return Column(column.kind, [_copy(value, copies) for value in column.data], column.rows)


def _copy(value: Any, copies: dict[int, Any]) -> Any:
    """A deep copy of nested data; `copies` holds the copies made before."""
    if isinstance(value, np.ndarray | torch.Tensor):
        if id(value) not in copies:
            copies[id(value)] = value.copy() if isinstance(value, np.ndarray) else value.detach().clone()
        return copies[id(value)]
    if isinstance(value, dict):
        return {key: _copy(part, copies) for key, part in value.items()}
    if isinstance(value, list | tuple):
        parts = [_copy(part, copies) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value
