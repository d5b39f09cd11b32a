"""Wrappers that change or add up rewards."""

from __future__ import annotations

from typing import Any

import numpy as np

from ding.envs.env_wrappers.base_wrapper import EnvWrapper
from ding.utils.registry_factory import ENV_WRAPPER_REGISTRY


@ENV_WRAPPER_REGISTRY.register("clip_reward")
class ClipRewardWrapper(EnvWrapper):
    """Wrapper that replaces rewards by their sign: -1, 0 or 1."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.reward_range = (-1, 1)

    def step(self, action: Any) -> tuple[Any, Any, bool, dict[str, Any]]:
        """Act once, and return (obs, reward, done, info)."""
        obs, reward, done, info = self.env.step(action)
        return obs, np.sign(reward), done, info


@ENV_WRAPPER_REGISTRY.register("delay_reward")
class DelayRewardWrapper(EnvWrapper):
    """Wrapper that withholds rewards and pays their sum every `delay_reward_step` steps and at an episode's end."""

    def __init__(self, env: Any, delay_reward_step: int = 0) -> None:
        super().__init__(env)
        self.delay_reward_step = delay_reward_step
        self._held: Any = 0.0
        self._steps = 0

    def reset(self, **kwargs: Any) -> Any:
        """Begin an episode and return its first observation."""
        self._held, self._steps = 0.0, 0
        return self.env.reset(**kwargs)

    def step(self, action: Any) -> tuple[Any, Any, bool, dict[str, Any]]:
        """Act once, and return (obs, reward, done, info)."""
        obs, reward, done, info = self.env.step(action)
        self._held = self._held + reward
        self._steps += 1
        if not done and self._steps < self.delay_reward_step:
            return obs, 0.0, done, info
        paid, self._held, self._steps = self._held, 0.0, 0
        return obs, paid, done, info


@ENV_WRAPPER_REGISTRY.register("final_eval_reward")  # this and the next two: names of earlier releases
@ENV_WRAPPER_REGISTRY.register("FinalEvalRewardEnv")
@ENV_WRAPPER_REGISTRY.register("EvalEpisodeReturnEnv")
@ENV_WRAPPER_REGISTRY.register("eval_episode_return")
class EvalEpisodeReturnWrapper(EnvWrapper):
    """Wrapper that puts the sum of the rewards it sees into `info['eval_episode_return']`, [1] float32, at the end."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self._return: Any = 0.0

    def reset(self, **kwargs: Any) -> Any:
        """Begin an episode and return its first observation."""
        self._return = 0.0
        return self.env.reset(**kwargs)

    def step(self, action: Any) -> Any:
        """Act once, and return (obs, reward, done, info)."""
        timestep = self.env.step(action)
        obs, reward, done, info = timestep
        self._return = self._return + reward
        if not done:
            return timestep
        info = {**info, "eval_episode_return": np.asarray(self._return, np.float32).reshape(-1)}
        return tuple.__new__(type(timestep), (obs, reward, done, info))  # a timestep stays one


# Names of earlier releases.
EvalEpisodeReturnEnv = EvalEpisodeReturnWrapper
FinalEvalRewardEnv = EvalEpisodeReturnWrapper
