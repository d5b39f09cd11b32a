"""The steps of all envs between two collects as one block of columns, from which fragments are cut.

A round only keeps its arrays. `add` joins those of many rounds and cuts the fragments of all envs, usually once a
collect.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from ding.envs.env_manager.block import TERMINATED, TERMINATED_TOLD, TOLD, TRUNCATED, TRUNCATED_TOLD, BoolArray, Codes
from ding.utils.data.nested import map_leaves
from ding.utils.data.plain_columns import node_of_state, node_state, samples_of_state, samples_state
from ding.utils.data.samples import (
    Column,
    IntArray,
    Items,
    Kind,
    Node,
    Table,
    columns_of,
    is_same_structure,
    map_node,
    node_items,
)
from ding.utils.msgpack_helper import can_pack
from ding.utils.object_state import SavedAttributes
from ding.worker.collector.env_round import MANY_BYTES, RoundBlock, Steps, as_tensor, tensorised

# Stands, in a transition that a policy has built, for an observation of the env.
SHOWN = "<shown>"
NOT_PLAIN = "the unfinished fragments hold values that are not plain; they are dropped"

# The rows of fragments that were taken are dropped once they are more than half of all, and there are that many rows or
# bytes of observations. New arrays have room for as many rows as there were then, and some more.
_MANY_ROWS, _MANY_BYTES, _SPARE = 2048, MANY_BYTES, 1.25
# The numbers of a row: its env, the rows of the observations before and after the step, its fragment,
# what the info says about the end (see `end_code`), and the iteration of the policy.
_ID, _OBS, _NEXT, _FRAGMENT, _CODE, _ITER = range(6)

_BLOCKS = itertools.count()


class Record(NamedTuple):
    """What is kept of a round, as `TrajectoryBlock.record` returns it."""

    obs: Node  # that the policy acted on, read where it is not what the step before has returned
    next_obs: Node
    columns: dict[str, Any]
    closes: BoolArray  # whether the fragment of each env ends


class TrajectoryBlock(SavedAttributes):
    """The transitions of all envs that were not taken yet, in columns.

    A row is a step of an env; rows are in the order of time. The observation that an env returns is also the one that
    the policy acts on next, and is kept once. Each row belongs to a fragment; each env has one fragment under way.

    Args:
        env_num: number of envs; their ids are below it.
        chained: see `Table`.
        fragment_len: number of transitions with which a fragment ends, if its episode does not end before.
        frame_stack: number C of frames that observations [C, ...] consist of, newest last; see `Column`. 1 if unknown.

    Attributes:
        lengths: an array [env_num], the number of transitions of the fragments under way, recorded ones included.
        closed_rows: the number of transitions in fragments that were closed and not taken, recorded ones included.
        keys: the keys that are recorded besides observations and end flags; None while there are no rows.
        has_dicts: whether the rest of the transitions is kept in dicts, as the policy has built them.
    """

    _saved = ("lengths", "_closed", "_closed_of", "closed_rows", "_fragment", "_next_fragment")

    def __init__(
        self, env_num: int, chained: bool = True, fragment_len: float = math.inf, frame_stack: int = 1
    ) -> None:
        self._env_num = env_num
        self._frame_stack = frame_stack
        self._next_frame = next(_BLOCKS) << 40  # the number of the next frame; those of two blocks differ
        self._chained = chained
        self._fragment_len = fragment_len
        self._room = 0  # the number of rows when fragments were taken last, and that of observations
        self._obs_room = 0
        self._clear()

    def _clear(self) -> None:
        self.lengths: IntArray = np.zeros(self._env_num, np.int64)
        self.closed_rows = 0
        self.keys: Sequence[str] | None = None
        self._fragment: IntArray = np.arange(self._env_num)  # the fragment of each env that is under way
        self._next_fragment = self._env_num
        # The closed fragments in the order of their ends; their envs, and the numbers of their episodes.
        self._closed: list[int] = []
        self._closed_of: list[tuple[IntArray, IntArray]] = []
        self._at: IntArray = np.full(self._env_num, -1)  # the row of the observation that each env shows; -1 if unknown
        self._count = 0  # number of rows
        self._numbers: IntArray = np.empty((6, self._room), np.int64)  # by row, with room for further rows
        self._obs = _Store(room=self._obs_room)
        self._frames: IntArray = np.empty((0, self._frame_stack), np.int64)  # the numbers of those of each observation
        self._columns: dict[str, _Store] = {}
        self.has_dicts = False
        self._dicts: list[dict[str, Any]] = []  # by row

    def record(self, steps: Steps, columns: dict[str, Any]) -> Record:
        """Return what `add` needs of a round, and count its transitions already.

        Args:
            columns: the rest of the transitions, except observations, end flags and `collect_iter`: arrays [K, ...] of
                tensors (of bools for `done`), or nodes; its keys are `keys`. It belongs to the block from now on.

        Raises:
            TypeError: something cannot be converted to tensors.
        """
        obs, next_obs = steps.obs.node, steps.next_obs.node
        if type(next_obs) is not Column or next_obs.kind is Kind.OBJECT:  # now, since it may fail
            obs, next_obs = tensorised(obs), tensorised(next_obs)
        for key, part in columns.items():
            if type(part) is not np.ndarray and (type(part) is not Column or part.kind is Kind.OBJECT):
                columns[key] = tensorised(part)
        if self.keys is None:
            self.keys = list(columns)
            self._columns = {key: _Store(room=self._room) for key in columns}
        ids, closes = steps.ids, steps.ends
        lengths = self.lengths[ids]
        lengths += 1 if steps.active is None else steps.active
        if self._fragment_len < math.inf:
            closes = closes | (lengths >= self._fragment_len)
        if np.count_nonzero(closes):
            self.closed_rows += int(lengths.dot(closes))
            lengths[closes] = 0
        self.lengths[ids] = lengths
        return Record(obs, next_obs, columns, closes)

    def add(
        self, rounds: RoundBlock, records: Sequence[Record], collect_iter: int, numbers: IntArray | None = None
    ) -> None:
        """Add T recorded rounds to the rows, in order.

        Args:
            numbers: the numbers of the episodes [T, K], see `closed_of`.
        """
        ids, active = rounds.ids, rounds.active
        shape = rounds.ends.shape
        of_rows = np.empty((6, *shape), np.int64)
        of_rows[_ID], of_rows[_ITER] = ids, collect_iter
        of_rows[_CODE] = np.concatenate([steps.codes for steps in rounds.steps]).reshape(shape)
        self._link(rounds, records, of_rows)
        closes = np.concatenate([record.closes for record in records]).reshape(shape)
        self._cut(closes, ids, np.broadcast_to(ids, shape) if numbers is None else numbers, of_rows)
        rows = None if active is None else active.reshape(-1).nonzero()[0]
        more = of_rows.reshape(6, -1) if rows is None else of_rows.reshape(6, -1)[:, rows]
        start, self._count = self._count, self._count + more.shape[1]
        if self._count > self._numbers.shape[1]:
            room = max(2 * self._count, self._room)
            self._numbers = np.concatenate([self._numbers[:, :start], np.empty((6, room - start), np.int64)], axis=1)
        self._numbers[:, start : self._count] = more
        for key, store in self._columns.items():
            store.append_all([record.columns[key] for record in records], len(ids), rows, kind_of_array(key))

    def add_dicts(
        self, steps: Steps, dicts: list[dict[str, Any]], collect_iter: int, numbers: IntArray | None = None
    ) -> None:
        """Add the transitions of a round in dicts; `SHOWN` stands for the observations of the env."""
        if not self.has_dicts:  # keep what is here in the same way
            nodes = {key: store.rows for key, store in self._columns.items()}
            rows = node_items(nodes) if self._count else []
            self._dicts = [{"obs": SHOWN, "next_obs": SHOWN, **row} for row in rows]
            self.has_dicts, self.keys, self._columns = True, [], {}
        self.add(RoundBlock([steps]), [self.record(steps, {})], collect_iter, numbers)
        self._dicts += dicts

    def _link(self, rounds: RoundBlock, records: Sequence[Record], numbers: IntArray) -> None:
        """Keep the observations of rounds, and write into `numbers` [6, T, K] where those of each step lie."""
        ids, active, at, following = rounds.ids, rounds.active, numbers[_OBS], numbers[_NEXT]
        following[:] = np.arange(self._obs.size, self._obs.size + following.size).reshape(following.shape)
        self._obs.append_all([record.next_obs for record in records], len(ids), None, Kind.ARRAY)
        shown = np.where(rounds.ends, -1, following) if rounds.any_ends else following
        at[0], at[1:] = self._at[ids], shown[:-1]
        self._at[ids] = shown[-1]
        continues = [steps.continues for steps in rounds.steps]
        if not all(continues):
            at[np.logical_not(continues)] = -1
        unknown = at < 0 if active is None else (at < 0) & active
        count = int(np.count_nonzero(unknown))
        if count:  # no step has returned what these show
            at[unknown] = np.arange(self._obs.size, self._obs.size + count)
            some = unknown.any(axis=1).nonzero()[0]
            obs = [records[place].obs for place in some.tolist()]
            self._obs.append_all(obs, len(ids), unknown[some].reshape(-1).nonzero()[0], Kind.ARRAY)
        if self._frame_stack > 1:
            self._number_frames(at, following)

    def _number_frames(self, at: IntArray, following: IntArray) -> None:
        """Give numbers to frames of new observations; all but the newest of those `following` [T, K] are known."""
        shape = (self._obs.size - len(self._frames), self._frame_stack)
        new = np.arange(self._next_frame, self._next_frame + math.prod(shape)).reshape(shape)
        self._next_frame += new.size
        self._frames = frames = np.concatenate([self._frames, new])
        for before, after in zip(at, following, strict=True):
            goes_on = before >= 0  # not of an env that only begins an episode
            frames[after[goes_on], :-1] = frames[before[goes_on], 1:]

    def _cut(self, closes: BoolArray, ids: IntArray, of_episodes: IntArray, numbers: IntArray) -> None:
        """Close the fragments that end in rounds, and write into `numbers` [6, T, K] the fragment of each step."""
        fragments = numbers[_FRAGMENT]
        fragments[0] = self._fragment[ids]
        rows, columns = closes.nonzero()
        if not len(rows):
            fragments[1:] = fragments[0]
            return
        begun = np.full(closes.shape, -1)  # the fragments that follow
        begun[rows, columns] = np.arange(self._next_fragment, self._next_fragment + len(rows))
        self._next_fragment += len(rows)
        fragments[1:] = begun[:-1]
        np.maximum.accumulate(fragments, axis=0, out=fragments)  # later fragments have larger numbers
        self._fragment[ids] = np.maximum(fragments[-1], begun[-1])
        self._closed += fragments[rows, columns].tolist()
        self._closed_of.append((ids[columns], of_episodes[rows, columns]))

    def close(self, ids: IntArray, numbers: IntArray | None = None) -> None:
        """End the fragments of these envs between two rounds; their episodes may go on.

        Args:
            numbers: the numbers of the episodes [K], see `closed_of`.
        """
        self.closed_rows += int(self.lengths[ids].sum())
        self._closed += self._fragment[ids].tolist()
        self._closed_of.append((ids, ids if numbers is None else numbers))
        self._begin_fragments(ids)

    def _begin_fragments(self, ids: IntArray) -> None:
        self._fragment[ids] = np.arange(self._next_fragment, self._next_fragment + len(ids))
        self._next_fragment += len(ids)
        self.lengths[ids] = 0

    def closed_of(self) -> tuple[IntArray, IntArray]:
        """Return the envs of the closed fragments in the order of their ends, and the numbers of their episodes.

        These are the numbers that `add` and `close` were given, or else the envs.
        """
        ids, numbers = zip(*self._closed_of, strict=True)
        return np.concatenate(ids), np.concatenate(numbers)

    def split(self, env_ids: IntArray | Sequence[int]) -> None:
        """Note that the next observation of these envs is not the one that they returned last."""
        self._at[env_ids] = -1

    def drop(self, env_ids: Sequence[int]) -> None:
        """Drop the fragments under way of these envs."""
        ids = np.array(env_ids, np.int64)
        self._begin_fragments(ids)
        self._at[ids] = -1

    def clear(self) -> None:
        """Drop all fragments under way, and the rounds that were recorded but not added."""
        if self._closed:
            self.drop(range(self._env_num))
            self._renew()
            self.closed_rows = self._count
        else:
            self._clear()

    def closed_table(self) -> Table:
        """Return the transitions of the closed fragments, with `lengths`."""
        ranks = self._ranks()[self._numbers[_FRAGMENT, : self._count]]
        rows = (ranks >= 0).nonzero()[0]
        order = ranks[rows]
        lengths = np.bincount(order, minlength=len(self._closed))
        return self._table(rows[order.argsort(kind="stable")], lengths)

    def drop_closed(self) -> None:
        """Drop the closed fragments; tables that were taken from them stay valid."""
        self._closed, self._closed_of, self.closed_rows = [], [], 0
        is_mostly_taken = self._count > 2 * sum(self.lengths.tolist())
        if is_mostly_taken and (self._count > _MANY_ROWS or self._obs.nbytes > _MANY_BYTES):
            self._room, self._obs_room = int(_SPARE * self._count), int(_SPARE * self._obs.size)
            self._renew()

    def take_closed(self) -> list[Items]:
        """Remove the closed fragments, and return the transitions of each."""
        fragments = [self._fragment_of(fragment) for fragment in self._closed]
        self.drop_closed()
        return fragments

    def peek(self, env_id: int) -> Items:
        """Return copies of the transitions of the fragment under way of this env, without removing them."""
        return self._fragment_of(self._fragment[env_id])

    def _fragment_of(self, fragment: int) -> Items:
        rows = (self._numbers[_FRAGMENT, : self._count] == fragment).nonzero()[0]
        return self._items(rows) if self.has_dicts and len(rows) else self._table(rows).compact()

    def _items(self, rows: IntArray) -> Items:
        """Return the transitions in these rows, which are kept in dicts: as a table if they have one form."""
        numbers = self._numbers[:, rows]
        shown = {"obs": self._obs.take(numbers[_OBS]), "next_obs": self._obs.take(numbers[_NEXT])}
        given = Table(shown, chained=self._chained, size=len(rows)).rows()
        tensors: dict[int, Any] = {}  # by the id of an observation of the policy's own, which may be in two transitions
        items = []
        for row, pair, collect_iter in zip(rows.tolist(), given, numbers[_ITER].tolist(), strict=True):
            item = {**self._dicts[row], "collect_iter": collect_iter}
            for key, value in item.items():
                if type(value) is str and value == SHOWN:
                    item[key] = pair[key]
                elif key in pair:
                    item[key] = tensors.setdefault(id(value), as_tensor(value))
                else:
                    item[key] = as_tensor(value)
            items.append(item)
        codes = numbers[_CODE].tolist()
        if any(codes) and all("done" in item for item in items):
            _note_end_flags(items, codes)
        packed = Table.of(items)
        copies: dict[int, Any] = {}
        if packed is None:
            return [{key: _copy(value, copies) for key, value in item.items()} for item in items]
        columns = {key: map_node(lambda c: _with_copies(c, copies), node) for key, node in packed.columns.items()}
        return Table(columns, chained=self._chained)

    def state_dict(self) -> dict[str, Any]:
        """Return the transitions in plain values; those with other values are left out."""
        self._renew()
        obs = node_state(self._obs.rows)
        columns = {key: node_state(store.rows) for key, store in self._columns.items()}
        dicts = samples_state(self._dicts)
        is_plain = self.keys is None or not (obs is None or None in columns.values() or not can_pack(dicts))
        return {
            **super().state_dict(),
            "at": self._at.copy(),
            "rows": self._numbers[:, : self._count].copy() if is_plain else None,
            "obs": obs if is_plain and self.keys is not None else None,
            "obs_count": self._obs.size,
            "columns": columns if is_plain else None,
            "dicts": dicts if is_plain and self.has_dicts else None,
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
            if self._frame_stack > 1:
                self._number_frames(*np.empty((2, 0, 0), np.int64))
            self._columns = {key: _Store(node_of_state(own), self._count) for key, own in state["columns"].items()}
            self.keys = list(self._columns)
            self.has_dicts = state["dicts"] is not None
            self._dicts = samples_of_state(state["dicts"]) if self.has_dicts else []
        return problems

    def _ranks(self) -> IntArray:
        """Return for each fragment its place among the closed ones; -1 for others."""
        ranks = np.full(self._next_fragment, -1)
        ranks[self._closed] = np.arange(len(self._closed))
        return ranks

    def _table(self, rows: IntArray, lengths: IntArray | None = None) -> Table:
        """Return a table of the transitions in these rows; its columns may be views."""
        if not len(rows):
            return Table({}, lengths=lengths)
        numbers = self._numbers[:, rows]
        columns: dict[str, Node] = {"obs": self._obs.take(numbers[_OBS]), "next_obs": self._obs.take(numbers[_NEXT])}
        for observation in columns.values() if self._frame_stack > 1 else ():
            if type(observation) is Column and observation.data.shape[1:2] == self._frames.shape[1:]:
                observation.frames = self._frames
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
        """Build new columns that hold only the rows of fragments that are closed or under way."""
        ids, fragments = self._numbers[_ID, : self._count], self._numbers[_FRAGMENT, : self._count]
        is_kept = fragments == self._fragment[ids]
        if self._closed:
            is_kept |= self._ranks()[fragments] >= 0
        rows = is_kept.nonzero()[0]
        numbers = self._numbers[:, rows]
        known = self._at[self._at >= 0]  # begin the next fragments, whose frames are those of these
        if not len(rows) and (self._frame_stack == 1 or not len(known)):
            self._clear()
            return
        shown = np.unique(np.concatenate([numbers[_OBS], numbers[_NEXT], known]))
        place = np.full(self._obs.size + 1, -1)  # the last entry is for observations that are not here
        place[shown] = np.arange(len(shown))
        at, frames = place[self._at], self._frames
        if self._frame_stack == 1:
            obs = self._obs.only(shown, self._obs_room)
        else:
            obs, frames = self._obs.only(shown, 0), frames[shown]
            obs.room = self._obs_room  # used when further ones come; until then, samples may hold as much memory
        if not len(rows):
            self._clear()
        else:
            kept = np.unique(np.concatenate([numbers[_FRAGMENT], self._fragment]))
            self._fragment, self._next_fragment = kept.searchsorted(self._fragment), len(kept)
            self._closed = kept.searchsorted(self._closed).tolist()
            numbers[_FRAGMENT] = kept.searchsorted(numbers[_FRAGMENT])
            numbers[_OBS], numbers[_NEXT] = place[numbers[_OBS]], place[numbers[_NEXT]]
            self._numbers = np.empty((6, max(self._room, len(rows))), np.int64)
            self._numbers[:, : len(rows)] = numbers
            self._count = len(rows)
            self._columns = {key: store.only(rows, self._room) for key, store in self._columns.items()}
            self._dicts = [self._dicts[row] for row in rows.tolist()] if self.has_dicts else []
        self._at, self._obs, self._frames = at, obs, frames


def kind_of_array(key: str) -> Kind:
    """Return what the items of an array of `TrajectoryBlock.record` are."""
    return Kind.BOOL if key == "done" else Kind.TENSOR


class _Store:
    """The rows of one key, in the form that they have in samples; rows may be appended, but do not change.

    Attributes:
        size: number of rows.
        room: expected number of rows, for which there is room once rows are appended.
    """

    def __init__(self, rows: Node = None, size: int = 0, room: int = 0) -> None:
        self.size, self.room = 0, room
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

    def append_all(self, parts: Sequence[Any], count: int, kept: IntArray | None, array_kind: Kind) -> None:
        """Append the rows of several rounds of `count` rows, arrays or nodes; only the rows `kept` of all, if given."""
        first = parts[0]
        kind = array_kind if type(first) is np.ndarray else first.kind if type(first) is Column else Kind.OBJECT
        arrays = parts
        if type(first) is Column and kind is not Kind.OBJECT:
            arrays = [part.data for part in parts if type(part) is Column and part.kind is kind and part.rows is None]
        if kind is not Kind.OBJECT and len(arrays) == len(parts):
            data = None
            with suppress(TypeError, ValueError):  # nodes, or arrays of other shapes
                data = np.concatenate(arrays)
            if data is not None and data.dtype == arrays[0].dtype:
                data = data if kept is None else data[kept]
                self.append(Column(kind, data, None, type(first) is Column and first.steps), len(data))
                return
        for place, part in enumerate(parts):
            node, size = Column(array_kind, part) if type(part) is np.ndarray else part, count
            if kept is not None:
                own = kept[(kept >= place * count) & (kept < (place + 1) * count)] - place * count
                node, size = _rows_of(node, own), len(own)
            self.append(node, size)

    def _extend(self, more: Node, count: int) -> None:
        known, size, room = self._node, self.size, max(self.room, 2 * (self.size + count))
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


def _note_end_flags(items: Sequence[dict[str, Any]], codes: Sequence[int]) -> None:
    """Write the reported end flags into the transitions, and into the others the flags that follow from `done`."""
    for item, code in zip(items, codes, strict=True):
        if code & TRUNCATED_TOLD or "truncated" not in item:
            item["truncated"] = bool(code & TRUNCATED)
        if code & TERMINATED_TOLD:
            item["terminated"] = bool(code & TERMINATED)
        elif "terminated" not in item:
            item["terminated"] = bool(np.all(np.asarray(item["done"]))) and not item["truncated"]


def _with_copies(column: Column, copies: dict[int, Any]) -> Column:
    """Return a column whose objects are copies: views would keep the memory of a whole batch alive."""
    if column.kind is not Kind.OBJECT:
        return column
    return Column(column.kind, [map_leaves(partial(_copy, copies=copies), value) for value in column.data], column.rows)


def _copy(value: Any, copies: dict[int, Any]) -> Any:
    """Return an array or tensor that shares no memory; `copies` holds the copies made before."""
    if isinstance(value, np.ndarray | torch.Tensor):
        if id(value) not in copies:
            copies[id(value)] = value.copy() if isinstance(value, np.ndarray) else value.detach().clone()
        return copies[id(value)]
    return value
