"""The trajectories under way of all envs, as columns that are written a round at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ding.utils.data.samples import Column, Kind, Node, Samples, map_node, node_items, pack
from ding.worker.collector.batch import as_tensor, tensorised

# Rows of an env that wait in the shared arrays; a longer trajectory is copied out in blocks of so many.
BLOCK = 64

# In a transition dict: the observation that the env was acted on with, or that it returned, which is in a column.
IN_COLUMN = object()

# What the info of a step tells, see `end_code`.
_TERMINATED_TOLD, _TERMINATED, _TRUNCATED_TOLD, _TRUNCATED = 1, 2, 4, 8


def end_code(info: Any) -> int:
    """The flags `terminated` and `truncated` of an info, and whether it has them, as one small number."""
    code = 0
    if "terminated" in info:
        code = _TERMINATED_TOLD | _TERMINATED if info["terminated"] else _TERMINATED_TOLD
    if "truncated" in info:
        code |= _TRUNCATED_TOLD | _TRUNCATED if info["truncated"] else _TRUNCATED_TOLD
    return code


class Fragments:
    """Transitions of each env, in the order of its steps, until they are taken.

    A row is written for all envs of a round at once. Observations have one row more than the rest: `next_obs` of a
    transition is the row after that of its `obs`.

    Args:
        env_num: number of envs; their ids are below it.
        length: how many transitions of an env there will be before they are taken, if that is known.
        chained: let the `next_obs` of a transition be the very object that is the `obs` of the one after.

    Attributes:
        lengths: number of transitions of each env.
    """

    def __init__(self, env_num: int, length: float, chained: bool = True) -> None:
        self._block = int(min(length, BLOCK))
        self._width = self._block + 1
        self._chained = chained
        # Arrays [envs * width, *shape].
        self._obs: Node = ()
        self._columns: dict[str, Node] = {}
        self._codes = np.zeros(env_num * self._width, np.uint8)
        self._written: Node = None  # the observations that are in `_obs` already when the next round begins
        self._has_dicts = False  # instead of columns
        self._dicts: list[list[dict[str, Any]]] = [[] for _ in range(env_num)]
        self._counts = [0] * env_num  # rows in the arrays
        self._blocks: list[list[_Block]] = [[] for _ in range(env_num)]  # those that were copied out before
        self.lengths = [0] * env_num

    def record(
        self,
        env_ids: Sequence[int],
        obs: Node,
        next_obs: Node,
        columns: Mapping[str, Node],
        codes: Sequence[int],
        dicts: Sequence[dict[str, Any]] | None = None,
    ) -> None:
        """Write a transition of each of these envs.

        Args:
            obs: the observations before the step.
            next_obs: those after it.
            columns: the rest of the transitions.
            codes: see `end_code`.
            dicts: the rest of the transitions where a policy has put them together; then `columns` is empty.
        """
        if not _is_alike(obs, next_obs):
            obs, next_obs = _as_objects(obs), _as_objects(next_obs)
        if not self._fits(obs, columns, dicts is not None):
            self._allocate(obs, columns, dicts is not None)
        width, counts = self._width, self._counts
        starts = [counts[env_id] for env_id in env_ids]
        rows = np.array([env_id * width + start for env_id, start in zip(env_ids, starts, strict=True)])
        for key, node in columns.items():
            _write(self._columns[key], node, rows)
        if obs is not self._written or 0 in starts:
            _write(self._obs, obs, rows)
        self._codes[rows] = codes
        rows += 1
        _write(self._obs, next_obs, rows)
        self._written = next_obs
        if dicts is not None:
            for env_id, transition in zip(env_ids, dicts, strict=True):
                self._dicts[env_id].append(transition)
        lengths, block = self.lengths, self._block
        for env_id in env_ids:
            lengths[env_id] += 1
            counts[env_id] += 1
            if counts[env_id] == block:
                self._copy_out(env_id)

    def take(self, env_id: int) -> list[Any]:
        """The transitions of this env, as `Samples` where they are alike; they are here no more."""
        self._copy_out(env_id)
        blocks, self._blocks[env_id] = self._blocks[env_id], []
        self.lengths[env_id] = 0
        return _joined(blocks, self._chained)

    def peek(self, env_id: int) -> list[Any]:
        """The transitions of this env, which stay."""
        return _joined([*self._blocks[env_id], *self._rows_of(env_id)], self._chained)

    def split(self, env_id: int) -> None:
        """What this env shows next is not the observation that it returned last."""
        self._copy_out(env_id)
        if self._blocks[env_id]:
            self._blocks[env_id][-1].goes_on = False

    def drop(self, env_id: int) -> None:
        """Throw the transitions of this env away."""
        self._blocks[env_id] = []
        self._dicts[env_id] = []
        self._counts[env_id] = self.lengths[env_id] = 0

    def _fits(self, obs: Node, columns: Mapping[str, Node], has_dicts: bool) -> bool:
        own = self._columns
        if own.keys() != columns.keys() or self._has_dicts is not has_dicts or not _is_alike(self._obs, obs):
            return False
        for key, node in columns.items():  # noqa: SIM110 (a generator doubles the time)
            if not _is_alike(own[key], node):
                return False
        return True

    def _allocate(self, obs: Node, columns: Mapping[str, Node], has_dicts: bool) -> None:
        """Make arrays for rows of these kinds; the rows of others are copied out before."""
        for env_id in range(len(self._counts)):
            self._copy_out(env_id)
        size = len(self._counts) * self._width
        self._obs = map_node(lambda column: _empty(column, size), obs)
        self._columns = {key: map_node(lambda column: _empty(column, size), node) for key, node in columns.items()}
        self._has_dicts = has_dicts

    def _copy_out(self, env_id: int) -> None:
        """Give the rows of this env that are in the arrays a block of their own."""
        self._blocks[env_id].extend(self._rows_of(env_id))
        self._dicts[env_id] = []
        self._counts[env_id] = 0

    def _rows_of(self, env_id: int) -> list[_Block]:
        """The block of what is in the arrays of this env, if there is anything."""
        count, start = self._counts[env_id], env_id * self._width
        if not count:
            return []
        obs = _copied(self._obs, start, start + count + 1)
        before, after = np.arange(count), np.arange(1, count + 1)
        columns = {
            "obs": map_node(lambda column: column.take(before), obs),
            "next_obs": map_node(lambda column: column.take(after), obs),
        }
        codes = self._codes[start : start + count]
        if self._has_dicts:
            return [_Block(_from_dicts(self._dicts[env_id], columns, codes, self._chained))]
        for key, node in self._columns.items():
            columns[key] = _copied(node, start, start + count)
        if codes.any():
            columns.update(_end_flags(codes, columns["done"]))
        return [_Block(Samples(columns, chained=self._chained))]


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


def join_samples(parts: Sequence[list[Any]]) -> list[Any]:
    """All samples of `parts` in order: as `Samples` where all are such, alike, and nobody has looked at them."""
    if len(parts) == 1:
        return parts[0]
    samples = [part for part in parts if isinstance(part, Samples)]
    joined = Samples.joined(samples) if samples and len(samples) == len(parts) else None
    return [item for part in parts for item in part] if joined is None else joined


def _joined(blocks: list[_Block], chained: bool) -> list[Any]:
    whole = join_samples([block.items for block in blocks])
    if len(blocks) < 2 or not chained or not isinstance(whole, Samples) or whole.columns is None:
        return whole
    columns = whole.columns
    ends = np.cumsum([len(block.items) for block in blocks[:-1]])[[block.goes_on for block in blocks[:-1]]]

    def linked(after: Column, before: Column) -> Column:
        if after.data is not before.data or after.rows is None or before.rows is None:
            return after
        rows = after.rows.copy()
        rows[ends - 1] = before.rows[ends]
        return Column(after.kind, after.data, rows, after.steps)

    return whole.with_columns(next_obs=map_node(linked, columns["next_obs"], columns["obs"]))


def _is_alike(one: Node, other: Node) -> bool:
    """Whether rows of `other` may be written into the arrays of `one`."""
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


def _as_objects(node: Node) -> Node:
    return Column(Kind.OBJECT, node_items(node))


def _empty(column: Column, size: int) -> Column:
    if column.kind is Kind.OBJECT:
        return Column(Kind.OBJECT, [None] * size)
    return Column(column.kind, np.empty((size, *column.data.shape[1:]), column.data.dtype), None, column.steps)


def _write(store: Node, node: Node, rows: np.ndarray) -> None:
    if type(store) is Column:
        if store.kind is Kind.OBJECT:
            for row, value in zip(rows.tolist(), node.data, strict=True):
                store.data[row] = value
        else:
            store.data[rows] = node.data
        return
    for key in store if isinstance(store, dict) else range(len(store)):
        _write(store[key], node[key], rows)


def _copied(store: Node, start: int, stop: int) -> Node:
    """These rows of the arrays as tensors, in arrays of their own."""
    rows = map_node(lambda column: Column(column.kind, column.data[start:stop], None, column.steps), store)
    return map_node(lambda column: Column(column.kind, column.data.copy(), None, column.steps), tensorised(rows))


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
            key: observed[i][key] if value is IN_COLUMN and observed else as_tensor(_unshared(value))
            for key, value in item.items()
            if key not in whole
        }
        for i, item in enumerate(items)
    ]
    packed = Samples.of(rest)
    if packed is not None and packed.columns is not None:
        return Samples(
            {key: columns[key] if key in whole else packed.columns[key] for key in items[0]}, chained=chained
        )
    if whole:
        for item, own in zip(list(Samples({key: columns[key] for key in whole}, chained=chained)), rest, strict=True):
            own.update(item)
    return rest


def _unshared(value: Any) -> Any:
    """`value` without memory that it shares with others, which would live as long as it does."""
    if isinstance(value, np.ndarray):
        return value if value.base is None else value.copy()
    if isinstance(value, torch.Tensor):
        is_view = value.layout is torch.strided and value.untyped_storage().nbytes() > value.nbytes
        return value.detach().clone() if is_view else value
    if isinstance(value, dict):
        return {key: _unshared(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        parts = [_unshared(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


def _note_end_flags(items: Sequence[dict[str, Any]], codes: np.ndarray) -> None:
    flags = _end_flags(codes, pack([item["done"] for item in items]))
    is_told = {"terminated": codes & _TERMINATED_TOLD, "truncated": codes & _TRUNCATED_TOLD}
    for flag, column in flags.items():
        for item, value, told in zip(items, column.items(), is_told[flag], strict=True):
            if told or flag not in item:
                item[flag] = value


def _end_flags(codes: np.ndarray, done: Node) -> dict[str, Column]:
    """The flags of steps of which some tell them; of an end of which nothing else is told, it is terminal."""
    truncated = codes & _TRUNCATED != 0
    terminated = codes & _TERMINATED != 0
    is_untold = codes & _TERMINATED_TOLD == 0
    if is_untold.any():
        ended = np.array([bool(np.all(value)) for value in node_items(done)])
        terminated = np.where(is_untold, ended & ~truncated, terminated)
    return {"terminated": Column(Kind.BOOL, terminated), "truncated": Column(Kind.BOOL, truncated)}
