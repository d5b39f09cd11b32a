import pytest

from ding.worker.coordinator.worker_table import Worker, WorkerStatus, WorkerTable
from tests.worker.coordinator.fakes import collector_task, learner_task


class WorkerClient:
    def __init__(self, silence_s=1.0):
        self._silence_s = silence_s

    def silence_s(self):
        return self._silence_s


@pytest.fixture
def table():
    return WorkerTable()


@pytest.fixture
def join(table):
    def join(kind, name, address="", silence_s=1.0):
        worker = Worker(kind, name, WorkerClient(silence_s), {"of": name}, address)
        table.join(worker)
        return worker

    return join


def states(table):
    return {worker.name: (worker.state, worker.task_id, worker.restarts) for worker in table.statuses()}


def test_workers_are_free_busy_or_lost(table, join):
    learner = join("learner", "learner0", "learner0:1")
    lost = join("collector", "collector1", "collector1:1")
    assert table.take("learner", learner_task("train")) is learner
    assert table.take("collector", collector_task("its last task")) is lost
    join("collector", "collector0", "collector0:1")
    assert table.leave(lost) is True
    assert table.statuses() == (
        WorkerStatus("learner", "learner0", "learner0:1", "busy", "train", 1.0, 0),
        WorkerStatus("collector", "collector0", "collector0:1", "free", None, 1.0, 0),
        WorkerStatus("collector", "collector1", "collector1:1", "lost", None, 1.0, 0),
    )
    assert [(table.count(kind), table.free_count(kind)) for kind in ("learner", "collector")] == [(1, 0), (1, 1)]


def test_a_worker_has_one_task_at_a_time(table, join):
    worker = join("collector", "c")
    assert table.take("learner", learner_task("l")) is None
    assert (
        table.take("collector", collector_task("t")) is worker and table.take("collector", collector_task("u")) is None
    )
    assert table.set_free(worker) is True and table.take("collector", collector_task("u")) is worker


def test_a_lost_worker_is_neither_found_nor_given_a_task_nor_free_again(table, join):
    busy, free = join("collector", "busy"), None
    assert table.take("collector", collector_task("t")) is busy
    free = join("collector", "free")
    assert (table.find("busy"), table.find("free"), table.find("nobody")) == (busy, free, None)
    assert table.leave(busy) and table.leave(free)
    assert (table.find("busy"), table.find("free")) == (None, None)
    assert table.set_free(busy) is False and table.take("collector", collector_task("u")) is None
    assert table.count("collector") == table.free_count("collector") == 0


def test_a_worker_leaves_once_and_only_if_it_is_free_where_that_is_asked(table, join):
    worker = join("collector", "c")
    table.take("collector", collector_task("t"))
    assert table.leave(worker, only_if_free=True) is False and table.find("c") is worker
    table.set_free(worker)
    assert table.leave(worker, only_if_free=True) is True and table.leave(worker) is False


def test_each_return_counts_as_a_restart_and_tasks_are_counted_on(table, join):
    for port in (1, 2, 3):
        worker = join("collector", "c", f"here:{port}", port)
        assert table.statuses()[0] == WorkerStatus("collector", "c", f"here:{port}", "free", None, port, port - 1)
        worker.given[False] += 1
        table.leave(worker)
    assert states(table) == {"c": ("lost", None, 2)} and worker.given == {False: 3}


def test_an_old_connection_that_ends_late_says_nothing_about_the_new_one(table, join):
    old, new = join("collector", "c"), join("collector", "c")
    assert table.leave(old) is False and table.set_free(old) is False
    assert table.take("collector", collector_task("task")) is new
    assert states(table) == {"c": ("busy", "task", 1)}
