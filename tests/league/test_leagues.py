"""Leagues: their players, jobs, snapshots and what they are told."""

import doctest
import importlib
import os
import pathlib

import pytest

import ding.league
from ding.league import NaiveSpPlayer, OneVsOneLeague, create_league
from ding.league.base_league import copy_checkpoint
from ding.utils.config_helper import ConfigError
from ding.utils.msgpack_helper import pack, unpack
from tests.league.fakes import SETTINGS, league, read, write
from tests.league.own_player import OwnLeague, OwnPlayer

HOME = "naive_sp_player_default_0"


@pytest.fixture
def own():
    """A league whose player has weights."""
    made = league()
    write(made.active_players[0].checkpoint_path, "weights")
    return made


def train(of, steps, player_id=HOME):
    """Tell of each iteration up to `steps`; returns those with a snapshot."""
    taken = []
    for step in range(steps + 1):
        assert of.update_active_player({"player_id": player_id, "train_iteration": step}) is False
        if of.judge_snapshot(player_id):
            taken.append(step)
    return taken


# What there is.


def test_a_new_league_has_its_players_their_paths_and_an_empty_record():
    made = league(path_policy="some/folder")
    assert os.path.isdir("some/folder") and made.path_policy == "some/folder"
    assert made.active_players_ids == [HOME]
    assert made.active_players_ckpts == [os.path.join("some/folder", f"{HOME}_ckpt.pth")]
    player = made.active_players[0]
    assert type(player) is NaiveSpPlayer and player.total_agent_step == 0 and player.category == "default"
    assert made.historical_players == [] and made.payoff.players == [player]
    assert league().league_uid != made.league_uid and os.listdir("some/folder") == []


def test_there_are_as_many_players_of_each_type_for_each_category_as_the_config_says():
    made = league(
        import_names=["tests.league.own_player"],
        player_category=["red", "blue"],
        active_players={"own_player": 2, "naive_sp_player": 1},
        own_player=SETTINGS,
    )
    assert made.active_players_ids == [
        "own_player_red_0", "own_player_red_1", "own_player_blue_0", "own_player_blue_1",
        "naive_sp_player_red_0", "naive_sp_player_blue_0",
    ]  # fmt: skip
    assert made.get_player_by_id("own_player_blue_1").category == "blue"


@pytest.mark.differs("adds `active_players` of a config to the default ones", "replaces them")
def test_active_players_replace_the_default_ones_and_other_sections_are_merged():
    cfg = {"active_players": {"own_player": 1}, "own_player": SETTINGS, "payoff": {"decay": 0.5}}
    made = league(import_names=["tests.league.own_player"], **cfg)
    assert [type(player) for player in made.active_players] == [OwnPlayer]
    assert made.cfg.payoff == {"type": "battle", "decay": 0.5, "min_win_rate_games": 8}
    assert cfg["payoff"] == {"decay": 0.5} and OneVsOneLeague.config["active_players"] == {"naive_sp_player": 1}


@pytest.mark.parametrize(
    ("cfg", "message"),
    [
        ({"path_policy": None}, "path_policy"),
        ({"metric": {"sigma": 0}}, "sigma"),
        ({"payoff": {"type": "chess"}}, "payoff.type"),
        ({"active_players": {"naive_sp_player": 1.5}}, "active_players.naive_sp_player"),
        ({"naive_sp_player": {"one_phase_step": 0}}, "one_phase_step"),
    ],
)
def test_a_config_is_checked_at_birth(cfg, message):
    with pytest.raises(ConfigError, match=message):
        league(**cfg)


def test_a_league_is_made_by_its_type_after_the_imports():
    made = create_league({"league_type": "own_league", "import_names": ["tests.league.own_player"], "path_policy": "p"})
    assert type(made) is OwnLeague
    with pytest.raises(KeyError):
        create_league({"league_type": "nothing"})


# Players to begin with.


def test_players_begin_with_pretrained_weights():
    write("weights", "pretrained")
    os.symlink("weights", "link")
    made = league(use_pretrain=True, pretrain_checkpoint_path={"default": "link"})
    assert read(made.active_players[0].checkpoint_path) == "pretrained"
    assert not os.path.islink(made.active_players[0].checkpoint_path) and made.historical_players == []


def test_pretrained_weights_may_be_an_opponent_of_the_only_type():
    write("weights", "pretrained")
    made = league(use_pretrain_init_historical=True, pretrain_checkpoint_path={"default": "weights"})
    (historical,) = made.historical_players
    assert historical.player_id == f"{HOME}_pretrain_historical" and historical.parent_id == HOME
    assert os.path.dirname(historical.checkpoint_path) == "policy" and read(historical.checkpoint_path) == "pretrained"
    assert made.payoff.players == [*made.active_players, historical]
    assert made.get_player_by_id(historical.player_id) is historical


def test_a_main_player_is_the_one_whose_earlier_self_is_an_opponent():
    write("weights", "pretrained")
    made = league(
        use_pretrain_init_historical=True,
        player_category=["red", "blue"],
        pretrain_checkpoint_path={"red": "weights", "blue": "weights"},
        my_main_player=SETTINGS,
        other=SETTINGS,
    )
    assert [player.parent_id for player in made.historical_players] == ["my_main_player_red_0", "my_main_player_blue_0"]


# Jobs.


