"""The trajectories under way of all envs, as columns that are written a round at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count, groupby
from typing import Any

import numpy as np
import torch

from ding.utils.data.plain_columns import samples_of_state, samples_state
from ding.utils.data.samples import Column, Kind, Node, Samples, columns_of, map_node, node_items, pack
from ding.utils.msgpack_helper import can_pack
from ding.worker.collector.batch import as_tensor
from ding.worker.collector.round_log import LoggedSamples, RoundLog, is_alike, note_end_flags

# Size of a log: so many bytes, within these bounds on the number of rounds. What is under way when a log is full is
# copied out of it.
LOG_BYTES = 1 << 22
LOG_ROUNDS = 64, 1024

# In a transition dict: the observation that the env was acted on with, or that it returned, which is in a column.
IN_COLUMN = object()

_BOOL = {bool}


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
        self._log: RoundLog | None = None
        self._written: Node = None  # the observations after a step that were written last
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
            infos: hold the end flags, if the envs report them.
            collect_iter: the iteration of the policy.
            dicts: transitions that a policy has put together, with `IN_COLUMN` for `obs` and `next_obs`; end flags are
                added to them, and of the rest nothing is recorded.
        """
        if dicts is not None:
            columns = {}
        elif set(map(type, dones)) != _BOOL:
            columns = {**columns, "done": pack(list(dones))}
        log = self._log
        # Usually `obs` was written last, and need not be compared again.
        if obs is not self._written and not is_alike(obs, next_obs):
            obs, next_obs = _as_objects(obs), _as_objects(next_obs)
        if log is None or not log.has_room(len(env_ids)) or not log.fits(next_obs, columns, dicts is not None):
            if not is_alike(obs, next_obs):
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

    def state_dict(self) -> dict[str, Any]:
        """The transitions in plain values; others are left out."""
        rows, obs_rows = ([row for of_env in rows for row in of_env] for rows in (self._rows, self._obs_rows))
        dicts = [[_plain_dict(transition) for transition in of_env] for of_env in self._dicts]
        blocks = [[[samples_state(block.items), block.goes_on] for block in of_env] for of_env in self._blocks]
        return {
            "lengths": list(self.lengths),
            "log": None if self._log is None else self._log.state_dict(rows, obs_rows),
            "rows": [list(of_env) for of_env in self._rows],
            "obs_rows": [list(of_env) for of_env in self._obs_rows],
            "dicts": dicts if can_pack(dicts) else None,
            "blocks": blocks if can_pack(blocks) else None,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> list[str]:
        """Restore a state of `state_dict`; return why some transitions are lost, one sentence for each reason.

        Raises:
            ValueError: the state is of another number of envs.
        """
        if len(state["lengths"]) != self._env_num:
            raise ValueError(f"the state is of {len(state['lengths'])} envs, but there are {self._env_num}")
        for env_id in range(self._env_num):
            self.drop(env_id)
        self._log = self._written = None
        if state["dicts"] is None or state["blocks"] is None or (state["log"] is None and any(state["rows"])):
            return ["the unfinished fragments hold values that are not plain; they are dropped"]
        self.lengths = list(state["lengths"])
        self._log = None if state["log"] is None else RoundLog.of_state(state["log"])
        if self._log is not None:
            self._rows, self._obs_rows = ([list(of_env) for of_env in state[key]] for key in ("rows", "obs_rows"))
        self._dicts = [[_dict_of(plain) for plain in of_env] for of_env in state["dicts"]]
        self._blocks = [
            [_Block(samples_of_state(items), goes_on) for items, goes_on in of_env] for of_env in state["blocks"]
        ]
        return []

    def _begin_log(self, obs: Node, columns: Mapping[str, Node], has_dicts: bool) -> RoundLog:
        for env_id in range(self._env_num):
            self._copy_out(env_id)
        row_bytes = sum(column.itemsize for node in (obs, obs, *columns.values()) for column in columns_of(node))
        rounds = LOG_BYTES // (self._env_num * max(row_bytes, 1))
        least, most = LOG_ROUNDS
        self._log = RoundLog(obs, columns, has_dicts, self._env_num * min(max(rounds, least), most))
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
        return LoggedSamples(log, rows, obs_rows, self._chained)


class _Block:
    """Some transitions of an env.

    Attributes:
        items: `Samples`, or dicts where they are not alike.
        goes_on: whether the first observation of the next block is the last `next_obs` of this one.
    """

    __slots__ = ("goes_on", "items")

    def __init__(self, items: list[Any], goes_on: bool = True) -> None:
        self.items = items
        self.goes_on = goes_on


def _plain_dict(transition: Mapping[str, Any]) -> list[Any]:
    """The entries `[key, whether it is in a column, value]`."""
    return [[key, value is IN_COLUMN, None if value is IN_COLUMN else value] for key, value in transition.items()]


def _dict_of(plain: Sequence[Any]) -> dict[str, Any]:
    return {key: IN_COLUMN if is_in_column else value for key, is_in_column, value in plain}


def compacted(items: list[Any]) -> list[Any]:
    """The same items; where they are `Samples`, in arrays that hold nothing else."""
    return items.compact() if isinstance(items, Samples) and items.has_columns else items


def join_samples(parts: Sequence[list[Any]]) -> list[Any]:
    """All samples of `parts` in order: as `Samples` if all are alike and none has been accessed.

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
    log = samples.log if isinstance(samples, LoggedSamples) else None
    return id(next(columns_of(samples.columns)).data if log is None else log)


def _gathered(group: Sequence[Samples]) -> Samples | None:
    logged = [samples for samples in group if isinstance(samples, LoggedSamples) and samples.log is not None]
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


def _from_dicts(
    dicts: Sequence[dict[str, Any]], columns: dict[str, Node], codes: np.ndarray, chained: bool
) -> list[Any]:
    """The transitions `dicts`, with `columns` in the place of `IN_COLUMN`, as `Samples` where they are alike."""
    items = [dict(transition) for transition in dicts]
    if codes.any() and all("done" in item for item in items):
        note_end_flags(items, codes)
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
