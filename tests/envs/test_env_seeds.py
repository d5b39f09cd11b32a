"""EnvSeeds: which env is told which seed, and when."""

from __future__ import annotations

import numpy as np
import pytest

from ding.envs.env_manager.env_state import EnvSeeds


class Plain:
    def __init__(self):
        self.told = []

    def seed(self, *args):
        self.told.append(args)


class Episodic(Plain):
    def seed_episodes(self, *args):
        self.told.append(args)


def tell_all(seeds, cls, env_num):
    envs = [cls() for _ in range(env_num)]
    for env_id, env in enumerate(envs):
        seeds.apply(env_id, env)
    return [env.told for env in envs]


def test_one_seed_for_all_is_counted_up_for_plain_envs_only():
    seeds = EnvSeeds(2)
    assert seeds.assign(np.int64(5), None) == 5
    assert tell_all(seeds, Plain, 2) == [[(5,)], [(6,)]]
    seeds.assign(5, None)
    assert tell_all(seeds, Episodic, 2) == [[(5, 0, 0)], [(5, 1, 0)]]


@pytest.mark.parametrize("dynamic", [True, False])
def test_a_given_dynamic_flag_is_handed_on(dynamic):
    seeds = EnvSeeds(1)
    seeds.assign(5, dynamic)
    assert tell_all(seeds, Plain, 1) == [[(5, dynamic)]]


def test_lists_and_dicts_give_each_env_its_own():
    seeds = EnvSeeds(3)
    assert seeds.assign([4, None, np.int32(9)], None) == 4
    assert tell_all(seeds, Plain, 3) == [[(4,)], [], [(9,)]]
    assert seeds.assign({1: 8}, None) == 8
    assert tell_all(seeds, Episodic, 3) == [[], [(8, 1, 0)], []]
    assert seeds.assign({}, None) is None


def test_an_env_is_told_once_and_a_new_one_where_the_episodes_stand():
    seeds = EnvSeeds(1)
    seeds.assign(5, None)
    env = Episodic()
    for _ in range(3):
        seeds.apply(0, env)
        seeds.count_episode(0)
    assert env.told == [(5, 0, 0)]
    new = Episodic()
    seeds.renew(0)
    seeds.apply(0, new)
    assert new.told == [(5, 0, 3)]
    seeds.assign(5, None)
    seeds.apply(0, env)
    assert env.told[-1] == (5, 0, 0)


def test_without_a_seed_nobody_is_told():
    seeds = EnvSeeds(1)
    seeds.renew(0)
    seeds.count_episode(0)
    assert tell_all(seeds, Plain, 1) == [[]]
    assert (seeds.pending(0), seeds.current(0)) == (None, None)


def test_an_env_that_was_seeded_elsewhere_is_not_told_again():
    seeds = EnvSeeds(1)
    seeds.assign(5, None)
    seed = seeds.pending(0)
    seeds.mark_seeded(0)
    assert seeds.pending(0) is None
    env = Episodic()
    seeds.apply(0, env)
    seed.apply(env)
    assert env.told == [(5, 0, 0)]


def test_an_env_that_cannot_be_seeded_is_told_again():
    class Failing(Plain):
        def seed(self, *args):
            raise ValueError("no such seed")

    seeds = EnvSeeds(1)
    seeds.assign(5, None)
    with pytest.raises(ValueError, match="no such seed"):
        seeds.apply(0, Failing())
    assert tell_all(seeds, Plain, 1) == [[(5,)]]


def test_a_list_is_copied():
    given = [1, 2]
    seeds = EnvSeeds(2)
    seeds.assign(given, None)
    given[0] = 99
    assert tell_all(seeds, Plain, 2) == [[(1,)], [(2,)]]
    assert given == [99, 2]


@pytest.mark.parametrize(
    ("seed", "error"),
    [([1], AssertionError), ({2: 1}, RuntimeError), ("1", TypeError), (None, TypeError), (1.0, TypeError)],
)
def test_other_seeds_are_refused(seed, error):
    with pytest.raises(error):
        EnvSeeds(2).assign(seed, None)
