"""The functions of envs with goals, which take batches or single goals."""

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

from ding.envs.env.base_env import BaseEnv, BaseEnvTimestep
from ding.envs.env.goals import GoalFunctions
from ding.envs.env.gymnasium_env import GymnasiumEnv
from ding.utils.config_helper import ConfigError
from tests.goal_envs import BitFlip, Reach


def functions(env, **cfg) -> GoalFunctions:
    made = GymnasiumEnv({"env": env, **cfg})
    made.seed(0)
    return GoalFunctions(made)


HERE, THERE = np.array([[0.0, 0.0], [0.0, 0.0], [0.0, 0.5]]), np.array([[0.05, 0.0], [0.3, 0.0], [0.0, 0.5]])


def test_functions_that_take_batches_are_called_once():
    calls = []

    class Counted(Reach):
        def compute_reward(self, achieved_goal, desired_goal, info):
            calls.append(np.shape(achieved_goal))
            return super().compute_reward(achieved_goal, desired_goal, info)

    goals = functions(Counted)
    calls.clear()
    assert goals.reward(HERE, THERE).tolist() == [0.0, -1.0, 0.0] and calls == [(3, 2)]


class OneByOne(Reach):
    """Its functions take one goal at a time: for several, the first fails and the second returns a single value."""

    def compute_reward(self, achieved_goal, desired_goal, info):
        return 0.0 if np.linalg.norm(achieved_goal - desired_goal) < 0.1 and achieved_goal[0] < 2.0 else -1.0

    def compute_terminated(self, achieved_goal, desired_goal, info):
        return bool(np.linalg.norm(achieved_goal - desired_goal) < 0.1)


class Ambiguous(Reach):
    def compute_reward(self, achieved_goal, desired_goal, info):
        return 0.0 if (np.abs(achieved_goal - desired_goal).max(axis=-1) < 0.1) else -1.0


def test_other_functions_are_called_for_each_goal():
    goals = functions(OneByOne)
    assert goals.reward(HERE, THERE).tolist() == [0.0, -1.0, 0.0]
    assert goals.terminated(HERE, THERE).tolist() == [True, False, True]
    assert functions(Ambiguous).reward(HERE, THERE).tolist() == [0.0, -1.0, 0.0]


def test_the_end_is_what_the_env_computes_and_unknown_without_that():
    assert functions(Reach).terminated(HERE, THERE).tolist() == [False] * 3
    assert functions(BitFlip).terminated(HERE, THERE).tolist() == [False, False, True]

    class Endless(Reach):
        compute_terminated = property()  # raises AttributeError

    assert functions(Endless).terminated(HERE, THERE) is None


def test_rewards_are_those_of_the_env_within_its_wrappers():
    goals = functions(Reach, wrappers=["gymnasium.wrappers:OrderEnforcing"], max_episode_steps=3, act_scale=True)
    assert goals.reward(HERE, THERE).tolist() == [0.0, -1.0, 0.0]


class OwnEnv(BaseEnv):
    """A `BaseEnv` that defines the reward itself, and draws no random actions."""

    action_space = Discrete(2)

    def __init__(self, cfg):
        pass

    def reset(self):
        return self._obs()

    def step(self, action):
        return BaseEnvTimestep(self._obs(), np.array([-1.0], np.float32), False, {})

    def compute_reward(self, achieved_goal, desired_goal, info):
        return -(achieved_goal != desired_goal).any(axis=-1).astype(np.float64)

    def _obs(self):
        return {name: np.full(2, i, np.float32) for i, name in enumerate(Reach.observation_space)}

    def seed(self, seed):
        pass

    def close(self):
        pass

    def __repr__(self):
        return "OwnEnv"


def test_an_env_of_ones_own_may_define_the_reward():
    assert GoalFunctions(OwnEnv({})).reward(HERE, THERE).tolist() == [-1.0, -1.0, 0.0]


class NoReward(Reach):
    compute_reward = property()

    def step(self, action):
        return self._obs(), -1.0, False, False, {}


class OtherKeys(gymnasium.Env):
    observation_space = Dict(place=Box(-1, 1, (2,)), goal=Box(-1, 1, (2,)))
    action_space = Discrete(2)

    def reset(self, *, seed=None, options=None):
        return {"place": np.zeros(2, np.float32), "goal": np.zeros(2, np.float32)}, {}


def test_an_env_without_goals_is_refused():
    with pytest.raises(ConfigError, match="goal"):
        functions(OtherKeys)
    with pytest.raises(ConfigError):
        GoalFunctions(GymnasiumEnv({"env_id": "CartPole-v1"}))
    with pytest.raises(ConfigError):
        functions(NoReward)
