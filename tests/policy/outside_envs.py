"""An env as an outside package has it: a config imports this module by name, and finds it registered."""

import numpy as np
from gymnasium import spaces

from ding.envs.env.base_env import BaseEnv, BaseEnvTimestep
from ding.utils.registry_factory import ENV_REGISTRY


@ENV_REGISTRY.register("outside_hybrid")
class OutsideHybrid(BaseEnv):
    """Episodes of 7 steps with random observations [3]; the reward is the sum of the arguments of the action."""

    action_space = spaces.Dict(action_type=spaces.Discrete(3), action_args=spaces.Box(-1, 1, (2,), np.float32))
    observation_space = spaces.Box(0, 1, (3,), np.float32)
    reward_space = spaces.Box(-4, 4, (1,), np.float32)

    def __init__(self, cfg):
        self._cfg = cfg

    def seed(self, seed, dynamic_seed=True):
        self._rng = np.random.default_rng(seed)
        self.action_space.seed(seed)

    def reset(self):
        self._left, self._return = 7, 0.0
        return self._rng.random(3, dtype=np.float32)

    def step(self, action):
        assert int(action["action_type"][0]) in range(3) and action["action_args"] in self.action_space["action_args"]
        reward = float(action["action_args"].sum())
        self._left, self._return = self._left - 1, self._return + reward
        info = {"eval_episode_return": self._return} if self._left == 0 else {}
        obs = self._rng.random(3, dtype=np.float32)
        return BaseEnvTimestep(obs, np.array([reward], np.float32), self._left == 0, info)

    def close(self):
        """It holds nothing."""

    def __repr__(self):
        return "OutsideHybrid"
