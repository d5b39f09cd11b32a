"""One coordinator, several learners, an aggregator in between."""

import threading

import pytest
from easydict import EasyDict

from ding.interaction import TaskFail
from ding.utils.config_helper import ConfigError
from ding.worker import LearnerAggregator
from ding.worker.adapter.learner_aggregator import LearnerAggregatorSlave
from ding.worker.learner.comm.learner_group import merge_info
from ding.worker.transport.chunk import unpack_batches
from ding.worker.transport.transport import TaskFailed, WorkerLost
from tests.worker.adapter.doubles import DEADLINE_S, BatchLearner, Learner, Stage, own_threads


@pytest.fixture(params=["local", "flask_fs"])
def kind(request):
    return request.param


@pytest.fixture
def stage(kind):
    stage = Stage(kind)
    yield stage
    stage.close()
    for thread in threading.enumerate():
        if thread.name.startswith("aggregator"):
            thread.join(DEADLINE_S)
    assert own_threads() == []


local = pytest.mark.parametrize("kind", ["local"])


def failure(act, *args, **kwargs):
    with pytest.raises(TaskFailed) as failed:
        act(*args, **kwargs)
    return failed.value.result


# The documented messages.


@pytest.mark.differs(
    "never reports the end of learners behind an aggregator, waits forever for one that fails, and fails when they "
    "change",
    "reports it, fails the task with the learner's name and traceback, and lets them join and leave",
)
def test_four_learners_are_one(stage):
    learners = [stage.learner(batch_size=size) for size in (2, 1, 2, 3)]
    aggregator, driver = stage.pair(*learners)
    assert aggregator.deal_with_get_resource() == driver.run("resource") == {"gpu": 4}
    assert driver.start(policy={"a": 1}) == {"message": "learner task has started"}
    info = {"task_id": "t", "buffer_id": "b", "policy": {"a": 1}}
    assert [learner.expect("learner_start_task")["task_info"] for learner in learners] == [info] * 4
    ids = {"task_id": "t", "buffer_id": "b"}
    demand = {"batch_size": 8, "batch_num": 1, "cur_learner_iter": 1, "silence_s": 0.0}
    assert driver.ask() == {**demand, "infos": [], "batches_done": 0, **ids}
    reply = driver.learn(range(8))
    told = {"learner_step": 7, "priority_info": {"priority": list(range(8))}, "learner_done": False}
    assert reply == {**demand, "batch_num": 0, "infos": [told], "batches_done": 1, **ids}
    parts = [[row["x"] for row in unpack_batches(learner.expect("learner_learn_task"))[0]] for learner in learners]
    assert parts == [[0, 1], [2], [3, 4], [5, 6, 7]]
    assert driver.close() == {"task_id": "t", "buffer_id": "b", "infos": [], "batches_done": 0}
    assert [learner.log[-1] for learner in learners] == ["learner_close_task"] * 4


def test_a_task_of_another_name_fails(stage):
    _, driver = stage.pair(stage.learner())
    assert failure(driver.run, "dance") == {"message": "task name error"}


def test_without_a_learner_no_task_begins(stage):
    _, driver = stage.pair()
    assert driver.run("resource") == {"gpu": 0}
    assert failure(driver.start) == {"message": "no connected learner"}


@local
def test_one_task_runs_at_a_time(stage):
    _, driver = stage.pair(stage.learner())
    driver.start()
    assert "busy with the task t" in failure(driver.start)["message"]
    driver.close()
    driver.start(task_id="u")
    assert driver.close()["task_id"] == "u"


# Batches.


@pytest.fixture
def two(stage):
    """Two learners of several batches, and a driver whose task has begun on both."""
    learners = [stage.learner(BatchLearner), stage.learner(BatchLearner)]
    _, driver = stage.pair(*learners)
    driver.start()
    return learners, driver


@local
def test_the_number_of_requested_batches_is_the_smallest_of_all_learners(stage):
    learners = [stage.learner(BatchLearner, room=room) for room in (8, 3)]
    _, driver = stage.pair(*learners)
    driver.start()
    assert driver.ask()["batch_num"] == 3
    result = failure(driver.learn, *([[1, 2, 3, 4]] * 4))
    assert result["message"] == "the learners requested 3 batches at most, but got 4"
    driver.learn(*([[1, 2, 3, 4]] * 3))
    assert "requested 0 batches at most, but got 1" in failure(driver.learn, [1, 2, 3, 4])["message"]


@local
def test_an_info_counts_when_all_learners_have_told_theirs(two):
    (one, other), driver = two
    driver.ask()
    one.trained, other.trained = 2, 1
    reply = driver.learn([1, 2, 3, 4])
    merged = {"learner_step": 0, "priority_info": {"priority": ["L0", "L1"]}, "learner_done": False}
    assert reply["infos"] == [merged]
    assert driver.ask()["infos"] == []
    other.trained = 1
    assert driver.ask()["infos"] == [{**merged, "learner_step": 1}]


