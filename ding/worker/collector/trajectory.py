"""Trajectories: per-env buffers, their conversion to tensors, and the listener that cuts them into train samples."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ding.torch_utils.data_helper import to_tensor
from ding.utils.data.plain_columns import samples_of_state, samples_state
from ding.utils.data.samples import SHARED_DTYPES, Column, IntArray, Kind, Node, columns_of, pack, whole_of
from ding.utils.msgpack_helper import can_pack
from ding.worker.collector.batch import Batch, Ended, PolicyOutput, StackedOutput, Steps, as_tensor, by_env
from ding.worker.collector.rollout import Listener
from ding.worker.collector.statistics import ENDED, PIECE, VOID
from ding.worker.collector.trajectory_block import IN_COLUMN, TrajectoryBlock

INF = float("inf")

# A policy that turns this many pieces in a row into no sample at all is taken to be broken.
MAX_EMPTY_FLUSHES = 10_000


class CachePool:
    """A slot for each env that holds the items cached since its last reset.

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
        """Cache `{env_id: item}`; of a list of such dicts, the first replaces a slot and later ones append to it."""
        fresh: dict[int, list[Any]] = {}
        for part in [data] if isinstance(data, Mapping) else data:
            for env_id, item in part.items():
                fresh.setdefault(env_id, []).append(copy.deepcopy(item) if self._deepcopy else item)
        for env_id, items in fresh.items():
            self._pool[env_id] = items

    def __getitem__(self, env_id: int) -> Any:
        """None for an empty slot, the item of a slot with one, else the list of its items."""
        items = self._pool[env_id]
        return items[0] if items is not None and len(items) == 1 else items

    def reset(self, env_id: int) -> None:
        """Empty the slot of this env."""
        self._pool[env_id] = None


