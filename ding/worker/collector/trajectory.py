"""Trajectories: per-env buffers, their conversion to tensors, and the listener that cuts them into train samples."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch

from ding.envs.env_manager.block import TERMINATED, TERMINATED_TOLD, TRUNCATED, TRUNCATED_TOLD, end_code
from ding.torch_utils.data_helper import to_tensor
from ding.utils.batch_methods import plain_output_keys, takes_pieces
from ding.utils.data.nested import is_container, is_mapping, map_leaves, parts_of, rebuilt
from ding.utils.data.plain_columns import samples_of_state, samples_state
from ding.utils.data.samples import (
    SHARED_DTYPES,
    Column,
    IntArray,
    Items,
    Kind,
    Node,
    Table,
    columns_of,
    listed,
    map_node,
    node_items,
    node_rows,
    pack,
    rows_of,
    whole_of,
)
from ding.utils.msgpack_helper import can_pack
from ding.worker.collector.env_round import Batch, StackedOutput, Steps, as_tensor, by_env, is_same
from ding.worker.collector.rollout import RolloutListener
from ding.worker.collector.statistics import NO_EPISODE, EpisodeStatistics
from ding.worker.collector.trajectory_block import NOT_PLAIN, TrajectoryBlock

INF = float("inf")

# A policy that makes no sample at all from this many pieces in a row is taken to be broken.
MAX_EMPTY_FLUSHES = 10_000

_OBSERVATIONS = ("obs", "next_obs")


class CachePool:
    """A cache with a slot for each env, which holds the items since its last reset.

    Example:
        >>> pool = CachePool("obs", 2)
        >>> pool.update({1: "a"})
        >>> pool[0], pool[1]
        (None, 'a')
    """

    def __init__(self, name: str, env_num: int, deepcopy: bool = False) -> None:
        self._name = name
        self._deepcopy = deepcopy
        self._pool: list[list[Any] | None] = [None] * env_num

    def update(self, data: Mapping[int, Any] | list[Mapping[int, Any]]) -> None:
        """Cache `{env_id: item}`; in a list of such dicts, the first replaces a slot and later ones append to it."""
        fresh: dict[int, list[Any]] = {}
        for part in [data] if isinstance(data, Mapping) else data:
            for env_id, item in part.items():
                fresh.setdefault(env_id, []).append(copy.deepcopy(item) if self._deepcopy else item)
        for env_id, items in fresh.items():
            self._pool[env_id] = items

    def __getitem__(self, env_id: int) -> Any:
        """Return None for an empty slot, the item of a slot with one item, else the list of its items."""
        items = self._pool[env_id]
        return items[0] if items is not None and len(items) == 1 else items

    def reset(self, env_id: int) -> None:
        """Empty the slot of this env."""
        self._pool[env_id] = None


class TrajBuffer(list[Any]):
    """A list whose `append` drops items from the front to keep at most `maxlen` (no limit if None or infinite).

    Example:
        >>> buffer = TrajBuffer(2)
        >>> for i in range(3):
        ...     buffer.append(i)
        >>> buffer
        [1, 2]
    """

    def __init__(self, maxlen: float | None, *args: Any, deepcopy: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._maxlen = maxlen
        self._deepcopy = deepcopy

    def append(self, data: Any) -> None:
        """Append `data` (a deep copy, if this buffer makes them)."""
        if self._maxlen is not None and len(self) >= self._maxlen:
            del self[: len(self) - int(self._maxlen) + 1]
        super().append(copy.deepcopy(data) if self._deepcopy else data)


def to_tensor_transitions(data: list[dict[str, Any]], shallow_copy_next_obs: bool = True) -> list[dict[str, Any]]:
    """Convert the transitions of one trajectory piece, in order, to tensors; return new dicts in a new list.

    Arrays and lists of numbers become tensors (float64 becomes float32, other dtypes share memory with their array);
    Python and numpy scalars, bools, strings and None are kept.

    Args:
        shallow_copy_next_obs: let the `next_obs` of a row be the same object as the `obs` of the row after it, which
            halves the memory of a piece. A `next_obs` of another structure than that `obs` is converted on its own,
            as is that of the last row.

    Raises:
        IndexError: `data` is empty.
    """
    if not data:
        raise IndexError("to_tensor_transitions needs at least one transition, got an empty list")
    rows = [{key: as_tensor(value) for key, value in row.items()} for row in data]
    if shallow_copy_next_obs:
        for row, own, following, after in zip(data, rows, data[1:], rows[1:], strict=False):
            if "obs" in after and "next_obs" in own and _is_alike(row["next_obs"], following["obs"]):
                own["next_obs"] = after["obs"]
    return rows


def _is_alike(a: Any, b: Any) -> bool:
    if is_mapping(a) and is_mapping(b):
        return a.keys() == b.keys() and all(_is_alike(a[key], b[key]) for key in a)
    return bool(np.shape(a) == np.shape(b)) if not isinstance(a, torch.Tensor) else a.shape == np.shape(b)


class TransitionLists:
    """The transitions of the pieces under way, one for each env, in dicts as a policy has built them.

    Args:
        env_num: number of envs.
        chained: whether the `next_obs` of a transition and the `obs` of the next one are one object.

    Attributes:
        lengths: an array [env_num], the number of transitions of the pieces under way.
    """

    def __init__(self, env_num: int, chained: bool) -> None:
        self._chained = chained
        self.lengths: IntArray = np.zeros(env_num, np.int64)
        self._items: list[list[dict[str, Any]]] = [[] for _ in range(env_num)]
        self._codes: list[list[int]] = [[] for _ in range(env_num)]  # what infos say about ends, see `end_code`
        self._shown: list[Any] = [None] * env_num  # the observation that each env returned last, if it continues

    def last_obs(self, env_id: int, obs: Any) -> Any:
        """Return the last transition's next observation, as the same object, if the env still shows it; else `obs`."""
        last = self._shown[env_id] if self._chained else None
        return obs if last is None else last

    def append(self, env_id: int, transition: dict[str, Any], code: int, shown: Any) -> None:
        """Add a transition; `shown` is the observation that the env returned."""
        self._items[env_id].append(transition)
        self._codes[env_id].append(code)
        self._shown[env_id] = shown
        self.lengths[env_id] += 1

    def take(self, env_id: int, has_ended: bool) -> Items:
        """End the piece under way, and return its transitions, as a table if they have one form."""
        piece = self.peek(env_id)
        self._begin(env_id)
        if has_ended:
            self._shown[env_id] = None
        return piece

    def peek(self, env_id: int) -> Items:
        """Return copies of the transitions of the piece under way."""
        if not self._items[env_id]:
            return []
        items = [dict(transition) for transition in self._items[env_id]]
        codes = self._codes[env_id]
        if any(codes) and all("done" in item for item in items):
            _note_end_flags(items, codes)
        tensors: dict[int, Any] = {}  # the tensors of observations, by their id
        for item in items:
            for key, value in item.items():
                if key in _OBSERVATIONS:
                    if id(value) not in tensors:
                        tensors[id(value)] = as_tensor(value)
                    item[key] = tensors[id(value)]
                else:
                    item[key] = as_tensor(value)
        packed = Table.of(items)
        copies: dict[int, Any] = {}
        if packed is None:
            return [{key: _copy(value, copies) for key, value in item.items()} for item in items]
        columns = {key: map_node(lambda c: _with_copies(c, copies), node) for key, node in packed.columns.items()}
        return Table(columns, chained=self._chained)

    def _begin(self, env_id: int) -> None:
        self._items[env_id], self._codes[env_id] = [], []
        self.lengths[env_id] = 0

    def split(self, env_id: int) -> None:
        """Note that the next observation of this env is not the one that it returned last."""
        self._shown[env_id] = None

    def drop(self, env_id: int) -> None:
        """Drop the piece under way of this env."""
        self._begin(env_id)
        self._shown[env_id] = None

    def state_dict(self) -> dict[str, Any]:
        """Return the transitions in plain values; None if they hold other values."""
        items = [samples_state(items) for items in self._items]
        return {"items": items if can_pack(items) else None, "codes": [list(codes) for codes in self._codes]}

    def load_state_dict(self, state: Mapping[str, Any]) -> list[str]:
        """Restore a state of `state_dict`; return why some transitions are lost, one sentence for each reason."""
        if state["items"] is None:
            return [NOT_PLAIN]
        for env_id, (items, codes) in enumerate(zip(state["items"], state["codes"], strict=True)):
            for item, code in zip(samples_of_state(items), codes, strict=True):
                self.append(env_id, item, code, None)  # its `next_obs` may be another than the env returned
        return []


