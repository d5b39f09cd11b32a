import random

import pytest

from ding.worker.coordinator.worker_table import NaiveResourceManager, Worker, WorkerStatus, WorkerTable
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


def test_a_lost_worker_is_neither_found_nor_given_a_task_nor_free_again(table, join):
    busy, free = join("collector", "busy"), None
    assert table.take("collector", collector_task("t")) is busy
    free = join("collector", "free")
    assert (table.find("busy"), table.find("free"), table.find("nobody")) == (busy, free, None)
    assert table.leave(busy) and table.leave(free)
    assert (table.find("busy"), table.find("free")) == (None, None)
    assert table.set_free(busy) is False and table.take("collector", collector_task("u")) is None
    assert table.count("collector") == table.free_count("collector") == 0


def test_each_return_counts_as_a_restart(table, join):
    for port in (1, 2, 3):
        worker = join("collector", "c", f"here:{port}", port)
        assert table.statuses()[0] == WorkerStatus("collector", "c", f"here:{port}", "free", None, port, port - 1)
        table.leave(worker)
    assert states(table) == {"c": ("lost", None, 2)}


def test_an_old_connection_that_ends_late_says_nothing_about_the_new_one(table, join):
    old, new = join("collector", "c"), join("collector", "c")
    assert table.leave(old) is False and table.set_free(old) is False
    assert table.take("collector", collector_task("task")) is new
    assert states(table) == {"c": ("busy", "task", 1)}


KINDS = ("collector", "learner")


def assign(manager, kind):
    return getattr(manager, f"assign_{kind}")({"task_id": "t"})


@pytest.mark.parametrize("kind", KINDS)
def test_each_free_worker_is_assigned_once(kind):
    manager = NaiveResourceManager()
    for i in range(3):
        manager.update(kind, f"w{i}", {"gpu": i})
    assert manager.count(kind) == 3
    assigned = [assign(manager, kind) for _ in range(3)]
    assert sorted(worker[f"{kind}_id"] for worker in assigned) == ["w0", "w1", "w2"]
    assert all(worker["resource_info"] == {"gpu": int(worker[f"{kind}_id"][1])} for worker in assigned)
    assert assign(manager, kind) is None and manager.count(kind) == 0


def test_the_kinds_are_kept_apart():
    manager = NaiveResourceManager()
    manager.update("learner", "w", {})
    assert manager.assign_collector({}) is None and manager.assign_learner({}) is not None


@pytest.mark.parametrize("kind", KINDS)
def test_a_worker_that_was_updated_may_be_assigned_again(kind):
    manager = NaiveResourceManager()
    manager.update(kind, "w", {"gpu": 1})
    assign(manager, kind)
    manager.update(kind, "w", {"gpu": 2})
    assert assign(manager, kind)["resource_info"] == {"gpu": 2}


@pytest.mark.parametrize("kind", KINDS)
def test_have_assigned_tells_whether_a_worker_is_free(kind):
    manager = NaiveResourceManager()
    assert manager.have_assigned(kind, "w") is False
    manager.update(kind, "w", {})
    assert manager.have_assigned(kind, "w") is True
    assign(manager, kind)
    assert manager.have_assigned(kind, "w") is False


@pytest.mark.parametrize("kind", KINDS)
def test_deleting_a_free_worker_takes_it_out(kind):
    manager = NaiveResourceManager()
    manager.update(kind, "w", {})
    assert manager.delete(kind, "w") is True
    assert manager.delete(kind, "w") is False
    assert assign(manager, kind) is None


def test_an_unknown_kind_is_refused():
    manager = NaiveResourceManager()
    for call in (
        lambda: manager.update("actor", "w", {}),
        lambda: manager.have_assigned("actor", "w"),
        lambda: manager.delete("actor", "w"),
        lambda: manager.count("actor"),
    ):
        with pytest.raises(AssertionError, match="'actor' is not allowed; it must be one of collector, learner"):
            call()


def test_assigning_leaves_the_random_state_of_the_experiment_alone():
    manager = NaiveResourceManager()
    for i in range(5):
        manager.update("collector", f"w{i}", {})
    before = random.getstate()
    assign(manager, "collector")
    assert random.getstate() == before
