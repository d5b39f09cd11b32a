"""Wrappers that change or add up rewards."""

from __future__ import annotations

import numpy as np
import pytest

from ding.envs import ClipRewardWrapper, DelayRewardWrapper, EvalEpisodeReturnWrapper
from tests.envs.toys import Toy, ToyBaseEnv, play


def test_rewards_are_clipped_to_their_sign():
    env = ClipRewardWrapper(Toy(rewards=(-3.0, 0.0, 0.2, 7)))
    assert [reward for _, reward, *_ in play(env, 4)] == [-1, 0, 1, 1]
    assert env.reward_range == (-1, 1)


@pytest.mark.parametrize(("every", "paid"), [(0, [1, 2, 3, 4, 5]), (1, [1, 2, 3, 4, 5]), (2, [0, 3, 0, 7, 5])])
def test_rewards_are_paid_every_so_many_steps_and_at_the_end(every, paid):
    env = DelayRewardWrapper(Toy(length=5, rewards=(1.0, 2.0, 3.0, 4.0, 5.0)), delay_reward_step=every)
    assert [reward for _, reward, *_ in play(env, 5)] == paid


def test_what_was_held_back_is_forgotten_with_its_episode():
    env = DelayRewardWrapper(Toy(length=9), delay_reward_step=3)
    play(env, 2)
    assert [reward for _, reward, *_ in play(env, 3)] == [0, 0, 3]


def test_the_return_of_an_episode_is_told_at_its_end_only():
    env = EvalEpisodeReturnWrapper(Toy(length=3, rewards=(0.5, 1.0, -3.0)))
    for _ in range(2):
        steps = play(env, 3)
        assert ["eval_episode_return" in info for *_, info in steps] == [False, False, True]
        value = steps[-1][3]["eval_episode_return"]
        assert (value.dtype, value.tolist()) == (np.float32, [-1.5])


def test_the_return_of_a_base_env_comes_in_its_timestep():
    steps = play(EvalEpisodeReturnWrapper(ToyBaseEnv({"length": 2})), 2)
    assert [type(step).__name__ for step in steps] == ["BaseEnvTimestep"] * 2
    assert steps[1].info["eval_episode_return"].tolist() == [2.0]
    assert "eval_episode_return" not in steps[0].info
