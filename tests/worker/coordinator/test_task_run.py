"""The messages of a task, one by one and several at once: their order, their contents, and where they lead."""

import pytest

from ding.worker.coordinator.comm_coordinator import TaskRun, Worker
from ding.worker.transport.chunk import unpack_batches
from ding.worker.transport.transport import TaskFailed, WorkerLost
from tests.worker.coordinator.fakes import collected, info, rows


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


class Side:
    """Keeps what it is told; gives the batches that the test has put there, None for None; is its own buffers."""

    normalization = {}

    def __init__(self, *batches, end_after=None):
        self.told, self.batches, self.end_after = [], list(batches), end_after
        self.useless, self.buffers = False, self
        self.may_ask, self.answers = [], 0

    def ask(self, buffer_id, task_id, timeout_s):
        return self.may_ask.pop(0) if self.may_ask else True

    def answered(self, buffer_id, task_id):
        self.answers += 1

    def deal_with_collector_send_data(self, task_id, buffer_id, data_id, data):
        self.told.append(("data", task_id, buffer_id, data_id, data))

    def deal_with_collector_judge_finish(self, task_id, data):
        self.told.append(("judge", task_id, data["cur_step"]))
        return data["collector_done"]

    def is_collector_task_useless(self, task_id):
        return self.useless

    def deal_with_collector_finish_task(self, task_id, finished_task):
        self.told.append(("finish", task_id, finished_task))

    def deal_with_learner_get_data(self, task_id, buffer_id, batch_size, cur_learner_iter, wait_s):
        self.told.append(("get", task_id, buffer_id, batch_size, cur_learner_iter))
        return self.batches.pop(0) if self.batches else None

    def trained(self, task_id, count):
        self.told.append(("done", task_id, count))

    def deal_with_learner_judge_finish(self, task_id, info):
        return bool(info.get("learner_done"))

    def deal_with_learner_send_info(self, task_id, buffer_id, info):
        self.told.append(("info", task_id, buffer_id, info["learner_step"]))

    def deal_with_learner_finish_task(self, task_id, finished_task):
        self.told.append(("finish", task_id, finished_task))

    def is_ending(self):
        return self.end_after is not None and len(self.told) >= self.end_after


def run_of(kind, side, *replies, **task):
    link = ScriptedLink(*replies)
    task = {"task_id": "t", "buffer_id": "b", "collector_cfg": {"eval_flag": False}, **task}
    return TaskRun(Worker(kind, f"{kind}0", link, {"gpu": 1}), task, side, 7.0, side.is_ending), link


def learn_info(step, is_done=False):
    return {"learner_step": step, "learner_done": is_done, "priority_info": {}}


def demand(count, *infos, done=0):
    return {"batch_size": 2, "cur_learner_iter": 5, "batch_num": count, "infos": list(infos), "batches_done": done}


@pytest.mark.parametrize("kind", ["collector", "learner"])
def test_a_task_begins_with_who_runs_it_and_ends_with_its_close_task(kind):
    side = Side()
    run, link = run_of(kind, side, {"message": "started"}, {"result": 1}, policy_id="p")
    run.start()
    assert run.close() == {"result": 1} and link.timeouts_s == [7.0, 7.0]
    own = {f"{kind}_id": f"{kind}0", "resource_info": {"gpu": 1}}
    task_info = {"task_id": "t", "buffer_id": "b", "collector_cfg": {"eval_flag": False}, "policy_id": "p", **own}
    assert link.sent == [
        {"name": f"{kind}_start_task", "task_info": task_info},
        {"name": f"{kind}_close_task"},
    ]


def test_a_collector_that_must_wait_for_the_learner_is_asked_for_a_sign_of_life_only():
    side = Side()
    side.may_ask = [False, False, True]
    run, link = run_of("collector", side, {"gpu": 1}, {"gpu": 1}, collected(rows("a", 1), [info(True)]))
    assert run.run()
    assert link.names == ["resource", "resource", "collector_data_task"] and side.answers == 1


def test_a_collector_that_is_lost_keeps_no_other_from_being_asked():
    side = Side()
    run, _ = run_of("collector", side, WorkerLost("gone"))
    with pytest.raises(WorkerLost):
        run.run()
    assert side.answers == 1


@pytest.mark.parametrize(("kind", "timeout_s"), [("collector", 3.0), ("learner", 7.0)])
def test_a_collector_is_not_waited_for_when_the_run_ends_but_a_learner_is(kind, timeout_s):
    run, link = run_of(kind, Side(end_after=0), {"message": "started"}, {"result": 1})
    run.start()
    assert run.close() == {"result": 1} and link.timeouts_s == [7.0, timeout_s]


def test_a_learner_is_told_the_statistics_of_collectors_when_they_have_changed():
    class LearningSide(Side):
        states = [{}, {"obs": {"size": 1}}, {"obs": {"size": 1}}, {"obs": {"size": 2}}]

        @property
        def normalization(self):
            return self.states.pop(0)

    link, side = ScriptedLink(*[demand(0)] * 3, TaskFailed("w", "t", {"message": "over"})), LearningSide()
    worker = Worker("learner", "learner0", link, {"gpu": 1})
    task = {"task_id": "t", "buffer_id": "b"}
    run = TaskRun(worker, task, side, 7.0, side.is_ending)
    with pytest.raises(TaskFailed):
        run.run()
    assert [sent.get("normalization") for sent in link.sent] == [None, {"obs": {"size": 1}}, None, {"obs": {"size": 2}}]


def test_a_collector_is_asked_until_it_is_done():
    side = Side()
    first, second = rows("a", 3, eval_flag=False), rows("b", 1, eval_flag=False)
    run, link = run_of(
        "collector",
        side,
        collected(first, [info(cur_step=4)]),
        collected(),
        collected(second, [info(cur_step=8), info(True, cur_step=9), info(cur_step=10)]),
    )
    assert run.run() is True
    assert link.names == ["collector_data_task"] * 3
    assert side.told == [
        ("data", "t", "b", "a", first),
        ("judge", "t", 4),
        ("data", "t", "b", "b", second),
        ("judge", "t", 8),
        ("judge", "t", 9),
        ("judge", "t", 10),  # each info counts, also after the one that says the end
    ]


def test_a_learner_gets_as_many_batches_as_it_wants_in_one_message():
    batches = [rows("a", 2), rows("b", 2), rows("c", 2)]
    side = Side(*batches)
    run, link = run_of("learner", side, demand(2), demand(0), demand(0), demand(0))
    side.end_after = 2
    assert run.run() is False
    assert link.names == ["learner_get_data_task", "learner_learn_task"]
    assert unpack_batches(link.sent[1]) == batches[:2]
    assert side.told == [("get", "t", "b", 2, 5)] * 2


def test_what_a_learner_wants_next_may_come_with_its_answer():
    batches = [rows("a", 2), rows("b", 2), rows("c", 2)]
    side = Side(*batches)
    answers = demand(1, learn_info(0), done=1), demand(1, learn_info(1)), demand(0, learn_info(2, True))
    run, link = run_of("learner", side, demand(1), *answers)
    assert run.run() is True
    assert link.names == ["learner_get_data_task", *["learner_learn_task"] * 3]
    assert [unpack_batches(task) for task in link.sent[1:]] == [[b] for b in batches]
    assert all(task["demand"] for task in link.sent[1:])
    get = ("get", "t", "b", 2, 5)
    assert side.told == [get, ("done", "t", 1), ("info", "t", "b", 0), get, ("info", "t", "b", 1), get]
