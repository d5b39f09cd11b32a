"""Ratings by TrueSkill, in a league and without; and that nothing else needs their package."""

import importlib
import sys

import numpy as np
import pytest

import ding.league
import ding.league.metric
from ding.league import get_elo, get_elo_array
from tests.league.fakes import league, write

HOME, EARLIER = "naive_sp_player_default_0", "naive_sp_player_default_0_0_historical"
METRIC = {"mu": 0, "sigma": 25 / 3, "beta": 25 / 6, "tau": 0.0, "draw_probability": 0.02}


def two_players():
    made = league()
    write(made.active_players[0].checkpoint_path, "weights")
    made.judge_snapshot(HOME, force=True)
    return made


class TestWithoutTrueskill:
    @pytest.fixture(autouse=True)
    def _no_trueskill(self, monkeypatch, put_module):
        put_module("trueskill", None)
        monkeypatch.delitem(sys.modules, "ding.league.rating", raising=False)

    def test_a_league_plays_and_takes_snapshots(self):
        made = two_players()
        made.finish_job({"player_id": [HOME, EARLIER], "result": ["wins"]})
        assert made.get_job_info()["launch_player"] == HOME

    @pytest.mark.parametrize(
        "ask",
        [
            lambda made: made.metric_env,
            lambda made: made.player_rank(),
            lambda made: made.active_players[0].rating,
            lambda made: made.historical_players[0].rating,
            lambda made: made.finish_job({"player_id": [HOME, EARLIER], "result": ["wins"], "eval_flag": True}),
            lambda made: ding.league.metric.LeagueMetricEnv,
            lambda made: ding.league.PlayerRating,
        ],
    )
    def test_whoever_asks_for_a_rating_is_told_what_to_install(self, ask):
        made = two_players()
        with pytest.raises(ImportError, match="pip install trueskill"):
            ask(made)


