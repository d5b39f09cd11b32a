"""VectorEvalMonitor: whose episodes count, and what is told of them."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ding.worker.collector.base_serial_evaluator import VectorEvalMonitor


def test_the_quota_of_each_env():
    assert VectorEvalMonitor(5, 12)._quota == {0: 3, 1: 3, 2: 2, 3: 2, 4: 2}


def test_fewer_episodes_than_envs_is_refused():
    with pytest.raises(AssertionError, match="n_episode = 2 is below the number of envs, 3"):
        VectorEvalMonitor(3, 2)


def test_the_first_episodes_of_an_env_count_and_surplus_ones_are_ignored():
    monitor = VectorEvalMonitor(2, 2)
    for reward in (1.0, 50.0, 60.0):
        monitor.update_reward(0, reward)
        monitor.update_info(0, {"x": reward})
    assert not monitor.is_finished() and monitor.is_full(0)
    monitor.update_reward(1, 2.0)
    monitor.update_info(1, {"x": 2.0})
    assert monitor.is_finished()
    assert monitor.get_episode_return() == [1.0, 2.0]
    assert monitor.get_episode_info() == {"x": [1.0, 2.0], "x_mean": 1.5}


@settings(max_examples=50)
@given(env_num=st.integers(1, 6), extra=st.integers(0, 12), order=st.lists(st.integers(0, 5), max_size=80))
def test_returns_are_the_first_of_each_env_in_env_order(env_num, extra, order):
    monitor = VectorEvalMonitor(env_num, env_num + extra)
    played = {i: [] for i in range(env_num)}
    for k, env_id in enumerate(order):
        if env_id < env_num:
            monitor.update_reward(env_id, k)
            played[env_id].append(k)
    expected = [r for i in range(env_num) for r in played[i][: monitor._quota[i]]]
    assert monitor.get_episode_return() == expected
    assert monitor.get_current_episode() == len(expected)
    assert monitor.is_finished() == (len(expected) == env_num + extra)


def test_a_one_element_tensor_is_a_return_and_a_longer_one_is_not():
    monitor = VectorEvalMonitor(1, 3)
    for reward in (1.5, 2.5):
        monitor.update_reward(0, torch.tensor([reward]))
        assert monitor.get_latest_reward(0) == reward
    with pytest.raises(RuntimeError):
        monitor.update_reward(0, torch.tensor([1.0, 2.0]))


def frame(value):
    return np.full((2, 4, 3), value, np.uint8)


def film(lengths_and_returns):
    monitor = VectorEvalMonitor(len(lengths_and_returns), len(lengths_and_returns))
    for env_id, (length, reward) in enumerate(lengths_and_returns):
        for step in range(length):
            monitor.update_video({env_id: frame(10 * env_id + step)})
        monitor.update_reward(env_id, reward)
        monitor.update_video({env_id: frame(99)})
    return monitor.get_video()


def test_clips_are_padded_with_their_last_frame_and_channels_come_first():
    video = film([(2, 5.0), (3, 1.0)])
    assert video.shape == (2, 3, 3, 2, 4)
    assert [clip[:, 0, 0, 0].tolist() for clip in video] == [[10, 11, 12], [0, 1, 1]]


@pytest.mark.parametrize(
    ("returns", "expected"),
    [([1], [0]), ([2, 1], [1, 0]), ([2, 3, 1], [2, 0, 1]), ([5, 1, 4, 2, 3], [1, 3, 4, 0])],
)
def test_the_video_shows_the_worst_the_middle_and_the_best(returns, expected):
    video = film([(2, r) for r in returns])
    assert [int(clip[0, 0, 0, 0]) // 10 for clip in video] == expected
