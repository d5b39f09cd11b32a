"""The place of a worker's one task."""

import threading
from typing import Any, NamedTuple

import pytest

from ding.worker.transport.comm_worker import TaskSlot, worker_thread

DEADLINE_S = 60


class Work(NamedTuple):
    ids: dict[str, Any]


def work(name):
    return Work({"task_id": name, "buffer_id": "b"})


@pytest.fixture
def ended():
    return []


@pytest.fixture
def slot(ended):
    return TaskSlot("singer", lambda run: (ended.append(run.ids["task_id"]), {"songs": len(ended)})[1], 0.05)


def test_what_cannot_end_leaves_the_slot_free(ended):
    slot = TaskSlot("singer", lambda run: 1 / 0, 1)
    slot.begin(lambda: work("one"))
    with pytest.raises(ZeroDivisionError):
        slot.end()
    assert slot.task is None and slot.end() == {}


def join(name):
    for thread in threading.enumerate():
        if thread.name == name:
            thread.join(DEADLINE_S)


@pytest.fixture
def leave():
    leave = threading.Event()
    yield leave
    leave.set()
    join("singer_abandon")


def slow_slot(ended, leave, timeout_s):
    def end(run):
        assert leave.wait(DEADLINE_S)
        ended.append(run.ids["task_id"])
        return {}

    return TaskSlot("singer", end, timeout_s)


def test_an_abandoned_run_that_hangs_keeps_the_slot_from_nobody(ended, leave):
    slot = slow_slot(ended, leave, 0.05)
    slot.begin(lambda: work("one"))
    slot.abandon()
    slot.begin(lambda: work("two"))
    assert ended == [] and slot.task.ids["task_id"] == "two"
    leave.set()
    join("singer_abandon")
    assert ended == ["one"] and slot.task.ids["task_id"] == "two"


def test_a_new_run_begins_when_an_abandoned_one_has_ended(ended, leave):
    slot = slow_slot(ended, leave, DEADLINE_S)
    slot.begin(lambda: work("one"))
    slot.abandon()
    threading.Timer(0.05, leave.set).start()
    slot.begin(lambda: ended.append("two") or work("two"))
    assert ended == ["one", "two"]


def test_a_run_whose_coordinator_goes_while_it_is_made_ends_at_once(slot, ended):
    def make():
        slot.abandon()
        return work("one")

    slot.begin(make)
    join("singer_abandon")
    assert ended == ["one"] and slot.task is None
    slot.begin(lambda: work("two"))  # another coordinator has come
    assert slot.task.ids["task_id"] == "two"


class Told:
    def __init__(self):
        self.what = None

    def fail(self, error):
        self.what = error

    def finish(self):
        self.what = "end"


@pytest.mark.parametrize("error", [ZeroDivisionError, SystemExit])
def test_a_thread_tells_what_it_died_of(error):
    def die():
        raise error

    told = Told()
    thread = worker_thread("work", die, told)
    thread.start()
    thread.join(DEADLINE_S)
    assert type(told.what) is error
