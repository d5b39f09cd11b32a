"""Wrappers that decide where episodes begin and end."""

from __future__ import annotations

import numpy as np
import pytest

from ding.envs import (
    EpisodicLifeWrapper,
    EvalEpisodeReturnWrapper,
    FireResetWrapper,
    NoopResetWrapper,
    TimeLimitWrapper,
)
from tests.envs.toys import Toy, ToyBaseEnv, play


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


@pytest.mark.parametrize("meanings", [("FIRE", "NOOP", "LEFT"), ()])
def test_the_action_for_doing_nothing_must_be_the_first(meanings):
    with pytest.raises(AssertionError):
        NoopResetWrapper(Toy(meanings=meanings))


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


@pytest.mark.parametrize("meanings", [("NOOP", "LEFT", "FIRE"), ("NOOP",), ()])
def test_fire_must_be_the_second_action(meanings):
    with pytest.raises(AssertionError):
        FireResetWrapper(Toy(meanings=meanings))


def test_fire_reset_needs_three_actions():
    with pytest.raises(AssertionError):
        FireResetWrapper(Toy(meanings=("NOOP", "FIRE")))


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
