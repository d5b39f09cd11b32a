"""A coordinator whose workers an operator brings, and takes away."""

import threading

import pytest

from ding.utils.config_helper import ConfigError
from ding.worker import Coordinator
from ding.worker.coordinator.comm_coordinator import CommCoordinator
from tests.worker.coordinator.fakes import (
    LOGGER,
    AutoLearner,
    batched_collector,
    collected,
    collector_task,
    commander_of,
    info,
    learner_task,
    local_cfg,
)
from tests.worker.coordinator.operators import PATIENCE_S
from tests.worker.coordinator.operators import operator as operator
from tests.worker.coordinator.test_comm_coordinator import Side


def section(operator, **changes):
    return {"system_addr": f"https://127.0.0.1:{operator.port}", "sync_period_s": 0.01, **changes}


def name_of(worker):
    return f"local:{worker.port}"


@pytest.fixture
def collectors(operator):
    """Makes collectors that the operator lists."""
    made = []

    def make(**answers):
        made.append(batched_collector(**answers))
        operator.listed = {**operator.listed, "collectors": [*operator.listed["collectors"], name_of(made[-1])]}
        return made[-1]

    yield make
    for worker in made:
        worker.close()


@pytest.fixture
def make(operator):
    made = []

    def make(**changes):
        cfg = local_cfg([], [], task_timeout=PATIENCE_S, operator_server=section(operator, **changes))
        side = Side()
        made.append(CommCoordinator(cfg.system.coordinator, side, LOGGER))
        made[-1].side = side
        return made[-1]

    yield make
    for comm in made:
        comm.close(timeout_s=1.0)


# Workers, one by one.


def test_workers_that_come_are_connected_and_told(operator, collectors, make):
    comm = make(collector_target_num=1, learner_target_num=1)
    learner = AutoLearner(iterations=1)
    operator.listed = {"collectors": [], "learners": [name_of(learner.worker)]}
    collector = collectors()
    comm.start()
    assert (comm.workers.free_count("collector"), comm.workers.free_count("learner")) == (1, 1)
    told = sorted(comm.side.told.get(timeout=PATIENCE_S) for _ in range(2))
    assert told == [("increase_collector",), ("worker_free", "learner", name_of(learner.worker))]
    assert comm.send_collector_task(collector_task("t"))
    collector.reply(collected([], [info(True)]))
    assert comm.side.expect("worker_free") == ("collector", name_of(collector))
    comm.close()
    learner.close()


# The start.


def test_the_start_asks_for_workers_and_waits_for_enough_of_both_kinds(operator, collectors, make):
    request = {"collectors": {"replicas": 2}, "learners": {"replicas": 1}}
    comm = make(init_replicas_request=request, collector_target_num=1, learner_target_num=1)
    learner = AutoLearner(iterations=1)
    started = threading.Event()
    starting = threading.Thread(target=lambda: comm.start() or started.set())
    starting.start()
    assert operator.requests.get(timeout=PATIENCE_S)[3].items() >= request.items()
    collectors()
    comm.side.expect("increase_collector")
    operator.see()
    assert not started.is_set()  # one kind is not enough
    operator.listed = {**operator.listed, "learners": [name_of(learner.worker)]}
    assert started.wait(PATIENCE_S)
    comm.close()
    learner.close()


@pytest.mark.differs(
    "ends the process with exit code 1 if an operator brings no workers, starts with one kind of them, and fails "
    "when a free one vanishes",
    "raises an error with what is missing, needs both kinds, and lets workers vanish",
)
def test_too_few_workers_are_an_error(operator, make, monkeypatch):
    monkeypatch.setattr(CommCoordinator, "_max_retry_second", 0.05)
    with pytest.raises(ConnectionError):
        make(collector_target_num=2, learner_target_num=1).start()


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"system_addr": "op:port"}, "system_addr = 'op:port' is not allowed"),
        ({"collector_target_num": -1}, "collector_target_num = -1 is not allowed"),
        ({"init_replicas_request": [1]}, r"init_replicas_request = \[1\] is not allowed"),
    ],
)
def test_its_section_is_checked(operator, changes, match):
    cfg = local_cfg([], [], operator_server=section(operator, **changes))
    with pytest.raises(ConfigError, match=match):
        Coordinator(cfg)


# Whole runs.


@pytest.fixture
def coordinator(operator):
    made = []

    def make(workers=(), **cfg):
        whole = local_cfg([], [], task_timeout=PATIENCE_S, operator_server=section(operator, **cfg))
        whole.system.coordinator.collector.update(workers)
        made.append(Coordinator(whole))
        return made[-1]

    yield make
    for one in made:
        one.close()


def close(coordinator, *collectors):
    """Close it while the collectors answer that they have nothing."""
    for worker in collectors:
        worker.answers["collector_data_task"] = lambda task: collected()
        worker.reply(collected())  # to what it was asked before
    coordinator.close()


def test_workers_that_come_later_are_given_the_tasks_that_wait(operator, collectors, coordinator, monkeypatch):
    monkeypatch.setattr("ding.worker.coordinator.scheduler.IDLE_S", 10 * PATIENCE_S)  # so it must be told
    one = coordinator()
    commander_of(one).learner_tasks.append(learner_task("l"))
    commander_of(one).collector_tasks.append(collector_task("c"))
    one.start()
    operator.see()
    learner = AutoLearner(iterations=1)
    operator.listed = {**operator.listed, "learners": [name_of(learner.worker)]}
    learner.worker.expect("resource"), learner.worker.expect("learner_start_task")
    worker = collectors()
    worker.expect("resource"), worker.expect("collector_start_task")
    assert commander_of(one)._collector_task_space.max_val == 2
    close(one, worker)
    learner.close()


def test_the_run_goes_on_without_a_collector_that_vanishes_with_its_task(operator, collectors, coordinator):
    one = coordinator(collector_target_num=1)
    worker = collectors()
    commander_of(one).collector_tasks.append(collector_task("c", is_eval=True))
    one.start()
    worker.expect("resource"), worker.expect("collector_start_task"), worker.expect("collector_data_task")
    operator.listed = {"collectors": []}
    commander_of(one).expect("notify_fail_collector_task", "c")
    commander_of(one).collector_tasks.append(collector_task("d", is_eval=True))
    other = collectors()
    assert other.expect("resource") and other.expect("collector_start_task")["task_info"]["task_id"] == "d"
    assert one.failure is None and commander_of(one)._collector_task_space.max_val == 2
    worker.reply(collected())
    close(one, other)


def test_the_operator_hears_of_a_collector_that_was_lost_and_the_run_goes_on(operator, collectors, coordinator):
    one = coordinator(collector_target_num=1)
    worker = collectors(collector_start_task=lambda task: worker.server.close(timeout_s=0))
    commander_of(one).collector_tasks.append(collector_task("c", is_eval=True))
    one.start()
    assert operator.requests.get(timeout=PATIENCE_S)[3]["collectors"] == ["local"]
    commander_of(one).expect("notify_fail_collector_task", "c")
    assert one.failure is None