@local
def test_a_batch_is_done_when_all_learners_have_read_theirs(two):
    (one, other), driver = two
    one.read, other.read = 3, 1
    assert driver.ask()["batches_done"] == 1
    other.read = 1
    assert driver.ask()["batches_done"] == 1
    assert driver.ask()["batches_done"] == 0
    other.read = 2
    assert driver.close()["batches_done"] == 1


@local
def test_when_one_learner_has_ended_the_others_end_too_and_nobody_is_asked_again(two):
    (one, other), driver = two
    driver.ask()
    one.trained, one.is_done = 1, True
    other.ends_with = 1  # it is still at the last batch
    reply = driver.learn([1, 2, 3, 4])
    assert [info["learner_done"] for info in reply["infos"]] == [False, True] and reply["batch_num"] == 0
    assert other.expect("learner_close_task")["drain"] is True
    assert one.log.count("learner_get_data_task") == other.log.count("learner_get_data_task") == 1
    assert driver.ask() == {
        "batch_size": 4,
        "cur_learner_iter": 0,
        "batch_num": 0,
        "infos": [],
        "batches_done": 0,
        "silence_s": 0.0,
        "task_id": "t",
        "buffer_id": "b",
    }
    assert driver.close()["infos"] == []
    assert [learner.log.count("learner_close_task") for learner in (one, other)] == [1, 1]


@local
@pytest.mark.parametrize(("first", "second"), [(1, 1), (2, 1), (1, 2), (0, 2), (2, 0)])
def test_learners_that_have_told_of_different_numbers_of_batches_end_together(two, first, second):
    learners, driver = two
    for learner, count in zip(learners, (first, second), strict=True):
        learner.trained, learner.is_done = count, True
    reply = driver.ask()
    assert [info["learner_done"] for info in reply["infos"]] == [False] * min(first, second) + [True]
    assert reply["batch_num"] == 0
    assert driver.ask()["infos"] == []


# Failures.


FAIL = TaskFail(result={"message": "no", "exception": "Bad", "traceback": "Traceback: in forward\nBad: no"})


def test_a_learner_that_cannot_begin_fails_the_task_with_its_text_and_the_others_are_closed(stage):
    good, bad = learners = [stage.learner(), stage.learner()]
    bad.answers["learner_start_task"] = FAIL
    _, driver = stage.pair(*learners)
    result = failure(driver.start)
    assert result["message"] == "one of learner can't start_task" and result["exception"] == "Bad"
    assert "worker L1 failed the task learner_start_task" in result["traceback"] and "Bad: no" in result["traceback"]
    assert good.log[-1] == "learner_close_task"
    assert driver.close() == {}
    del bad.answers["learner_start_task"]
    driver.start()


@pytest.mark.parametrize("name", ["learner_get_data_task", "learner_learn_task", "learner_close_task"])
@local
def test_a_learner_that_fails_later_fails_the_message_with_its_text(two, name):
    (_, bad), driver = two
    driver.ask()
    bad.answers[name] = FAIL
    act = {"get": driver.ask, "lea": lambda: driver.learn([1, 2, 3, 4]), "clo": driver.close}[name[8:11]]
    result = failure(act)
    assert result["message"] == "the learner L1: no" and result["exception"] == "Bad"
    assert f"worker L1 failed the task {name}" in result["traceback"]


def test_a_learner_that_goes_away_fails_the_task_and_must_be_back_for_the_next(stage, monkeypatch):
    monkeypatch.setattr("ding.worker.adapter.learner_aggregator.REJOIN_S", 0.1)
    gone, stays = learners = [stage.learner(), stage.learner()]
    _, driver = stage.pair(*learners)
    driver.start()
    gone.close()
    with pytest.raises(WorkerLost, match="the learner L0: "):
        driver.run("learner_get_data_task")
    assert driver.run("resource") == {"gpu": 1}
    assert driver.close()["task_id"] == "t" and stays.log[-1] == "learner_close_task"
    result = failure(driver.start)
    assert result["exception"] == "ConnectionError" and "no connection within 0.1 s to L0: " in result["message"]


def test_a_learner_that_is_back_takes_part_again_in_its_place(stage, kind):
    gone, stays = learners = [stage.learner(), stage.learner()]
    aggregator, driver = stage.pair(*learners)
    driver.start()
    gone.close()
    with pytest.raises(WorkerLost):
        driver.run("learner_get_data_task")
    driver.close()
    back = Learner("L0", kind)
    stage.learners.append(back)
    aggregator._cfg.learner["L0"] = back.address
    driver.start()
    assert driver.run("resource") == {"gpu": 2}
    assert back.log == ["resource", "learner_start_task"]


# Its life.


@pytest.mark.parametrize("kind", ["flask_fs"])  # a local client does not tell that it was closed
def test_the_task_of_a_coordinator_that_has_gone_is_ended(stage):
    learner = stage.learner()
    aggregator, driver = stage.pair(learner)
    driver.start()
    driver.client.close()
    learner.expect("learner_close_task")


