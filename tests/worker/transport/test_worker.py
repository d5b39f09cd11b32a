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


def test_one_task_runs_at_a_time(slot, ended):
    assert slot.begin(lambda: work("one")) is slot.task
    with pytest.raises(RuntimeError, match="the singer is busy with the task one"):
        slot.begin(lambda: work("two"))
    assert slot.end() == {"songs": 1, "task_id": "one"}
    slot.begin(lambda: work("two"))
    assert ended == ["one"] and slot.task.ids["task_id"] == "two"


def test_the_last_report_is_given_again_until_the_next_task(slot):
    assert slot.end() == {}
    slot.begin(lambda: work("one"))
    report = slot.end()
    assert slot.end() == report == {"songs": 1, "task_id": "one"}
    slot.begin(lambda: work("two"))
    assert slot.task is not None and slot.end()["task_id"] == "two"


def test_what_cannot_begin_leaves_the_slot_free(slot):
    with pytest.raises(ZeroDivisionError):
        slot.begin(lambda: 1 / 0)
    assert slot.task is None


def test_what_cannot_end_leaves_the_slot_free(ended):
    slot = TaskSlot("singer", lambda run: 1 / 0, 1)
    slot.begin(lambda: work("one"))
    with pytest.raises(ZeroDivisionError):
        slot.end()
    assert slot.task is None and slot.end() == {}


def test_a_closed_slot_takes_nothing_more(slot, ended):
    slot.begin(lambda: work("one"))
    slot.close()
    slot.close()
    with pytest.raises(RuntimeError, match="takes no more tasks"):
        slot.begin(lambda: work("two"))
    assert ended == ["one"]


def join(name):
    for thread in threading.enumerate():
        if thread.name == name:
            thread.join(DEADLINE_S)


def test_an_abandoned_run_ends_by_itself(slot, ended):
    slot.abandon()
    slot.begin(lambda: work("one"))
    slot.abandon()
    join("singer_abandon")
    assert ended == ["one"] and slot.task is None


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


def test_a_new_run_waits_for_the_end_of_an_abandoned_one(ended, leave):
    slot = slow_slot(ended, leave, DEADLINE_S)
    slot.begin(lambda: work("one"))
    slot.abandon()
    beginning = threading.Thread(target=slot.begin, args=(lambda: (ended.append("begin"), work("two"))[1],))
    beginning.start()
    leave.set()
    beginning.join(DEADLINE_S)
    assert ended == ["one", "begin"] and slot.task.ids["task_id"] == "two"


def test_an_abandoned_run_that_hangs_keeps_the_slot_from_nobody(ended, leave):
    slot = slow_slot(ended, leave, 0.05)
    slot.begin(lambda: work("one"))
    slot.abandon()
    slot.begin(lambda: work("two"))
    assert ended == [] and slot.task.ids["task_id"] == "two"
    leave.set()
    join("singer_abandon")
    assert ended == ["one"] and slot.task.ids["task_id"] == "two"


def test_a_run_whose_coordinator_goes_while_it_is_made_ends_at_once(slot, ended):
    def make():
        slot.abandon()
        return work("one")

    with pytest.raises(RuntimeError, match="the coordinator has left before its task has started"):
        slot.begin(make)
    assert ended == ["one"] and slot.task is None
    slot.begin(lambda: work("two"))  # another coordinator has come
    assert slot.task.ids["task_id"] == "two"


def test_one_thread_waits_for_another_only_so_long(slot):
    inside, leave = threading.Event(), threading.Event()
    thread = threading.Thread(target=slot.begin, args=(lambda: (inside.set(), leave.wait(DEADLINE_S), work("one"))[2],))
    thread.start()
    assert inside.wait(DEADLINE_S)
    with pytest.raises(TimeoutError, match=r"the singer has been starting or ending a task for 0.05 s"):
        slot.end()
    leave.set()
    thread.join(DEADLINE_S)


class Told:
    def __init__(self):
        self.what = None

    def fail(self, error):
        self.what = error

    def finish(self):
        self.what = "end"


def test_a_thread_tells_that_it_came_to_its_end():
    told = Told()
    thread = worker_thread("work", lambda: None, told)
    assert thread.daemon and thread.name == "work"
    thread.start()
    thread.join(DEADLINE_S)
    assert told.what == "end"


@pytest.mark.parametrize("error", [ZeroDivisionError, SystemExit])
def test_a_thread_tells_what_it_died_of(error):
    def die():
        raise error

    told = Told()
    thread = worker_thread("work", die, told)
    thread.start()
    thread.join(DEADLINE_S)
    assert type(told.what) is error
