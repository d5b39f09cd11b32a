"""The episodes that a parallel collector plays in one task."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

from ding.worker.collector.batch import Steps
from ding.worker.collector.rollout import Listener
from ding.worker.collector.statistics import episode_return, per


class TaskEpisodes(Listener):
    """Counts steps and episodes, and keeps the returns by env.

    Args:
        return_of: given the info that ended an episode and the env's id, tells its return.

    Attributes:
        steps: normal steps, those of episodes that were dropped later included.
        count: episodes that have ended.
    """

    def __init__(self, return_of: Callable[[Any, int], float] = episode_return) -> None:
        self._return_of = return_of
        self.steps = self.count = 0
        self._returns: dict[int, list[float]] = defaultdict(list)
        self._has_news = False

    def on_steps(self, steps: Steps) -> None:
        self.steps += len(steps.env_ids)

    def on_done(self, env_id: int, timestep: Any, steps: int, seconds: float) -> None:
        self._returns[env_id].append(self._return_of(timestep.info, env_id))
        self.count += 1
        self._has_news = True

    def take_news(self) -> bool:
        """Whether an episode has ended since the last call."""
        has_news, self._has_news = self._has_news, False
        return has_news

    def returns(self, env_num: int) -> list[list[float]]:
        """The returns of each of the envs, in the order of their episodes."""
        return [list(self._returns.get(env_id, ())) for env_id in range(env_num)]

    def summary(self, duration_s: float, samples: int) -> dict[str, Any]:
        """The part of a finish info about what was played: counts, averages (0 of nothing), returns env by env."""
        returns = [value for env_id in sorted(self._returns) for value in self._returns[env_id]]
        return {
            "real_episode_count": self.count,
            "step_count": self.steps,
            "sample_count": samples,
            "avg_time_per_episode": per(duration_s, self.count),
            "avg_time_per_step": per(duration_s, self.steps),
            "avg_time_per_train_sample": per(duration_s, samples),
            "avg_step_per_episode": per(self.steps, self.count),
            "avg_sample_per_episode": per(samples, self.count),
            "reward_mean": float(np.mean(returns)) if returns else 0.0,
            "reward_std": float(np.std(returns)) if returns else 0.0,
            "reward_raw": returns,
        }
