"""The commander of two-player games: who plays whom, what it makes of results, and how it ends."""

import functools
import os
import pathlib

import pytest
import torch

from ding.utils.config_helper import ConfigError
from ding.worker.transport.stores import FolderPolicyStore
from tests.worker.coordinator import fakes
from tests.worker.coordinator.fakes import is_eval

HOME = "naive_sp_player_default_0"
CHECKPOINT = os.path.join("policy", f"{HOME}_ckpt.pth")
LOST, WON = [["losses", "losses"], ["losses"]], [["wins", "wins"], ["wins"]]


@pytest.fixture
def make(make_commander):
    return functools.partial(make_commander, "one_vs_one", stop_value=20, eval_interval=5)


def finish(commander, task, results=(), **result):
    return fakes.finish(commander, task, game_result=[list(of_env) for of_env in results], **result)


def weights(iteration):
    return {"model": {"weight": torch.tensor(float(iteration))}, "iter": iteration}


def train(commander, first, last, store=None):
    """A learner that writes its weights and tells of each iteration."""
    store = store or FolderPolicyStore("policy")
    for step in range(first, last + 1):
        store.write(CHECKPOINT, weights(step))
        commander.update_learner_info("t", {"learner_step": step, "priority_info": {}, "learner_done": False})


@pytest.fixture
def duel(make):
    """With a learner at work, and its first evaluation behind it."""
    commander = make()
    commander.learner = commander.get_learner_task()
    finish(commander, commander.get_collector_task(), LOST)
    return commander


# Tasks.


def test_a_learner_task_says_where_the_players_weights_go(make):
    commander = make()
    task = commander.get_learner_task()
    assert [task["policy_id"]] == commander._current_policy_id and task["buffer_id"] == commander._current_buffer_id
    assert task["task_id"].startswith("learner_task_")
    assert task["league_save_checkpoint_path"] == commander._active_player.checkpoint_path == CHECKPOINT
    assert commander.get_learner_task() is None


def test_the_first_collector_task_is_an_evaluation_against_the_leagues_difficulty(make):
    commander = make()
    commander.get_learner_task()
    task = commander.get_collector_task()
    cfg = task["collector_cfg"]
    assert is_eval(task) and task["task_id"].startswith("evaluator_task_")
    assert task["buffer_id"] == commander._current_buffer_id
    assert [policy.type for policy in cfg.policy] == ["dqn_command"]
    assert cfg.policy_update_path == [CHECKPOINT] and cfg.policy_update_flag == [True]
    assert cfg.env.eval_opponent == commander._league.active_players[0]._eval_opponent_difficulty[0] == "RULE_BASED"
    assert cfg.env.manager.episode_num == 3


def test_then_two_policies_collect_with_the_same_weights(duel):
    task = duel.get_collector_task()
    cfg = task["collector_cfg"]
    assert not is_eval(task) and task["task_id"].startswith("collector_task_")
    assert task["buffer_id"] == duel.learner["buffer_id"]
    assert len(cfg.policy) == 2 and cfg.policy[0] == cfg.policy[1] and cfg.policy[0] is not cfg.policy[1]
    assert cfg.policy_update_path == [CHECKPOINT, CHECKPOINT] and cfg.policy_update_flag == [True, True]
    assert cfg.collect_setting == {"eps": pytest.approx(0.95)} and cfg.env.manager.episode_num == 2
    assert "eval_opponent" not in cfg.env


def test_after_a_snapshot_an_earlier_self_plays_too_without_being_trained(make):
    commander = make(league={"naive_sp_player": {"branch_probs": {"pfsp": 1, "sp": 0}}})
    commander.get_learner_task()
    finish(commander, commander.get_collector_task(), LOST)
    train(commander, 0, 20)
    cfg = commander.get_collector_task()["collector_cfg"]
    earlier = os.path.join("policy", f"{HOME}_ckpt_20.pth")
    assert cfg.policy_update_path == [CHECKPOINT, earlier] and cfg.policy_update_flag == [True, False]
    store = FolderPolicyStore("policy")
    assert store.read(earlier).state == weights(20)
    train(commander, 21, 22)
    assert store.read(CHECKPOINT).state == weights(22) and store.read(earlier).state == weights(20)


def test_weights_of_an_earlier_run_are_not_taken_for_those_of_this_one(make):
    FolderPolicyStore("policy").write(CHECKPOINT, weights(1000))
    make().get_learner_task()
    assert os.listdir("policy") == []


def test_pretrained_weights_stay(make):
    torch.save(weights(7), "pretrained.pth")
    make(league={"use_pretrain": True, "pretrain_checkpoint_path": {"default": "pretrained.pth"}})
    assert FolderPolicyStore("policy").read(CHECKPOINT).state == weights(7)


# Results.


