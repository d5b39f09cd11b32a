import pytest

from ding.utils.msgpack_helper import pack, unpack
from ding.worker.coordinator.run_monitor import Evaluation, Progress, RecentRate, RunMonitor
from tests.worker.coordinator.conftest import Clock


def test_samples_steps_iterations_and_policy_lag_are_summed_up():
    state = RunMonitor()
    state.take_samples("a", 3, {"policy_iter": 4, "cur_step": 10})
    state.take_samples("b", 2, {"policy_iter": 2, "cur_step": 5})
    assert state.take_learner_info({"learner_step": 8}) is True
    assert state.take_learner_info({"learner_step": 7}) is False
    assert state.progress() == Progress(5, 15, 9, 5, None, None)


def test_evaluations_make_no_env_steps():
    state = RunMonitor(max_env_step=5)
    state.take_collector_info("e", {"eval_flag": True, "cur_step": 100})
    state.take_collector_end("e", {"eval_flag": True, "step_count": 100, "reward_mean": 1.0})
    assert not state.is_over and state.progress().env_steps == 0


def test_the_last_and_the_best_return_are_kept():
    state = RunMonitor()
    for reward in (-3.0, 7.0, 2.0):
        state.take_collector_end("e", {"eval_flag": True, "reward_mean": reward, "real_episode_count": 1})
    progress = state.progress()
    assert (progress.last_return, progress.best_return) == (2.0, 7.0)


def test_steps_of_a_task_that_was_broken_off_stay():
    state = RunMonitor()
    state.take_collector_info("a", {"cur_step": 10})
    state.drop_collector("a")
    state.take_collector_info("a", {"cur_step": 1})
    assert state.progress().env_steps == 11


def test_old_news_takes_no_steps_away():
    state = RunMonitor()
    state.take_samples("a", 1, {"cur_step": 10})
    state.take_collector_info("a", {"cur_step": 7})
    assert state.progress().env_steps == 10


def test_the_first_end_counts():
    state = RunMonitor()
    assert state.end() is True
    assert state.end(RuntimeError("too late")) is False
    assert state.is_over and state.failure is None
    state, error = RunMonitor(), RuntimeError("first")
    assert state.end(error) is True and state.end() is False
    assert state.failure is error


def test_an_evaluation_is_told_with_the_env_steps_when_the_learner_had_made_its_weights():
    state = RunMonitor()
    for train_iter, steps in ((3, 10), (5, 10), (8, 25)):
        state.take_collector_info("a", {"cur_step": steps})
        state.take_learner_info({"learner_step": train_iter - 1})
    assert [state.env_steps_at(train_iter) for train_iter in (0, 2, 3, 7, 8, 99, [3, 8])] == [0, 0, 10, 10, 25, 25, 25]
    state.take_collector_end("e", {"eval_flag": True, "reward_mean": 1.0, "train_iter": 3, "env_step": 10})
    assert state.report().evaluations[0].env_step == 10


def test_the_weights_of_a_resumed_run_have_its_env_steps():
    first, second = RunMonitor(), RunMonitor()
    first.take_collector_info("a", {"cur_step": 70})
    second.load_state_dict(first.state_dict())
    assert second.env_steps_at(0) == 70


# Counters and history of a run, kept for another coordinator.


def kept(part):
    return unpack(pack(part.state_dict()))


@pytest.fixture
def kept_run():
    kept_run = RunMonitor()
    kept_run.take_samples("a", 3, {"policy_iter": 4, "cur_step": 10})
    kept_run.take_samples("b", 2, {"policy_iter": 2, "cur_step": 5})
    kept_run.take_learner_info({"learner_step": 8})
    kept_run.count_stalled_task()
    for reward in (7.0, 3.0):
        kept_run.take_collector_end("e", {"eval_flag": True, "reward_mean": reward, "train_iter": 4})
    return kept_run


def test_the_counters_of_a_run_go_on(kept_run):
    other = RunMonitor()
    other.load_state_dict(kept(kept_run))
    assert other.progress() == kept_run.progress() == Progress(5, 15, 9, 5, 3.0, 7.0)
    assert other.report().stalled_tasks == 1
    other.take_samples("c", 1, {"policy_iter": 8, "cur_step": 2})
    assert other.take_learner_info({"learner_step": 12}) is True  # the first that tells this coordinator
    assert other.take_learner_info({"learner_step": 13}) is False
    assert other.progress() == Progress(6, 17, 14, 6, 3.0, 7.0)


def test_a_learner_that_goes_on_from_an_older_checkpoint_does_not_turn_the_counter_back(kept_run):
    other = RunMonitor()
    other.load_state_dict(kept(kept_run))
    other.take_learner_info({"learner_step": 5})
    assert other.progress().train_iter == 9


def test_max_env_step_is_that_of_the_whole_run(kept_run):
    other = RunMonitor(max_env_step=20)
    other.load_state_dict(kept(kept_run))
    other.take_collector_info("c", {"cur_step": 4})
    assert not other.is_over
    other.take_collector_info("c", {"cur_step": 5})
    assert other.is_over


def test_the_history_goes_on_without_the_time_in_between():
    clock = Clock()
    history = RunMonitor(clock=clock)
    clock.now += 20
    history.add_evaluation(5, 2, 1.5)
    history.add_error("before")
    clock.now += 10
    kept_run = kept(history)
    clock.now += 1000
    other = RunMonitor(clock=clock)
    clock.now += 1
    other.load_state_dict(kept_run)
    other.add_evaluation(6, 3, 2.5)
    clock.now += 2
    other.add_error("after")
    told = other.report()
    assert told.seconds == 33 and told.started_at == history.report().started_at
    assert told.evaluations == (Evaluation(5, 2, 1.5, 20.0), Evaluation(6, 3, 2.5, 31.0))
    assert [(note.text, note.seconds) for note in told.errors] == [("before", 20.0), ("after", 33.0)]


def rates(monitor):
    report = monitor.report()
    return report.samples_per_s, report.updates_per_s


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def history(clock):
    return RunMonitor(clock=clock)


def test_a_rate_is_that_of_the_last_five_seconds():
    rate = RecentRate(start=0.0)
    for second in range(20):
        rate.add(float(second), 10)
    assert rate.per_s(19.0) == 10.0
    assert rate.per_s(22.0) == 4.0  # what came at 18 and 19
    assert rate.per_s(30.0) == 0.0


def test_the_clock_of_a_run_stops_at_its_end(history, clock):
    clock.now += 3
    history.take_samples("task", 15, {})
    assert (history.report().seconds, rates(history)) == (3.0, (5.0, 0.0))
    history.end()
    clock.now += 60
    history.end()
    assert (history.report().seconds, rates(history)) == (3.0, (5.0, 0.0))


def test_the_last_errors_are_kept_and_long_ones_lose_their_middle(history):
    for i in range(30):
        history.add_error(str(i))
    assert [note.text for note in history.report().errors] == [str(i) for i in range(10, 30)]
    history.add_error("a" * 3000 + "b" * 3000)
    assert history.report().errors[-1].text == "a" * 2000 + "\n...\n" + "b" * 2000
