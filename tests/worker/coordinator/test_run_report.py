from datetime import datetime, timedelta, timezone

import pytest

from ding.worker.coordinator.run_monitor import ErrorNote, Evaluation, RecentRate, RunMonitor


class Clock:
    """Time as the test wants it."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


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


def test_a_rate_of_the_first_seconds_is_that_of_those_there_are():
    rate = RecentRate(start=100.0)
    assert rate.per_s(100.0) == 0.0
    rate.add(100.1, 8)
    assert rate.per_s(100.1) == 8.0  # and not 80
    assert rate.per_s(102.0) == 4.0


def test_a_rate_of_very_many_counts_remembers_few():
    rate = RecentRate(start=0.0)
    for milli in range(10_000):
        rate.add(milli / 1000, 1)
    assert len(rate._spans) <= 21
    assert rate.per_s(10.0) == pytest.approx(1000, rel=0.06)


def test_the_clock_of_a_run_stops_at_its_end(history, clock):
    clock.now += 3
    history.take_samples("task", 15, {})
    assert (history.report().seconds, rates(history)) == (3.0, (5.0, 0.0))
    history.end()
    clock.now += 60
    history.end()
    assert (history.report().seconds, rates(history)) == (3.0, (5.0, 0.0))


def test_the_start_is_told_in_utc(history):
    age = datetime.now(timezone.utc) - datetime.fromisoformat(history.report().started_at)
    assert history.report().started_at.endswith("+00:00") and timedelta(0) <= age < timedelta(minutes=1)


def test_evaluations_and_errors_have_their_time(history, clock):
    clock.now += 2
    history.add_evaluation(10, 3, 1.5)
    clock.now += 2
    history.add_error("broken")
    assert history.report().evaluations == (Evaluation(10, 3, 1.5, 2.0),)
    assert history.report().errors == (ErrorNote("broken", 4.0),)


def test_of_very_many_evaluations_the_first_the_last_and_every_second_one_are_kept(history):
    for i in range(501):
        history.add_evaluation(i, i, float(i))
    kept = [point.env_step for point in history.report().evaluations]
    assert kept == list(range(0, 501, 2))
    for i in range(501, 5000):
        history.add_evaluation(i, i, float(i))
        points = [point.env_step for point in history.report().evaluations]
        assert len(points) <= 500 and points[0] == 0 and points[-1] == i and points == sorted(points)


def test_the_last_errors_are_kept_and_long_ones_lose_their_middle(history):
    for i in range(30):
        history.add_error(str(i))
    assert [note.text for note in history.report().errors] == [str(i) for i in range(10, 30)]
    history.add_error("a" * 3000 + "b" * 3000)
    assert history.report().errors[-1].text == "a" * 2000 + "\n...\n" + "b" * 2000


# What the reports of workers add to it.


@pytest.fixture
def state(clock):
    state = RunMonitor(100, clock)
    clock.now += 1
    return state


def test_a_run_counts_the_samples_and_iterations_of_the_last_seconds(state):
    state.take_samples("task", 7, {})
    for step in (0, 1, 4, 2):
        state.take_learner_info({"learner_step": step})
    assert rates(state) == (7.0, 5.0)


def test_a_learner_that_resumes_has_made_one_iteration(state):
    state.take_learner_info({"learner_step": 5000})
    state.take_learner_info({"learner_step": 5001})
    assert rates(state) == (0.0, 2.0)


def test_a_run_keeps_its_curve(state):
    state.take_collector_info("task", {"cur_step": 40})
    told = {"eval_flag": True, "real_episode_count": 2, "reward_mean": 3.5}
    state.take_collector_end("eval", {**told, "train_iter": 12})
    state.take_collector_end("eval", {**told, "train_iter": [12, 30]})  # of two players
    state.take_collector_end("eval", told)
    state.take_collector_end("eval", {**told, "real_episode_count": 0})
    assert state.report().evaluations == tuple(Evaluation(40, it, 3.5, 1.0) for it in (12, 30, 0))


def test_the_first_reason_of_an_end_counts(state, clock):
    assert (state.reason, state.end(reason="solved"), state.reason) == ("", True, "solved")
    clock.now += 5
    assert state.end(reason="later") is False and state.reason == "solved"
    assert state.report().seconds == 1.0