def test_an_evaluation_that_is_won_against_the_hardest_opponent_and_reaches_the_stop_value_ends_the_run(duel, clock):
    assert finish(duel, duel.get_collector_task(), WON, reward_mean=20.0) is False  # it collects
    train(duel, 0, 100)
    clock.now += 5.1
    evaluation = duel.get_collector_task()
    assert is_eval(evaluation)
    assert finish(duel, evaluation, WON, reward_mean=20.0) is True and duel._end_flag
    assert duel.get_collector_task() is None and duel.get_learner_task() is None
    text = pathlib.Path("exp/log/commander/commander_evaluator_logger.txt").read_text()
    assert "has reached stop_value 20 against the hardest opponent" in text


@pytest.mark.differs("divides by zero after a 1v1 evaluation without a game", "counts it as not won")
@pytest.mark.parametrize(
    ("results", "reward"),
    [
        (WON, 19.9),
        ([["wins"] * 7, ["losses"] * 3], 20.0),  # not more than 70 %
        ([["wins"] * 7, ["draws"] * 3], 20.0),
        (LOST, 20.0),
        ([[], []], 20.0),
    ],
)
def test_an_evaluation_that_is_not_good_enough_ends_nothing(duel, clock, results, reward):
    clock.now += 6
    assert finish(duel, duel.get_collector_task(), results, reward_mean=reward) is False
    assert not duel._end_flag


def test_an_evaluation_that_is_won_goes_on_against_the_next_difficulty(duel, clock):
    duel._active_player._eval_opponent_difficulty = ["EASY", "HARD"]
    opponents = []
    for is_over in (False, True):
        clock.now += 6
        task = duel.get_collector_task()
        opponents.append(task["collector_cfg"].env.eval_opponent)
        assert finish(duel, task, WON, reward_mean=20.0) is is_over
    assert opponents == ["EASY", "HARD"]


def test_games_go_into_the_record_of_those_who_played_them(make):
    commander = make(league={"naive_sp_player": {"branch_probs": {"pfsp": 1, "sp": 0}}})
    commander.get_learner_task()
    finish(commander, commander.get_collector_task(), LOST)
    against_itself = commander.get_collector_task()
    train(commander, 0, 20)
    against_earlier = commander.get_collector_task()
    finish(commander, against_earlier, [["wins", "draws"], ["losses"]])
    finish(commander, against_itself, WON)
    payoff, home = commander._league.payoff, commander._active_player
    earlier = commander._league.historical_players[0]
    assert payoff._data[f"{HOME}-{HOME}"]["draws"] == 1
    record = payoff._data[payoff.get_key(home.player_id, earlier.player_id)[0]]
    assert record["wins"] == pytest.approx(0.99**2) and record["losses"] == 1
    assert commander._jobs == {}


# Learners.


def test_a_learner_that_takes_the_place_of_another_goes_on_counting(duel):
    train(duel, 0, 25)
    duel.notify_fail_learner_task(duel.learner)
    again = duel.get_learner_task()
    assert again["league_save_checkpoint_path"] == CHECKPOINT
    train(duel, 0, 25)
    assert duel._active_player.total_agent_step == 50
    steps = [player.total_agent_step for player in duel._league.historical_players]
    assert steps == [20, 40] and len(set(duel._league.payoff.players)) == 3


@pytest.mark.differs(
    "fails at the third learner task of a 1v1 run, and names buffers and weights of failed tasks",
    "gives each task its own ids",
)
def test_after_failed_learner_tasks_each_new_one_has_ids_of_its_own(make):
    commander = make()
    ids = set()
    for _ in range(4):
        task = commander.get_learner_task()
        assert commander._current_policy_id == [task["policy_id"]]
        ids.add(task["policy_id"])
        commander.notify_fail_learner_task(task)
        assert commander._current_policy_id == [] and commander._current_buffer_id is None
        assert commander.get_collector_task() is None
    assert len(ids) == 4


# Its config.


def test_a_league_of_the_users_is_made(make):
    commander = make(league={"league_type": "own_league", "import_names": ["tests.league.own_player"]})
    commander.get_learner_task()
    assert commander.get_collector_task()["collector_cfg"].env.eval_opponent == "EASY"


@pytest.mark.parametrize(
    ("cfg", "message"),
    [
        ({"path_policy": None}, "path_policy = None is not allowed"),
        ({"league": {"active_players": {"naive_sp_player": 2}}}, "one player is trained, and there would be 2"),
        ({"league": {"player_category": ["a", "b"]}}, "for 2 categories .* there would be 2"),
        ({"league": {"active_players": {}}}, "there would be 0"),
        ({"eval_interval": -1}, "eval_interval = -1 is not allowed"),
    ],
)
def test_a_config_is_checked_at_birth(make, cfg, message):
    with pytest.raises(ConfigError, match=message):
        make(**cfg)
