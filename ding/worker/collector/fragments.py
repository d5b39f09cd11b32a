"""The trajectories under way of all envs, as columns that are written a round at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import count, groupby
from typing import Any

import numpy as np
import torch

from ding.utils.data.samples import Column, Kind, Node, Samples, columns_of, map_node, node_items, pack
from ding.worker.collector.batch import as_tensor, tensorised

# Size of a log: so many bytes, within these bounds on the number of rounds. What is under way when a log is full is
# copied out of it.
LOG_BYTES = 1 << 22
LOG_ROUNDS = 64, 1024

# In a transition dict: the observation that the env was acted on with, or that it returned, which is in a column.
IN_COLUMN = object()

# What the info of a step tells, see `_end_code`.
_TERMINATED_TOLD, _TERMINATED, _TRUNCATED_TOLD, _TRUNCATED = 1, 2, 4, 8
_TOLD = _TERMINATED_TOLD | _TRUNCATED_TOLD

_BOOL = {bool}


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


class Fragments:
    """Transitions of each env, in the order of its steps, until they are taken.

    Rounds are appended to a log, an array for each key; the transitions of an env are rows of it. The observation that
    an env returns is also the one that it is acted on with next: it is written once.

    Args:
        env_num: number of envs; their ids are below it.
        chained: let the `next_obs` of a transition be the very object that is the `obs` of the one after.

    Attributes:
        lengths: number of transitions of each env.
    """

    def __init__(self, env_num: int, chained: bool = True) -> None:
        self._env_num = env_num
        self._chained = chained
        self._log: _Log | None = None
        self._written: Node = None  # what the log was given last as observations after a step
        # Of each env: its rows in the log, the rows of its observations (one more, as soon as there is one), and what
        # its policy has put together instead of columns.
        self._rows: list[list[int]] = [[] for _ in range(env_num)]
        self._obs_rows: list[list[int]] = [[] for _ in range(env_num)]
        self._dicts: list[list[dict[str, Any]]] = [[] for _ in range(env_num)]
        self._blocks: list[list[_Block]] = [[] for _ in range(env_num)]  # those of logs that are full
        self.lengths = [0] * env_num

    def record(
        self,
        env_ids: Sequence[int],
        obs: Node,
        next_obs: Node,
        columns: Mapping[str, Node],
        dones: Sequence[Any],
        infos: Sequence[Any],
        collect_iter: int,
        dicts: Sequence[dict[str, Any]] | None = None,
    ) -> None:
        """Add a transition of each of these envs.

        Args:
            obs: the observations before the step.
            next_obs: those after it.
            columns: the rest of the transitions, but for `done`, end flags and `collect_iter`.
            dones: whether the episodes have ended; bools, or what else the envs have as such.
            infos: hold the end flags, if the envs tell them.
            collect_iter: the iteration of the policy.
            dicts: transitions that a policy has put together, with `IN_COLUMN` for `obs` and `next_obs`; end flags are
                added to them, and of the rest nothing is recorded.
        """
        if dicts is not None:
            columns = {}
        elif set(map(type, dones)) != _BOOL:
            columns = {**columns, "done": pack(list(dones))}
        log = self._log
        # Usually `obs` is what was written last, and need not be looked at again.
        if obs is not self._written and not _is_alike(obs, next_obs):
            obs, next_obs = _as_objects(obs), _as_objects(next_obs)
        if log is None or not log.has_room(len(env_ids)) or not log.fits(next_obs, columns, dicts is not None):
            if not _is_alike(obs, next_obs):
                obs, next_obs = _as_objects(obs), _as_objects(next_obs)
            log = self._begin_log(next_obs, columns, dicts is not None)
        self._written = next_obs
        rows, obs_rows, lengths = self._rows, self._obs_rows, self.lengths
        unknown = [i for i, env_id in enumerate(env_ids) if not obs_rows[env_id]]
        if unknown:
            for row, i in enumerate(unknown, log.add_obs(obs, unknown, len(env_ids))):
                obs_rows[env_ids[i]].append(row)
        next_row = log.add_obs(next_obs, (), len(env_ids))
        row = log.add(columns, dones, infos, collect_iter)
        for env_id, of_step, of_obs in zip(env_ids, count(row), count(next_row)):
            rows[env_id].append(of_step)
            obs_rows[env_id].append(of_obs)
            lengths[env_id] += 1
        for env_id, transition in zip(env_ids, dicts or (), strict=False):
            self._dicts[env_id].append(transition)

    def take(self, env_id: int, goes_on: bool) -> list[Any]:
        """The transitions of this env, as `Samples` where they are alike; they are here no more.

        Args:
            goes_on: whether the env will be acted on with the observation that it returned last.
        """
        last = self._obs_rows[env_id][-1:] if goes_on else []
        taken = self.peek(env_id) if self._blocks[env_id] else self._from_log(env_id)
        self.drop(env_id)
        self._obs_rows[env_id] = last
        return taken

    def peek(self, env_id: int) -> list[Any]:
        """The transitions of this env, which stay."""
        blocks, logged = self._blocks[env_id], compacted(self._from_log(env_id))
        if not blocks:
            return logged
        return _joined([*blocks, _Block(logged)] if logged else blocks, self._chained)

    def split(self, env_id: int) -> None:
        """What this env shows next is not the observation that it returned last."""
        self._copy_out(env_id)
        if self._blocks[env_id]:
            self._blocks[env_id][-1].goes_on = False

    def drop(self, env_id: int) -> None:
        """Throw the transitions of this env away."""
        self._rows[env_id] = []
        self._obs_rows[env_id] = []
        self._dicts[env_id] = []
        self._blocks[env_id] = []
        self.lengths[env_id] = 0

    def _begin_log(self, obs: Node, columns: Mapping[str, Node], has_dicts: bool) -> _Log:
        for env_id in range(self._env_num):
            self._copy_out(env_id)
        row_bytes = sum(column.itemsize for node in (obs, obs, *columns.values()) for column in columns_of(node))
        rounds = LOG_BYTES // (self._env_num * max(row_bytes, 1))
        least, most = LOG_ROUNDS
        self._log = _Log(obs, columns, has_dicts, self._env_num * min(max(rounds, least), most))
        return self._log

    def _copy_out(self, env_id: int) -> None:
        """Give the transitions of this env that are in the log a block of their own."""
        if self._rows[env_id]:
            self._blocks[env_id].append(_Block(compacted(self._from_log(env_id))))
        self._rows[env_id] = []
        self._obs_rows[env_id] = []
        self._dicts[env_id] = []

    def _from_log(self, env_id: int) -> list[Any]:
        """The transitions of this env that are in the log, which may only be kept once they are dropped here."""
        log, rows, obs_rows = self._log, self._rows[env_id], self._obs_rows[env_id]
        if log is None or not rows:
            return []
        if log.has_dicts:
            observations = log.observations(obs_rows)
            return _from_dicts(self._dicts[env_id], observations, log.codes[rows], self._chained)
        return _Logged(log, rows, obs_rows, self._chained)


class _Log:
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
        self._told_by_all, self._told_by_any = _TOLD, 0
        self._iterations: list[tuple[int, int]] = []  # (row, collect_iter from there on)

    def has_room(self, number: int) -> bool:
        """Whether a round of so many envs can be added."""
        return self._size + number <= self._capacity

    def fits(self, obs: Node, columns: Mapping[str, Node], has_dicts: bool) -> bool:
        """Whether such a round can be added."""
        like = self._columns_like
        if self.has_dicts is not has_dicts or like.keys() != columns.keys() or not _is_alike(self._obs_like, obs):
            return False
        for key, node in columns.items():  # noqa: SIM110 (a generator doubles the time)
            if not _is_alike(like[key], node):
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
            self._told_by_any |= _TOLD
            return start
        self.codes[start:stop] = codes
        for code in codes:
            self._told_by_all &= code
            self._told_by_any |= code
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

    def gathered(self, pieces: Sequence[_Logged]) -> dict[str, Node]:
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

    def _add_rest(self, rows: np.ndarray, columns: dict[str, Node]) -> None:
        if "done" not in columns:
            columns["done"] = Column(Kind.BOOL, self._done.take(rows))
        starts, iterations = np.array(self._iterations).T
        columns["collect_iter"] = Column(Kind.INT, iterations[starts.searchsorted(rows, side="right") - 1])
        codes = self.codes.take(rows)
        if self._told_by_all == _TOLD:
            columns["terminated"] = Column(Kind.BOOL, codes & _TERMINATED != 0)
            columns["truncated"] = Column(Kind.BOOL, codes & _TRUNCATED != 0)
        elif self._told_by_any and codes.any():
            columns.update(_end_flags(codes, columns["done"]))


class _Logged(Samples):
    """Transitions that are rows of a log, which is None once a column was set."""

    __slots__ = ("log", "obs_rows", "rows")

    def __init__(self, log: _Log, rows: list[int], obs_rows: list[int], chained: bool) -> None:
        super().__init__(partial(log.columns, rows, obs_rows), chained=chained, size=len(rows))
        self.log: _Log | None = log
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


class _Block:
    """Some transitions of an env.

    Attributes:
        items: `Samples`, or dicts where they are not alike.
        goes_on: whether the first observation of the next block is the last `next_obs` of this one.
    """

    __slots__ = ("goes_on", "items")

    def __init__(self, items: list[Any]) -> None:
        self.items = items
        self.goes_on = True


def compacted(items: list[Any]) -> list[Any]:
    """The same items; where they are `Samples`, in arrays that hold nothing else."""
    return items.compact() if isinstance(items, Samples) and items.has_columns else items


def join_samples(parts: Sequence[list[Any]]) -> list[Any]:
    """All samples of `parts` in order: as `Samples` where all are such, alike, and nobody has looked at them.

    The result shares no memory with a log.
    """
    parts = [part for part in parts if len(part)]
    samples = [part for part in parts if isinstance(part, Samples) and part.has_columns]
    if samples and len(samples) == len(parts):
        # Those of one log are gathered together, so that no array is copied for a few of its rows.
        groups = [_gathered(list(group)) for _, group in groupby(samples, _source)]
        alike = [group for group in groups if group is not None]
        joined = Samples.joined(alike) if len(alike) == len(groups) else None
        if joined is not None:
            return joined
    return [item for part in parts for item in part]


def _source(samples: Samples) -> int:
    log = samples.log if isinstance(samples, _Logged) else None
    return id(next(columns_of(samples.columns)).data if log is None else log)


def _gathered(group: Sequence[Samples]) -> Samples | None:
    logged = [samples for samples in group if isinstance(samples, _Logged) and samples.log is not None]
    if len(logged) == len(group) and logged[0].log is not None:
        return Samples(logged[0].log.gathered(logged), chained=logged[0].is_chained)
    joined = Samples.joined(group)
    return None if joined is None else joined.compact()


def _joined(blocks: list[_Block], chained: bool) -> list[Any]:
    whole = join_samples([block.items for block in blocks])
    if len(blocks) < 2 or not chained or not isinstance(whole, Samples) or whole.columns is None:
        return whole
    columns = whole.columns
    if not columns.keys() >= {"obs", "next_obs"}:  # a recurrent policy, for one, keeps no next_obs
        return whole
    ends = np.cumsum([len(block.items) for block in blocks[:-1]])[[block.goes_on for block in blocks[:-1]]]

    def linked(after: Column, before: Column) -> Column:
        if after.data is not before.data or after.rows is None or before.rows is None:
            return after
        rows = after.rows.copy()
        rows[ends - 1] = before.rows[ends]
        return Column(after.kind, after.data, rows, after.steps)

    return whole.with_columns(next_obs=map_node(linked, columns["next_obs"], columns["obs"]))


def _as_objects(node: Node) -> Column:
    """The rows of a node as one column of objects."""
    return Column(Kind.OBJECT, node_items(node))


def _is_alike(one: Node, other: Node) -> bool:
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
        return one.keys() == other.keys() and all(_is_alike(one[key], other[key]) for key in one)
    return len(one) == len(other) and all(map(_is_alike, one, other))


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


def _from_dicts(
    dicts: Sequence[dict[str, Any]], columns: dict[str, Node], codes: np.ndarray, chained: bool
) -> list[Any]:
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


def _with_copies(column: Column, copies: dict[int, Any]) -> Column:
    """A column whose objects share no memory with a batch, which would live as long as they do."""
    return column if column.kind is not Kind.OBJECT else Column(column.kind, [_copy(v, copies) for v in column.data])


def _copy(value: Any, copies: dict[int, Any]) -> Any:
    """A copy of nested data with tensors and arrays of its own; `copies` are those that were made before."""
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


def _note_end_flags(items: Sequence[dict[str, Any]], codes: np.ndarray) -> None:
    """Put the flags that were told into transitions, and into the others what follows from `done`."""
    for item, code in zip(items, codes.tolist(), strict=True):
        if code & _TRUNCATED_TOLD or "truncated" not in item:
            item["truncated"] = bool(code & _TRUNCATED)
        if code & _TERMINATED_TOLD:
            item["terminated"] = bool(code & _TERMINATED)
        elif "terminated" not in item:
            item["terminated"] = bool(np.all(np.asarray(item["done"]))) and not item["truncated"]


def _end_flags(codes: np.ndarray, done: Node) -> dict[str, Column]:
    """The flags of steps of which some tell them; of an end of which nothing else is told, it is terminal."""
    truncated = codes & _TRUNCATED != 0
    terminated = codes & _TERMINATED != 0
    is_untold = codes & _TERMINATED_TOLD == 0
    if is_untold.any():
        ended = np.array([bool(np.all(np.asarray(value))) for value in node_items(done)])
        terminated = np.where(is_untold, ended & ~truncated, terminated)
    return {"terminated": Column(Kind.BOOL, terminated), "truncated": Column(Kind.BOOL, truncated)}