class TrajBuffer(list[Any]):
    """A list whose `append` keeps at most `maxlen` items (None or infinite: no bound), dropping from the front.

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
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_is_alike(a[key], b[key]) for key in a)
    return bool(np.shape(a) == np.shape(b)) if not isinstance(a, torch.Tensor) else a.shape == np.shape(b)


class TrajectoryCutter(Listener):
    """Records each env's trajectory and cuts it into pieces, which the policy turns into train samples.

    A piece ends with the episode or when it has `traj_len` transitions. Transitions are columns; the policy is asked
    for those of each env where its `process_transition` is not declared as plain. A policy whose `get_train_sample` is
    declared to take several pieces (see `ding.policy.modes`) is given all of a collect at once, when `has` is asked;
    any other is given each piece when it ends.

    Args:
        policy: has `process_transition` and `get_train_sample`.
        env_num: number of envs.
        traj_len: transitions of a piece; infinite to cut at the end of episodes only.
        share_next_obs: see `to_tensor_transitions`.
        with_env_id: pass the env id to `process_transition` as a fourth argument.
        on_samples: called with `(env_id, samples)` when a piece has become samples, which are kept nowhere then.
        make_samples: given `(env_id, transitions)`, makes what a piece adds to the data, instead of the policy; a piece
            is then a whole episode.
        keeps_events: keep what `take_events` returns.

    Attributes:
        pieces: the samples that were not taken yet, piece by piece, or of several pieces at once.
        count: the number of samples in `pieces`.
        steps: the steps recorded since the last `take`.
    """

    def __init__(
        self,
        policy: Any,
        env_num: int,
        traj_len: float,
        *,
        share_next_obs: bool = True,
        with_env_id: bool = False,
        on_samples: Callable[[int, list[Any]], None] | None = None,
        make_samples: Callable[[int, list[dict[str, Any]]], list[Any]] | None = None,
        keeps_events: bool = False,
    ) -> None:
        from ding.policy.modes import plain_output_keys, takes_pieces  # here: importing the workers loads no policies

        self._plain_output_keys, self._takes_pieces = plain_output_keys, takes_pieces
        self._policy = policy
        self._env_num = env_num
        self._traj_len = traj_len
        self._with_env_id = with_env_id
        self._on_samples = on_samples
        self._make_samples = make_samples
        self._keeps_events = keeps_events
        self._block = TrajectoryBlock(env_num, share_next_obs)
        self._events: list[tuple[int, str]] = []  # since the first of the closed pieces: those, and ends of episodes
        self._noted: list[tuple[int, str, int]] = []  # the same before it, with the numbers of samples
        self._empty_pieces = 0
        self.collect_iter = 0
        self.level_seeds: Any = None
        self.pieces: list[list[Any]] = []
        self.count = 0
        self.steps = 0

    def under_way(self, env_id: int) -> TrajBuffer:
        """The transitions of this env that no piece was cut of yet, copies."""
        return TrajBuffer(None, self._block.peek(env_id))

    def has(self, number: int) -> bool:
        """Whether so many samples were made; makes those of pieces that wait if there may be enough of them."""
        if self._block.closed_rows and self.count + self._block.closed_rows >= number:
            self._make()
        return self.count >= number

    def take(self, limit: int | None = None) -> tuple[list[Any], int]:
        """The samples and the number of steps since the last call; what an exception interrupted is not lost.

        With a `limit`, pieces beyond that number stay for the next call.
        """
        taken, self.pieces = self.pieces[:limit], [] if limit is None else self.pieces[limit:]
        self.count -= sum(map(len, taken))
        steps, self.steps = self.steps, 0
        samples: Any = whole_of([piece for piece in taken if len(piece)])
        return samples, steps

    def take_events(self) -> list[tuple[int, str, int]]:
        """`(env_id, what it was, number of samples)` of the pieces that became samples since the last call, in order.

        In between are, with 0 samples, the envs whose episode `ENDED` or was `VOID`.
        """
        noted, self._noted = self._noted, []
        return noted

    def keep(self, number: int) -> None:
        """Throw away the pieces after the first `number`."""
        self.count -= sum(map(len, self.pieces[number:]))
        del self.pieces[number:]

    def clear(self) -> None:
        """Throw away the pieces under way."""
        self._block.clear()

    def state_dict(self) -> dict[str, Any]:
        pieces = [samples_state(piece) for piece in self.pieces]
        return {
            "fragments": self._block.state_dict(),
            "events": list(self._events),
            "noted": list(self._noted),
            "pieces": pieces if can_pack(pieces) else None,
            "steps": self.steps,
            "empty_pieces": self._empty_pieces,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> list[str]:
        problems = self._block.load_state_dict(state["fragments"])
        if state["pieces"] is None:
            problems.append("samples that were not collected yet hold values that are not plain; they are dropped")
        self._events = [(env_id, what) for env_id, what in state["events"]]
        self._noted = [(env_id, what, number) for env_id, what, number in state["noted"]]
        if not self._block.closed_rows:  # nothing waits, or it is lost
            self._noted += [(env_id, what, 0) for env_id, what in self._events if what != PIECE]
            self._events = []
        self.pieces = [samples_of_state(piece) for piece in state["pieces"] or ()]
        self.count = sum(map(len, self.pieces))
        self.steps, self._empty_pieces = state["steps"], state["empty_pieces"]
        return problems

    def on_steps(self, steps: Steps) -> None:
        ids, block = steps.ids, self._block
        output_keys = self._plain_output_keys(self._policy.process_transition)
        if output_keys is None:
            dicts, columns = self._ask(steps), {}
        else:
            dicts, columns = None, self._plain_columns(steps, output_keys)
            self.steps += len(ids)
        block.record(ids, steps.obs.node, steps.next_obs.node, columns, steps.codes, self.collect_iter, dicts)
        closes = steps.ends
        if self._traj_len < INF:
            closes = closes | (block.lengths[ids] >= self._traj_len)
        if closes.any():
            self._close(ids[closes], steps.ends[closes])

    def on_ends(self, ended: Ended) -> None:
        self._note(ended.env_ids, ENDED)

    def on_abnormal(self, env_id: int) -> None:
        self._block.drop([env_id])
        self._note([env_id], VOID)

    def on_gap(self, env_id: int) -> None:
        if self._make_samples is None and self._block.lengths[env_id]:
            self._block.split(env_id)
            self._close(np.array([env_id]), np.array([False]))
        else:
            self._block.split(env_id)

    def on_restart(self, env_id: int) -> None:
        if self._make_samples is not None:
            self._block.drop([env_id])  # no episode
        else:
            self.on_gap(env_id)
        self._note([env_id], VOID)

    def on_interrupt(self) -> None:
        self.clear()  # a piece with a gap would make wrong samples; those made before are kept

    def _note(self, env_ids: Sequence[int], what: str) -> None:
        if self._block.closed_rows:
            self._events += [(env_id, what) for env_id in env_ids]
        elif self._keeps_events:
            self._noted += [(env_id, what, 0) for env_id in env_ids]

    def _plain_columns(self, steps: Steps, output_keys: Sequence[str]) -> dict[str, Node]:
        """What policy and env return of a round besides observations and ends."""
        columns: dict[str, Node] = _output_columns(steps.output, steps.env_ids, output_keys)
        columns["reward"] = steps.reward
        if self.level_seeds is not None:
            columns["seed"] = pack([self.level_seeds[env_id] for env_id in steps.env_ids])
        dones = steps.dones
        columns["done"] = Column(Kind.BOOL, dones) if isinstance(dones, np.ndarray) else pack(dones)
        return columns

    def _ask(self, steps: Steps) -> list[dict[str, Any]]:
        """The transitions that the policy makes of a round; it may change the observations it is given in place."""
        transitions = []
        given = {"obs": _Given(steps.obs), "next_obs": _Given(steps.next_obs)}
        timesteps, output, seeds = steps.timesteps(), by_env(steps.output), self.level_seeds
        for env_id, obs, timestep in zip(steps.env_ids, steps.obs.rows, timesteps, strict=True):
            more = (env_id,) if self._with_env_id else ()
            transition = dict(self._policy.process_transition(obs, output[env_id], timestep, *more))
            for key, own in (("obs", obs), ("next_obs", timestep.obs)):
                if transition.get(key) is own:
                    transition[key] = IN_COLUMN
            transition["collect_iter"] = self.collect_iter
            if seeds is not None:
                transition["seed"] = seeds[env_id]
            transitions.append(transition)
            self.steps += 1
        for key, batch in given.items():
            if batch.is_changed():
                for row, transition in zip(batch.take_back(), transitions, strict=True):
                    if transition.get(key) is IN_COLUMN:
                        transition[key] = row
        return transitions

    def _close(self, ids: IntArray, has_ended: np.ndarray) -> None:
        if not self._block.closed_rows:
            self._events = []
        self._block.close(ids, has_ended)
        self._events += [(env_id, PIECE) for env_id in ids.tolist()]
        if not self._may_wait():
            self._make()

    def _may_wait(self) -> bool:
        """Whether the policy is given all pieces of a collect at once."""
        is_by_piece = self._make_samples is not None or self._on_samples is not None
        return not is_by_piece and self._takes_pieces(self._policy.get_train_sample)

    def _make(self) -> None:
        """Make the samples of the closed pieces."""
        table = self._block.closed_table() if self._may_wait() else None
        if table is not None:
            samples = self._policy.get_train_sample(table)
            numbers = samples.lengths.tolist()
            samples.lengths = None
            self._block.drop_closed()
            self.pieces.append(samples)
            self.count += len(samples)
        events, self._events = self._events, []
        pieces: Iterator[Any] = iter(numbers if table is not None else self._block.take_closed())
        for env_id, what in events:
            number = 0
            if what == PIECE:
                number = next(pieces) if table is not None else self._make_of(env_id, next(pieces))
                self._empty_pieces = 0 if number else self._empty_pieces + 1
            if self._keeps_events:
                self._noted.append((env_id, what, number))
            if self._empty_pieces >= MAX_EMPTY_FLUSHES:
                raise RuntimeError(
                    f"policy.get_train_sample made no sample of {self._empty_pieces} trajectory pieces in a row; "
                    "collecting would never end"
                )

    def _make_of(self, env_id: int, transitions: list[Any]) -> int:
        """Make the samples of one piece; return how many."""
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
    """The arrays of observations that a policy may change in place."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._arrays = [column.data for column in columns_of(batch.node) if column.kind is not Kind.OBJECT]
        self._copies = [array.copy() for array in self._arrays]

    def is_changed(self) -> bool:
        return not all(map(np.array_equal, self._arrays, self._copies))

    def take_back(self) -> list[Any]:
        """Undo the changes, as the policy acts on the returned observations; return the changed items."""
        changed = copy.deepcopy(self._batch.rows)
        for array, own in zip(self._arrays, self._copies, strict=True):
            array[...] = own
        return changed


