"""Tasks find their way to workers as soon as they can begin, and none waits behind another."""

import queue
import threading
from types import SimpleNamespace

import pytest

from ding.worker.coordinator.buffer_set import BufferSet
from ding.worker.coordinator.run_monitor import RunMonitor
from ding.worker.coordinator.scheduler import TaskScheduler
from tests.worker.coordinator.fakes import LOGGER, PATIENCE_S, ScriptedCommander, learner_task

NEVER = {"learner": 1e9, "collector": 1e9}


class ScriptedScheduler(TaskScheduler):
    """Has `free` workers and `tasks` by kind; tasks in `blocked` cannot begin."""

    def __init__(self, free=(0, 0), learner=(), collector=(), blocked=(), timeouts_s=NEVER):
        super().__init__(None, None, None, None, self, timeouts_s)
        self.free = dict(zip(("learner", "collector"), free, strict=True))
        self.tasks = {"learner": list(learner), "collector": list(collector)}
        self.blocked = set(blocked)
        self.events = queue.SimpleQueue()
        self.asked = 0

    def free_count(self, kind):
        return self.free[kind]

    def next_task(self, kind):
        self.asked += 1
        task = self.tasks[kind].pop(0) if self.tasks[kind] else None
        if isinstance(task, Exception):
            raise task
        if task is None:
            self.events.put(("nothing", kind))
        return task

    def begin_task(self, kind, task):
        if task in self.blocked or not self.free[kind]:
            return False
        self.free[kind] -= 1
        self.events.put(("begin", kind, task))
        return True

    def drop_task(self, kind, task):
        self.events.put(("drop", kind, task))

    def deal_with_error(self, error):
        self.events.put(("error", error))

    def expect(self, *event):
        while (got := self.events.get(timeout=PATIENCE_S))[0] == "nothing" and event[0] != "nothing":
            continue
        assert got == event


@pytest.fixture
def start():
    made = []

    def start(*args, **kwargs):
        made.append(ScriptedScheduler(*args, **kwargs))
        made[-1].start()
        return made[-1]

    yield start
    for scheduler in made:
        scheduler.end()
        scheduler.join(PATIENCE_S)
        assert assigning() == []


def assigning():
    """The threads of schedulers."""
    return [thread for thread in threading.enumerate() if thread.name == "coordinator_assign"]


def test_learners_come_first_and_each_free_worker_gets_a_task(start):
    scheduler = start(free=(1, 2), learner=["l1", "l2"], collector=["c1", "c2", "c3"])
    for event in (("begin", "learner", "l1"), ("begin", "collector", "c1"), ("begin", "collector", "c2")):
        scheduler.expect(*event)
    assert scheduler.tasks == {"learner": ["l2"], "collector": ["c3"]}


def test_nobody_is_asked_for_tasks_while_no_worker_is_free(start):
    scheduler = start(collector=["c1"])
    scheduler.free["learner"] = 1
    scheduler.notify()
    scheduler.expect("nothing", "learner")
    assert scheduler.tasks["collector"] == ["c1"]


def test_a_free_worker_gets_its_task_when_that_is_told(start):
    scheduler = start(collector=["c1"])
    scheduler.free["collector"] = 1
    scheduler.notify()
    scheduler.expect("begin", "collector", "c1")


@pytest.mark.differs("holds up all tasks behind one that begins slowly or cannot begin", "lets other tasks begin")
def test_a_task_that_cannot_begin_holds_up_no_other(start):
    scheduler = start(free=(0, 1), collector=["stuck", "c1"], blocked=["stuck"])
    scheduler.expect("begin", "collector", "c1")
    scheduler.blocked.clear()
    scheduler.free["collector"] = 1
    scheduler.notify()
    scheduler.expect("begin", "collector", "stuck")


def test_a_task_that_waits_too_long_is_dropped(start):
    scheduler = start(
        free=(0, 1), collector=["stuck"], blocked=["stuck"], timeouts_s={"learner": 1e9, "collector": 0.05}
    )
    scheduler.expect("drop", "collector", "stuck")


def test_a_commander_that_goes_by_the_clock_is_asked_again(start, monkeypatch):
    monkeypatch.setattr("ding.worker.coordinator.scheduler.IDLE_S", 0.01)
    scheduler = start(free=(1, 0))
    for _ in range(3):
        scheduler.expect("nothing", "learner")
    scheduler.tasks["learner"].append("l1")
    scheduler.expect("begin", "learner", "l1")


# What becomes of one task. No worker takes it: the last free one was lost.


@pytest.fixture
def alone():
    """A scheduler with a commander, buffers and a run, but without workers."""
    workers = SimpleNamespace(free_count={"learner": 1, "collector": 2}.get)
    comm = SimpleNamespace(
        workers=workers, send_learner_task=lambda task: False, send_collector_task=lambda task: False
    )
    buffers, side = BufferSet("exp", None, LOGGER), SimpleNamespace(error=lambda text: None)
    commander, run = ScriptedCommander({}), RunMonitor()
    scheduler = TaskScheduler(commander, buffers, run, comm, side, NEVER)
    yield SimpleNamespace(scheduler=scheduler, commander=commander, buffers=buffers.buffers, run=run)
    buffers.close()


def test_a_learner_task_that_never_began_leaves_no_buffer_and_is_not_kept(alone):
    alone.commander.learner_tasks.append(learner_task("l", replay_buffer_size=4))
    task = alone.scheduler.next_task("learner")
    assert alone.scheduler.begin_task("learner", task) is False
    assert list(alone.buffers) == ["buffer"] and alone.scheduler.learner_tasks == {"l": task}
    alone.scheduler.drop_task("learner", task)
    alone.commander.expect("notify_fail_learner_task", "l")
    assert (alone.buffers, alone.scheduler.learner_tasks) == ({}, {}) and not alone.run.is_over


def test_a_training_that_no_learner_goes_on_with_ends_the_run(alone):
    alone.scheduler.drop_task("learner", {**learner_task("l"), "resume": True})
    assert isinstance(alone.run.failure, TimeoutError)
    assert str(alone.run.failure) == "no learner was free in time to resume the task l"
