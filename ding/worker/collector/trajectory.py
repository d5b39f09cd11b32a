"""Trajectories: per-env buffers, their conversion to tensors, and the listener that cuts them into train samples."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ding.worker.collector.frames import StepBatch, is_done
from ding.worker.collector.rollout import Listener
from ding.worker.collector.rows import Rows
from ding.worker.collector.stacking import as_tensor, tensor_rows

INF = float("inf")

# A policy that turns this many pieces in a row into no sample at all is taken to be broken.
MAX_EMPTY_FLUSHES = 10_000


class CachePool:
    """A slot for each env that holds what was cached since its last reset.

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
    Python and numpy scalars, bools, strings and None stay as they are.

    Args:
        shallow_copy_next_obs: let the `next_obs` of a row be the same object as the `obs` of the row after it, which
            halves the memory of a piece. A `next_obs` of another structure than that `obs` is converted for itself,
            as is that of the last row.

    Raises:
        IndexError: `data` is empty.
    """
    if not data:
        raise IndexError("to_tensor_transitions needs at least one transition, got an empty list")
    shared = [
        shallow_copy_next_obs
        and i + 1 < len(data)
        and "obs" in data[i + 1]
        and "next_obs" in row
        and _is_alike(row["next_obs"], data[i + 1]["obs"])
        for i, row in enumerate(data)
    ]
    return _tensor_rows(data, shared)


def _tensor_rows(data: Sequence[dict[str, Any]], shared: Sequence[bool]) -> list[dict[str, Any]]:
    """Convert the rows; where `shared`, `next_obs` is the `obs` of the row after."""
    rows = [
        {
            key: value if type(value) in _AS_IT_IS else as_tensor(value)
            for key, value in row.items()
            if not (is_shared and key == "next_obs")
        }
        for row, is_shared in zip(data, shared, strict=True)
    ]
    for i, is_shared in enumerate(shared):
        if is_shared:
            rows[i]["next_obs"] = rows[i + 1]["obs"]
    return rows


_AS_IT_IS = frozenset((torch.Tensor, bool, int, float, str, type(None)))


def _is_alike(a: Any, b: Any) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_is_alike(a[key], b[key]) for key in a)
    return bool(np.shape(a) == np.shape(b)) if not isinstance(a, torch.Tensor) else a.shape == np.shape(b)


def output_rows(output: Mapping[int, Any], env_ids: list[int], key: str) -> Sequence[Any]:
    """The entries `key` of what a policy returned, as tensors, in the order of `env_ids`; a batch is split at once."""
    batch = getattr(output, "stacked", None)
    column = batch.get(key) if isinstance(batch, dict) else None
    if isinstance(column, torch.Tensor) and column.dim() > 0 and list(output.keys()) == env_ids:
        return tensor_rows(column)
    return [as_tensor(output[env_id][key]) for env_id in env_ids]


class TrajectoryCutter(Listener):
    """Builds each env's trajectory and cuts it into pieces, which the policy turns into train samples.

    A piece ends with the episode or when it has `traj_len` transitions. Where `process_transition` is marked as plain
    (`ding.policy.modes.plain_transition`), transitions are made from the batches of a round, without a call for each
    env.

    Args:
        policy: has `process_transition` and `get_train_sample`.
        env_num: number of envs.
        traj_len: transitions of a piece; infinite to cut at the end of episodes only.
        share_next_obs: see `to_tensor_transitions`.
        with_env_id: pass the env id to `process_transition` as a fourth argument.
        on_samples: told `(env_id, number)` when a piece has become samples.
        make_samples: given `(env_id, transitions)`, makes the samples of a piece instead of the policy.

    Attributes:
        buffers: `{env_id: TrajBuffer}`, the pieces under way.
        samples: the samples made and not yet taken.
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
        on_samples: Callable[[int, int], None] | None = None,
        make_samples: Callable[[int, list[dict[str, Any]]], list[Any]] | None = None,
    ) -> None:
        self._policy = policy
        self._traj_len = traj_len
        self._share_next_obs = share_next_obs
        self._with_env_id = with_env_id
        self._on_samples = on_samples
        self._make_samples = make_samples
        output_keys = getattr(policy.process_transition, "plain_output_keys", None)
        self._is_plain = share_next_obs and output_keys is not None
        self._output_keys = output_keys or ()  # of plain transitions, beside the action
        self._empty_flushes = 0
        self._altered: set[int] = set()  # envs in whose piece the policy put observations of its own
        self.collect_iter = 0
        self.level_seeds: Any = None
        maxlen = None if traj_len == INF else traj_len
        self.buffers = {env_id: TrajBuffer(maxlen) for env_id in range(env_num)}
        self.samples: list[Any] = []
        self.steps = 0

    def take(self, limit: int | None = None) -> tuple[list[Any], int]:
        """The samples and the number of steps since the last call; what an exception interrupted is not lost.

        With a `limit`, samples beyond that number stay for the next call.
        """
        taken = self.samples[:limit], self.steps
        self.samples, self.steps = [] if limit is None else self.samples[limit:], 0
        return taken

    def clear(self) -> None:
        """Throw away the pieces under way."""
        for buffer in self.buffers.values():
            buffer.clear()
        self._altered.clear()

    def on_step(self, env_id: int, obs: Any, output: Any, timestep: Any) -> None:
        self._extend((env_id,), (self._ask(env_id, obs, output, timestep),), (timestep.info,), (is_done(timestep),))

    def on_steps(self, steps: StepBatch, obs: Rows, output: Mapping[int, Any]) -> None:
        env_ids = steps.env_ids
        transitions: Iterable[dict[str, Any]]
        if self._is_plain:
            transitions = self._plain_transitions(steps, obs, output)
        else:  # asked one after the other: those before an exception are recorded
            timesteps = zip(env_ids, steps.timesteps(), strict=True)
            transitions = (self._ask(env_id, obs[env_id], output[env_id], step) for env_id, step in timesteps)
        self._extend(env_ids, transitions, steps.infos(), steps.ends)

    def _plain_transitions(self, steps: StepBatch, obs: Rows, output: Mapping[int, Any]) -> list[dict[str, Any]]:
        env_ids, collect_iter = steps.env_ids, self.collect_iter
        # One tensor for each observation: what an env arrived at is what it is acted on in the next round.
        columns = (
            obs.of_envs(env_ids).tensors(),
            steps.obs.tensors(),
            output_rows(output, env_ids, "action"),
            steps.rewards.tensors(),
            steps.dones(),
        )
        transitions = [
            {
                "obs": before,
                "next_obs": after,
                "action": action,
                "reward": reward,
                "done": done,
                "collect_iter": collect_iter,
            }
            for before, after, action, reward, done in zip(*columns, strict=True)
        ]
        for key in self._output_keys:
            for transition, entry in zip(transitions, output_rows(output, env_ids, key), strict=True):
                transition[key] = entry
        return transitions

    def _ask(self, env_id: int, obs: Any, output: Any, timestep: Any) -> dict[str, Any]:
        """The transition that the policy makes of a step."""
        transition: dict[str, Any]
        if self._with_env_id:
            transition = self._policy.process_transition(obs, output, timestep, env_id)
        else:
            transition = self._policy.process_transition(obs, output, timestep)
        if transition.get("next_obs") is not timestep.obs or transition.get("obs") is not obs:
            self._altered.add(env_id)
        transition["collect_iter"] = self.collect_iter
        return transition

    def _extend(
        self,
        env_ids: Iterable[int],
        transitions: Iterable[dict[str, Any]],
        infos: Iterable[Any],
        ends: Iterable[bool],
    ) -> None:
        """Record a transition of each of these envs, and cut the pieces that end with it."""
        seeds, buffers, traj_len, append = self.level_seeds, self.buffers, self._traj_len, list.append
        for env_id, transition, info, is_last in zip(env_ids, transitions, infos, ends, strict=True):
            if seeds is not None:
                transition["seed"] = seeds[env_id]
            if "terminated" in info:
                transition["terminated"] = bool(info["terminated"])
            if "truncated" in info:
                transition["truncated"] = bool(info["truncated"])
            buffer = buffers[env_id]
            append(buffer, transition)  # a piece is cut before it outgrows its buffer
            self.steps += 1
            if is_last or len(buffer) >= traj_len:
                self._flush(env_id)

    def on_abnormal(self, env_id: int) -> None:
        self.buffers[env_id].clear()
        self._altered.discard(env_id)

    def on_interrupt(self) -> None:
        self.clear()  # a piece with a gap would make wrong samples; those made before are kept

    def _flush(self, env_id: int) -> None:
        buffer = self.buffers[env_id]
        if self._is_plain:
            transitions = list(buffer)
        else:
            share = self._share_next_obs and env_id not in self._altered
            transitions = _tensor_rows(buffer, [share] * (len(buffer) - 1) + [False])
        buffer.clear()
        self._altered.discard(env_id)
        if self._make_samples is None:
            samples = self._policy.get_train_sample(transitions) or []
        else:
            samples = self._make_samples(env_id, transitions)
        self.samples.extend(samples)
        if self._on_samples is not None:
            self._on_samples(env_id, len(samples))
        self._empty_flushes = 0 if samples else self._empty_flushes + 1
        if self._empty_flushes >= MAX_EMPTY_FLUSHES:
            raise RuntimeError(
                f"policy.get_train_sample made no sample of {self._empty_flushes} trajectory pieces in a row; "
                "collecting would never end"
            )
