"""Wrappers that repeat or translate actions."""

import numpy as np
import pytest
from gymnasium import spaces

from ding.envs import (
    ActionRepeatWrapper,
    AllinObsWrapper,
    ClipRewardWrapper,
    DelayRewardWrapper,
    DemoEnv,
    EpisodicLifeWrapper,
    EvalEpisodeReturnWrapper,
    FireResetWrapper,
    GymHybridDictActionWrapper,
    MaxAndSkipWrapper,
    NoopResetWrapper,
    ObsPlusPrevActRewWrapper,
    TimeLimitWrapper,
)
from ding.envs.env_wrappers import FlatObsWrapper
from tests.envs.toys import FourValueToy, Toy, ToyBaseEnv, play


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


# Wrappers that put more into observations, or flatten them.


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


# Wrappers that change or add up rewards.


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


# Wrappers that decide where episodes begin and end.


def test_an_episode_begins_with_a_random_number_of_steps_without_action():
    toy = Toy(length=100)
    env = NoopResetWrapper(toy, noop_max=5)
    np.random.seed(3)
    expected = np.random.RandomState(3).randint(1, 6, 20)
    counts = [int(env.reset()[1]) for _ in range(20)]
    assert counts == expected.tolist()
    assert set(counts) == {1, 2, 3, 4, 5}
    assert set(toy.actions) == {0}
    assert (env.noop_max, env.noop_action) == (5, 0)


def test_the_number_of_such_steps_follows_the_seed_and_leaves_numpy_alone():
    def counts():
        env = NoopResetWrapper(Toy(length=100))
        env.seed(2**35 + 1)
        return [int(env.reset()[1]) for _ in range(5)]

    np.random.seed(0)
    assert counts() == counts()
    assert np.random.rand() == np.random.RandomState(0).rand()


def test_an_episode_that_ends_in_these_steps_is_begun_anew_without_the_seed():
    toy = Toy(length=1)
    env = NoopResetWrapper(toy, noop_max=1)
    assert env.reset(seed=4).tolist() == [1, 0]
    assert toy.seeds == [4, None]


@pytest.mark.parametrize(
    ("wrapper", "meanings"),
    [
        *((NoopResetWrapper, meanings) for meanings in (("FIRE", "NOOP", "LEFT"), ())),
        *((FireResetWrapper, meanings) for meanings in (("NOOP", "LEFT", "FIRE"), ("NOOP", "FIRE"), ("NOOP",), ())),
    ],
)
def test_no_action_must_be_the_first_and_fire_the_second_of_three(wrapper, meanings):
    with pytest.raises(AssertionError):
        wrapper(Toy(meanings=meanings))


def test_a_lost_life_ends_the_episode_as_a_true_end_and_the_game_goes_on():
    toy = Toy(length=6, lives=(3, 3, 2, 2, 1, 1, 0))
    env = EpisodicLifeWrapper(toy)
    env.reset()
    ends = []
    for _ in range(6):
        *_, done, info = env.step(1)
        ends.append((done, info["terminated"], env.was_real_done))
    life, over = (True, True, False), (True, True, True)
    go_on = (False, False, False)
    assert ends == [go_on, life, go_on, life, go_on, over]
    assert toy.episode == 0


def test_after_a_lost_life_the_game_goes_on_with_a_step_without_action():
    toy = Toy(length=6, lives=(3, 2, 2, 1))
    env = EpisodicLifeWrapper(toy)
    env.reset()
    assert env.step(1)[2] is True
    assert env.reset().tolist() == [0, 2]
    assert (toy.actions, toy.episode, env.lives) == ([1, 0], 0, 2)


def test_a_game_that_is_over_is_begun_anew():
    toy = Toy(length=1, lives=(1, 0))
    env = EpisodicLifeWrapper(toy)
    play(env, 1)
    assert env.reset(seed=8).tolist() == [1, 0]
    assert toy.seeds == [None, 8]
    assert env.lives == 1


def test_an_episode_begins_with_fire():
    toy = Toy()
    env = FireResetWrapper(toy)
    assert env.reset(seed=1).tolist() == [0, 1]
    assert (toy.actions, toy.seeds) == ([1], [1])


def test_that_fire_ends_the_episode_is_overlooked():
    toy = Toy(length=1)
    assert FireResetWrapper(toy).reset().tolist() == [0, 1]


def test_a_step_limit_truncates_and_counts_from_one():
    env = TimeLimitWrapper(Toy(length=9), 2)
    for _ in range(2):
        env.reset()
        *_, done, info = env.step(0)
        assert (done, info["time_limit"], info["time_count"]) == (False, False, 1)
        assert (info["terminated"], info["truncated"]) == (False, False)
        *_, done, info = env.step(0)
        assert (done, info["time_limit"], info["time_count"]) == (True, True, 2)
        assert (info["terminated"], info["truncated"]) == (False, True)


def test_an_end_before_the_step_limit_stays_a_true_end():
    *_, done, info = play(TimeLimitWrapper(Toy(length=1), 2), 1)[0]
    assert (done, info["time_limit"], info["terminated"], info["truncated"]) == (True, False, True, False)


def test_an_info_that_the_env_uses_again_is_not_written_to():
    inner = ToyBaseEnv({})
    env = EvalEpisodeReturnWrapper(TimeLimitWrapper(inner, 2))
    play(env, 2)
    assert inner._info == {}
