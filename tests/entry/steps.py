"""Small envs of gymnasium, of which only what matters to a test is written down."""

import gymnasium
import numpy as np
from gymnasium import spaces


class Steps(gymnasium.Env):
    """Episodes of `length` steps, which show `observe()` and are worth `reward(action)`."""

    observation_space, action_space = spaces.Box(0, 1, (3,), np.float32), spaces.Discrete(2)
    length = 3

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.observe(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        reward = self.reward(action)
        self.steps += 1
        return self.observe(), reward, self.steps == self.length, False, {}

    def observe(self):
        return np.zeros(self.observation_space.shape, self.observation_space.dtype)

    def reward(self, action):
        return 1.0
