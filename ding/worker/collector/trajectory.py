"""Trajectories: per-env buffers, their conversion to tensors, and the listener that cuts them into train samples."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch

from ding.torch_utils.data_helper import to_tensor
from ding.utils.batch_methods import plain_output_keys, takes_fragments
from ding.utils.data.nested import is_container, is_mapping, parts_of, rebuilt
from ding.utils.data.plain_columns import samples_of_state, samples_state
from ding.utils.data.samples import (
    SHARED_DTYPES,
    Column,
    IntArray,
    Items,
    Kind,
    Node,
    columns_of,
    concatenate_items,
    listed,
    map_node,
    node_items,
    node_rows,
    pack,
    rows_of,
)
from ding.utils.msgpack_helper import can_pack
from ding.worker.collector.env_round import Batch, RoundBlock, StackedOutput, Steps, as_tensor, by_env, is_same
from ding.worker.collector.rollout import Quota, RolloutListener
from ding.worker.collector.statistics import NO_EPISODE, EpisodeStatistics
from ding.worker.collector.trajectory_block import SHOWN, Record, TrajectoryBlock, kind_of_array

INF = float("inf")

# A policy that makes no sample at all from this many fragments in a row is taken to be broken.
MAX_EMPTY_FLUSHES = 10_000


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
    """Convert the transitions of one fragment, in order, to tensors; return new dicts in a new list.

    Arrays and lists of numbers become tensors (float64 becomes float32, other dtypes share memory with their array);
    Python and numpy scalars, bools, strings and None are kept.

    Args:
        shallow_copy_next_obs: let the `next_obs` of a row be the same object as the `obs` of the row after it, which
            halves the memory of a fragment. A `next_obs` of another structure than that `obs` is converted on its own,
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


