"""Workers are connected, given tasks and let go, whatever state they are in."""

import queue
import threading

import pytest

from ding.interaction.exception import TaskFail
from ding.worker.coordinator.buffer_set import BufferSet
from ding.worker.coordinator.comm_coordinator import CommCoordinator, TaskRun, Worker
from ding.worker.transport.transport import TaskFailed, WorkerLost
from tests.worker.coordinator.fakes import (
    LOGGER,
    PATIENCE_S,
    FakeWorker,
    batched_collector,
    collected,
    collector_task,
    finish_info,
    info,
    learner_task,
    local_cfg,
    rows,
)


class Side:
    """Puts what it is told into `told`; a method in `errors` raises that instead."""

    def __init__(self):
        self.told = queue.SimpleQueue()
        self.errors = {}

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if name in ("buffers", "normalization"):
            return BufferSet("exp", None, LOGGER) if name == "buffers" else {}

        def tell(*arguments, **named):
            self.told.put((name.removeprefix("deal_with_"), *arguments))
            if name in self.errors:
                raise self.errors[name]
            if name == "deal_with_collector_judge_finish":
                return arguments[1]["collector_done"]
            return False if name.startswith("is_") else None

        return tell

    def expect(self, name):
        """What is told by this name next; what comes before it is passed over."""
        while (told := self.told.get(timeout=PATIENCE_S))[0] != name:
            assert "error" not in told[0] and "lost" not in told[0], told
        return told[1:]


@pytest.fixture
def make():
    made = []

    def make(learners=(), collectors=(), **cfg):
        ports = [
            [worker if isinstance(worker, int) else worker.port for worker in kind] for kind in (learners, collectors)
        ]
        own = local_cfg(*ports, task_timeout=PATIENCE_S, **cfg).system.coordinator
        side = Side()
        made.append(CommCoordinator(own, side, LOGGER))
        made[-1].side = side
        return made[-1]

    yield make
    for comm in made:
        comm.close(timeout_s=1.0)


@pytest.fixture
def collector():
    worker = batched_collector()
    yield worker
    worker.close()


def task_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("coordinator_")]


def test_all_workers_are_connected_and_asked_for_their_resources(make, collector):
    learner = FakeWorker(resource=lambda task: {"gpu": 4})
    comm = make([learner], [collector])
    comm.start()
    assert (comm.workers.free_count("learner"), comm.workers.free_count("collector")) == (1, 1)
    assert comm.workers.find("learner0").resource == {"gpu": 4}
    learner.close()


@pytest.mark.differs("starts without workers that cannot be connected", "fails, and names them")
def test_workers_that_cannot_be_reached_are_all_named(make, collector):
    failing = FakeWorker(resource=lambda task: TaskFail(result={"message": "out of order"}))
    comm = make([failing], [collector, 999, 998])
    with pytest.raises(ConnectionError) as error:
        comm.start()
    text = str(error.value)
    assert "learner0: " in text and "out of order" in text
    assert "collector1: " in text and "999" in text and "collector2: " in text
    assert "collector0" not in text
    failing.close()


def test_a_finished_task_is_told_and_its_worker_is_free_again(make, collector):
    comm = make([], [collector])
    comm.start()
    task = collector_task("t")
    assert comm.send_collector_task(task) is True
    assert comm.send_collector_task(collector_task("u")) is False
    collector.reply(collected(rows("a", 2), [info(True)]))
    assert comm.side.expect("collector_send_data") == ("t", "buffer", "a", rows("a", 2))
    assert comm.side.expect("collector_finish_task") == ("t", finish_info())
    assert comm.side.expect("worker_free") == ("collector", "collector0")
    assert comm.workers.free_count("collector") == 1
    assert collector.log == ["resource", "collector_start_task", "collector_data_task", "collector_close_task"]
    _join_tasks()
    assert comm.workers.busy() == []


def _join_tasks():
    for thread in task_threads():
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


@pytest.mark.parametrize(
    "callback", ["deal_with_collector_send_data", "deal_with_collector_judge_finish", "deal_with_collector_finish_task"]
)
def test_an_exception_of_a_callback_is_told_and_the_task_closed(make, collector, callback):
    comm = make([], [collector])
    comm.start()
    comm.side.errors[callback] = error = RuntimeError("bad sample")
    comm.send_collector_task(collector_task("t"))
    collector.reply(collected(rows("a", 1), [info(True)]))
    while (told := comm.side.told.get(timeout=PATIENCE_S))[0] != "task_error":
        continue
    assert told[3] is error
    comm.side.expect("worker_free")
    assert collector.log[-1] == "collector_close_task" and collector.log.count("collector_close_task") == 1


@pytest.mark.differs("sets no limit on the time of a task", "limits each message by `task_timeout`")
def test_a_worker_that_does_not_answer_in_time_is_lost(make):
    release = threading.Event()
    worker = batched_collector(collector_start_task=lambda task: release.wait(PATIENCE_S))
    comm = make([], [worker])
    comm._cfg.task_timeout = 0.05
    comm.start()
    task = collector_task("t")
    comm.send_collector_task(task)
    while (told := comm.side.told.get(timeout=PATIENCE_S))[0] != "worker_lost":
        continue
    assert told[1:4] == ("collector", "collector0", task)
    assert isinstance(told[4], WorkerLost) and "within 0.05 s" in str(told[4])
    _join_tasks()
    assert comm.workers.free_count("collector") == 0
    release.set()
    worker.close()