def test_closing_ends_a_task_that_runs(stage):
    learner = stage.learner()
    aggregator, driver = stage.pair(learner)
    driver.start()
    aggregator.close()
    aggregator.close()
    assert learner.log[-1] == "learner_close_task"
    with pytest.raises(WorkerLost):
        driver.run("resource")


def test_learners_that_cannot_be_reached_are_all_named_and_nothing_stays_open(stage):
    gone = [stage.learner() for _ in range(2)]
    for learner in gone:
        learner.close()
    aggregator = stage.make(stage.learner(), *gone, connect_timeout_s=0.2)
    with pytest.raises(ConnectionError, match=r"no connection within 0.2 s to L0: .*; L1: ") as error:
        aggregator.start()
    assert "L2" not in str(error.value)
    assert aggregator.deal_with_get_resource() == {"gpu": 0}
    with pytest.raises(RuntimeError, match="the worker is closed"):
        aggregator.deal_with_learner_start({"task_info": {}})


@local
def test_learners_that_join_take_part_in_the_next_task_and_those_that_left_do_not(stage):
    first, second = stage.learner(), stage.learner()
    aggregator, driver = stage.pair()
    stage.join(aggregator, first)
    driver.start()
    stage.join(aggregator, second)
    assert driver.run("resource") == {"gpu": 2}
    assert driver.run("learner_get_data_task")["batch_size"] == 2
    driver.close()
    driver.start()
    assert driver.run("learner_get_data_task")["batch_size"] == 4
    stage.leave(aggregator, "L0")
    stage.leave(aggregator, "nobody")
    with pytest.raises(WorkerLost, match="L0 is disconnected"):
        driver.run("learner_get_data_task")
    driver.close()
    driver.start()
    assert driver.run("learner_get_data_task")["batch_size"] == 2


@pytest.mark.parametrize(
    ("cfg", "key"),
    [
        ({"transport": "pigeons"}, "transport"),
        ({"master": {"port": 0}, "slave": {"port": 70000}}, "slave.port"),
        ({"transport": "local", "learner": []}, "learner"),
        ({"transport": "local", "task_timeout": -1}, "task_timeout"),
        ({"transport": "local", "sync_period_s": -0.5}, "sync_period_s"),
    ],
)
def test_the_config_is_checked(cfg, key):
    with pytest.raises(ConfigError, match=key):
        LearnerAggregator(EasyDict(cfg))


def test_the_slave_calls_one_function_for_each_kind_of_task():
    told = []

    def note(name):
        return lambda *task: told.append((name, *task)) or {"done": name}

    names = {
        "learner_start_task": "deal_with_learner_start",
        "learner_get_data_task": "deal_with_get_data",
        "learner_learn_task": "deal_with_learn",
        "learner_close_task": "deal_with_learner_close",
    }
    slave = LearnerAggregatorSlave(
        "127.0.0.1", 0, callback_fn={name: note(name) for name in ("deal_with_get_resource", *names.values())}
    )
    assert slave._process_task({"name": "resource"}) == {"done": "deal_with_get_resource"}
    for task, function in names.items():
        assert slave._process_task({"name": task, "x": 1}) == {"done": function}
    assert told == [("deal_with_get_resource",), *((f, {"name": task, "x": 1}) for task, f in names.items())]


@pytest.mark.parametrize("scalars", [[None, None], [1, 2], ["a", "b"], [1.5, None, "c", True]])
def test_scalars_become_the_list_of_them(scalars):
    merged = merge_info(scalars)
    assert merged == scalars and merged is not scalars


def test_lists_and_tuples_are_put_one_after_the_other():
    assert merge_info([[1], [], [2, 3]]) == [1, 2, 3]
    assert merge_info([(1,), (2,)]) == (1, 2)


def test_dicts_are_merged_by_key_and_some_keys_are_those_of_the_first():
    first = {"learner_step": 4, "buffer_id": "b", "task_id": "t", "learner_done": False, "loss": 0.5}
    second = {"learner_step": 5, "buffer_id": "c", "task_id": "u", "learner_done": True, "loss": 1.5}
    infos = [{**own, "priority_info": {"priority": [i, i], "n": i}} for i, own in enumerate((first, second))]
    assert merge_info(infos) == {**first, "loss": [0.5, 1.5], "priority_info": {"priority": [0, 0, 1, 1], "n": [0, 1]}}


def test_keys_that_only_some_have_are_kept():
    assert merge_info([{}, {"priority": [1]}, {"priority": [2], "learner_step": 3}]) == {
        "priority": [1, 2],
        "learner_step": 3,
    }


@pytest.mark.parametrize("infos", [[object()], [{1}, {2}], [1, [2]], [{"a": 1}, [1]], [(1,), [1]], [{"a": 1}, 1]])
def test_what_cannot_be_merged_is_a_type_error(infos):
    with pytest.raises(TypeError, match="cannot be merged"):
        merge_info(infos)


def test_nothing_cannot_be_merged():
    with pytest.raises(ValueError, match="nothing to merge"):
        merge_info([])


def test_the_aggregator_has_it_as_a_static_method():
    assert LearnerAggregator.merge_info([1, 2]) == [1, 2]