def _output_columns(output: PolicyOutput, env_ids: list[int], keys: Sequence[str]) -> dict[str, Node]:
    """The entries `keys` of a policy's output for these envs; a batch is used without conversion."""
    nodes = dict.fromkeys(keys)
    if isinstance(output, StackedOutput) and output.env_ids == env_ids:
        for key in keys:
            nodes[key] = _as_node(output.columns.get(key))
    missing = [key for key, node in nodes.items() if node is None]
    if missing:
        rows = by_env(output)
        for key in missing:
            nodes[key] = pack([to_tensor(rows[env_id][key], transform_scalar=False) for env_id in env_ids])
    return nodes


def _as_node(batch: Any) -> Node:
    """A batch of tensors [E, ...], in dicts and lists, as columns; None where it is something else."""
    if type(batch) is torch.Tensor and batch.dim() > 0 and batch.dtype in SHARED_DTYPES:
        data = batch.numpy(force=True)
        return Column(Kind.TENSOR, data[:, None] if data.ndim == 1 else data)
    if isinstance(batch, dict):
        parts = {key: _as_node(value) for key, value in batch.items()}
        return None if any(part is None for part in parts.values()) else parts
    if isinstance(batch, list | tuple):
        nodes = [_as_node(value) for value in batch]
        return None if any(node is None for node in nodes) else nodes
    return None