def test_closing_ends_running_tasks_without_telling_of_them(make, collector):
    learner = FakeWorker(
        resource=lambda task: {"gpu": 1},
        learner_start_task=lambda task: {},
        learner_get_data_task=lambda task: {"batch_num": 0, "infos": [], "batches_done": 0},
        learner_close_task=lambda task: TaskFail(result={"message": "it is not needed any more"}),
    )
    collector.answers["collector_data_task"] = lambda task: collected()
    comm = make([learner], [collector])
    comm.start()
    comm.send_learner_task(learner_task("l"))
    comm.send_collector_task(collector_task("c"))
    for name in ("resource", "collector_start_task", "collector_data_task"):
        collector.expect(name)
    comm.close()
    assert task_threads() == []
    assert collector.log[-1] == "collector_close_task" and learner.log[-1] == "learner_close_task"
    told = [comm.side.told.get() for _ in range(comm.side.told.qsize())]
    assert not [name for name, *_ in told if "finish_task" in name or "error" in name or "lost" in name]
    assert comm.send_collector_task(collector_task("later")) is False
    comm.close()
    learner.close()


def test_closing_does_not_wait_for_a_worker_that_hangs(make, caplog):
    release = threading.Event()
    worker = batched_collector(collector_data_task=lambda task: release.wait(PATIENCE_S))
    comm = make([], [worker])
    comm.start()
    comm.send_collector_task(collector_task("t"))
    worker.expect("resource"), worker.expect("collector_start_task"), worker.expect("collector_data_task")
    comm.close(timeout_s=0.05)
    assert task_threads() == []
    assert "tasks have not ended within 0.05 s and are aborted: ['t']" in caplog.text
    assert comm.side.told.empty()
    release.set()
    worker.close()


# The messages of a task while its worker has to wait, is lost, or is told of others.


class ScriptedLink:
    """Answers with the next reply, which may be an exception; keeps what it was sent."""

    def __init__(self, *replies):
        self.replies, self.sent, self.timeouts_s = list(replies), [], []

    def run(self, task, timeout_s):
        self.timeouts_s.append(timeout_s)
        self.sent.append(dict(task))
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply

    @property
    def names(self):
        return [task["name"] for task in self.sent]


class WaitingSide:
    """A coordinator that lets a collector be asked as `may_ask` says, and has no batches for a learner."""

    def __init__(self, *may_ask, is_ending=False):
        self.may_ask, self.answers, self.buffers = list(may_ask), 0, self
        self.is_ending = lambda: is_ending

    def ask(self, buffer_id, task_id, timeout_s):
        return self.may_ask.pop(0) if self.may_ask else True

    def answered(self, buffer_id, task_id):
        self.answers += 1

    def deal_with_collector_judge_finish(self, task_id, data):
        return data["collector_done"]

    def _nothing(self, *arguments):
        return None

    deal_with_collector_send_data = is_collector_task_useless = deal_with_learner_get_data = wait_for_push = _nothing


class LearningSide(WaitingSide):
    states = [{}, {"obs": {"size": 1}}, {"obs": {"size": 1}}, {"obs": {"size": 2}}]

    @property
    def normalization(self):
        return self.states.pop(0)


def run_of(kind, side, *replies, **task):
    link = ScriptedLink(*replies)
    task = {"task_id": "t", "buffer_id": "b", "collector_cfg": {"eval_flag": False}, **task}
    return TaskRun(Worker(kind, f"{kind}0", link, {"gpu": 1}), task, side, 7.0, side.is_ending), link


def test_a_collector_that_must_wait_for_the_learner_is_asked_for_a_sign_of_life_only():
    side = WaitingSide(False, False, True)
    run, link = run_of("collector", side, {"gpu": 1}, {"gpu": 1}, collected(rows("a", 1), [info(True)]))
    assert run.run()
    assert link.names == ["resource", "resource", "collector_data_task"] and side.answers == 1


def test_a_collector_that_is_lost_keeps_no_other_from_being_asked():
    side = WaitingSide()
    run, _ = run_of("collector", side, WorkerLost("gone"))
    with pytest.raises(WorkerLost):
        run.run()
    assert side.answers == 1


@pytest.mark.parametrize(("kind", "timeout_s"), [("collector", 3.0), ("learner", 7.0)])
def test_a_collector_is_not_waited_for_when_the_run_ends_but_a_learner_is(kind, timeout_s):
    run, link = run_of(kind, WaitingSide(is_ending=True), {"message": "started"}, {"result": 1})
    run.start()
    assert run.close() == {"result": 1} and link.timeouts_s == [7.0, timeout_s]


def test_a_learner_is_told_the_statistics_of_collectors_when_they_have_changed():
    demand = {"batch_size": 2, "cur_learner_iter": 5, "batch_num": 0, "infos": [], "batches_done": 0}
    link, side = ScriptedLink(*[demand] * 3, TaskFailed("w", "t", {"message": "over"})), LearningSide()
    worker = Worker("learner", "learner0", link, {"gpu": 1})
    task = {"task_id": "t", "buffer_id": "b"}
    run = TaskRun(worker, task, side, 7.0, side.is_ending)
    with pytest.raises(TaskFailed):
        run.run()
    assert [sent.get("normalization") for sent in link.sent] == [None, {"obs": {"size": 1}}, None, {"obs": {"size": 2}}]
