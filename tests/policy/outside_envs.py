"""Envs as an outside package has them: a config imports this module by name, and finds them registered."""

import numpy as np
from gymnasium import spaces

from ding.envs.env.base_env import BaseEnv, BaseEnvTimestep
from ding.utils.registry_factory import ENV_REGISTRY


class OutsideEnv(BaseEnv):
    """Episodes of 7 steps with random observations [3]; the reward is the sum of the numbers of the action."""

    action_space = None

    def __init__(self, cfg):
        self._cfg = cfg
        self._act_scale = cfg.get("act_scale", False)
        self.observation_space = spaces.Box(0, 1, (3,), np.float32)
        self.reward_space = spaces.Box(-4, 4, (1,), np.float32)

    def seed(self, seed, dynamic_seed=True):
        self._rng = np.random.default_rng(seed)
        self.action_space.seed(seed)

    def reset(self):
        self._left, self._return = 7, 0.0
        return self._rng.random(3, dtype=np.float32)

    def step(self, action):
        reward = self.reward(action)
        self._left, self._return = self._left - 1, self._return + reward
        info = {"eval_episode_return": self._return} if self._left == 0 else {}
        obs = self._rng.random(3, dtype=np.float32)
        return BaseEnvTimestep(obs, np.array([reward], np.float32), self._left == 0, info)

    def reward(self, action):
        assert action in self.action_space, action
        return float(np.sum(action))

    def close(self):
        pass

    def __repr__(self):
        return type(self).__name__


@ENV_REGISTRY.register("outside_hybrid")
class OutsideHybrid(OutsideEnv):
    action_space = spaces.Dict(action_type=spaces.Discrete(3), action_args=spaces.Box(-1, 1, (2,), np.float32))

    def reward(self, action):
        assert int(action["action_type"][0]) in range(3) and action["action_args"] in self.action_space["action_args"]
        return float(action["action_args"].sum())
