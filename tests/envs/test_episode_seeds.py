"""The seeds of an env's episodes."""

from __future__ import annotations

import numpy as np
import pytest

from ding.envs.env.lazy_env import EpisodeSeeds


def seed_of(*words):
    return int(np.random.SeedSequence(words).generate_state(1)[0])


def take(seeds, count):
    taken = []
    for _ in range(count):
        taken.append(seeds.current())
        seeds.advance()
    return taken


def test_without_a_seed_episodes_have_none():
    assert take(EpisodeSeeds(), 2) == [None, None]


@pytest.mark.parametrize(("seed", "first"), [(3, 0), (3, 2**32 - 20), (2**33, 0), (2**32 - 1, 7)])
def test_episode_k_has_the_seed_of_its_number(seed, first):
    seeds = EpisodeSeeds()
    seeds.assign(seed, 5, first)
    assert take(seeds, 140) == [seed_of(seed, 5, k) for k in range(first, first + 140)]


def test_the_current_seed_stays_until_the_episode_has_begun():
    seeds = EpisodeSeeds()
    seeds.assign(1)
    assert seeds.current() == seeds.current() == seed_of(1, 0, 0)


def test_a_new_seed_begins_anew():
    seeds = EpisodeSeeds()
    seeds.assign(1)
    take(seeds, 3)
    seeds.assign(1)
    assert seeds.current() == seed_of(1, 0, 0)


@pytest.mark.parametrize("args", [(-1, 0), (0, -1), (0, 0, -1)])
def test_negative_numbers_are_refused(args):
    with pytest.raises(ValueError, match=">= 0"):
        EpisodeSeeds().assign(*args)
