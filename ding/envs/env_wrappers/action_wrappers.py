"""Wrappers that repeat or translate actions."""

from __future__ import annotations

from typing import Any

import numpy as np

from ding.envs.common.gym_compat import spaces_like
from ding.envs.env_wrappers.base_wrapper import EnvWrapper
from ding.utils.registry_factory import ENV_WRAPPER_REGISTRY


@ENV_WRAPPER_REGISTRY.register("max_and_skip")
class MaxAndSkipWrapper(EnvWrapper):
    """Wrapper that takes each action `skip` times: the observation is the maximum of the last two, the reward the sum.

    An episode that ends stops the repetition. `info` is that of the last step.

    Raises:
        ValueError: `skip` is less than 1.
    """

    def __init__(self, env: Any, skip: int = 4) -> None:
        super().__init__(env)
        if skip < 1:
            raise ValueError(f"skip = {skip!r} is not allowed; it must be at least 1")
        self.skip = skip

    def step(self, action: Any) -> tuple[Any, Any, bool, dict[str, Any]]:
        """Act `skip` times; return (obs, reward, done, info)."""
        total_reward = 0.0
        previous = None
        for i in range(self.skip):
            obs, reward, done, info = self.env.step(action)
            total_reward = total_reward + reward
            if done or i == self.skip - 1:
                break
            previous = np.array(obs)  # a copy: the env may write its next observation into the same array
        return obs if previous is None else np.maximum(previous, obs), total_reward, done, info


@ENV_WRAPPER_REGISTRY.register("action_repeat")
class ActionRepeatWrapper(EnvWrapper):
    """Wrapper that takes each action `action_repeat` times; the reward is the sum, where None counts as 0.

    The observation and the `info` are those of the last step.

    An episode that ends stops the repetition.

    Raises:
        ValueError: `action_repeat` is less than 1.
    """

    def __init__(self, env: Any, action_repeat: int = 1) -> None:
        super().__init__(env)
        if action_repeat < 1:
            raise ValueError(f"action_repeat = {action_repeat!r} is not allowed; it must be at least 1")
        self.action_repeat = action_repeat

    def step(self, action: Any) -> tuple[Any, Any, bool, dict[str, Any]]:
        """Act `action_repeat` times; return (obs, reward, done, info)."""
        total_reward = 0.0
        for _ in range(self.action_repeat):
            obs, reward, done, info = self.env.step(action)
            total_reward = total_reward + (0.0 if reward is None else reward)
            if done:
                break
        return obs, total_reward, done, info


@ENV_WRAPPER_REGISTRY.register("gym_hybrid_dict_action")
class GymHybridDictActionWrapper(EnvWrapper):
    """Wrapper of envs whose action is a pair (type, arguments), for actions in a dict with `type`, `mask` and `args`.

    The mask is meant for the policy; the env gets (type, args). The spaces of `type` and `args` are those of the env's
    own pair; if it has none, Discrete(3) and a Box [2] within [-1, 1].
    """

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        own = self.env.action_space
        spaces = spaces_like(own)
        if isinstance(own, spaces.Tuple) and len(own.spaces) == 2:
            kind, args = own.spaces
        else:
            kind, args = spaces.Discrete(3), spaces.Box(-1.0, 1.0, (2,), np.float32)
        mask = spaces.Box(0, 1, args.shape, np.int64)
        self.action_space = spaces.Dict({"type": kind, "mask": mask, "args": args})

    def step(self, action: dict[str, Any]) -> Any:
        """Act once, and return (obs, reward, done, info)."""
        return self.env.step((action["type"], action["args"]))
