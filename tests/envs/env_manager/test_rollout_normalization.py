"""Statistics that rollouts gather of the envs of a manager, and what they do by them."""

import numpy as np
import pytest

from ding.envs.env_manager.block import stacked
from ding.envs.env_manager.normalization import Normalization, moments_of_state
from ding.utils.config_helper import ConfigError

OBS, REWARD = {"use_norm": True}, {"use_norm": True, "reward_discount": 0.9}
# What the statistics begin with hardly matters.
NEAR = {"rtol": 1e-3, "atol": 1e-3}


def scaled_rewards(normalization, rewards, ends=None):
    """Return the normalized rewards of a step of all envs."""
    node = stacked([np.array([reward], np.float32) for reward in rewards])
    ends = np.zeros(len(rewards), np.bool_) if ends is None else np.array(ends)
    return normalization.scaled_rewards(node, np.arange(len(rewards)), ends)


def seen(rounds=20, envs=3):
    generator = np.random.default_rng(0)
    return (generator.normal(size=(rounds, envs, 2)) * [100, 0.1] + [5, -3]).astype(np.float32)


def standardized(obs, every):
    """Return `obs` by mean and deviation of the rows `every`, and of 1e-4 rows of mean 0 and variance 1."""
    rows = every.reshape(-1, 2).astype(np.float64)
    mean = rows.sum(0) / (len(rows) + 1e-4)
    var = (np.square(rows - mean).sum(0) + 1e-4 * (1 + mean**2)) / (len(rows) + 1e-4)
    return (obs - mean) / np.sqrt(var + 1e-8)


def test_observations_are_normalized_by_all_that_was_acted_on():
    normalization, rounds = Normalization({"norm_obs": OBS}), seen()
    for obs in rounds:
        normalization.gather(stacked(list(obs)))
    scaled = normalization.scaled(stacked(list(rounds[0])))
    np.testing.assert_allclose(scaled.data, standardized(rounds[0], rounds), rtol=1e-5)
    assert scaled.data.dtype == np.float32 and normalization.moments["obs"].size == pytest.approx(60, rel=1e-4)


def test_the_first_observations_are_normalized_by_their_own_statistics_and_not_counted():
    normalization, (obs, *_) = Normalization({"norm_obs": OBS}), seen()
    scaled = normalization.first_scaled(stacked(list(obs)))
    np.testing.assert_allclose(scaled.data, standardized(obs, obs), rtol=1e-5)
    assert normalization.moments == {}


def test_observations_are_clipped_to_ten_deviations():
    normalization = Normalization({"norm_obs": OBS})
    normalization.gather(stacked(list(seen()[0])))
    assert normalization.scaled(stacked([np.array([1e6, -1e6], np.float32)])).data.tolist() == [[10, -10]]


def test_real_entries_of_a_dict_are_normalized_each_by_itself_and_others_kept():
    obs = [
        {
            "image": np.full((3, 2, 2), 7, np.uint8),
            "place": np.array([k, 2 * k], np.float32),
            "choice": np.array(k),
            "nested": {"speed": np.array([5.0 * k], np.float32)},
            "action_mask": np.array([1, k % 2], np.float32),
        }
        for k in range(4)
    ]
    normalization = Normalization({"norm_obs": OBS})
    normalization.gather(stacked(obs))
    assert sorted(normalization.moments) == ["obs.nested.speed", "obs.place"]
    scaled, given = normalization.scaled(stacked(obs)), stacked(obs)
    for key in ("image", "choice", "action_mask"):
        assert np.array_equal(scaled[key].data, given[key].data) and scaled[key].data.dtype == given[key].data.dtype
    standard = (np.arange(4) - 1.5) / np.arange(4).std()
    np.testing.assert_allclose(scaled["place"].data, np.stack([standard, standard], 1), **NEAR)
    np.testing.assert_allclose(scaled["nested"]["speed"].data[:, 0], standard, **NEAR)


def test_rewards_are_divided_by_the_deviation_of_the_discounted_return_which_begins_anew_with_each_episode():
    normalization = Normalization({"norm_reward": REWARD}, env_num=2)
    rewards = np.random.default_rng(1).normal(3, 1, (30, 2))
    returns, sums = [], np.zeros(2)
    for k, row in enumerate(rewards):
        ends = [k % 5 == 4, False]
        sums = 0.9 * sums + row
        returns.append(sums)
        scaled = scaled_rewards(normalization, row, ends)
        sums = np.where(ends, 0, sums)
    np.testing.assert_allclose(scaled.data[:, 0], rewards[-1] / np.std(returns), rtol=1e-3)
    assert scaled.data.dtype == np.float32


def test_an_episode_that_does_not_continue_adds_nothing_to_the_next_return():
    normalization = Normalization({"norm_reward": REWARD}, env_num=2)
    scaled_rewards(normalization, [100.0, 100.0])
    normalization.begin_episode(0)
    scaled_rewards(normalization, [1.0, 1.0])
    assert normalization.running_state()["returns"].tolist() == [1.0, 91.0]


def test_frozen_statistics_normalize_observations_and_leave_rewards():
    source = Normalization({"norm_obs": OBS, "norm_reward": REWARD}, env_num=3)
    for obs in seen():
        source.gather(stacked(list(obs)))
        scaled_rewards(source, [1.0, 2.0, 3.0])
    frozen = Normalization({"norm_obs": OBS, "norm_reward": REWARD}, env_num=3)
    frozen.load_state_dict(source.state_dict(), is_frozen=True)
    obs = stacked(list(seen()[1]))
    frozen.gather(obs)
    assert np.array_equal(frozen.scaled(obs).data, source.scaled(obs).data)
    assert scaled_rewards(frozen, [1.0, 2.0, 3.0]).data[:, 0].tolist() == [1, 2, 3]
    for name, parts in source.state_dict().items():
        assert all(parts[key].equal(frozen.state_dict()[name][key]) for key in parts)


def test_statistics_of_a_data_set_stay_and_do_not_clip():
    stats = {"use_offline_stats": True, "mean": [2.0], "std": [0.5]}
    normalization = Normalization({"norm_obs": {"use_norm": True, "offline_stats": stats}})
    obs = stacked([np.array([102.0], np.float32)])
    normalization.gather(obs)
    assert normalization.first_scaled(obs).data.tolist() == normalization.scaled(obs).data.tolist() == [[200]]
    with pytest.raises(ConfigError):
        Normalization({"norm_obs": {"use_norm": True, "offline_stats": {"use_offline_stats": True}}})


def test_what_several_managers_gather_adds_up_to_what_one_would_have():
    one, total, parts = Normalization({"norm_obs": OBS}), Normalization(), []
    for half in (slice(0, 10), slice(10, 20)):
        normalization = Normalization({"norm_obs": OBS})
        normalization.take_gathered()
        for obs in seen()[half]:
            normalization.gather(stacked(list(obs)))
            one.gather(stacked(list(obs)))
        parts.append(normalization.take_gathered())
        assert normalization.take_gathered() == {}
    for part in parts:
        total.merge([{name: moments_of_state(values) for name, values in part.items()}])
    for key in ("mean", "var", "size"):
        np.testing.assert_allclose(total.state_dict()["obs"][key], one.state_dict()["obs"][key], rtol=1e-9)
