"""The solo commander: what it gives when, what it makes of results, and how it ends."""

import functools
import math
import pathlib

import pytest

from tests.worker.coordinator.fakes import finish, is_eval


@pytest.fixture
def make(make_commander):
    return functools.partial(make_commander, "solo", eval_interval=10, collector_task_space=2)


@pytest.fixture
def solo(make):
    """With a learner at work, and its first evaluation behind it."""
    commander = make()
    commander.learner = commander.get_learner_task()
    finish(commander, commander.get_collector_task())
    return commander


def test_the_first_collector_task_is_an_evaluation_of_the_learners_weights(make):
    commander = make()
    learner = commander.get_learner_task()
    task = commander.get_collector_task()
    assert is_eval(task) and task["task_id"].startswith("collector_task_")
    assert task["buffer_id"] == learner["buffer_id"]
    cfg = task["collector_cfg"]
    assert cfg.policy_update_path == learner["policy_id"] and cfg.env.manager.episode_num == 3
    assert not is_eval(commander.get_collector_task())
    assert commander.get_collector_task() is None  # two at a time


def test_the_next_evaluation_comes_when_the_interval_has_passed_since_the_last_one_began(solo, clock):
    clock.now += 10
    assert not is_eval(solo.get_collector_task())
    clock.now += 0.1
    task = solo.get_collector_task()
    assert is_eval(task)
    finish(solo, task)
    assert not is_eval(solo.get_collector_task())


@pytest.mark.differs(
    "starts evaluations on top of each other if they take longer than `eval_interval`",
    "waits for the one that runs",
)
def test_no_evaluation_begins_while_one_runs(solo, clock):
    clock.now += 11
    first = solo.get_collector_task()
    clock.now += 11
    second = solo.get_collector_task()
    assert is_eval(first) and not is_eval(second)
    finish(solo, first)
    assert is_eval(solo.get_collector_task())


def test_the_collect_setting_follows_the_env_steps_so_far(solo):
    first = solo.get_collector_task()
    solo.env_steps.report(first["task_id"], 4000)
    second = solo.get_collector_task()
    assert first["collector_cfg"].collect_setting == {"eps": pytest.approx(0.95)}
    seen = {}
    solo._policy = solo._policy._replace(get_setting_collect=lambda told: seen.update(told) or {"eps": 0.0})
    finish(solo, first, step_count=5000)
    solo.update_learner_info("t", {"learner_step": 41, "priority_info": {"priority": [1.0]}})
    third = solo.get_collector_task()
    assert second["collector_cfg"].collect_setting["eps"] < 0.8
    assert third["collector_cfg"].collect_setting == {"eps": 0.0}
    assert seen == {"learner_step": 41, "envstep": 5000}


def test_an_evaluation_that_reaches_the_stop_value_ends_the_run(solo, clock):
    clock.now += 11
    assert finish(solo, solo.get_collector_task(), reward_mean=8.9) is False
    clock.now += 11
    running = solo.get_collector_task()
    assert finish(solo, solo.get_collector_task(), reward_mean=9.0) is False  # it collects
    assert finish(solo, running, reward_mean=9.0) is True
    assert solo.get_collector_task() is None and solo.get_learner_task() is None
    assert "has reached stop_value 9" in pathlib.Path("exp/log/commander/commander_evaluator_logger.txt").read_text()
    assert [result["reward_mean"] for result in solo.evaluations] == [0.0, 8.9, 9.0]


def with_patience(make, patience):
    commander = make(stop_value=None, patience=patience)
    commander.get_learner_task()
    return commander


def evaluate(commander, clock, *returns, **result):
    """What the commander says to each evaluation."""
    said = []
    for value in returns:
        clock.now += 11
        said.append(finish(commander, commander.get_collector_task(), reward_mean=value, **result))
    return said


def test_evaluations_in_a_row_without_a_better_return_end_the_run(make, clock):
    commander = with_patience(make, 2)
    assert evaluate(commander, clock, 1.0, 0.5, 2.0, 2.0, 1.9) == [False] * 4 + [True]
    assert not commander.is_solved and commander.end_reason == "no better mean return in 2 evaluations"
    assert commander.get_collector_task() is None and commander.get_learner_task() is None
    log = pathlib.Path("exp/log/commander/commander_evaluator_logger.txt").read_text()
    assert "no better mean return in 2 evaluations: the run ends" in log


def test_evaluations_without_an_episode_or_a_number_do_not_use_up_the_patience(make, clock):
    commander = with_patience(make, 1)
    assert evaluate(commander, clock, 1.0, math.nan) == [False, False]
    assert evaluate(commander, clock, 0.0, real_episode_count=0) == [False]
    assert evaluate(commander, clock, 0.0) == [True]


def test_an_evaluation_of_older_weights_is_not_the_last_one(solo, clock):
    clock.now += 11
    older = solo.get_collector_task()
    solo.finish_learner_task(solo.learner["task_id"], {"buffer_id": "b"})
    assert finish(solo, older) is False
    last = solo.get_collector_task()
    assert is_eval(last) and finish(solo, last) is True


def test_the_last_evaluation_waits_for_one_that_still_runs(solo, clock):
    clock.now += 11
    older = solo.get_collector_task()
    solo.finish_learner_task(solo.learner["task_id"], {"buffer_id": "b"})
    assert solo.get_collector_task() is None and solo._collector_task_space.cur == 1
    assert finish(solo, older) is False
    assert is_eval(solo.get_collector_task())


def test_a_last_evaluation_that_fails_is_made_up_for(solo):
    solo.finish_learner_task(solo.learner["task_id"], {"buffer_id": "b"})
    failed = solo.get_collector_task()
    solo.notify_fail_collector_task(failed)
    last = solo.get_collector_task()
    assert is_eval(last) and last["task_id"] != failed["task_id"]
    assert finish(solo, last) is True


def test_collecting_is_of_use_while_its_learner_trains(solo):
    task = solo.get_collector_task()
    assert not solo.is_collector_task_useless(task["task_id"])
    assert not solo.is_collector_task_useless("unknown")
    solo.notify_fail_learner_task(solo.learner)
    assert solo.is_collector_task_useless(task["task_id"])
    solo.get_learner_task()
    assert solo.is_collector_task_useless(task["task_id"])


def test_after_a_failed_learner_task_its_ids_are_not_given_any_more(solo):
    solo.notify_fail_learner_task(solo.learner)
    assert solo._learner_task_space.cur == 0
    assert solo.get_collector_task() is None
    again = solo.get_learner_task()
    assert all(again[key] != solo.learner[key] for key in ("task_id", "policy_id", "buffer_id"))
    task = solo.get_collector_task()
    assert is_eval(task) and task["buffer_id"] == again["buffer_id"]


def test_an_evaluation_is_due_after_so_many_env_steps(make, clock):
    commander = make(eval_interval=1000, eval_interval_env_step=25)  # a task makes 10 env steps
    commander.learner = commander.get_learner_task()
    kinds = []
    for _ in range(9):
        task = commander.get_collector_task()
        kinds.append(is_eval(task))
        finish(commander, task)
    assert kinds == [True, False, False, False, True, False, False, False, True]
