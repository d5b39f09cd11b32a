from collections import Counter

import numpy as np
import pytest

from ding.league import ActivePlayer, HistoricalPlayer, NaiveSpPlayer, create_player
from ding.league.player import pfsp, uniform
from ding.utils.config_helper import ConfigError
from ding.utils.registry_factory import PLAYER_REGISTRY
from tests.league.fakes import SETTINGS, active, games, historical, payoff


class Rating:
    def __init__(self, mu):
        self.mu = mu


class MetricEnv:
    """Makes ratings, and counts them."""

    made = 0

    def create_rating(self, mu=None):
        self.made += 1
        return Rating(25.0 if mu is None else mu)


@pytest.fixture
def of():
    return payoff(min_win_rate_games=1)


# Snapshots.


def test_a_player_is_trained_enough_after_two_phases(of):
    player = active(of)
    enough = []
    for step in range(60):
        player.total_agent_step = step
        if player.is_trained_enough():
            enough.append(step)
    assert enough == [20, 40]


def test_a_player_that_beats_all_earlier_selves_is_trained_enough_after_one_phase(of):
    player, _, second = active(of), historical(of, "first"), historical(of, "second")
    games(of, "home", "first", *["wins"] * 9)
    games(of, "home", "second", *["wins"] * 7, *["losses"] * 3)
    player.total_agent_step = 10
    assert not player.is_trained_enough()
    assert not player.is_trained_enough(select_fn=lambda other: other is second)
    games(of, "home", "second", *["wins"] * 30)
    player.total_agent_step = 9
    assert not player.is_trained_enough()
    player.total_agent_step = 10
    assert player.is_trained_enough()
    assert not player.is_trained_enough()  # counted from here


def test_select_fn_names_those_that_are_to_be_beaten(of):
    player, first = active(of), historical(of, "first")
    historical(of, "second")
    games(of, "home", "first", "wins")
    player.total_agent_step = 15
    assert not player.is_trained_enough()
    assert player.is_trained_enough(select_fn=lambda other: other is first)


def test_a_snapshot_is_the_player_as_it_is_now(of):
    player, env = active(of), MetricEnv()
    player.total_agent_step, player.rating = 34, Rating(31.5)
    snapshot = player.snapshot(env)
    player.total_agent_step, player.rating = 35, Rating(0)
    assert isinstance(snapshot, HistoricalPlayer) and snapshot.parent_id == "home"
    assert snapshot.player_id == "home_34_historical" and snapshot.checkpoint_path == "folder/home_ckpt_34.pth"
    assert snapshot.total_agent_step == 34 and snapshot.category == "default" and snapshot.payoff is of
    assert snapshot.rating.mu == 31.5
    assert snapshot not in of.players


def test_a_player_goes_on_after_a_snapshot(of):
    assert active(of).mutate({"reset_checkpoint_path": "p"}) is None


# Opponents.


def test_an_evaluation_is_against_the_present_difficulty(of):
    player = active(of)
    assert player.get_job(eval_flag=True) == {"opponent": "RULE_BASED"}
    assert player.increment_eval_difficulty() is False
    player._eval_opponent_difficulty = ["EASY", "HARD"]
    assert player.increment_eval_difficulty() is True
    assert player.get_job(eval_flag=True) == {"opponent": "HARD"}
    assert player.increment_eval_difficulty() is False


def test_branches_are_gone_as_often_as_their_probabilities_say(of):
    class Brancher(ActivePlayer):
        def _rare_branch(self):
            return "rare"

        def _usual_branch(self):
            return "usual"

        def _never_branch(self):
            return "never"

    player = active(of, kind=Brancher, branch_probs={"rare": 0.25, "never": 0, "usual": 0.75})
    found = Counter(player.get_job()["opponent"] for _ in range(2000))
    assert set(found) == {"rare", "usual"} and found["rare"] / 2000 == pytest.approx(0.25, abs=0.03)


def test_self_play_is_against_oneself(of):
    player = active(of, branch_probs={"sp": 1})
    historical(of, "first")
    assert all(player.get_job()["opponent"] is player for _ in range(20))


def test_without_earlier_selves_pfsp_is_against_oneself(of):
    player = active(of, branch_probs={"pfsp": 1})
    assert player.get_job()["opponent"] is player


def test_pfsp_is_mostly_against_those_that_are_hard_to_beat(of):
    player, _, hard = active(of, branch_probs={"pfsp": 1}), historical(of, "easy"), historical(of, "hard")
    games(of, "home", "easy", "wins")
    assert all(player.get_job()["opponent"] is hard for _ in range(20))
    games(of, "home", "hard", *["wins"])
    found = Counter(player.get_job()["opponent"].player_id for _ in range(400))
    assert found["easy"] == pytest.approx(200, abs=50)  # both are always beaten


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"one_phase_step": 0}, "one_phase_step"),
        ({"strong_win_rate": 1.2}, "strong_win_rate"),
        ({"branch_probs": {"sp": 0.5}}, "add up to 1"),
        ({"branch_probs": {"sp": -1, "pfsp": 2}}, "branch_probs.sp"),
        ({"branch_probs": {"spy": 1}}, "_spy_branch"),
    ],
)
def test_settings_of_a_player_are_checked(of, settings, message):
    with pytest.raises(ConfigError, match=message):
        active(of, **settings)


# The factory.


def test_players_are_made_by_their_type_after_the_imports(of):
    player = create_player(
        {"import_names": ["tests.league.own_player"]}, "own_player", SETTINGS, "default", of, "p", "x", 0, None
    )
    assert type(player).__name__ == "OwnPlayer"
    assert PLAYER_REGISTRY.get("naive_sp_player") is NaiveSpPlayer
    assert PLAYER_REGISTRY.get("historical_player") is HistoricalPlayer
    with pytest.raises(KeyError):
        create_player({}, "nobody")


@pytest.mark.parametrize(
    ("weighting", "expected"),
    [("squared", [64 / 93, 4 / 93, 25 / 93]), ("variance", [16 / 57, 16 / 57, 25 / 57])],
)
def test_opponents_are_weighted_by_the_win_rate_against_them(weighting, expected):
    np.testing.assert_allclose(pfsp(np.array([0.2, 0.8, 0.5]), weighting), expected)


@pytest.mark.differs("gives NaN in `pfsp` if every win rate is 1", "takes all opponents as equally probable")
@pytest.mark.parametrize(("weighting", "rates"), [("squared", [1, 1]), ("variance", [0, 1]), ("squared", [0, 0])])
def test_opponents_without_any_weight_are_equally_probable(weighting, rates):
    assert pfsp(np.array(rates), weighting).tolist() == [0.5, 0.5]


def test_an_unknown_weighting_is_refused_with_those_there_are():
    with pytest.raises(KeyError):
        pfsp(np.array([0.5]), "cubed")


def test_uniform_looks_at_the_number_of_opponents_alone():
    assert uniform(np.array([0.0, 1.0, 0.3, 0.3])).tolist() == [0.25] * 4
