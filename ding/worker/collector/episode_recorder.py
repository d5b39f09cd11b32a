"""What is recorded of the episodes of an evaluation."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ding.torch_utils.data_helper import to_item
from ding.worker.collector.base_serial_evaluator import VectorEvalMonitor
from ding.worker.collector.batch import entry_of
from ding.worker.collector.rollout import Listener
from ding.worker.collector.statistics import reported_return


@dataclass(frozen=True, slots=True)
class EvalRecord:
    """One evaluation.

    Attributes:
        train_iter: iteration of the policy.
        envstep: env steps of the training so far.
        returns: return of each episode, env by env.
        lengths: steps of each episode, in the same order.
        seconds: how long the evaluation took.
    """

    train_iter: int
    envstep: int
    returns: list[float]
    lengths: list[int]
    seconds: float


class EpisodeRecorder(Listener):
    """Fills a `VectorEvalMonitor` with the episodes of an evaluation; as a quota it steps only envs that lack some."""

    def __init__(self, monitor: VectorEvalMonitor, env_num: int) -> None:
        self.monitor = monitor
        self.lengths: dict[int, list[int]] = {env_id: [] for env_id in range(env_num)}
        self.on_episode: Callable[[int, Any, int], None] = lambda env_id, reward, number_played: None

    def is_filled(self) -> bool:
        return self.monitor.is_finished()

    def choose(self, ready_obs: Mapping[int, Any]) -> Mapping[int, Any]:
        """The ready envs that lack episodes."""
        return {env_id: obs for env_id, obs in ready_obs.items() if not self.monitor.is_full(env_id)}

    def on_done(self, env_id: int, timestep: Any, steps: int, seconds: float) -> None:
        self._count(env_id, timestep.info, steps, with_return=True)

    def _count(self, env_id: int, info: Mapping[str, Any], steps: int, with_return: bool) -> None:
        reward = reported_return(info, env_id)
        told = {"eval_episode_return": reward} if with_return else {}
        told.update(info.get("episode_info") or {})
        self.lengths[env_id].append(steps)
        if told:
            self.monitor.update_info(env_id, told)
        self.monitor.update_reward(env_id, _single(reward))
        self.on_episode(env_id, reward, self.monitor.get_current_episode())


class BattleRecorder(EpisodeRecorder):
    """Fills the monitor with what player 0 did, and keeps the infos of all players.

    Attributes:
        infos: for each player, the text and numbers in its infos of the episodes, in the order of their ends.
    """

    def __init__(self, monitor: VectorEvalMonitor, env_num: int, players: int) -> None:
        super().__init__(monitor, env_num)
        self.infos: list[list[dict[str, Any]]] = [[] for _ in range(players)]

    def on_done(self, env_id: int, timestep: Any, steps: int, seconds: float) -> None:
        infos = [entry_of(timestep.info, player) for player in range(len(self.infos))]
        self._count(env_id, infos[0], steps, with_return=False)
        for known, info in zip(self.infos, infos, strict=True):
            known.append(_items(info))


def _items(info: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of an info that are single values, or made of them; the rest are left out."""
    items = {}
    for key, value in info.items():
        with contextlib.suppress(ValueError, TypeError):  # arrays of several elements, and foreign types
            items[key] = to_item(value)
    return items


def _single(reward: Any) -> Any:
    """A one-element array or tensor as a number; a vector-valued return as its mean."""
    if isinstance(reward, torch.Tensor):
        return reward.item() if reward.numel() == 1 else reward.float().mean().item()
    return float(np.mean(reward))
