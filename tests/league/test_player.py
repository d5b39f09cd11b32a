from collections import Counter

import numpy as np
import pytest

from ding.league import ActivePlayer, HistoricalPlayer, NaiveSpPlayer, Player, create_player
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


# What it is.


def test_a_player_is_what_it_was_made_of(of):
    rating = Rating(3)
    player = Player({"a": 1}, "zerg", of, "p/x_ckpt.pth", "x", 7, rating)
    assert (player.category, player.player_id, player.checkpoint_path) == ("zerg", "x", "p/x_ckpt.pth")
    assert player.payoff is of and player.rating is rating
    assert player.total_agent_step == 7 and repr(player) == "BasePlayer(x)"


def test_a_historical_player_knows_whose_self_it_is(of):
    player = HistoricalPlayer({}, "zerg", of, "p", "x_5_historical", 5, None, parent_id="x")
    assert player.parent_id == "x" and repr(player) == "HistoricalPlayer(x_5_historical)"


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


def test_the_seed_of_numpy_decides_the_opponents(of):
    def opponents():
        np.random.seed(3)
        others = payoff()
        player = active(others)
        for name in "abcdef":
            historical(others, name)
        return [player.get_job()["opponent"].player_id for _ in range(20)]

    assert opponents() == opponents()


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
