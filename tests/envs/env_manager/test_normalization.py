"""Statistics of normalizing wrappers that the envs of a manager share, in one process and in several."""

import functools

import numpy as np
import pytest

from ding.envs import (
    BaseEnvManager,
    DingEnvWrapper,
    RewardNormWrapper,
    SyncSubprocessEnvManager,
)
from ding.envs.env_manager.block import stacked
from ding.envs.env_manager.normalization import Normalization, moments_of_state
from ding.utils.config_helper import ConfigError
from tests.envs.toys import Toy

MANAGERS = pytest.mark.parametrize("cls", [BaseEnvManager, SyncSubprocessEnvManager])


class Drifting(Toy):
    """Observations and rewards that tell the env from others, and its steps from each other."""

    def __init__(self, offset, length=100):
        super().__init__(
            length=length,
            observe=lambda episode, step: np.array([offset + step % 7, -(step % 3)], np.float32),
            rewards=[float(offset + k % 5) for k in range(length)],
        )


def make_env(offset, length=100, wrappers=("obs_norm", "reward_norm")):
    kwargs = {"obs_norm": {}, "reward_norm": {"reward_discount": 0.9}}
    entries = [{"type": name, "kwargs": kwargs[name]} for name in wrappers]
    return DingEnvWrapper(Drifting(offset, length), cfg={"env_wrapper": entries})


def make_manager(cls, offsets=(0, 10), **kwargs):
    return cls([functools.partial(make_env, offset, **kwargs) for offset in offsets], {"shared_memory": False})


def step(manager, number=1):
    for _ in range(number):
        timesteps = manager.step(dict.fromkeys(manager.ready_obs, 0))
    return {env_id: timesteps[env_id] for env_id in sorted(timesteps)}


def raw(offset, steps):
    return [np.array([offset + k % 7, -(k % 3)], np.float64) for k in range(1, steps + 1)]


def discounted(offset, steps):
    returns, total = [], 0.0
    for k in range(steps):
        total = 0.9 * total + offset + k % 5
        returns.append(total)
    return returns


@MANAGERS
@pytest.mark.parametrize("is_shared_before", [True, False])
def test_all_envs_normalize_by_what_all_have_seen(cls, is_shared_before):
    with make_manager(cls) as manager:
        manager.launch()
        if is_shared_before:
            manager.sync_normalization()
        step(manager, 39)
        manager.sync_normalization()
        timesteps = step(manager)
    seen = np.array(raw(0, 39) + raw(10, 39))
    for env_id, offset in ((0, 0), (1, 10)):
        everything = np.concatenate([seen, raw(offset, 40)[-1:]])  # and what it has seen itself since
        expected = (raw(offset, 40)[-1] - everything.mean(0)) / everything.std(0)
        np.testing.assert_allclose(timesteps[env_id].obs, expected, rtol=1e-3, atol=1e-3)
        returns = discounted(0, 39) + discounted(10, 39) + discounted(offset, 40)[-1:]
        reward = (offset + 39 % 5) / np.std(returns)
        np.testing.assert_allclose(timesteps[env_id].reward, [reward], rtol=1e-3, atol=1e-3)


@MANAGERS
def test_a_value_counts_once_however_often_statistics_are_shared(cls):
    states = []
    for rounds in (1, 4):
        with make_manager(cls) as manager:
            manager.launch()
            manager.sync_normalization()
            for _ in range(rounds):
                step(manager, 20 // rounds)
                manager.sync_normalization()
            manager.sync_normalization()
            states.append(manager.normalization_state())
    one, other = states
    assert sorted(one) == ["ObsNormWrapper0", "RewardNormWrapper0"]
    for name in one:
        assert float(one[name]["size"]) == pytest.approx(40, rel=1e-4)
        for key in ("mean", "var", "size"):
            np.testing.assert_allclose(one[name][key], other[name][key], rtol=1e-9)


@MANAGERS
def test_frozen_statistics_are_used_and_not_added_to(cls):
    with make_manager(BaseEnvManager) as manager:
        manager.launch()
        manager.sync_normalization()
        step(manager, 50)
        manager.sync_normalization()
        state = manager.normalization_state()
    mean, std = state["ObsNormWrapper0"]["mean"].numpy(), state["ObsNormWrapper0"]["var"].sqrt().numpy()
    with make_manager(cls, offsets=[3]) as evaluator:
        evaluator.launch()
        evaluator.load_normalization(state, is_frozen=True)
        evaluator.reset()
        np.testing.assert_allclose(evaluator.ready_obs[0], ([3, 0] - mean) / std, rtol=1e-3, atol=1e-3)
        timesteps = step(evaluator, 60)
        evaluator.sync_normalization()
        np.testing.assert_allclose(timesteps[0].obs, (raw(3, 60)[-1] - mean) / std, rtol=1e-3, atol=1e-3)
        after = evaluator.normalization_state()
    assert all(after[name][key].equal(state[name][key]) for name in state for key in state[name])


@MANAGERS
def test_a_manager_goes_on_from_loaded_statistics(cls):
    with make_manager(cls) as manager:
        manager.launch()
        manager.sync_normalization()
        step(manager, 20)
        manager.sync_normalization()
        state = manager.normalization_state()
    with make_manager(cls) as other:
        other.launch()
        other.load_normalization(state)
        step(other, 20)
        other.sync_normalization()
        size = other.normalization_state()["ObsNormWrapper0"]["size"]
    assert float(size) == pytest.approx(80, rel=1e-4)


def test_rewards_keep_their_statistics_over_episodes_once_they_are_shared():
    env = RewardNormWrapper(Drifting(0, length=20), 0.9)
    with BaseEnvManager([lambda: DingEnvWrapper(env)]) as manager:
        manager.launch()
        manager.sync_normalization()
        step(manager, 45)
        manager.sync_normalization()
    assert float(manager.normalization_state()["RewardNormWrapper0"]["size"]) == pytest.approx(45, rel=1e-4)


# Statistics that rollouts gather of the envs of a manager, and what they do by them.


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
