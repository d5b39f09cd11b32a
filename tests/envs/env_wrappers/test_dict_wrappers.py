"""Wrappers that put more into observations, or flatten them."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from ding.envs import (
    AllinObsWrapper,
    DemoEnv,
    ObsPlusPrevActRewWrapper,
)
from ding.envs.env_wrappers import FlatObsWrapper
from tests.envs.toys import FourValueToy, Toy, ToyBaseEnv


@pytest.mark.differs(
    "returns observations of `obs_plus_prev_action_reward` one step late, with values of the episode before, and "
    "needs `reward_range`",
    "returns the action and reward that led to them; -1 and 0 after a reset",
)
def test_an_observation_comes_with_the_action_and_reward_that_led_to_it():
    env = ObsPlusPrevActRewWrapper(Toy(length=2, rewards=(0.5, 2.0)))
    for _ in range(2):
        first = env.reset()
        assert (first["prev_action"], first["prev_reward_extrinsic"]) == (-1, 0)
        steps = [env.step(action) for action in (1, 2)]
        assert [obs["obs"].tolist()[1] for obs, *_ in steps] == [1, 2]
        assert [(obs["prev_action"], obs["prev_reward_extrinsic"]) for obs, *_ in steps] == [(1, 0.5), (2, 2.0)]
        assert [reward for _, reward, *_ in steps] == [0.5, 2.0]


def test_the_space_of_such_observations_has_the_range_of_rewards_where_the_env_tells_it():
    env = ObsPlusPrevActRewWrapper(Toy())
    assert env.observation_space["obs"] == spaces.Box(-10, 10, (2,), np.float32)
    assert env.observation_space["prev_action"] == spaces.Discrete(3)
    assert env.observation_space["prev_reward_extrinsic"] == spaces.Box(-np.inf, np.inf, (1,), np.float32)
    ranged = ObsPlusPrevActRewWrapper(FourValueToy())
    assert ranged.observation_space["prev_reward_extrinsic"] == spaces.Box(0, 1, (1,), np.float32)


def test_an_action_that_the_caller_uses_again_is_kept_as_it_was():
    env = ObsPlusPrevActRewWrapper(Toy(action_space=spaces.Box(-1, 1, (2,))))
    assert env.reset()["prev_action"].tolist() == [-1, -1]
    action = np.ones(2, np.float32)
    obs = env.step(action)[0]
    action[:] = 0
    assert obs["prev_action"].tolist() == [1, 1]


@pytest.mark.parametrize("make", [lambda: DemoEnv({}), Toy, FourValueToy])
def test_an_observation_comes_with_its_reward(make):
    env = AllinObsWrapper(make())
    first = env.reset()
    assert (first["reward"].dtype, first["reward"].tolist()) == (np.float32, [0.0])
    timestep = env.step(1)
    assert type(timestep).__name__ == "BaseEnvTimestep"
    assert timestep.obs["reward"].dtype == np.float32
    assert timestep.obs["reward"].tolist() == np.ravel(timestep.reward).tolist()
    assert timestep.obs["obs"].shape == env.observation_space["obs"].shape
    assert env.observation_space["reward"] == env.reward_space


def test_seeds_and_random_actions_are_those_of_the_base_env():
    inner = ToyBaseEnv({})
    env = AllinObsWrapper(inner)
    env.seed(3)
    env.seed(4, dynamic_seed=False)
    assert inner.seeds == [(3, True), (4, False)]
    assert env.random_action().tolist() == [1]


class Grid(Toy):
    """Observations as minigrid has them."""

    def __init__(self, mission):
        space = spaces.Dict(image=spaces.Box(0, 255, (2, 2, 3), np.uint8), mission=spaces.Text(200))
        image = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
        super().__init__(observation_space=space, observe=lambda e, s: {"image": image, "mission": mission})


def test_image_and_mission_become_one_vector():
    env = FlatObsWrapper(Grid("Go, a b"), maxStrLen=10)
    obs = env.reset()
    assert env.observation_space == spaces.Box(0, 255, (12 + 28 * 10,), np.float32)
    assert (obs.dtype, obs.shape) == (np.float32, env.observation_space.shape)
    assert obs[:12].tolist() == list(range(12))
    code = obs[12:].reshape(10, 28)
    assert code.argmax(1)[:7].tolist() == [6, 14, 27, 26, 0, 26, 1]
    assert code.sum(1).tolist() == [1.0] * 7 + [0.0] * 3
    assert env.step(0)[0].tolist() == obs.tolist()


def test_a_mission_that_is_too_long_or_has_other_characters_is_refused():
    with pytest.raises(AssertionError):
        FlatObsWrapper(Grid("abcd"), maxStrLen=3).reset()
    with pytest.raises(ValueError, match="not found"):
        FlatObsWrapper(Grid("go!")).reset()
