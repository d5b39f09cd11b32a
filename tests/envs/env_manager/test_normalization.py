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