class TrajectoryRecorder(RolloutListener):
    """A listener that records the trajectory of each env, and cuts it into pieces, from which the policy makes samples.

    A piece ends with the episode or when it has `traj_len` transitions. Transitions are kept in columns; if the
    policy's `process_transition` is not declared as plain, it is called for each env and step. A policy whose
    `get_train_sample` is declared to take several pieces (see `batch_methods.py`) is given all pieces of a collect at
    once, when `has` is called; any other is given each piece when it ends.

    Args:
        policy: has `process_transition` and `get_train_sample`.
        env_num: number of envs.
        traj_len: number of transitions of a piece; infinity to cut at the end of episodes only.
        fixed_rollout: whether a collect also ends the pieces under way, so that each step is in its samples; see `has`.
        share_next_obs: see `to_tensor_transitions`.
        with_env_id: pass the env id to `process_transition` as a fourth argument.
        on_samples: called with `(env_id, samples)` when samples are made from a piece; they are then not kept here.
        make_samples: called with `(env_id, transitions)` to make the data of a piece, instead of the policy; each piece
            is then a whole episode.
        episodes: the statistics that count the samples of each episode.

    Attributes:
        pieces: the samples that were not taken yet, piece by piece, or for several pieces at once.
        count: the number of samples in `pieces`.
        steps: the steps recorded since the last `take`.
    """

    _saved: ClassVar[tuple[str, ...]] = ("_block", "_closed", "_empty_pieces", "steps")

    def __init__(
        self,
        policy: Any,
        env_num: int,
        traj_len: float,
        *,
        fixed_rollout: bool = False,
        share_next_obs: bool = True,
        with_env_id: bool = False,
        on_samples: Callable[[int, list[Any]], None] | None = None,
        make_samples: Callable[[int, list[dict[str, Any]]], list[Any]] | None = None,
        episodes: EpisodeStatistics | None = None,
    ) -> None:
        self._policy = policy
        self._env_num = env_num
        self._traj_len = traj_len
        self._fixed_rollout = fixed_rollout
        self._share_next_obs = share_next_obs
        self._with_env_id = with_env_id
        self._on_samples = on_samples
        self._make_samples = make_samples
        self._is_by_piece = make_samples is not None or on_samples is not None
        self._episodes = episodes
        self._block = TrajectoryBlock(env_num, share_next_obs)
        self._lists: TransitionLists | None = None  # in place of the block, once the policy builds transitions
        # For the closed pieces: their envs, and the numbers of their episodes.
        self._closed: list[tuple[IntArray, IntArray]] = []
        self._empty_pieces = 0
        self.collect_iter = 0
        self.level_seeds: Any = None
        self.pieces: list[Items] = []
        self.count = 0
        self.steps = 0

    def under_way(self, env_id: int) -> TrajBuffer:
        """Return copies of the transitions of this env's piece under way."""
        return TrajBuffer(None, rows_of((self._lists or self._block).peek(env_id)))

    def has(self, number: int) -> bool:
        """Return whether `number` samples were made; make those of waiting pieces first if they may be enough.

        With `fixed_rollout`, return whether there are `number` steps; if so, end the pieces under way and make all
        samples.
        """
        closed_rows = self._block.closed_rows
        if self._fixed_rollout:
            lengths: IntArray = (self._lists or self._block).lengths
            if self.count + closed_rows + sum(lengths.tolist()) < number:
                return False
            self._cut(lengths.nonzero()[0])
            return True
        if closed_rows and (self.count + closed_rows >= number or not self._may_wait()):
            self._make()
        return self.count >= number

    def _cut(self, ids: IntArray) -> None:
        """End the pieces under way of these envs, whose episodes continue, and make the samples of all pieces."""
        if len(ids):
            self._close(ids, np.zeros(len(ids), np.bool_), self._numbers_of(ids))
        if self._closed:
            self._make()

    def take(self, limit: int | None = None) -> tuple[list[Any], int]:
        """Return the samples and the number of steps since the last call; an exception between the calls loses none.

        With a `limit`, pieces beyond that number are kept for the next call.
        """
        taken, self.pieces = self.pieces[:limit], [] if limit is None else self.pieces[limit:]
        self.count -= sum(map(len, taken))
        steps, self.steps = self.steps, 0
        return listed(whole_of([piece for piece in taken if len(piece)])), steps

    def keep(self, number: int) -> None:
        """Drop the pieces after the first `number`."""
        self.count -= sum(map(len, self.pieces[number:]))
        del self.pieces[number:]

    def clear(self) -> None:
        """Drop the pieces under way."""
        self._block.clear()
        self._lists = None

    def state_dict(self) -> dict[str, Any]:
        pieces = [samples_state(piece) for piece in self.pieces]
        return {
            **super().state_dict(),
            "lists": None if self._lists is None else self._lists.state_dict(),
            "pieces": pieces if can_pack(pieces) else None,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> list[str]:
        problems = super().load_state_dict(state)
        if not self._block.closed_rows:
            self._closed.clear()
        self._lists = None
        if state["lists"] is not None:
            self._lists = TransitionLists(self._env_num, self._share_next_obs)
            problems += self._lists.load_state_dict(state["lists"])
        if state["pieces"] is None:
            problems.append("samples that were not collected yet hold values that are not plain; they are dropped")
        self.pieces = [samples_of_state(piece) for piece in state["pieces"] or ()]
        self.count = sum(map(len, self.pieces))
        return problems

    def on_steps(self, steps: Steps) -> None:
        ids, block = steps.ids, self._block
        output_keys = plain_output_keys(self._policy.process_transition)
        columns = None if output_keys is None else self._plain_columns(steps, output_keys)
        if columns is None or self._lists is not None or (block.keys is not None and [*columns] != block.keys):
            lengths = self._append_dicts(steps, columns)
        else:
            block.record(ids, steps.obs.node, steps.next_obs.node, columns, steps.codes, self.collect_iter)
            self.steps += len(ids)
            lengths = block.lengths
        closes = steps.ends
        if self._traj_len < INF:
            closes = closes | (lengths[ids] >= self._traj_len)
        if np.count_nonzero(closes):
            ids = ids[closes]
            self._close(ids, steps.ends[closes], self._numbers_of(ids))

    def on_abnormal(self, env_id: int) -> None:
        self._drop(env_id)

    def on_gap(self, env_id: int) -> None:
        self._split(env_id)

    def on_restart(self, env_id: int) -> None:
        if self._make_samples is not None:
            self._drop(env_id)  # no episode
        else:
            self._split(env_id, is_void=True)

    def _split(self, env_id: int, is_void: bool = False) -> None:
        """End the piece under way before the next step; with `is_void` its episode does not count."""
        part = self._lists or self._block
        part.split(env_id)
        if self._make_samples is None and part.lengths[env_id]:
            ids = np.array([env_id])
            self._close(ids, np.array([False]), np.array([NO_EPISODE]) if is_void else self._numbers_of(ids))

    def on_interrupt(self) -> None:
        self.clear()  # a piece with a gap would make wrong samples; those made before are kept

    def _drop(self, env_id: int) -> None:
        self._block.drop([env_id])
        if self._lists is not None:
            self._lists.drop(env_id)

    def _plain_columns(self, steps: Steps, output_keys: Sequence[str]) -> dict[str, Node]:
        """Return the columns of a round, from policy and env, besides observations and end flags."""
        output, env_ids = steps.output, steps.env_ids
        stacked = output.columns if isinstance(output, StackedOutput) and output.env_ids == env_ids else {}
        columns: dict[str, Node] = {key: _as_node(stacked.get(key)) for key in output_keys}
        for key in [key for key, node in columns.items() if node is None]:
            rows = by_env(output)
            try:
                columns[key] = pack([to_tensor(rows[env_id][key], transform_scalar=False) for env_id in env_ids])
            except KeyError as e:
                found = ", ".join(rows[env_ids[0]])
                raise KeyError(f"the policy returned {found}, but its samples need {key!r} of the network, too") from e
        columns["reward"] = steps.reward
        if self.level_seeds is not None:
            columns["seed"] = pack([self.level_seeds[env_id] for env_id in steps.env_ids])
        dones = steps.dones
        columns["done"] = Column(Kind.BOOL, dones) if isinstance(dones, np.ndarray) else pack(dones)
        return columns

    def _append_dicts(self, steps: Steps, columns: dict[str, Node] | None) -> IntArray:
        """Record a round as dicts, made from `columns` or built by the policy; return the lengths of the pieces."""
        if self._lists is None:
            self._to_lists()
        lists: Any = self._lists
        obs, next_obs = _Given(steps.obs), _Given(steps.next_obs)
        if columns is None:
            made = self._ask(steps, obs.items, next_obs.items)
        else:
            self.steps += len(steps.env_ids)
            made = [
                {"obs": before, "next_obs": after, **rest, "collect_iter": self.collect_iter}
                for before, after, rest in zip(obs.items, next_obs.items, node_items(columns), strict=True)
            ]
        shown = steps.next_obs.rows if next_obs.is_changed() else next_obs.items
        shares_obs = not obs.is_changed()
        for row, (env_id, transition, code) in enumerate(zip(steps.env_ids, made, steps.codes.tolist(), strict=True)):
            if shares_obs and transition.get("obs") is obs.items[row]:
                transition["obs"] = lists.last_obs(env_id, obs.items[row])
            lists.append(env_id, transition, code, shown[row])
        lengths: IntArray = lists.lengths
        return lengths

    def _to_lists(self) -> None:
        """Continue with dicts: the policy has begun to build transitions, or the keys of the columns have changed."""
        if self._closed:
            self._make()
        lists = TransitionLists(self._env_num, self._share_next_obs)
        for env_id in np.flatnonzero(self._block.lengths).tolist():
            for transition in self._block.peek(env_id).rows():
                lists.append(env_id, transition, end_code(transition), None)  # the env may show another observation
        self._block.clear()
        self._lists = lists

    def _ask(self, steps: Steps, obs: list[Any], next_obs: list[Any]) -> list[dict[str, Any]]:
        """Return the transitions that the policy builds for a round; it may change these observations in place."""
        transitions = []
        output, seeds = by_env(steps.output), self.level_seeds
        for env_id, before, after, timestep in zip(steps.env_ids, obs, next_obs, steps.timesteps(), strict=True):
            more = (env_id,) if self._with_env_id else ()
            timestep = tuple.__new__(type(timestep), (after, *timestep[1:]))
            transition = dict(self._policy.process_transition(before, output[env_id], timestep, *more))
            transition["collect_iter"] = self.collect_iter
            if seeds is not None:
                transition["seed"] = seeds[env_id]
            transitions.append(transition)
            self.steps += 1
        return transitions

    def _numbers_of(self, ids: IntArray) -> IntArray:
        """Return the numbers of the episodes that these envs are in."""
        return ids if self._episodes is None else self._episodes.running[ids]

    def _close(self, ids: IntArray, has_ended: np.ndarray, numbers: IntArray) -> None:
        if self._lists is not None:
            for env_id, ended, number in zip(ids.tolist(), has_ended.tolist(), numbers.tolist(), strict=True):
                self._count(np.array([number]), [self._make_of(env_id, self._lists.take(env_id, ended))])
            return
        self._block.close(ids, has_ended)
        self._closed.append((ids, numbers))
        if self._is_by_piece:
            self._make()

    def _may_wait(self) -> bool:
        """Return whether the policy is given all pieces of a collect at once."""
        return not self._is_by_piece and takes_pieces(self._policy.get_train_sample)

    def _make(self) -> None:
        """Make the samples of the closed pieces."""
        made: list[int] = []
        try:
            if self._may_wait():
                samples = self._policy.get_train_sample(self._block.closed_table())
                made = samples.lengths
                self._block.drop_closed()
                self.pieces.append(samples.with_lengths(None))
                self.count += len(samples)
            else:
                env_ids = np.concatenate([ids for ids, _ in self._closed]).tolist()
                for env_id, piece in zip(env_ids, self._block.take_closed(), strict=True):
                    made.append(self._make_of(env_id, piece))
        finally:
            if not self._block.closed_rows:
                numbers, self._closed = np.concatenate([numbers for _, numbers in self._closed]), []
                self._count(numbers[: len(made)], made)

    def _count(self, numbers: IntArray, made: Sequence[int] | IntArray) -> None:
        """Count the samples that were made from pieces of these episodes.

        Raises:
            RuntimeError: the policy has made no sample from `MAX_EMPTY_FLUSHES` pieces in a row.
        """
        if not len(made):
            return
        counts = np.asarray(made, np.int64)
        if self._episodes is not None:
            self._episodes.count_samples(numbers, counts)
        filled = np.flatnonzero(counts)
        self._empty_pieces = len(counts) - 1 - int(filled[-1]) if filled.size else self._empty_pieces + len(counts)
        if self._empty_pieces >= MAX_EMPTY_FLUSHES:
            raise RuntimeError(
                f"policy.get_train_sample made no sample of {self._empty_pieces} trajectory pieces in a row; "
                "collecting would never end"
            )

    def _make_of(self, env_id: int, piece: Items) -> int:
        """Make the samples of one piece, and return their number."""
        transitions = listed(piece)  # functions of users may look at them, and change them
        if self._make_samples is None:
            samples = self._policy.get_train_sample(transitions)
        else:
            samples = self._make_samples(env_id, transitions)
        samples = samples if isinstance(samples, list) else list(() if samples is None else samples)
        if self._on_samples is not None:
            self._on_samples(env_id, samples)
        else:
            self.pieces.append(samples)
            self.count += len(samples)
        return len(samples)


class _Given:
    """Copies of the observations of a batch, which a policy may change in place.

    Attributes:
        items: the copies, one for each env.
    """

    def __init__(self, batch: Batch) -> None:
        self._node = batch.node
        self._own = map_node(lambda column: copy.deepcopy(column.compact()), batch.node)
        self.items = node_rows(self._own)

    def is_changed(self) -> bool:
        return not all(map(_is_same_column, columns_of(self._own), columns_of(self._node)))


def _is_same_column(own: Column, column: Column) -> bool:
    data = column.compact().data
    return all(map(is_same, own.data, data)) if own.kind is Kind.OBJECT else np.array_equal(own.data, data)


def _as_node(batch: Any) -> Node:
    """Return a batch of tensors [E, ...], in dicts and lists, as columns; None if it is something else."""
    if type(batch) is torch.Tensor and batch.dim() > 0 and batch.dtype in SHARED_DTYPES:
        data = batch.numpy(force=True)
        return Column(Kind.TENSOR, data[:, None] if data.ndim == 1 else data)
    nodes = [_as_node(part) for _, part in parts_of(batch)]
    if not is_container(batch) or any(node is None for node in nodes):
        return None
    return rebuilt(batch, nodes) if is_mapping(batch) else nodes


# --- transitions that a policy has built ---


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
