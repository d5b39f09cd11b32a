"""Wrappers that scale observations and rewards to about unit variance."""

import numpy as np
import pytest

from ding.envs import ObsNormWrapper, RewardNormWrapper, RunningMeanStd, StaticObsNormWrapper
from tests.envs.toys import Toy, ToyBaseEnv, play


def two_scales(episode, step):
    """Two features that lie far apart."""
    return np.array([step % 2, 1000.0 * (step % 3)], np.float32)


def test_running_statistics_are_those_of_all_batches():
    rng = np.random.default_rng(0)
    stats = RunningMeanStd(epsilon=1e-4, shape=(3,))
    batches = [rng.normal(5, 2, (n, 3)) for n in (1, 7, 20)]
    for batch in batches:
        stats.update(batch)
    np.testing.assert_allclose(stats.mean, np.concatenate(batches).mean(0), rtol=1e-3)
    np.testing.assert_allclose(stats.std, np.concatenate(batches).std(0), rtol=1e-2)
    assert isinstance(stats.mean, np.ndarray)


def test_the_deviation_is_the_root_of_the_variance_plus_epsilon():
    stats = RunningMeanStd(epsilon=0.5)
    assert (float(stats.mean), float(stats.std)) == (0.0, 1.5)
    stats.update(np.array([2.0, 2.0]))
    stats.reset()
    assert float(stats.mean) == 0.0


@pytest.mark.differs(
    "normalizes all features by one mean in `obs_norm`, and forgets it with each episode",
    "normalizes each by its own, kept over episodes",
)
def test_each_feature_has_its_own_mean_and_deviation():
    toy = Toy(length=1000, observe=two_scales)
    steps = play(ObsNormWrapper(toy), 200)
    seen = np.array([two_scales(0, step) for step in range(1, 201)])
    expected = (seen[-1] - seen.mean(0)) / seen.std(0)
    np.testing.assert_allclose(steps[-1][0], expected, rtol=1e-3)
    assert steps[-1][0].dtype == np.float32


def test_observations_are_as_they_are_for_thirty_steps():
    steps = play(ObsNormWrapper(Toy(length=99, observe=two_scales)), 31)
    assert steps[29][0].tolist() == two_scales(0, 30).tolist()
    assert steps[30][0].tolist() != two_scales(0, 31).tolist()


def test_normalized_observations_stay_within_three_deviations():
    spike = Toy(length=99, observe=lambda episode, step: np.array([step == 40, -(step == 40)], np.float32))
    assert play(ObsNormWrapper(spike), 40)[-1][0].tolist() == [3.0, -3.0]


def test_statistics_of_observations_are_kept_over_episodes_unless_told_otherwise():
    toy = Toy(length=20, observe=two_scales)
    env = ObsNormWrapper(toy)
    play(env, 20)
    play(env, 20)
    assert env.reset().tolist() != two_scales(2, 0).tolist()
    env = ObsNormWrapper(toy, keep_statistics=False)
    play(env, 20)
    assert play(env, 20)[-1][0].tolist() == two_scales(1, 20).tolist()


def test_observations_are_scaled_by_given_statistics_and_clipped():
    env = StaticObsNormWrapper(Toy(observe=lambda e, step: np.array([step, 100.0])), mean=[1.0, 90.0], std=[2.0, 1.0])
    assert env.reset().tolist() == [-0.5, 3.0]
    obs = env.step(0)[0]
    assert (obs.dtype, obs.tolist()) == (np.float32, [0.0, 3.0])


def test_rewards_are_divided_by_the_deviation_of_the_discounted_return():
    rewards = [float(k % 5) for k in range(60)]
    steps = play(RewardNormWrapper(Toy(length=99, rewards=rewards), reward_discount=0.9), 60)
    returns, total = [], 0.0
    for reward in rewards:
        total = 0.9 * total + reward
        returns.append(total)
    assert [reward for _, reward, *_ in steps[:30]] == rewards[:30]
    assert steps[-1][1] == pytest.approx(rewards[-1] / np.std(returns), rel=1e-3)
    assert type(steps[-1][1]) is float


def test_statistics_of_rewards_begin_anew_with_each_episode_unless_told_otherwise():
    rewards = [float(k % 5) for k in range(20)]
    for keep, is_scaled in ((False, False), (True, True)):
        env = RewardNormWrapper(Toy(length=20, rewards=rewards), 0.9, keep_statistics=keep)
        play(env, 20)
        assert (play(env, 20)[-1][1] != rewards[-1]) is is_scaled


def test_rewards_of_a_base_env_are_taken_out_of_their_arrays():
    assert play(RewardNormWrapper(ToyBaseEnv({}), 0.9), 1)[0][1] == 1.0


def test_normalizing_keeps_shapes():
    assert RunningMeanStd.new_shape((4,), 2, reward_shape=(1,)) == ((4,), 2, (1,))