class TrajectoryRecorder(RolloutListener, Quota):
    """A listener that records the trajectories of envs, and cuts them into fragments, of which policies make samples.

    A fragment ends with the episode or when it has `traj_len` transitions. Transitions are kept in columns; if the
    policy's `process_transition` is not declared as plain, it is called for each env and step. A policy whose
    `get_train_sample` is declared to take several fragments (see `batch_methods.py`) is given all those of a collect at
    once, when `is_filled` is asked; any other is given each fragment when it ends.

    Args:
        policy: has `process_transition` and `get_train_sample`.
        env_num: number of envs.
        traj_len: number of transitions of a fragment; infinity to cut at the end of episodes only.
        fixed_rollout: whether a collect also ends the fragments under way, so that each step is in its samples; see
            `is_filled`.
        share_next_obs: see `to_tensor_transitions`.
        with_env_id: pass the env id to `process_transition` as a fourth argument.
        on_samples: called with `(env_id, samples)` when samples are made from a fragment; they are then not kept here.
        make_samples: called with `(env_id, transitions)` to make the data of a fragment, instead of the policy; each is
            then a whole episode.
        episodes: the statistics that count the samples of each episode.
        frame_stack: see `TrajectoryBlock`.

    Attributes:
        fragments: the samples that were not taken yet, fragment by fragment, or for several fragments at once.
        count: the number of samples in `fragments`.
        steps: the steps recorded since the last `take`.
        target: the number of samples, or with `fixed_rollout` of steps, that fill it as a quota.
    """

    _saved: ClassVar[tuple[str, ...]] = ("_block", "_empty_fragments", "steps")

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
        frame_stack: int = 1,
    ) -> None:
        self._policy = policy
        self._env_num = env_num
        self._fixed_rollout = fixed_rollout
        self._share_next_obs = share_next_obs
        self._with_env_id = with_env_id
        self._on_samples = on_samples
        self._make_samples = make_samples
        self._is_by_fragment = make_samples is not None or on_samples is not None
        # What the policy overrides is looked up here, once.
        self._output_keys = plain_output_keys(policy.process_transition)
        self._may_wait = not self._is_by_fragment and takes_fragments(
            policy.get_train_sample
        )  # for all fragments of a collect
        self._waits = self._may_wait and self._output_keys is not None  # see `is_due`
        self._episodes = episodes
        self._block = TrajectoryBlock(env_num, share_next_obs, traj_len, frame_stack)
        self._empty_fragments = 0
        self.collect_iter = 0
        self.level_seeds: Any = None
        self.fragments: list[Items] = []
        self.count = 0
        self.steps = 0
        self.target = 0

    def under_way(self, env_id: int) -> TrajBuffer:
        """Return copies of the transitions of this env's fragment under way."""
        return TrajBuffer(None, rows_of(self._block.peek(env_id)))

    def is_due(self) -> bool:
        if not self._waits:
            return True
        rows = self._block.closed_rows + (sum(self._block.lengths.tolist()) if self._fixed_rollout else 0)
        return self.count + rows >= self.target

    def is_filled(self) -> bool:
        """Return whether enough samples were made; make those of waiting fragments first if they may be.

        With `fixed_rollout`, return whether there are enough steps; if so, end the fragments under way and make all
        samples.
        """
        number = self.target
        closed_rows = self._block.closed_rows
        if self._fixed_rollout:
            lengths = self._block.lengths
            if self.count + closed_rows + sum(lengths.tolist()) < number:
                return False
            self._cut(lengths.nonzero()[0])
            return True
        if closed_rows and (self.count + closed_rows >= number or not self._may_wait or self._block.has_dicts):
            self._make()
        return self.count >= number

    def _cut(self, ids: IntArray) -> None:
        """End the fragments under way of these envs, whose episodes continue, and make the samples of all fragments."""
        if len(ids):
            self._block.close(ids, self._running(ids))
        if self._block.closed_rows:
            self._make()

    def take(self, limit: int | None = None) -> tuple[list[Any], int]:
        """Return the samples and the number of steps since the last call; an exception between the calls loses none.

        With a `limit`, fragments beyond that number are kept for the next call.
        """
        taken, self.fragments = self.fragments[:limit], [] if limit is None else self.fragments[limit:]
        self.count -= sum(map(len, taken))
        steps, self.steps = self.steps, 0
        return listed(concatenate_items([fragment for fragment in taken if len(fragment)])), steps

    def keep(self, number: int) -> None:
        """Drop the fragments after the first `number`."""
        self.count -= sum(map(len, self.fragments[number:]))
        del self.fragments[number:]

    def clear(self) -> None:
        """Drop the fragments under way."""
        self._block.clear()

    def state_dict(self) -> dict[str, Any]:
        fragments = [samples_state(fragment) for fragment in self.fragments]
        return {
            **super().state_dict(),
            "fragments": fragments if can_pack(fragments) else None,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> list[str]:
        problems = super().load_state_dict(state)
        if state["fragments"] is None:
            problems.append("samples that were not collected yet hold values that are not plain; they are dropped")
        self.fragments = [samples_of_state(fragment) for fragment in state["fragments"] or ()]
        self.count = sum(map(len, self.fragments))
        return problems

    def on_round(self, steps: Steps) -> None:
        if self._output_keys is None:
            return  # the policy builds the transitions
        output, env_ids, block = steps.output, steps.env_ids, self._block
        columns: dict[str, Any] = {}  # the transitions besides observations, see `TrajectoryBlock.record`
        stacked = output.columns if type(output) is StackedOutput and output.env_ids == env_ids else {}
        for key in self._output_keys:
            value = stacked.get(key)
            if type(value) is torch.Tensor and value.ndim and value.dtype in SHARED_DTYPES:
                data = value.numpy(force=True).copy()  # a policy may write into what it has returned
                columns[key] = data[:, None] if data.ndim == 1 else data
            else:
                columns[key] = self._other_output(steps, key, value)
        columns["reward"] = steps.reward
        if self.level_seeds is not None:
            columns["seed"] = pack([self.level_seeds[env_id] for env_id in env_ids])
        dones = steps.dones
        columns["done"] = dones if isinstance(dones, np.ndarray) else pack(dones)
        if not block.has_dicts and block.keys in (None, [*columns]):
            steps.record = block.record(steps, columns)
        else:
            steps.record, self._waits = columns, False

    def on_rounds(self, rounds: RoundBlock) -> None:
        self.steps += rounds.ends.size if rounds.active is None else int(np.count_nonzero(rounds.active))
        if self._episodes is None:
            numbers = np.broadcast_to(rounds.ids, rounds.ends.shape)
        else:
            numbers = self._episodes.numbers_of(rounds)
        records = [steps.record for steps in rounds.steps if type(steps.record) is Record]
        if records:
            recorded = rounds if len(records) == len(numbers) else RoundBlock(rounds.steps[: len(records)])
            self._block.add(recorded, records, self.collect_iter, numbers[: len(records)])
        for place in range(len(records), len(numbers)):
            self._add_dicts(rounds.steps[place], numbers[place : place + 1])
        if self._is_by_fragment and self._block.closed_rows:
            self._make()

    def _add_dicts(self, steps: Steps, numbers: IntArray) -> None:
        """Add a round whose transitions the policy builds, or with other keys than before; see `TrajectoryBlock`."""
        dicts = None if steps.record is None else _dicts_of(steps.record)
        if steps.active is not None:
            rows = steps.active.nonzero()[0]
            steps, numbers = steps.of_rows(rows), numbers[:, rows]
            dicts = None if dicts is None else [dicts[row] for row in rows]
        self._block.add_dicts(steps, self._ask(steps) if dicts is None else dicts, self.collect_iter, numbers)

    def on_abnormal(self, env_id: int) -> None:
        self._drop(env_id)

    def on_restart(self, env_id: int) -> None:
        if self._make_samples is not None:
            self._drop(env_id)  # no episode
            return
        self._block.split([env_id])
        if self._block.lengths[env_id]:
            self._block.close(np.array([env_id]), np.array([NO_EPISODE]))
            if self._is_by_fragment:
                self._make()

    def on_interrupt(self) -> None:
        self.clear()  # a fragment with a gap would make wrong samples; those made before are kept

    def _drop(self, env_id: int) -> None:
        self._block.drop([env_id])

    def _other_output(self, steps: Steps, key: str, value: Any) -> Node:
        """Return an entry of the policy's output that is not one tensor, as columns; `value` is the stacked one."""
        node = _as_node(value)
        if node is not None:
            return node
        rows, env_ids = by_env(steps.output), steps.env_ids
        try:
            return pack([to_tensor(rows[env_id][key], transform_scalar=False) for env_id in env_ids])
        except KeyError as e:
            found = ", ".join(rows[env_ids[0]])
            raise KeyError(f"the policy returned {found}, but its samples need {key!r} of the network, too") from e

    def _ask(self, steps: Steps) -> list[dict[str, Any]]:
        """Return the transitions that the policy builds for a round, with SHOWN for the observations it was given.

        It may change these in place; then they are its own.
        """
        obs, next_obs = _Given(steps.obs), _Given(steps.next_obs)
        output, transitions = by_env(steps.output), []
        rows = zip(steps.env_ids, obs.items, next_obs.items, steps.timesteps(), strict=True)
        for env_id, before, after, timestep in rows:
            more = (env_id,) if self._with_env_id else ()
            timestep = timestep._replace(obs=after)
            transitions.append(dict(self._policy.process_transition(before, output[env_id], timestep, *more)))
        for key, given in (("obs", obs), ("next_obs", next_obs)):
            if not given.is_changed():
                for transition, item in zip(transitions, given.items, strict=True):
                    if transition.get(key) is item:
                        transition[key] = SHOWN
        if self.level_seeds is not None:
            for env_id, transition in zip(steps.env_ids, transitions, strict=True):
                transition["seed"] = self.level_seeds[env_id]
        return transitions

    def _running(self, ids: IntArray) -> IntArray:
        """Return the numbers of the episodes that these envs are in."""
        return ids if self._episodes is None else self._episodes.running[ids]

    def _make(self) -> None:
        """Make the samples of the closed fragments."""
        block, made = self._block, []
        ids, numbers = block.closed_of()
        try:
            if self._may_wait and not block.has_dicts:
                samples = self._policy.get_train_sample(block.closed_table())
                made = samples.lengths
                block.drop_closed()
                self.fragments.append(samples.with_lengths(None))
                self.count += len(samples)
            else:
                for env_id, fragment in zip(ids.tolist(), block.take_closed(), strict=True):
                    made.append(self._make_of(env_id, fragment))
        finally:
            if not block.closed_rows:
                self._count(numbers[: len(made)], made)

    def _count(self, numbers: IntArray, made: Sequence[int] | IntArray) -> None:
        """Count the samples that were made from fragments of these episodes.

        Raises:
            RuntimeError: the policy has made no sample from `MAX_EMPTY_FLUSHES` fragments in a row.
        """
        if not len(made):
            return
        counts = np.asarray(made, np.int64)
        if self._episodes is not None:
            self._episodes.count_samples(numbers, counts)
        filled = np.flatnonzero(counts)
        self._empty_fragments = (
            len(counts) - 1 - int(filled[-1]) if filled.size else self._empty_fragments + len(counts)
        )
        if self._empty_fragments >= MAX_EMPTY_FLUSHES:
            raise RuntimeError(
                f"policy.get_train_sample made no sample of {self._empty_fragments} fragments in a row; "
                "collecting would never end"
            )

    def _make_of(self, env_id: int, fragment: Items) -> int:
        """Make the samples of one fragment, and return their number."""
        transitions = listed(fragment)  # functions of users may look at them, and change them
        if self._make_samples is None:
            samples = self._policy.get_train_sample(transitions)
        else:
            samples = self._make_samples(env_id, transitions)
        samples = samples if isinstance(samples, list) else list(() if samples is None else samples)
        if self._on_samples is not None:
            self._on_samples(env_id, samples)
        else:
            self.fragments.append(samples)
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


def _dicts_of(columns: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the transitions of a round as `TrajectoryBlock.add_dicts` takes them, from those of `record`."""
    nodes = {
        key: Column(kind_of_array(key), part) if type(part) is np.ndarray else part for key, part in columns.items()
    }
    return [{"obs": SHOWN, "next_obs": SHOWN, **row} for row in node_items(nodes)]


def _as_node(batch: Any) -> Node:
    """Return a batch of tensors [E, ...], in dicts and lists, as columns; None if it is something else."""
    if type(batch) is torch.Tensor and batch.dim() > 0 and batch.dtype in SHARED_DTYPES:
        data = batch.numpy(force=True)
        return Column(Kind.TENSOR, data[:, None] if data.ndim == 1 else data)
    nodes = [_as_node(part) for _, part in parts_of(batch)]
    if not is_container(batch) or any(node is None for node in nodes):
        return None
    return rebuilt(batch, nodes) if is_mapping(batch) else nodes
