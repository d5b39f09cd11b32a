"""The messages of a task, one by one and several at once: their order, their contents, and where they lead."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ding.utils.msgpack_helper import pack
from ding.worker.coordinator.comm_coordinator import TaskRun, Worker
from ding.worker.transport.chunk import to_content, unpack_batches
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
    """Keeps what it is told; gives the batches that the test has put there, None for None."""

    def __init__(self, *batches, end_after=None):
        self.told, self.batches, self.end_after = [], list(batches), end_after
        self.useless = False
        self.may_ask, self.answered = [], 0

    def may_ask_collector(self, task_id, buffer_id):
        return self.may_ask.pop(0) if self.may_ask else True

    def deal_with_collector_answer(self, task_id, buffer_id):
        self.answered += 1

    def deal_with_collector_send_data(self, task_id, buffer_id, data_id, data):
        self.told.append(("data", task_id, buffer_id, data_id, data))

    def deal_with_collector_judge_finish(self, task_id, data):
        self.told.append(("judge", task_id, data["cur_step"]))
        return data["collector_done"]

    def is_collector_task_useless(self, task_id):
        return self.useless

    def deal_with_collector_finish_task(self, task_id, finished_task):
        self.told.append(("finish", task_id, finished_task))

    def deal_with_learner_get_data(self, task_id, buffer_id, batch_size, cur_learner_iter):
        self.told.append(("get", task_id, buffer_id, batch_size, cur_learner_iter))
        return self.batches.pop(0) if self.batches else None

    def wait_for_data(self, task_id):
        self.told.append(("wait", task_id))

    def deal_with_learner_batches_done(self, task_id, count):
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
    assert link.names == ["resource", "resource", "collector_data_task"] and side.answered == 1


def test_an_evaluation_does_not_wait_for_the_learner():
    side = Side()
    side.may_ask = [False]
    run, link = run_of("collector", side, collected([], [info(True)]), collector_cfg={"eval_flag": True})
    assert run.run() and link.names == ["collector_data_task"]


def test_a_collector_that_is_lost_keeps_no_other_from_being_asked():
    side = Side()
    run, _ = run_of("collector", side, WorkerLost("gone"))
    with pytest.raises(WorkerLost):
        run.run()
    assert side.answered == 1


@pytest.mark.parametrize(("kind", "timeout_s"), [("collector", 3.0), ("learner", 7.0)])
def test_a_collector_is_not_waited_for_when_the_run_ends_but_a_learner_is(kind, timeout_s):
    run, link = run_of(kind, Side(end_after=0), {"message": "started"}, {"result": 1})
    run.start()
    assert run.close() == {"result": 1} and link.timeouts_s == [7.0, timeout_s]


def test_metadata_pass_in_columns_both_ways_without_being_looked_at():
    first = {"data_id": "a", "data_index": 0, "policy_iter": 1}
    message = to_content([first, {**first, "data_index": 1}])
    side = Side(end_after=1)
    collecting, _ = run_of("collector", side, {"samples": message, "infos": []})
    collecting.run()
    ((_, _, _, data_id, data), *_) = side.told
    assert data_id == "a" and data.table is not None
    giving = Side(data)
    learning, link = run_of("learner", giving, demand(1), demand(0, learn_info(0, True), done=1))
    assert learning.run() is True
    assert pack(link.sent[-1]["batches"]) == pack(message) and data.table is not None
    assert data == [first, {**first, "data_index": 1}]


def test_a_learner_is_told_the_statistics_of_collectors_when_they_have_changed():
    link, side = ScriptedLink(*[demand(0)] * 3, TaskFailed("w", "t", {"message": "over"})), Side()
    states = iter([{}, {"obs": {"size": 1}}, {"obs": {"size": 1}}, {"obs": {"size": 2}}])
    worker = Worker("learner", "learner0", link, {"gpu": 1})
    task = {"task_id": "t", "buffer_id": "b"}
    run = TaskRun(worker, task, side, 7.0, side.is_ending, normalization=lambda: next(states))
    with pytest.raises(TaskFailed):
        run.run()
    assert [sent.get("normalization") for sent in link.sent] == [None, {"obs": {"size": 1}}, None, {"obs": {"size": 2}}]


def test_a_task_that_json_cannot_hold_is_named():
    run, _ = run_of("collector", Side(), TypeError("Object of type function is not JSON serializable"))
    with pytest.raises(TypeError, match="the task t cannot be sent .* type function .* numbers, strings"):
        run.start()


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


def test_a_collector_whose_task_is_useless_is_done():
    side = Side()
    side.useless = True
    run, link = run_of("collector", side, collected(rows("a", 1)))
    assert run.run() is True
    assert [told[0] for told in side.told] == ["data"] and len(link.sent) == 1


@pytest.mark.parametrize("kind", ["collector", "learner"])
def test_a_coordinator_that_ends_asks_nothing_more(kind):
    side = Side(end_after=0)
    run, link = run_of(kind, side)
    assert run.run() is False and link.sent == []


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


def test_a_learner_is_asked_again_when_there_was_nothing_for_what_it_wanted_with_its_answer():
    side = Side(rows("a", 2), None)
    run, link = run_of("learner", side, demand(1), demand(1, learn_info(0)), demand(0, learn_info(1, True)))
    assert run.run() is True
    assert link.names == ["learner_get_data_task", "learner_learn_task", "learner_get_data_task"]
    get = ("get", "t", "b", 2, 5)
    assert side.told == [get, ("info", "t", "b", 0), get, ("wait", "t")]


def test_a_learner_may_be_done_while_it_takes_batches():
    side = Side(rows("a", 2))
    infos = [learn_info(0), learn_info(1, True)]
    run, _ = run_of("learner", side, demand(1), demand(0, *infos, done=1))
    assert run.run() is True
    assert side.told == [("get", "t", "b", 2, 5), ("done", "t", 1), ("info", "t", "b", 0)]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=8))
def test_all_samples_and_infos_arrive_in_order(replies):
    """However they are spread over messages."""
    side, sent, told = Side(), [], []
    for number, (samples, infos) in enumerate(replies):
        chunk = rows(f"c{number}", samples)
        sent.append(collected(chunk, [info(cur_step=100 * number + i) for i in range(infos)]))
        told += [("data", "t", "b", f"c{number}", chunk)] if samples else []
        told += [("judge", "t", 100 * number + i) for i in range(infos)]
    run, _ = run_of("collector", side, *sent, collected([], [info(True, cur_step=-1)]))
    assert run.run() is True
    assert side.told == [*told, ("judge", "t", -1)]


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(0, 2)), max_size=8),
    st.lists(st.booleans(), max_size=20),
)
def test_all_infos_are_told_in_order_and_no_batch_is_lost(cycles, has_data):
    """Whatever the learner wants, the buffer has, and the infos come with."""
    batches = [rows(f"c{i}", 2) if there else None for i, there in enumerate(has_data)]
    side, step, expected = Side(*batches), 0, []
    replies = []

    def infos(count):
        nonlocal step
        made = [learn_info(step + i) for i in range(count)]
        expected.extend(range(step, step + count))
        step += count
        return made

    class Learner(ScriptedLink):
        def run(self, task, timeout_s):
            self.sent.append(dict(task))
            if task["name"] == "learner_learn_task":
                batches = unpack_batches(task)
                return demand(0, *infos(len(batches)), done=len(batches))
            if not cycles:
                return demand(0, learn_info(-1, True))
            wanted, told, done = cycles.pop()
            replies.append(done)
            return demand(wanted, *infos(told), done=done)

    link = Learner()
    run = TaskRun(Worker("learner", "l", link, {}), {"task_id": "t", "buffer_id": "b"}, side, 7, lambda: 0)
    assert run.run() is True
    assert [told[3] for told in side.told if told[0] == "info"] == expected
    given_batches = [batch for task in link.sent if "batches" in task for batch in unpack_batches(task)]
    taken = [batch for batch in batches[: len(batches) - len(side.batches)] if batch is not None]
    assert given_batches == taken
    assert sum(told[2] for told in side.told if told[0] == "done") == sum(replies) + len(taken)


def test_a_message_holds_no_more_batches_than_fit_into_memory_whatever_is_wanted():
    side = Side(*(rows("a", 2) for _ in range(300)), end_after=400)
    run, link = run_of("learner", side, demand(10**12), demand(0), TaskFailed("learner0", "task", {}))
    with pytest.raises(TaskFailed):
        run.run()
    assert [len(unpack_batches(task)) for task in link.sent if "batches" in task] == [256]
