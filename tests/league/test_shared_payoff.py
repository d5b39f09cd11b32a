import logging

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ding.league import create_payoff
from ding.league.shared_payoff import BattleSharedPayoff, flat_results
from ding.utils.config_helper import ConfigError
from tests.league.fakes import active, games, historical, payoff


@pytest.fixture
def two():
    """A payoff of two players: home comes after away in the alphabet."""
    of = payoff(min_win_rate_games=1)
    return of, active(of, "home"), historical(of, "away")


def test_the_record_of_a_pair_is_kept_under_the_smaller_id_first(two):
    of, home, away = two
    assert of.get_key("home", "away") == ("away-home", True) and of.get_key("away", "home") == ("away-home", False)
    games(of, "home", "away", "wins", "losses", "wins")
    record = of.state_dict()["away-home"]
    assert record == pytest.approx({"wins": 0.99, "draws": 0, "losses": 0.99**2 + 1, "games": 0.99**2 + 0.99 + 1})
    assert list(of.state_dict()) == ["away-home"]


def test_few_games_count_as_even():
    of = payoff(min_win_rate_games=3, decay=1)
    home, away = active(of, "home"), historical(of, "away")
    games(of, "home", "away", "wins", "wins")
    assert of[home, away].tolist() == [0.5]
    games(of, "home", "away", "wins")
    assert of[home, away].tolist() == [1.0] and of[away, home].tolist() == [0.0]


def test_games_against_oneself_count_as_one_draw(two):
    of, home, away = two
    games(of, "home", "home", "wins", "wins", "losses")
    games(of, "home", "home", "wins")
    assert of.state_dict()["home-home"] == {"wins": 0, "draws": 2, "losses": 0, "games": 2}
    assert of[home, home].tolist() == [0.5]


def test_win_rates_have_the_shape_of_the_question(two):
    of, home, away = two
    other = historical(of, "other")
    games(of, "home", "away", "wins")
    games(of, "other", "home", "wins")
    assert of[home, [away, other]].tolist() == [1.0, 0.0]
    assert of[[home, away], other].tolist() == [0.0, 0.5]
    assert of[[home, away], [home, away]].tolist() == [[0.5, 1.0], [0.0, 0.5]]
    assert of[home, []].shape == (0,)


def test_results_may_be_nested_or_not():
    assert flat_results(["wins", "draws"]) == flat_results([["wins"], [], ["draws"]]) == ["wins", "draws"]


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        ({"player_id": ["home", "nobody"], "result": ["wins"]}, "nobody"),
        ({"player_id": ["home", "away"], "result": ["wins", "won"]}, "won"),
        ({"player_id": ["home", "away"], "result": "wins"}, "list"),
        ({"player_id": ["home", "away"], "result": [1]}, "not iterable"),
        ({"player_id": ["home"], "result": ["wins"]}, "not enough values"),
        ({"player_id": ["home", "away"]}, "'result'"),
    ],
)
def test_a_job_that_cannot_be_counted_is_logged_and_changes_nothing(two, job, reason, caplog):
    of, home, away = two
    with caplog.at_level(logging.ERROR, logger="ding"):
        assert of.update(job) is False
    assert reason in caplog.text
    assert of.state_dict() == {}


def test_two_players_of_one_name_are_refused(two):
    of, home, away = two
    with pytest.raises(ValueError, match="player_id = 'home' is not allowed"):
        of.add_player(home)
    assert of.players == [home, away]


def test_the_table_shows_each_pair_that_has_played(two):
    of, home, away = two
    games(of, "home", "away", "wins")
    lines = repr(of).splitlines()
    assert [cell.strip() for cell in lines[0].strip("|").split("|")] == ["players", "wins", "draws", "losses", "games"]
    assert [cell.strip() for cell in lines[2].strip("|").split("|")] == ["away-home", "0", "0", "1", "1"]
    assert len(lines) == 2 + 1


NAMES = ("a", "b", "c")
RESULT = st.sampled_from(["wins", "draws", "losses"])


@settings(max_examples=50)
@given(st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES), st.lists(RESULT)), max_size=20))
def test_win_rates_are_those_of_a_list_of_all_games(jobs):
    of = payoff(decay=0.5, min_win_rate_games=1)
    players = {name: historical(of, name) for name in NAMES}
    won = {(one, other): [] for one in NAMES for other in NAMES}
    score = {"wins": 1.0, "draws": 0.5, "losses": 0.0}
    for home, away, results in jobs:
        games(of, home, away, *results)
        for result in results if home != away else ():
            won[home, away].append(score[result])
            won[away, home].append(1 - score[result])
    table = of[list(players.values()), list(players.values())]
    for i, home in enumerate(NAMES):
        for j, away in enumerate(NAMES):
            weights = 0.5 ** np.arange(len(won[home, away]))[::-1]
            expected = weights @ won[home, away] / weights.sum() if len(weights) else 0.5
            assert table[i, j] == pytest.approx(expected)


def test_a_payoff_is_made_by_its_type():
    assert isinstance(create_payoff({"type": "battle", "decay": 0.9, "min_win_rate_games": 4}), BattleSharedPayoff)
    with pytest.raises(ConfigError):
        create_payoff({"type": "chess"})


@pytest.mark.parametrize(
    ("cfg", "message"),
    [
        ({"decay": 2, "min_win_rate_games": 8}, "decay"),
        ({"decay": 0.9, "min_win_rate_games": -1}, "min_win_rate_games"),
        ({"decay": 0.9}, "min_win_rate_games"),
    ],
)
def test_settings_of_a_payoff_are_checked(cfg, message):
    with pytest.raises(ConfigError, match=message):
        create_payoff({"type": "battle", **cfg})
