import itertools

import numpy as np
import pytest
import torch

from ding.envs.env.base_env import BaseEnvTimestep
from ding.example import goofspiel_selfplay
from ding.example.goofspiel import Goofspiel, GoofspielDuelEnv, GoofspielEnv, View, exploitability
from ding.example.goofspiel_selfplay import StrategyTable, policy_config
from ding.policy.ppo import PPOPolicy
from tests.same_state import differences, through_bytes


def uniform(game):
    return {view: np.full(len(view.own), 1 / len(view.own)) for view in game.views()}


def play_out(first, plan, others):
    """The result of a player with `first`, then `plan[card the other showed]`, against the cards `others` (3 cards)."""
    own = [first, plan[others[0]]]
    own.append(next(card for card in (1, 2, 3) if card not in own))
    lead = sum(prize * np.sign(a - b) for prize, a, b in zip((1, 2, 3), own, others, strict=True))
    return np.sign(lead)


def test_the_best_answer_is_that_of_an_exhaustive_search_over_plans():
    game = Goofspiel(3)
    values = []
    for first in (1, 2, 3):
        rest = [card for card in (1, 2, 3) if card != first]
        for choice in itertools.product(rest, repeat=3):
            plan = dict(zip((1, 2, 3), choice, strict=True))
            values.append(np.mean([play_out(first, plan, others) for others in itertools.permutations((1, 2, 3))]))
    assert game.best_answer(uniform(game)) == pytest.approx(max(values)) == pytest.approx(2 / 3)


def test_a_dominant_card_is_optimal_and_its_opposite_loses_always():
    game = Goofspiel(2)
    low = {**uniform(game), game.start(): np.array([1.0, 0.0])}
    high = {**uniform(game), game.start(): np.array([0.0, 1.0])}
    assert game.best_answer(low) == 0.0
    assert game.best_answer(high) == 1.0
    assert exploitability(game, [low, high]) == 0.5


def test_an_observation_shows_hands_prize_and_lead():
    game = Goofspiel(3)
    view = View((2, 3), (1, 3), -1)
    assert game.observation(view).tolist() == pytest.approx([0, 1, 1, 1, 0, 1, 0, 1, 0, -1 / 6])
    assert game.mask(view).tolist() == [0, 1, 1]


def test_the_env_plays_a_game_out():
    env = GoofspielEnv({"cards": 3})
    obs = env.reset()
    assert [o["action_mask"].tolist() for o in obs] == [[1, 1, 1]] * 2
    steps = [env.step(action) for action in ([2, 1], [np.array([0]), np.array(2)], [1, 0])]
    assert [step.done for step in steps] == [False, False, True]
    assert [step.reward.tolist() for step in steps] == [[[0], [0]], [[0], [0]], [[1], [-1]]]
    assert steps[0].info == [{}, {}]
    # 3 beats 2 for the prize 1, 1 loses against 3 for 2, 2 beats 1 for 3
    assert steps[-1].info == [
        {"eval_episode_return": 1.0, "result": "wins"},
        {"eval_episode_return": -1.0, "result": "losses"},
    ]
    assert all(env.observation_space.contains(tuple(step.obs)) for step in steps)
    assert env.reward_space.contains(steps[-1].reward) and env.action_space.contains(np.array([2, 1]))
    env.close()
    assert repr(env) == "Goofspiel with 3 cards"


def test_a_card_that_is_not_in_the_hand_is_an_error():
    env = GoofspielEnv({"cards": 3})
    with pytest.raises(RuntimeError, match="reset"):
        env.step([0, 0])
    env.reset()
    env.step([0, 1])
    with pytest.raises(ValueError, match=r"cards 1 and 1 were played from the hands \(2, 3\) and \(1, 3\)"):
        env.step([0, 0])


def test_a_game_that_takes_over_the_state_of_another_goes_on_like_it():
    one, other = (GoofspielEnv({"cards": 4, "exploring_starts": True}) for _ in range(2))
    one.seed(3)
    other.set_state(one.get_state())
    for _ in range(9):
        seats = one.reset()
        assert differences(seats, other.reset()) == []
    other = GoofspielEnv({"cards": 4, "exploring_starts": True})
    other.set_state(through_bytes(one.get_state()))
    card, reply = (int(np.flatnonzero(seat["action_mask"])[0]) for seat in seats)
    assert differences(one.step([card, reply]), other.step([card, reply])) == []
    assert differences([one.reset() for _ in range(9)], [other.reset() for _ in range(9)]) == []


# The env of the two-player example of parallel training.


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


class Policy:
    """A network whose logits are those of `tables`, one after the other."""

    def __init__(self, *tables):
        self._tables = iter(tables)

    def _model(self, obs, mode):
        assert mode == "compute_actor"
        return {"logit": next(self._tables).expand(len(obs["observation"]), -1)}


def test_a_strategy_has_chances_for_the_cards_in_hand_only():
    game = Goofspiel(3)
    strategy = StrategyTable(game).read(Policy(torch.tensor([0.0, np.log(2.0), 5.0])))
    view = game.play(game.start(), 3, 1)
    assert view.own == (1, 2)
    assert strategy[view].tolist() == pytest.approx([1 / 3, 2 / 3])
    assert all(chances.sum() == pytest.approx(1) for chances in strategy.values())


def test_a_new_policy_can_be_read_and_exploited():
    game = Goofspiel(3)
    torch.manual_seed(0)
    policy = PPOPolicy(policy_config(3), enable_field=["learn"])
    assert 0.3 < exploitability(game, [StrategyTable(game).read(policy)]) < 1


@pytest.mark.slow
def test_self_play_ends_close_to_an_equilibrium(capsys):
    assert goofspiel_selfplay.main(["--seed", "0"]) == 0
    assert capsys.readouterr().out.startswith("solved: ")
