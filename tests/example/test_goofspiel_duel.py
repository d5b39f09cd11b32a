"""The env of the two-player example of parallel training."""

import numpy as np
import pytest

from ding.envs.env.base_env import BaseEnvTimestep
from ding.example.goofspiel import GoofspielDuelEnv, View


def env_of(**cfg):
    env = GoofspielDuelEnv({"cards": 3, **cfg})
    env.seed(0)
    return env


def test_a_game_of_two():
    env = env_of()
    env.reset()
    obs, reward, done, info = env.step(np.array([1, 0]))  # 2 against 1 for the prize 1
    assert obs[0].tolist() == [1, 0, 1, 0, 1, 1, 0, 1, 0, np.float32(1 / 6)]
    assert obs[1].tolist() == [0, 1, 1, 1, 0, 1, 0, 1, 0, np.float32(-1 / 6)]
    assert (reward.tolist(), done, info) == ([[0.0], [0.0]], False, [{}, {}])
    env.step(np.array([0, 2]))  # 1 against 3 for the prize 2
    obs, reward, done, info = env.step(np.array([2, 1]))  # 3 against 2 for the prize 3
    assert (reward.tolist(), done) == ([[1.0], [-1.0]], True)
    assert [entry["result"] for entry in info] == ["wins", "losses"]


@pytest.mark.parametrize(("action", "card"), [(0, 1), (1, 1), (2, 3)])
def test_for_a_card_that_is_gone_the_nearest_is_played(action, card):
    env = env_of()
    env.reset()
    env.step(np.array([1, 1]))  # both show their 2
    env.step(np.array([action, action]))
    assert env._view == View(*[(4 - card,)] * 2, 0)


def test_alone_one_seat_is_played_by_the_env():
    env = env_of(eval_opponent="RULE_BASED")
    obs = env.reset()
    assert obs.shape == (10,)
    answers = []
    for _ in range(200):
        env.reset()
        timestep = env.step(np.array(2))
        assert isinstance(timestep, BaseEnvTimestep) and timestep.reward.shape == (1,) and timestep.info == {}
        answers.append(({1, 2, 3} - set(env._view.other)).pop())
    # Half of the time the prize, which is 1; else any of three.
    assert 0.58 < answers.count(1) / 200 < 0.76 and {2, 3} < set(answers)
    env.step(2), env.step(2)
    with pytest.raises(RuntimeError, match="reset"):
        env_of().step(np.array([0, 0]))


def test_alone_the_end_tells_the_own_result():
    env = env_of(eval_opponent="RULE_BASED")
    env.reset()
    timesteps = [env.step(card) for card in (0, 1, 2)]
    assert [timestep.done for timestep in timesteps] == [False, False, True]
    info = timesteps[-1].info
    assert info["eval_episode_return"] == float(timesteps[-1].reward[0]) and info["result"] in (
        "wins",
        "draws",
        "losses",
    )
