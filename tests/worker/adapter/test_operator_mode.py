"""Learners that an operator brings to an aggregator."""

import pytest

from tests.worker.adapter.doubles import BatchLearner, Stage, own_threads
from tests.worker.coordinator.operators import FakeOperator


@pytest.fixture
def operator(set_env):
    operator = FakeOperator()
    set_env(KUBERNETES_SERVER_URL=f"127.0.0.1:{operator.port}", KUBERNETES_POD_NAME="job-aggregator")
    yield operator
    operator.close()


@pytest.fixture
def stage(operator):
    stage = Stage("local")
    yield stage
    stage.close()
    assert "period_sync" not in own_threads()


def name_of(learner):
    return f"local:{learner.server.port}"


def test_learners_join_and_leave_as_the_operator_lists_them(operator, stage):
    one, other = (stage.learner(BatchLearner) for _ in range(2))
    operator.listed = {"learners": [name_of(one)], "collectors": ["c:1"]}
    aggregator, driver = stage.pair(sync_period_s=0.01)
    assert operator.parameters == {"namespace": "default", "aggregator": "job-aggregator"}
    assert driver.run("resource") == {"gpu": 1}
    driver.start()
    operator.listed = {"learners": [name_of(one), name_of(other)]}
    other.expect("resource")
    operator.see()
    assert driver.run("resource") == {"gpu": 2} and driver.ask()["batch_size"] == 2
    driver.close()
    driver.start()
    assert driver.ask()["batch_size"] == 4
    driver.close()
    operator.listed = {"learners": [name_of(other)]}
    while driver.run("resource") != {"gpu": 1}:
        operator.see()


def test_an_aggregator_that_is_brought_no_learner_in_time_does_not_start(operator, stage):
    aggregator = stage.make(sync_period_s=0.01, connect_timeout_s=0.05)
    with pytest.raises(ConnectionError):
        aggregator.start()
    with pytest.raises(RuntimeError, match="the worker is closed"):
        aggregator.deal_with_learner_start({"task_info": {}})
