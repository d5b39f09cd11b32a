"""The task that only an agent with memory can solve."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from tests.benchmarks.cue_memory import ENV_ID, CueMemory


def play(env, seed, act):
    """The return of an episode, and its observations."""
    obs, _ = env.reset(seed=seed)
    seen, total, done = [obs], 0.0, False
    while not done:
        obs, reward, done, truncated, _ = env.step(act(seen))
        assert not truncated
        seen.append(obs)
        total += reward
    return total, seen


def test_it_is_a_proper_env():
    check_env(gymnasium.make(ENV_ID).unwrapped, skip_render_check=True)


def test_who_remembers_the_cue_is_always_right():
    env = CueMemory(delay=10)
    returns = {play(env, seed, lambda seen: int(seen[0][0] == 1))[0] for seed in range(40)}
    assert returns == {1.0}
    assert {play(env, seed, lambda seen: int(seen[0][0] == -1))[0] for seed in range(40)} == {-1.0}


@pytest.mark.parametrize("act", [lambda seen: 0, lambda seen: 1, lambda seen: int(seen[-1][2] > 0)])
def test_who_looks_at_the_last_observation_only_is_right_half_of_the_time(act):
    env = CueMemory(delay=10)
    returns = [play(env, seed, act)[0] for seed in range(400)]
    assert abs(np.mean(returns)) < 0.2


def test_what_is_seen_at_the_answer_does_not_depend_on_the_cue():
    env = CueMemory(delay=3)
    episodes = [play(env, seed, lambda seen: 0)[1] for seed in range(40)]
    assert {episode[0][0] for episode in episodes} == {-1.0, 1.0}
    for episode in episodes:
        assert len(episode) == 5  # the cue, two steps of waiting, the answer, and what follows it
        assert [obs[0] for obs in episode[1:]] == [0.0] * 4
        assert [bool(obs[1]) for obs in episode] == [False, False, False, True, False]
