"""What is recorded of the episodes of an evaluation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ding.worker.collector.base_serial_evaluator import VectorEvalMonitor
from ding.worker.collector.rollout import Listener


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
        self.on_episode: Callable[[int, Any], None] = lambda env_id, timestep: None

    def is_filled(self) -> bool:
        return self.monitor.is_finished()

    def choose(self, ready_obs: Mapping[int, Any]) -> Mapping[int, Any]:
        return {env_id: obs for env_id, obs in ready_obs.items() if not self.monitor.is_full(env_id)}

    def on_done(self, env_id: int, timestep: Any, steps: int, seconds: float) -> None:
        if "eval_episode_return" not in timestep.info:
            raise KeyError(
                f"env {env_id} ended an episode without info['eval_episode_return'], the return of the episode; "
                f"its info has {sorted(timestep.info)}"
            )
        reward = timestep.info["eval_episode_return"]
        self.lengths[env_id].append(steps)
        self.monitor.update_info(env_id, {"eval_episode_return": reward, **(timestep.info.get("episode_info") or {})})
        self.monitor.update_reward(env_id, _single(reward))
        self.on_episode(env_id, reward)


def _single(reward: Any) -> Any:
    """A one-element array or tensor as a number; a vector-valued return as its mean."""
    if isinstance(reward, torch.Tensor):
        return reward.item() if reward.numel() == 1 else reward.float().mean().item()
    return float(np.mean(reward))