def test_a_first_job_is_a_game_against_oneself(own):
    path = own.active_players[0].checkpoint_path
    expected = {
        "agent_num": 2,
        "launch_player": HOME,
        "player_id": [HOME, HOME],
        "checkpoint_path": [path, path],
        "player_active_flag": [True, True],
    }
    assert own.get_job_info() == own.get_job_info(HOME) == expected


def test_a_job_against_an_earlier_self_trains_one_player():
    made = league(naive_sp_player={"branch_probs": {"pfsp": 1, "sp": 0}})
    write(made.active_players[0].checkpoint_path, "weights")
    assert made.judge_snapshot(HOME, force=True)
    job = made.get_job_info(HOME)
    assert job["player_id"] == [HOME, f"{HOME}_0_historical"] and job["player_active_flag"] == [True, False]
    assert job["checkpoint_path"] == [player.checkpoint_path for player in made.payoff.players]


def test_an_evaluation_has_one_player_and_a_difficulty(own):
    assert own.get_job_info(HOME, eval_flag=True) == {
        "agent_num": 1,
        "launch_player": HOME,
        "player_id": [HOME],
        "checkpoint_path": [own.active_players[0].checkpoint_path],
        "player_active_flag": [True],
        "eval_opponent": "RULE_BASED",
    }


def test_only_active_players_have_jobs_and_snapshots(own):
    own.judge_snapshot(HOME, force=True)
    for ask in (own.get_job_info, own.judge_snapshot):
        with pytest.raises(KeyError):
            ask(f"{HOME}_0_historical")


# Snapshots.


def test_snapshots_are_taken_after_two_phases(own):
    assert train(own, 45) == [20, 40]
    assert [player.player_id for player in own.historical_players] == [f"{HOME}_{n}_historical" for n in (20, 40)]
    assert own.payoff.players == [*own.active_players, *own.historical_players]


def test_a_snapshot_keeps_the_weights_of_its_time(own):
    train(own, 20)
    write(own.active_players[0].checkpoint_path, "newer")
    (historical,) = own.historical_players
    assert historical.checkpoint_path == os.path.join("policy", f"{HOME}_ckpt_20.pth")
    assert read(historical.checkpoint_path) == "weights"
    assert sorted(os.listdir("policy")) == [f"{HOME}_ckpt.pth", f"{HOME}_ckpt_20.pth"]


def test_a_snapshot_needs_weights():
    made = league()
    with pytest.raises(FileNotFoundError):
        made.judge_snapshot(HOME, force=True)
    assert made.historical_players == [] and made.payoff.players == made.active_players


def test_a_subclass_says_what_becomes_of_a_player_after_its_snapshot():
    made = league(OwnLeague)
    write(made.active_players[0].checkpoint_path, "weights")
    train(made, 20, "own_player_default_0")
    assert made.mutated == ["reset_ckpt.pth"]


# News.


def test_won_evaluations_get_harder_until_the_hardest():
    made = league(OwnLeague)
    name = made.active_players_ids[0]
    assert made.update_active_player({"player_id": name, "eval_win": False}) is False
    assert made.get_job_info(eval_flag=True)["eval_opponent"] == "EASY"
    assert made.update_active_player({"player_id": name, "eval_win": True}) is True
    assert made.get_job_info(eval_flag=True)["eval_opponent"] == "HARD"
    assert made.update_active_player({"player_id": name, "eval_win": True}) is False


def test_finished_games_are_in_the_record(own):
    own.judge_snapshot(HOME, force=True)
    (historical,) = own.historical_players
    own.finish_job({"player_id": [HOME, historical.player_id], "result": [["wins"] * 6, ["draws"] * 2]})
    record = own.payoff.state_dict()[f"{HOME}-{historical.player_id}"]
    assert record["games"] == pytest.approx(sum(0.99**n for n in range(8))) and record["draws"] == pytest.approx(1.99)
    assert own.payoff[own.active_players[0], historical][0] == 0.5  # fewer than 8 games, as older ones weigh less
    own.finish_job({"player_id": [HOME, historical.player_id], "result": [["wins"]]})
    assert own.payoff[own.active_players[0], historical][0] > 0.8


def test_a_copy_has_its_folder_made_and_replaces_what_was_there():
    write("source", "old")
    copy_checkpoint("source", "a/b/target")
    write("source", "new")
    assert read("a/b/target") == "old"
    copy_checkpoint("source", "a/b/target")
    assert read("a/b/target") == "new" and os.listdir("a/b") == ["target"]


def test_missing_weights_are_named():
    with pytest.raises(FileNotFoundError):
        copy_checkpoint("nowhere", "target")
    assert os.listdir() == []


# A league whose state is kept: another one goes on with its players, records and ratings.


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


FOLDER = pathlib.Path(ding.league.__file__).parent
MODULES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__")


@pytest.mark.parametrize("module", [name for name in MODULES if name != "rating"])
def test_the_examples_in_the_documentation_are_true(module):
    assert doctest.testmod(importlib.import_module(f"ding.league.{module}")).failed == 0


def test_the_example_of_the_ratings_is_true():
    pytest.importorskip("trueskill")
    assert doctest.testmod(importlib.import_module("ding.league.rating")).failed == 0


def test_all_names_are_there_without_the_package_for_ratings():
    later = {"LeagueMetricEnv", "PlayerRating"}
    assert [name for name in ding.league.__all__ if name not in later and not hasattr(ding.league, name)] == []


def test_all_names_are_there_with_it():
    pytest.importorskip("trueskill")
    assert [name for name in ding.league.__all__ if not hasattr(ding.league, name)] == []
