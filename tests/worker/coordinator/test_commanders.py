"""What the commanders of a training do alike, and how others go on with their training."""

import functools
import pathlib

import pytest

from ding.utils.msgpack_helper import pack, unpack
from ding.worker.transport.stores import FolderPolicyStore
from tests.fakes import FakeWriter
from tests.worker.coordinator.fakes import finish_info, is_eval
from tests.worker.coordinator.test_one_vs_one_parallel_commander import CHECKPOINT, HOME, WON, train, weights


@pytest.fixture
def make(make_commander):
    return functools.partial(make_commander, eval_interval=10, collector_task_space=3)


@pytest.fixture
def move(make, clock):
    """Another commander with the state of this one, which begins at another time."""

    def move(commander, kind):
        state = unpack(pack(commander.state_dict()))
        clock.now += 500
        other = make(kind)
        other.load_state_dict(state)
        return other

    return move


both = pytest.mark.parametrize("kind", ["solo", "one_vs_one"])


def finish(commander, task, **result):
    finished = finish_info(is_eval(task), game_result=WON, **result)
    return commander.finish_collector_task(task["task_id"], finished)


def learning(make, kind):
    """A commander with a learner at work, and its first evaluation behind it."""
    commander = make(kind)
    commander.learner = commander.get_learner_task()
    finish(commander, commander.get_collector_task())
    return commander


@pytest.mark.differs(
    "starts a new learner from scratch when one has trained its iterations",
    "evaluates its last weights and ends the run",
)
@both
def test_a_trained_learner_is_evaluated_once_more_then_the_run_ends(make, kind):
    commander = learning(make, kind)
    running, buffer_id = commander.get_collector_task(), commander.learner["buffer_id"]
    train(commander, 0, 5)
    assert commander.finish_learner_task(commander.learner["task_id"], {"buffer_id": buffer_id}) == buffer_id
    assert commander._learner_task_space.cur == 0 and commander.get_learner_task() is None  # no new one from scratch
    last = commander.get_collector_task()
    weights_of = {"solo": commander.learner["policy_id"], "one_vs_one": [CHECKPOINT]}[kind]
    assert is_eval(last) and last["collector_cfg"].policy_update_path == weights_of
    assert [commander.is_collector_task_useless(task["task_id"]) for task in (running, last)] == [True, False]
    assert finish(commander, running) is False
    assert commander.get_collector_task() is None and commander._collector_task_space.cur == 1
    assert finish(commander, last, reward_mean=1.0) is True


@pytest.mark.differs(
    "swaps `avg_step_per_episode` and `avg_time_per_episode` in the commander's logs",
    "logs each under its own name",
)
@both
def test_results_are_logged_under_their_own_names_on_both_axes_and_nothing_is_printed(make, kind, capsys):
    commander = learning(make, kind)
    commander._tb_logger.close()
    commander._tb_logger = writer = FakeWriter()
    train(commander, 0, 5)
    averages = {"avg_step_per_episode": 25.0, "avg_time_per_step": 0.1, "avg_time_per_episode": 2.5}
    result = {"real_episode_count": 2, "step_count": 50, "reward_mean": 7.0, "reward_std": 1.0, **averages}
    task = commander.get_collector_task()
    commander.env_steps.end(task["task_id"], 50)  # as a coordinator does first
    finish(commander, task, train_iter=4, **result)
    shown = {("episode_count" if key == "real_episode_count" else key): value for key, value in result.items()}
    more = {"win_rate": 1.0} if kind == "one_vs_one" else {}
    assert sorted(writer.scalars) == sorted(
        (f"collector_{axis}/{key}", value, step)
        for key, value in {**shown, **more}.items()
        for axis, step in (("iter", 4), ("step", 50))
    )
    text = pathlib.Path("exp/log/commander/commander_collector_logger.txt").read_text()
    assert all(shown in text for shown in ("avg_step_per_episode", "25.000000", "2.500000", *more))
    assert capsys.readouterr().out == ""


@both
def test_a_commander_goes_on_with_the_training_that_runs(make, move, clock, kind):
    commander = learning(make, kind)
    train(commander, 0, 5)
    commander.get_collector_task()
    clock.now += 4
    other = move(commander, kind)
    assert other.get_learner_task() is None and other._training == commander._training
    assert other._learner_info == commander._learner_info
    assert other.evaluations == commander.evaluations and not other.is_solved
    task = other.get_collector_task()
    assert not is_eval(task) and task["buffer_id"] == commander.learner["buffer_id"]
    assert [other.get_collector_task() is None for _ in range(3)] == [False, False, True]  # those of before are gone
    clock.now += 6.1
    finish(other, task)
    assert is_eval(other.get_collector_task())  # ten seconds after the last one, as far as a coordinator was there


@both
def test_an_evaluation_that_ran_is_made_up_for(make, move, clock, kind):
    commander = learning(make, kind)
    clock.now += 11
    assert is_eval(commander.get_collector_task())
    assert is_eval(move(commander, kind).get_collector_task())


@both
def test_the_count_of_evaluations_for_the_patience_goes_on(make, move, clock, kind):
    commander = learning(make, kind)  # with a mean return of 0
    clock.now += 11
    assert finish(commander, commander.get_collector_task(), reward_mean=-1.0) is False
    other = move(commander, kind)
    other._patience = 2
    train(other, 0, 5)
    clock.now += 11
    assert finish(other, other.get_collector_task(), reward_mean=0.0) is True
    assert other.end_reason == "no better mean return in 2 evaluations"


def test_the_league_goes_on(make, move):
    commander = learning(make, "one_vs_one")
    train(commander, 0, 25)
    job = commander.get_collector_task()
    finish(commander, job)
    other = move(commander, "one_vs_one")
    assert other._league.payoff.state_dict() == commander._league.payoff.state_dict() != {}
    assert [player.player_id for player in other._league.historical_players] == [f"{HOME}_20_historical"]
    assert other._active_player.total_agent_step == 25
    assert FolderPolicyStore("policy").read(CHECKPOINT).state == weights(25)
