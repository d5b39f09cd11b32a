"""Counters and history of a run, kept for another coordinator."""

import pytest

from ding.utils.msgpack_helper import pack, unpack
from ding.worker.coordinator.run_monitor import Evaluation, Progress, RunMonitor


def kept(part):
    return unpack(pack(part.state_dict()))


@pytest.fixture
def state():
    state = RunMonitor()
    state.take_samples("a", 3, {"policy_iter": 4, "cur_step": 10})
    state.take_samples("b", 2, {"policy_iter": 2, "cur_step": 5})
    state.take_learner_info({"learner_step": 8})
    state.count_stalled_task()
    for reward in (7.0, 3.0):
        state.take_collector_end("e", {"eval_flag": True, "reward_mean": reward, "train_iter": 4})
    return state


def test_the_counters_of_a_run_go_on(state):
    other = RunMonitor()
    other.load_state_dict(kept(state))
    assert other.progress() == state.progress() == Progress(5, 15, 9, 5, 3.0, 7.0)
    assert other.report().stalled_tasks == 1
    other.take_samples("c", 1, {"policy_iter": 8, "cur_step": 2})
    assert other.take_learner_info({"learner_step": 12}) is True  # the first that tells this coordinator
    assert other.take_learner_info({"learner_step": 13}) is False
    assert other.progress() == Progress(6, 17, 14, 6, 3.0, 7.0)


def test_a_learner_that_goes_on_from_an_older_checkpoint_does_not_turn_the_counter_back(state):
    other = RunMonitor()
    other.load_state_dict(kept(state))
    other.take_learner_info({"learner_step": 5})
    assert other.progress().train_iter == 9


def test_max_env_step_is_that_of_the_whole_run(state):
    other = RunMonitor(max_env_step=20)
    other.load_state_dict(kept(state))
    other.take_collector_info("c", {"cur_step": 4})
    assert not other.is_over
    other.take_collector_info("c", {"cur_step": 5})
    assert other.is_over


def test_a_run_without_evaluations_has_no_returns():
    other = RunMonitor()
    other.load_state_dict(kept(RunMonitor()))
    assert other.progress() == Progress(0, 0, 0, 0, None, None)


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def test_the_history_goes_on_without_the_time_in_between():
    clock = Clock()
    history = RunMonitor(clock=clock)
    clock.now += 20
    history.add_evaluation(5, 2, 1.5)
    history.add_error("before")
    clock.now += 10
    state = kept(history)
    clock.now += 1000
    other = RunMonitor(clock=clock)
    clock.now += 1
    other.load_state_dict(state)
    other.add_evaluation(6, 3, 2.5)
    clock.now += 2
    other.add_error("after")
    told = other.report()
    assert told.seconds == 33 and told.started_at == history.report().started_at
    assert told.evaluations == (Evaluation(5, 2, 1.5, 20.0), Evaluation(6, 3, 2.5, 31.0))
    assert [(note.text, note.seconds) for note in told.errors] == [("before", 20.0), ("after", 33.0)]
