"""Copies of what envs return: whatever an env does to its arrays later, nothing that was stored changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import repeat
from operator import attrgetter, is_
from typing import Any

import numpy as np
import torch

from ding.worker.collector.rows import Rows, entries_of, entry_of
from ding.worker.collector.stacking import has_nan, nan_rows

_DONE, _INFO = attrgetter("done"), attrgetter("info")


def is_done(timestep: Any) -> bool:
    """Whether the episode has ended; with a flag for each player, whether it has for all."""
    done = timestep.done
    return done if isinstance(done, bool) else bool(np.all(done))


class StepBatch:
    """The normal steps of a round, with our copies of observations and rewards.

    Attributes:
        env_ids: the envs that stepped.
        raw: their timesteps as the envs returned them.
        raw_obs: the observations in these.
        obs, rewards: our observations and rewards.
        ends: whether the episode of each env has ended.
    """

    __slots__ = ("_player", "ends", "env_ids", "obs", "raw", "raw_obs", "rewards")

    def __init__(self, timesteps: Mapping[int, Any]) -> None:
        self.env_ids = list(timesteps)
        self.raw = list(timesteps.values())
        self.raw_obs = [step.obs for step in self.raw]
        self.obs = Rows.copied(self.env_ids, self.raw_obs)
        self.rewards = Rows.copied(self.env_ids, [step.reward for step in self.raw])
        self.ends = [step.done is not False and is_done(step) for step in self.raw]
        self._player: int | None = None

    def of_player(self, player: int) -> StepBatch:
        """What is one player's; an episode ends for all players at once, whatever their own `done` says.

        Raises:
            ValueError: an env returned nothing for this player.
        """
        steps = StepBatch.__new__(StepBatch)
        steps.env_ids, steps.raw, steps.raw_obs, steps.ends = self.env_ids, self.raw, self.raw_obs, self.ends
        steps.obs, steps.rewards = self.obs.of_player(player), self.rewards.of_player(player)
        steps._player = player
        return steps

    def dones(self) -> Iterable[Any]:
        """The field `done` of the timesteps."""
        dones, player = map(_DONE, self.raw), self._player
        return dones if player is None else [_field_of_player(done, player) for done in dones]

    def infos(self) -> Iterable[Any]:
        """The field `info` of the timesteps."""
        infos = map(_INFO, self.raw)
        return infos if self._player is None else entries_of(infos, self._player)

    def timesteps(self) -> list[Any]:
        """The timesteps with `obs` and `reward` replaced by our copies; of a player, with its own fields."""
        rest = [step[2:] for step in self.raw]
        if self._player is not None:
            rest = [tuple(_field_of_player(field, self._player) for field in fields) for fields in rest]
        return [
            tuple.__new__(type(step), (obs, reward, *fields))  # what _replace does, at a third of its cost
            for step, obs, reward, fields in zip(self.raw, self.obs.values(), self.rewards.values(), rest, strict=True)
        ]


_OF_ALL_PLAYERS = (bool, np.generic, int, float, str, type(None))


def _field_of_player(field: Any, player: int) -> Any:
    """A field of a timestep, such as `info`, as one player sees it: single values are those of all players."""
    if field is False or field is True:
        return field
    if isinstance(field, _OF_ALL_PLAYERS) or (isinstance(field, np.ndarray) and field.ndim == 0):
        return field
    return entry_of(field, player)


_FORGOTTEN = object()  # in place of what an env returned
_NOTHING = Rows([], None, list), 0


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
        self._raw: dict[int, Any] = {}  # what the env returned, for envs in mid-episode that are not in the last batch
        self._own: dict[int, tuple[Rows, int]] = {}  # our copy of it: a row of a batch
        self._last: Rows | None = None  # the batch kept last
        self._last_raw: list[Any] | None = None  # what it copies, until both are entered above

    def forget(self, env_id: int) -> None:
        """Take the next observation of this env as it comes."""
        self._raw.pop(env_id, None)
        if self._last_raw is not None and self._last is not None and env_id in self._last.env_ids:
            self._last_raw[self._last.env_ids.index(env_id)] = _FORGOTTEN

    def clear(self) -> None:
        """Forget every env."""
        self._raw.clear()
        self._own.clear()
        self._last = self._last_raw = None

    def observe(self, ready: Mapping[int, Any]) -> Rows:
        """Our copies of the observations `{env_id: obs}` that the env manager has ready.

        Raises:
            FloatingPointError: an observation holds a NaN.
        """
        last, env_ids = self._last, list(ready)
        if last is not None and self._last_raw is not None and last.env_ids == env_ids:  # as between rounds of all envs
            goes_on = list(map(is_, self._last_raw, ready.values()))
            if all(goes_on):
                return last
            sources = list(zip(repeat(last), range(len(env_ids))))
        else:
            self._enter_last()
            last = None if last is None or last.env_ids != env_ids else last
            goes_on = [self._raw.get(env_id, _FORGOTTEN) is ready[env_id] for env_id in env_ids]
            sources = [self._own.get(env_id, _NOTHING) for env_id in env_ids]
        fresh = {}
        for row, env_id in enumerate(env_ids):
            if not goes_on[row]:
                rows = Rows.copied([env_id], [ready[env_id]])
                _refuse_nan(rows, "the observation")
                fresh[row] = rows.stacked
                sources[row] = self._own[env_id] = rows, 0
        seen = Rows.gathered(env_ids, sources)
        seen.stacked = _replaced(last, fresh)
        if seen.stacked is None and not all(source.parts for source, _ in sources):
            seen.stack()
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
            if self._last is None or self._last.env_ids != batch.env_ids:
                self._enter_last()
            self._last, self._last_raw = batch.obs, batch.raw_obs
        return batch

    def _enter_last(self) -> None:
        """Enter the batch kept last into the tables by env; a later one of the same envs makes that superfluous."""
        if self._last is None or self._last_raw is None:
            return
        for row, (env_id, raw) in enumerate(zip(self._last.env_ids, self._last_raw, strict=True)):
            if raw is not _FORGOTTEN:
                self._raw[env_id] = raw
                self._own[env_id] = self._last, row
        self._last_raw = None


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
    if type(stacked) is np.ndarray and (stacked.dtype.kind != "f" or not has_nan(stacked)):
        return
    if rows.parts:
        for i, part in enumerate(rows.parts):
            _refuse_nan(part, f"{what}[{i}]")
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
    if isinstance(row, (list, tuple)):
        if all(isinstance(value, (int, float)) for value in row):
            return np.array([row], np.float64)
        return {i: _as_batch(value) for i, value in enumerate(row)}
    return None
