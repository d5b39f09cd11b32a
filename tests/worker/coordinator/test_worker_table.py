import random

import pytest

from ding.worker.coordinator.worker_table import NaiveResourceManager, Worker, WorkerTable

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
def test_a_worker_is_free_from_its_update_until_it_is_assigned_or_deleted(kind):
    manager = NaiveResourceManager()
    assert manager.have_assigned(kind, "w") is False
    for gpus in (1, 2):
        manager.update(kind, "w", {"gpu": gpus})
        assert manager.have_assigned(kind, "w") is True
        assert assign(manager, kind)["resource_info"] == {"gpu": gpus}
        assert manager.have_assigned(kind, "w") is False
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


def test_a_lost_worker_is_neither_found_nor_free_again_and_its_old_connection_says_nothing_about_the_new_one():
    table = WorkerTable()
    old, new = (Worker("collector", "c", client, {}) for client in (None, None))
    table.join(old)
    assert table.take("collector", {"task_id": "t"}) is old
    assert table.leave(old) is True and table.find("c") is None
    assert table.set_free(old) is False and table.take("collector", {"task_id": "u"}) is None
    assert table.count("collector") == table.free_count("collector") == 0
    table.join(new)
    assert table.leave(old) is False and table.set_free(old) is False
    assert table.take("collector", {"task_id": "u"}) is new and new.task == {"task_id": "u"}
    table.join(Worker("collector", "c", None, {}))
    assert table.find("c").restarts == 2
