"""A league whose state is kept: another one goes on with its players, records and ratings."""

import pytest

from ding.utils.msgpack_helper import pack, unpack
from tests.league.fakes import SETTINGS, league, read, write

HOME = "naive_sp_player_default_0"


def moved(of, **cfg):
    other = league(**cfg)
    other.load_state_dict(unpack(pack(of.state_dict())))
    return other


def play(of, games=20):
    """Whom it plays against, when it wins each second game."""
    opponents = []
    for game in range(games):
        job = of.get_job_info()
        opponents.append(job["player_id"])
        of.finish_job({"player_id": job["player_id"], "result": [["wins" if game % 2 else "losses"]]})
    return opponents


@pytest.fixture
def trained():
    """A league with three snapshots, and games behind it."""
    made = league(naive_sp_player=SETTINGS)
    (player,) = made.active_players
    write(player.checkpoint_path, "weights")
    for step in range(65):
        made.update_active_player({"player_id": HOME, "train_iteration": step})
        made.judge_snapshot(HOME)
    assert len(made.historical_players) == 3
    play(made)
    return made


@pytest.mark.differs("cannot save a league", "saves players, records and ratings in `BaseLeague.state_dict`")
def test_another_league_goes_on_with_the_players_and_their_records(trained):
    other = moved(trained, naive_sp_player=SETTINGS)
    facts = ("player_id", "parent_id", "category", "checkpoint_path", "total_agent_step")
    for mine, its in zip(trained.historical_players, other.historical_players, strict=True):
        assert [getattr(mine, fact) for fact in facts] == [getattr(its, fact) for fact in facts]
        assert read(its.checkpoint_path) == "weights" and its.payoff is other.payoff
    assert other.payoff.state_dict() == trained.payoff.state_dict()
    (mine,), (its,) = trained.active_players, other.active_players
    assert its.total_agent_step == mine.total_agent_step == 64
    assert its.is_trained_enough() is mine.is_trained_enough() is False
    opponents = play(trained)
    assert play(other) == opponents and len({names[1] for names in opponents}) > 1
    assert str(other.payoff) == str(trained.payoff)


def test_the_next_snapshot_comes_when_it_would_have_come(trained):
    taken = []
    for of in (trained, moved(trained, naive_sp_player=SETTINGS)):
        taken.append([])
        for step in range(65, 110):
            of.update_active_player({"player_id": HOME, "train_iteration": step})
            if of.judge_snapshot(HOME):
                taken[-1].append(step)
    assert taken[0] == taken[1] != []


def test_players_that_are_there_already_are_not_doubled(trained):
    again = unpack(pack(trained.state_dict()))
    again["historical_players"][0]["total_agent_step"] = 7
    trained.load_state_dict(again)
    assert [player.total_agent_step for player in trained.historical_players] == [7, 40, 60]
    assert len(trained.payoff.players) == 4


def test_a_league_with_other_players_is_refused(trained):
    other = league(active_players={"naive_sp_player": 2}, naive_sp_player=SETTINGS)
    with pytest.raises(KeyError):
        other.load_state_dict(trained.state_dict())


# Ratings.


def test_ratings_are_kept(trained):
    pytest.importorskip("trueskill")
    rival = trained.historical_players[1].player_id
    trained.finish_job({"player_id": [HOME, rival], "result": [["wins", "wins", "draws"]], "eval_flag": True})
    other = moved(trained, naive_sp_player=SETTINGS)
    for mine, its in zip(
        [*trained.active_players, *trained.historical_players],
        [*other.active_players, *other.historical_players],
        strict=True,
    ):
        assert its.rating.elo == mine.rating.elo
        assert (its.rating.mu, its.rating.sigma) == pytest.approx((mine.rating.mu, mine.rating.sigma), abs=1e-9)
    assert other.active_players[0].rating.elo > 1200


def test_a_state_of_another_version_is_refused_in_a_line(trained):
    state = trained.state_dict()
    for of_player in (*state["active_players"].values(), *state["historical_players"]):
        of_player["_total_agent_step"] = of_player.pop("total_agent_step")
    with pytest.raises(ValueError, match="total_agent_step"):
        trained.load_state_dict(state)