class TestWithTrueskill:
    @pytest.fixture(autouse=True)
    def _trueskill(self):
        pytest.importorskip("trueskill")

    @pytest.fixture
    def env(self):
        return importlib.import_module("ding.league.rating").LeagueMetricEnv(**METRIC)

    def test_ratings_of_new_players_are_those_of_the_env(self, env):
        rating = env.create_rating()
        assert (rating.mu, rating.sigma, rating.elo) == pytest.approx((0, 25 / 3, 1200))
        other = env.create_rating(mu=3, sigma=1, elo_init=1500)
        assert (other.mu, other.sigma, other.elo) == pytest.approx((3, 1, 1500))
        assert repr(other) == "PlayerRating(mu=3.000, sigma=1.000, elo=1500)"
        assert other.exposure == pytest.approx(0)

    @pytest.mark.differs(
        "updates ratings with the global parameters of trueskill, which it needs for any league",
        "uses those of the league, and needs it for ratings only",
    )
    def test_updates_use_the_parameters_of_the_env(self, env):
        """The global parameters of trueskill would give 3.230."""
        one, other = env.create_rating(elo_init=1613), env.create_rating(elo_init=1573)
        one, other = env.rate_1vs1(one, other, drawn=True)
        assert (one.mu, one.elo, other.mu, other.elo) == (0, 1611, 0, 1575)
        one, other = env.rate_1vs1(one, other)
        assert (one.mu, other.mu) == pytest.approx((3.093, -3.093), abs=5e-4)
        assert (one.elo, other.elo) == (1625, 1561)

    def test_a_list_of_results_is_one_game_after_the_other(self, env):
        home, away = env.create_rating(), env.create_rating()
        at_once = env.rate_1vs1(home, away, result=["wins", "draws", "losses"])
        one, other = env.rate_1vs1(home, away)
        one, other = env.rate_1vs1(one, other, drawn=True)
        other, one = env.rate_1vs1(other, one)
        assert [(r.mu, r.sigma, r.elo) for r in at_once] == [(r.mu, r.sigma, r.elo) for r in (one, other)]
        assert (home.mu, home.elo) == (0, 1200)  # left alone

    @pytest.mark.differs("counts `rate_1vs1(..., drawn=False)` as a draw for Elo", "counts a win")
    def test_a_game_that_is_said_not_to_be_a_draw_was_won(self, env):
        one, other = env.rate_1vs1(env.create_rating(), env.create_rating(), drawn=False)
        assert (one.elo, other.elo) == (1216, 1184) and one.mu > 0 > other.mu

    def test_another_result_is_refused(self, env):
        with pytest.raises(ValueError, match="'won' is not allowed"):
            env.rate_1vs1(env.create_rating(), env.create_rating(), result=["won"])

    def test_against_a_constant_the_other_rating_stays(self, env):
        home, constant = env.create_rating(), env.create_rating(elo_init=1613)
        rated = env.rate_1vsC(home, constant, ["losses", "wins"])
        by_hand = home
        for result in ("losses", "wins"):
            by_hand, _ = env.rate_1vs1(by_hand, constant, [result])
        assert (rated.mu, rated.elo) == (by_hand.mu, by_hand.elo)

    @pytest.mark.differs(
        "passes `metric` of a league by position, so that beta, tau and the chance of a draw are mixed up",
        "passes it by name",
    )
    def test_the_league_hands_its_parameters_on_by_name(self):
        made = league(metric={"beta": 3.0, "tau": 0.5, "draw_probability": 0.2, "elo_init": 1000})
        env = made.metric_env
        assert (env.mu, env.sigma, env.beta, env.tau, env.draw_probability) == (0, 25 / 3, 3.0, 0.5, 0.2)
        assert made.metric_env is env and made.active_players[0].rating.elo == 1000

    def test_games_of_an_evaluation_are_rated(self):
        made = two_players()
        made.finish_job({"player_id": [HOME, EARLIER], "result": [["wins"]], "eval_flag": False})
        made.finish_job({"player_id": [HOME, HOME], "result": [["wins"]], "eval_flag": True})
        made.finish_job({"player_id": [HOME, "nobody_historical"], "result": [["wins"]], "eval_flag": True})
        assert made.active_players[0].rating.mu == 0
        made.finish_job({"player_id": [HOME, EARLIER], "result": [["losses"], ["draws"]], "eval_flag": True})
        home, earlier = made.active_players[0].rating, made.historical_players[0].rating
        assert home.mu < 0 < earlier.mu and home.elo < 1200 < earlier.elo

    def test_the_snapshot_of_a_rated_player_has_the_mean_of_its_rating(self):
        made = league()
        write(made.active_players[0].checkpoint_path, "weights")
        made.active_players[0].rating = made.metric_env.create_rating(mu=11.0, sigma=1.0)
        made.judge_snapshot(HOME, force=True)
        rating = made.historical_players[0].rating
        assert (rating.mu, rating.sigma) == (11.0, 25 / 3)

    def test_the_rank_is_a_number_for_each_player_or_a_table(self):
        made = two_players()
        made.finish_job({"player_id": [HOME, EARLIER], "result": [["losses"]], "eval_flag": True})
        rank = made.player_rank()
        assert rank == {player.player_id: player.rating.exposure for player in made.payoff.players}
        lines = made.player_rank(string=True).splitlines()
        assert [line.split("|")[1].strip() for line in lines if "naive" in line] == [EARLIER, HOME]


def test_a_draw_draws_ratings_together_and_a_win_apart():
    assert get_elo(1613, 1573, 0) == (1611, 1575)
    assert get_elo(1611, 1575, 1) == (1625, 1561)


def test_a_loss_is_a_win_of_the_other():
    assert get_elo(1611, 1575, -1) == get_elo(1575, 1611, 1)[::-1]


def test_k_factor_and_beta_scale_what_is_won():
    assert get_elo(1000, 1000, 1, k_factor=10) == (1005, 995)
    assert get_elo(1400, 1000, 1, beta=100) == (1400, 1000)


@pytest.mark.parametrize("result", [2, 0.5, "wins", None])
def test_another_result_is_refused(result):
    with pytest.raises(ValueError, match="must be 1"):
        get_elo(1000, 1000, result)


@pytest.mark.parametrize("result", [1, 0, -1])
def test_a_single_game_in_an_array_counts_like_one_of_two_players(result):
    rated = get_elo_array(np.array([1613, 1573]), np.array([[0, result], [-result, 0]]), np.array([[0, 1], [1, 0]]))
    assert tuple(rated) == get_elo(1613, 1573, result) and rated.dtype == np.int64


@pytest.mark.differs(
    "counts several games of a pair as one in `get_elo_array`",
    "counts each; `result` is wins less losses",
)
def test_all_games_of_a_round_are_rated_by_the_ratings_before_it():
    counts = np.array([[0, 3, 0], [3, 0, 1], [0, 1, 0]])
    results = np.array([[0, 1, 0], [-1, 0, 0], [0, 0, 0]])  # two wins and a loss; a draw
    assert get_elo_array(np.array([1000, 1000, 1000]), results, counts).tolist() == [1016, 984, 1000]
