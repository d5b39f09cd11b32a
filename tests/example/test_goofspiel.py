import itertools

import numpy as np
import pytest

from ding.example.goofspiel import Goofspiel, GoofspielEnv, View, exploitability
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
