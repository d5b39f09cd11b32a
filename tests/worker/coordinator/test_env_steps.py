from ding.worker.coordinator.run_monitor import EnvSteps


def test_running_tasks_count_by_what_they_told_last_and_ended_ones_by_their_result():
    steps = EnvSteps()
    steps.report("a", 10)
    steps.report("b", 4)
    steps.report("a", 25)
    assert steps.total == 29
    steps.end("a", 30)
    steps.end("b")
    assert steps.total == 34


def test_old_news_takes_no_steps_away():
    steps = EnvSteps()
    steps.report("a", 10)
    steps.report("a", 7)
    assert steps.total == 10


def test_a_task_may_end_that_has_told_nothing():
    steps = EnvSteps()
    steps.end("a")
    steps.end("b", 5)
    assert steps.total == 5
