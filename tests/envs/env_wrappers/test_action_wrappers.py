"""Wrappers that repeat or translate actions."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from ding.envs import ActionRepeatWrapper, GymHybridDictActionWrapper, MaxAndSkipWrapper
from tests.envs.toys import FourValueToy, Toy, play


def flicker(episode, step):
    """Frames of which only every second one shows something."""
    return np.array([step if step % 2 else 0, -step], np.float32)


@pytest.mark.parametrize("reuse", [False, True])
def test_the_observation_is_the_maximum_of_the_last_two_and_the_reward_the_sum(reuse):
    toy = Toy(length=20, rewards=range(1, 20), observe=flicker, reuse=reuse)
    (first_obs, first_reward, *_), (obs, reward, done, info) = play(MaxAndSkipWrapper(toy, skip=4), 2, action=2)
    assert (first_reward, reward) == (1 + 2 + 3 + 4, 5 + 6 + 7 + 8)
    assert obs.tolist() == [7, -7]
    assert (done, info["count"], toy.actions) == (False, 8, [2] * 8)


def test_repeating_stops_at_the_end_of_the_episode():
    obs, reward, done, info = play(MaxAndSkipWrapper(Toy(length=3, observe=flicker)), 1)[0]
    assert (obs.tolist(), reward, done, info["count"]) == ([3, -2], 3.0, True, 3)


def test_one_step_is_its_own_maximum():
    assert play(MaxAndSkipWrapper(Toy(observe=flicker), skip=1), 1)[0][0].tolist() == [1, -1]
    assert play(MaxAndSkipWrapper(Toy(length=1, observe=flicker)), 1)[0][0].tolist() == [1, -1]


def test_an_action_is_repeated_and_rewards_add_up_with_none_as_zero():
    toy = Toy(length=9, rewards=(1.0, None, 2.5, 4.0))
    (obs, reward, done, info), second = play(ActionRepeatWrapper(toy, action_repeat=3), 2, action=1)
    assert (obs.tolist(), reward, done, info["count"]) == ([0, 3], 3.5, False, 3)
    assert second[1] == 12.0
    assert toy.actions == [1] * 6


def test_an_action_is_repeated_up_to_the_end_of_the_episode():
    obs, reward, done, _ = play(ActionRepeatWrapper(Toy(length=2), action_repeat=5), 1)[0]
    assert (obs.tolist(), reward, done) == ([0, 2], 2.0, True)


def test_a_hybrid_action_is_a_dict_for_the_policy_and_a_pair_for_the_env():
    pair = spaces.Tuple([spaces.Discrete(3), spaces.Box(np.array([0, -1], np.float32), np.array([1, 1], np.float32))])
    toy = Toy(action_space=pair)
    env = GymHybridDictActionWrapper(toy)
    assert env.action_space == spaces.Dict(
        type=spaces.Discrete(3), mask=spaces.Box(0, 1, (2,), np.int64), args=pair.spaces[1]
    )
    env.reset()
    env.step({"type": 2, "mask": np.array([1, 0]), "args": np.array([0.5, 0.0], np.float32)})
    kind, args = toy.actions[0]
    assert (kind, args.tolist()) == (2, [0.5, 0.0])


def test_an_env_that_does_not_tell_its_pair_gets_the_spaces_of_gym_hybrid():
    env = GymHybridDictActionWrapper(FourValueToy())
    assert env.action_space["type"] == spaces.Discrete(3)
    assert env.action_space["args"] == spaces.Box(-1, 1, (2,), np.float32)
