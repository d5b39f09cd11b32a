"""SeedBook: which env is told which seed, and when."""

from __future__ import annotations

import numpy as np
import pytest

from ding.envs.env_manager.seed_book import SeedBook


class Plain:
    def __init__(self):
        self.told = []

    def seed(self, *args):
        self.told.append(args)


class Episodic(Plain):
    def seed_episodes(self, *args):
        self.told.append(args)


def tell_all(book, cls, env_num):
    envs = [cls() for _ in range(env_num)]
    for env_id, env in enumerate(envs):
        book.tell(env_id, env)
    return [env.told for env in envs]


def test_one_seed_for_all_is_counted_up_for_plain_envs_only():
    book = SeedBook(2)
    assert book.assign(np.int64(5), None) == 5
    assert tell_all(book, Plain, 2) == [[(5,)], [(6,)]]
    book.assign(5, None)
    assert tell_all(book, Episodic, 2) == [[(5, 0, 0)], [(5, 1, 0)]]


@pytest.mark.parametrize("dynamic", [True, False])
def test_a_given_dynamic_flag_is_handed_on(dynamic):
    book = SeedBook(1)
    book.assign(5, dynamic)
    assert tell_all(book, Plain, 1) == [[(5, dynamic)]]


def test_lists_and_dicts_give_each_env_its_own():
    book = SeedBook(3)
    assert book.assign([4, None, np.int32(9)], None) == 4
    assert tell_all(book, Plain, 3) == [[(4,)], [], [(9,)]]
    assert book.assign({1: 8}, None) == 8
    assert tell_all(book, Episodic, 3) == [[], [(8, 1, 0)], []]
    assert book.assign({}, None) is None


def test_an_env_is_told_once_and_a_new_one_where_the_episodes_stand():
    book = SeedBook(1)
    book.assign(5, None)
    env = Episodic()
    for _ in range(3):
        book.tell(0, env)
        book.count_reset(0)
    assert env.told == [(5, 0, 0)]
    new = Episodic()
    book.tell_new(0, new)
    assert new.told == [(5, 0, 3)]
    book.forget_told()
    book.tell(0, env)
    assert env.told[-1] == (5, 0, 3)
    book.assign(5, None)
    book.tell(0, env)
    assert env.told[-1] == (5, 0, 0)


def test_without_a_seed_nobody_is_told():
    book = SeedBook(1)
    book.forget_told()
    book.count_reset(0)
    assert tell_all(book, Plain, 1) == [[]]
    book.tell_new(0, Plain())


def test_a_list_is_copied():
    seeds = [1, 2]
    book = SeedBook(2)
    book.assign(seeds, None)
    seeds[0] = 99
    assert tell_all(book, Plain, 2) == [[(1,)], [(2,)]]
    assert seeds == [99, 2]


@pytest.mark.parametrize(
    ("seed", "error"),
    [([1], AssertionError), ({2: 1}, RuntimeError), ("1", TypeError), (None, TypeError), (1.0, TypeError)],
)
def test_other_seeds_are_refused(seed, error):
    with pytest.raises(error):
        SeedBook(2).assign(seed, None)
