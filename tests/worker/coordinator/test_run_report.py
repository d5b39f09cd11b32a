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


def test_the_clock_of_a_run_stops_at_its_end(history, clock):
    clock.now += 3
    history.take_samples("task", 15, {})
    assert (history.report().seconds, rates(history)) == (3.0, (5.0, 0.0))
    history.end()
    clock.now += 60
    history.end()
    assert (history.report().seconds, rates(history)) == (3.0, (5.0, 0.0))


def test_evaluations_and_errors_have_their_time(history, clock):
    clock.now += 2
    history.add_evaluation(10, 3, 1.5)
    clock.now += 2
    history.add_error("broken")
    assert history.report().evaluations == (Evaluation(10, 3, 1.5, 2.0),)
    assert history.report().errors == (ErrorNote("broken", 4.0),)


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
