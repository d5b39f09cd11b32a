import pytest

from ding.worker.coordinator.run_monitor import Progress, RunMonitor


def test_a_run_begins_with_nothing():
    state = RunMonitor()
    assert state.progress() == Progress(0, 0, 0, 0, None, None)
    assert not state.is_over and state.failure is None and not state.wait(0)


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


def test_an_evaluation_without_an_episode_has_no_return():
    state = RunMonitor()
    state.take_collector_end("e", {"eval_flag": True, "reward_mean": 0.0, "real_episode_count": 0})
    assert state.progress().last_return is None


@pytest.mark.parametrize(
    ("take", "told"),
    [
        (lambda state: state.take_samples("a", 1, {"cur_step": 10}), "cur_step of a sample"),
        (lambda state: state.take_collector_info("a", {"cur_step": 10}), "cur_step of an info"),
        (lambda state: state.take_collector_end("a", {"eval_flag": False, "step_count": 10}), "step_count of a task"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_enough_env_steps_end_the_run(take, told):
    told = []
    state = RunMonitor(max_env_step=15, tell=told.append)
    state.take_collector_info("b", {"cur_step": 4})
    take(state)
    assert not state.is_over and told == []
    state.take_collector_info("b", {"cur_step": 5})
    take(state)
    assert (state.is_over, state.failure, state.reason) == (True, None, "max_env_step is reached")
    take(state)
    assert len(told) == 1 and "env steps, as max_env_step says" in told[0]


def test_steps_of_a_task_that_was_broken_off_stay():
    state = RunMonitor()
    state.take_collector_info("a", {"cur_step": 10})
    state.drop_collector("a")
    state.take_collector_info("a", {"cur_step": 1})
    assert state.progress().env_steps == 11


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
