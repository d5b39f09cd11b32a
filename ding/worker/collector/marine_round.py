"""A round of players in one env each of whom has a policy: what each sees, their joint action, and what came of it."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ding.torch_utils.data_helper import to_tensor
from ding.utils.data.env_batch import EnvBatch
from ding.worker.collector.actor import env_actions
from ding.worker.collector.batch import Batch, Steps, entries_of, entry_of
from ding.worker.collector.players import PlayerCutters
from ding.worker.collector.statistics import episode_return, reported_return


class PlayerObs(EnvBatch):
    """Observations `{env_id: float32 tensors with an entry for each player}`, which are also there player by player.

    Args:
        batch: the observations as the envs returned them.
    """

    def __init__(self, batch: Batch) -> None:
        super().__init__(batch.env_ids, lambda: [to_tensor(item, torch.float32) for item in batch.rows])
        self._batch = batch

    def of_player(self, player: int) -> EnvBatch:
        """What this player sees, as float32 tensors."""
        return self._batch.of_player(player).seen(as_float=True)


def seen_by(obs: Mapping[int, Any], player: int) -> EnvBatch:
    """What this player sees of observations that hold an entry for each player."""
    if isinstance(obs, PlayerObs):
        return obs.of_player(player)
    return EnvBatch(obs, entries_of(obs.values(), player))


def joint_actions(outputs: Sequence[Mapping[int, Any]], env_ids: Sequence[int]) -> dict[int, Any]:
    """`{env_id: the players' actions}`, of what each policy returned: stacked, without axes of length 1.

    Actions that differ in shape or dtype, or are no arrays, are a list with an entry for each player.

    Example:
        >>> left, right = {0: {"action": np.array([1])}}, {0: {"action": np.array([3])}}
        >>> joint_actions([left, right], [0])
        {0: array([1, 3])}
    """
    by_player = [env_actions(output) for output in outputs]
    pairs = [[actions[env_id] for actions in by_player] for env_id in env_ids]
    kinds = {
        (action.dtype, action.shape) if isinstance(action, np.ndarray) else None for pair in pairs for action in pair
    }
    if len(kinds) != 1 or None in kinds:
        return dict(zip(env_ids, pairs, strict=True))
    joint = np.array(pairs)  # [envs, players, *action_shape]
    joint = joint.reshape(len(env_ids), *(size for size in joint.shape[1:] if size != 1))
    return {env_id: joint[i, ...] for i, env_id in enumerate(env_ids)}


def left_return(info: Any, env_id: int) -> float:
    """The return of player 0, of the info that ended an episode: that of all players, or one for each, by index.

    The return in an info of all players may hold an entry for each.
    """
    if not _is_of_all(info):
        return float(episode_return(entry_of(info, 0), env_id))
    value = reported_return(info, env_id)
    if isinstance(value, Mapping | list | tuple) or getattr(value, "ndim", 0) > 0:
        value = entry_of(value, 0)
    return float(episode_return({"eval_episode_return": value}, env_id))


def result_of(value: float) -> str:
    """What a return means: `wins`, `draws` or `losses`."""
    if value == 0:
        return "draws"
    return "wins" if value > 0 else "losses"


class SharedInfoCutters(PlayerCutters):
    """A `PlayerCutters` for envs whose info may be that of all players, instead of holding an entry for each."""

    def on_steps(self, steps: Steps) -> None:
        if any(_is_of_all(step.info) for step in steps.raw):
            players, steps = len(self._cutters), copy.copy(steps)
            steps.raw = [
                step._replace(info=[step.info] * players) if _is_of_all(step.info) else step for step in steps.raw
            ]
        super().on_steps(steps)


def _is_of_all(info: Any) -> bool:
    return isinstance(info, Mapping) and 0 not in info
