"""Copies of what envs return: whatever an env does to its arrays later, nothing that was stored changes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ding.torch_utils.data_helper import to_tensor
from ding.utils.data.env_batch import LazyEnvBatch


def stack_rows(items: Sequence[Any]) -> tuple[list[Any], Any]:
    """Copy `items` into one batch; return the rows of the batch and the batch.

    Arrays and tensors of one shape become one array [E, *shape], dicts with the same keys a dict of them. The batch is
    None where items do not stack (ragged shapes, foreign types); then the rows are independent copies.
    """
    first = items[0]
    if _is_array(first):
        batch = _stack_arrays(items)
        return ([np.array(x) for x in items], None) if batch is None else (list(batch), batch)
    if isinstance(first, torch.Tensor) and all(isinstance(x, torch.Tensor) and x.shape == first.shape for x in items):
        stacked = torch.stack([x.detach() for x in items])
        return list(stacked.unbind(0)), stacked
    if isinstance(first, dict) and all(isinstance(x, dict) and x.keys() == first.keys() for x in items):
        columns = {key: stack_rows([item[key] for item in items]) for key in first}
        rows = [{key: column[0][i] for key, column in columns.items()} for i in range(len(items))]
        batches = {key: column[1] for key, column in columns.items()}
        return rows, None if any(batch is None for batch in batches.values()) else batches
    if isinstance(first, np.ndarray) and not first.dtype.hasobject:
        return [x.copy() for x in items], np.array(items)
    if isinstance(first, (int, float, np.number, np.bool_)):
        return list(items), np.array(items)
    return [copy.deepcopy(x) for x in items], None


def _is_array(item: Any) -> bool:
    return isinstance(item, np.ndarray) and item.ndim > 0 and not item.dtype.hasobject


def _stack_arrays(items: Sequence[Any]) -> np.ndarray | None:
    try:
        return np.array(items)
    except ValueError:  # ragged shapes
        return None


def nan_rows(stacked: Any, path: str = "") -> Iterable[tuple[int, str]]:
    """(row, key path) of each row of a batch that holds a NaN; nothing for a batch without one."""
    if isinstance(stacked, dict):
        for key, value in stacked.items():
            yield from nan_rows(value, f"{path}[{key!r}]")
    elif isinstance(stacked, torch.Tensor):
        if stacked.is_floating_point():
            yield from nan_rows(stacked.numpy(force=True), path)
    elif isinstance(stacked, np.ndarray) and stacked.dtype.kind == "f" and _has_nan(stacked):
        rows = np.isnan(stacked.reshape(len(stacked), -1)).any(axis=1)
        yield from ((int(row), path) for row in np.flatnonzero(rows))


def _has_nan(array: np.ndarray) -> bool:
    # A sum of squares is NaN exactly when an element is: squares never cancel, infinite ones included.
    flat = array.ravel()
    square = flat.dot(flat)
    return bool(square != square)


class Rows(LazyEnvBatch):
    """Copies of what envs returned: `{env_id: item}`, and the items as tensors.

    Attributes:
        env_ids: the keys, in order.
    """

    __slots__ = ("_sources", "_tensors", "env_ids")

    def __init__(self, env_ids: list[int], stacked: Any, split: Callable[[Any], Iterable[Any]]) -> None:
        super().__init__(env_ids, stacked, split)
        self.env_ids = env_ids
        self._sources: list[tuple[Rows, int]] | None = None
        self._tensors: Sequence[Any] | None = None

    @classmethod
    def copied(cls, env_ids: list[int], items: Sequence[Any]) -> Rows:
        """Copies of `items`, those of the envs `env_ids`."""
        if _is_array(items[0]):
            batch = _stack_arrays(items)
            if batch is not None:
                return cls(env_ids, batch, list)
        rows, stacked = stack_rows(items)
        return cls(env_ids, stacked, lambda _: rows)

    @classmethod
    def gathered(cls, env_ids: list[int], sources: list[tuple[Rows, int]], stacked: Any = None) -> Rows:
        """The very items and tensors that are the rows `sources` of others; `stacked` may hold them once more."""
        rows = cls(env_ids, stacked, lambda _: [source[source.env_ids[row]] for source, row in sources])
        rows._sources = sources
        return rows

    def of_envs(self, env_ids: list[int]) -> Rows:
        """Those of these envs, in this order."""
        if env_ids == self.env_ids:
            return self
        return Rows.gathered(env_ids, [(self, self.env_ids.index(env_id)) for env_id in env_ids])

    def tensors(self) -> Sequence[Any]:
        """The items as tensors, in order, the same at each call: float64 becomes float32, the rest shares memory."""
        if self._tensors is None:
            if self._sources is not None:
                self._tensors = [(source._tensors or source.tensors())[row] for source, row in self._sources]
            elif type(self.stacked) is np.ndarray and self.stacked.ndim > 1:
                self._tensors = tensor_rows(self.stacked)
            else:
                self._tensors = [as_tensor(item) for item in self.values()]
        return self._tensors


_FLOAT32 = np.dtype(np.float32)


def as_tensor(value: Any) -> Any:
    """`to_tensor` without scalars, with a shortcut for what most values are."""
    if type(value) is torch.Tensor:
        return value
    if type(value) is np.ndarray and value.dtype is _FLOAT32:
        return torch.from_numpy(value)
    return to_tensor(value, transform_scalar=False)


def tensor_rows(batch: np.ndarray | torch.Tensor) -> Sequence[torch.Tensor]:
    """The rows of a batch [E, *shape] as tensors, [1] for numbers; see `as_tensor` for what memory they share."""
    if batch.ndim > 2 or 0 in batch.shape:
        rows: Sequence[torch.Tensor] = as_tensor(batch).unbind(0)
        return rows
    # Cut in this way, a row does not keep what autograd notes about a view, which is half of a small tensor's memory.
    flat: torch.Tensor = as_tensor(batch if batch.ndim == 1 else batch.reshape(-1))
    return flat.unsafe_chunk(batch.shape[0])


class StepBatch:
    """The normal steps of a round, with our copies of observations and rewards.

    Attributes:
        env_ids: the envs that stepped.
        raw: their timesteps as the envs returned them.
        obs, rewards: our observations and rewards.
    """

    __slots__ = ("env_ids", "obs", "raw", "rewards")

    def __init__(self, timesteps: Mapping[int, Any]) -> None:
        self.env_ids = list(timesteps)
        self.raw = list(timesteps.values())
        self.obs = Rows.copied(self.env_ids, [step.obs for step in self.raw])
        self.rewards = Rows.copied(self.env_ids, [step.reward for step in self.raw])

    def timesteps(self) -> list[Any]:
        """The timesteps with `obs` and `reward` replaced by our copies."""
        return [
            tuple.__new__(type(step), (obs, reward, *step[2:]))  # what _replace does, at a third of its cost
            for step, obs, reward in zip(self.raw, self.obs.values(), self.rewards.values(), strict=True)
        ]


class FrameKeeper:
    """Owns the observations and rewards of a rollout.

    Timesteps are named tuples whose first two fields are `obs` and `reward`, as those of `BaseEnvTimestep` are.

    One copy is made of each observation: what trajectories keep as `next_obs` is, for the envs whose episode goes on,
    the very object that the next round calls its observation.

    Args:
        share_next_obs: False for two copies, so that no two observations share memory.
    """

    def __init__(self, share_next_obs: bool = True) -> None:
        self._share = share_next_obs
        self._raw: dict[int, Any] = {}  # what the env returned, for envs in mid-episode
        self._own: dict[int, tuple[Rows, int]] = {}  # our copy of it: a row of a batch
        self._last: Rows | None = None  # the batch kept last

    def forget(self, env_id: int) -> None:
        """Take the next observation of this env as it comes."""
        self._raw.pop(env_id, None)

    def clear(self) -> None:
        """Forget every env."""
        self._raw.clear()
        self._own.clear()
        self._last = None

    def observe(self, ready: Mapping[int, Any]) -> Rows:
        """Our copies of the observations `{env_id: obs}` that the env manager has ready.

        Raises:
            FloatingPointError: an observation holds a NaN.
        """
        raw, own, last = self._raw, self._own, self._last
        env_ids = list(ready)
        fresh = [env_id for env_id in env_ids if raw.get(env_id, raw) is not ready[env_id]]
        if last is not None and last.env_ids != env_ids:
            last = None
        if not fresh and last is not None:
            return last
        for env_id in fresh:
            rows = Rows.copied([env_id], [ready[env_id]])
            _refuse_nan(rows, "the observation")
            own[env_id] = rows, 0
        seen = Rows.gathered(env_ids, [own[env_id] for env_id in env_ids])
        seen.stacked = _replaced(last, {env_ids.index(env_id): own[env_id][0].stacked for env_id in fresh})
        if seen.stacked is None:
            seen.stacked = stack_rows(list(seen.values()))[1]
        return seen

    def keep(self, timesteps: Mapping[int, Any]) -> StepBatch:
        """Copy the observations and rewards of `{env_id: timestep}`.

        Raises:
            FloatingPointError: an observation or reward holds a NaN.
        """
        batch = StepBatch(timesteps)
        _refuse_nan(batch.obs, "the observation")
        _refuse_nan(batch.rewards, "the reward")
        if self._share:
            raw, own, obs = self._raw, self._own, batch.obs
            for row, (env_id, step) in enumerate(timesteps.items()):
                raw[env_id] = step.obs
                own[env_id] = obs, row
            self._last = obs
        return batch


def _replaced(last: Rows | None, fresh: Mapping[int, Any]) -> np.ndarray | None:
    """The batch of `last` with some rows replaced by those of `fresh` batches of one; None where it does not fit."""
    if last is None or type(last.stacked) is not np.ndarray:
        return None
    batch: np.ndarray = last.stacked.copy()
    for row, one in fresh.items():
        if type(one) is not np.ndarray or one.dtype != batch.dtype or one.shape[1:] != batch.shape[1:]:
            return None
        batch[row] = one[0]
    return batch


def _refuse_nan(rows: Rows, what: str) -> None:
    stacked = rows.stacked
    if type(stacked) is np.ndarray and (stacked.dtype.kind != "f" or not _has_nan(stacked)):
        return
    if stacked is not None:
        found = list(nan_rows(stacked))
    else:
        found = [(i, path) for i, row in enumerate(rows.values()) for _, path in nan_rows(_as_batch(row))]
    if found:
        row, path = found[0]
        env_id = rows.env_ids[row]
        raise FloatingPointError(f"{what}{path} of env {env_id} holds NaN: {rows[env_id]!r}")


def _as_batch(row: Any) -> Any:
    if isinstance(row, dict):
        return {key: _as_batch(value) for key, value in row.items()}
    if isinstance(row, (np.ndarray, torch.Tensor)):
        return row[None]
    return None
