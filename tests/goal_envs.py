"""Small envs with goals: the interface is that of gymnasium-robotics."""

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete


class BitFlip(gymnasium.Env):
    """Flip one of the bits in each step until they are those of the goal, as in the paper on hindsight.

    The reward is 0 for the goal, else -1; an episode ends there, or is cut off after as many steps as there are bits.
    """

    def __init__(self, bits: int = 15) -> None:
        self.bits = bits
        self.action_space = Discrete(bits)
        names = ("observation", "achieved_goal", "desired_goal")
        self.observation_space = Dict({name: Box(0, 1, (bits,), np.float32) for name in names})

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state, self.goal = self.np_random.integers(2, size=(2, self.bits)).astype(np.float32)
        self.steps = 0
        return self._obs(), {}

    def step(self, action):
        self.state = self.state.copy()
        self.state[action] = 1 - self.state[action]
        self.steps += 1
        reward = float(self.compute_reward(self.state, self.goal, {}))
        is_there = bool(self.compute_terminated(self.state, self.goal, {}))
        return self._obs(), reward, is_there, self.steps >= self.bits, {"is_success": is_there}

    def compute_reward(self, achieved_goal, desired_goal, info):
        return -(achieved_goal != desired_goal).any(axis=-1).astype(np.float32)

    def compute_terminated(self, achieved_goal, desired_goal, info):
        return (achieved_goal == desired_goal).all(axis=-1)

    def _obs(self):
        return {"observation": self.state, "achieved_goal": self.state, "desired_goal": self.goal}


class Reach(gymnasium.Env):
    """Move a point in a square to a goal, in float64; the reward is 0 within 0.1 of it, else -1.

    Episodes are cut off after 25 steps, and have no other end. As in some envs of gymnasium-robotics,
    `compute_terminated` does not take batches.
    """

    action_space = Box(-1, 1, (2,), np.float32)
    observation_space = Dict(
        observation=Box(-1, 1, (4,), np.float64),
        achieved_goal=Box(-1, 1, (2,), np.float64),
        desired_goal=Box(-1, 1, (2,), np.float64),
    )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.goal = self.np_random.uniform(-1, 1, (2, 2))
        self.speed, self.steps = np.zeros(2), 0
        return self._obs(), {}

    def step(self, action):
        self.speed = 0.5 * self.speed + 0.1 * np.asarray(action, np.float64)
        self.place = np.clip(self.place + self.speed, -1, 1)
        self.steps += 1
        reward = float(self.compute_reward(self.place, self.goal, {}))
        return self._obs(), reward, False, self.steps >= 25, {"is_success": reward == 0}

    def compute_reward(self, achieved_goal, desired_goal, info):
        return -(np.linalg.norm(achieved_goal - desired_goal, axis=-1) > 0.1).astype(np.float32)

    def compute_terminated(self, achieved_goal, desired_goal, info):
        return False

    def _obs(self):
        observation = np.concatenate([self.place, self.speed])
        return {"observation": observation, "achieved_goal": self.place.copy(), "desired_goal": self.goal.copy()}
