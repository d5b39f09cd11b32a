"""A small environment that shows how to write one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ding.envs.env.base_env import BaseEnv, BaseEnvTimestep
from ding.utils.object_state import generator_state, set_generator_state


class DemoEnv(BaseEnv):
    """A walk on a line: action 0 goes left, 1 right; the episode ends two steps away from the middle, or is truncated.

    Observations are [place] float32, the reward is 1 at the right end, else 0. The config may hold `max_step` (default
    20).

    Example:
        >>> env = DemoEnv({})
        >>> env.seed(0)
        >>> obs = env.reset()
        >>> [env.step(np.array([1])).done for _ in range(2)]
        [False, True]
    """

    def __init__(self, cfg: dict[str, Any]) -> None:
        from gymnasium.spaces import Box, Discrete

        self.observation_space, self.action_space = Box(-2.0, 2.0, (1,), np.float32), Discrete(2)
        self.reward_space = Box(0.0, 1.0, (1,), np.float32)
        self._max_step = cfg.get("max_step", 20)
        self._env: dict[str, float] | None = None  # made at the first reset
        self._random = np.random.default_rng()
        self._steps = 0

    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        """Seed the random actions; the walk itself is deterministic."""
        self._random = np.random.default_rng(seed)

    def reset(self) -> np.ndarray:
        """Go to the middle, and return the observation [1]."""
        self._env = {"place": 0.0}
        self._steps = 0
        return self._observe()

    def step(self, action: Any) -> BaseEnvTimestep:
        """Go one step to the left or right.

        Raises:
            RuntimeError: there was no reset.
        """
        if self._env is None:
            raise RuntimeError("DemoEnv: step() before reset()")
        self._env["place"] += 1.0 if int(np.asarray(action).item()) == 1 else -1.0
        self._steps += 1
        terminated = abs(self._env["place"]) == 2
        truncated = not terminated and self._steps >= self._max_step
        reward = np.array([self._env["place"] == 2], np.float32)
        info: dict[str, Any] = {"terminated": terminated, "truncated": truncated}
        if terminated or truncated:
            info["eval_episode_return"] = reward.copy()
        return BaseEnvTimestep(self._observe(), reward, terminated or truncated, info)

    def get_state(self) -> dict[str, Any]:
        """Return the place, the number of steps and the generator of random actions."""
        return {"env": self._env, "steps": self._steps, "random": generator_state(self._random)}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `get_state`."""
        self._env, self._steps = state["env"], state["steps"]
        set_generator_state(self._random, state["random"])

    def random_action(self) -> np.ndarray:
        """Return 0 or 1, int64 [1]."""
        return self._random.integers(0, 2, 1)

    def close(self) -> None:
        """End the episode; a `reset` may follow."""
        self._env = None

    def __repr__(self) -> str:
        return "DemoEnv"

    def _observe(self) -> np.ndarray:
        return np.array([0.0 if self._env is None else self._env["place"]], np.float32)
