"""A coordinator among workers of this process: runs as a whole, their ends, and what goes wrong in them."""

import threading
from types import SimpleNamespace

import pytest

from ding.interaction.exception import TaskFail
from ding.utils.config_helper import ConfigError
from ding.worker import Coordinator
from ding.worker.coordinator.buffer_set import BufferSet
from ding.worker.coordinator.coordinator import TaskState, failure_text
from ding.worker.coordinator.run_monitor import RunMonitor
from ding.worker.coordinator.scheduler import TaskScheduler
from ding.worker.transport.stores import FolderSampleStore
from ding.worker.transport.transport import TaskFailed
from tests.worker.coordinator.fakes import (
    LOGGER,
    PATIENCE_S,
    AutoLearner,
    ScriptedCommander,
    batched_collector,
    collected,
    collector_task,
    commander_of,
    finish_info,
    info,
    learner_task,
    local_cfg,
    open_buffer,
    rows,
    start,
)


@pytest.fixture(autouse=True)
def _nothing_is_found_out_by_looking_again_and_no_thread_is_left(monkeypatch):
    """Whatever happens next must have been told to whoever waits for it."""
    monkeypatch.setattr("ding.worker.coordinator.scheduler.IDLE_S", 10 * PATIENCE_S)
    yield
    assert own_threads() == []


def own_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("coordinator_")]


@pytest.fixture
def chunks():
    store = FolderSampleStore("chunks of a test")
    yield store


def text_log():
    with open("exp/log/coordinator_logger.txt", encoding="utf-8") as file:
        return file.read()


def test_samples_go_through_the_buffer_to_the_learner_with_their_priorities(make, workers, chunks):
    learner, collector = workers(AutoLearner(iterations=3)), workers(batched_collector())
    coordinator = make([learner], [collector], path_data=chunks.root)
    commander = commander_of(coordinator)
    start(coordinator, [learner_task("l")], [collector_task("c")])
    chunks.write("env_1", b"content")
    sent = rows("env_1", 4, policy_iter=0, eval_flag=False, cur_step=4)
    collector.reply(collected(sent, [info(True, cur_step=4)]))
    assert learner.closed.wait(PATIENCE_S)
    told = [commander.told.get(timeout=PATIENCE_S) for _ in range(6)]
    by_name = {name: [entry for entry in told if entry[0] == name] for name, *_ in told}
    assert [entry[2] for entry in by_name["update_learner_info"]] == [0, 1, 2]
    assert by_name["update_collector_info"] == [("update_collector_info", "c", 4)]
    assert by_name["finish_collector_task"] == [("finish_collector_task", "c", finish_info())]
    assert by_name["finish_learner_task"] == [
        ("finish_learner_task", "l", {"task_id": "its own", "buffer_id": "buffer"})
    ]
    coordinator.close()
    assert sorted(coordinator._historical_task) == ["c", "l"] and coordinator._task_state == {}
    assert len(learner.batches) == 3 and learner.worker.log.count("learner_learn_task") == 1  # all in one message
    for row in (row for batch in learner.batches for row in batch):
        assert {key: row[key] for key in sent[0] if key not in ("data_index", "priority")} == {
            key: value for key, value in sent[0].items() if key not in ("data_index", "priority")
        }
        assert 0 < row["IS"] <= 1 and row["replay_unique_id"].startswith("buffer_")
    with pytest.raises(FileNotFoundError):
        chunks.read("env_1")
    assert coordinator.failure is None and not coordinator.system_shutdown_flag
    progress = coordinator.progress()
    assert (progress.samples, progress.env_steps, progress.train_iter, progress.policy_lag) == (4, 10, 3, 3)


def test_the_learner_task_is_sent_without_the_config_of_its_buffer(make, workers):
    learner = workers(AutoLearner(iterations=1))
    coordinator = make([learner])
    start(coordinator, [learner_task("l", "b", max_use=5)])
    commander_of(coordinator).learner_tasks.clear()
    assert learner.worker.expect("resource") and learner.worker.expect("learner_start_task")
    own = {"learner_id": "learner0", "resource_info": {"gpu": 1}}
    assert learner.tasks == [{"task_id": "l", "policy_id": "policy", "buffer_id": "b", **own}]
    assert coordinator._replay_buffer["b"]._max_use == 5


@pytest.mark.differs("ignores `max_staleness` in parallel training", "drops samples that are too old")
def test_samples_too_old_are_not_given_to_the_learner(make, workers):
    learner, collector = workers(AutoLearner(iterations=99, at_once=1, batch_size=1)), workers(batched_collector())
    coordinator = make([learner], [collector])
    start(coordinator, [learner_task("l", max_staleness=3)], [collector_task("c")])
    collector.reply(collected(rows("a", 1, policy_iter=0)))
    for step in range(3):
        commander_of(coordinator).expect("update_learner_info", "l", step)
    collector.reply(collected(rows("b", 1, policy_iter=3)))
    commander_of(coordinator).expect("update_learner_info", "l", 3)
    assert [batch[0]["data_id"] for batch in learner.batches[:4]] == ["a", "a", "a", "b"]
    assert [batch[0]["staleness"] for batch in learner.batches[:4]] == [0, 1, 2, 0]


@pytest.mark.differs("holds up all tasks behind one that begins slowly or cannot begin", "lets other tasks begin")
def test_collectors_wait_for_their_buffer_and_evaluations_do_not(make, workers):
    learner, collector = workers(AutoLearner(iterations=1)), workers(batched_collector())
    coordinator = make([learner], [collector])
    start(coordinator, [], [collector_task("c"), collector_task("e", is_eval=True)])
    collector.expect("resource")
    assert collector.expect("collector_start_task")["task_info"]["task_id"] == "e"
    collector.expect("collector_data_task")
    collector.reply(collected([], [info(True)]))
    collector.expect("collector_close_task")
    commander_of(coordinator).expect("finish_collector_task", "e")
    commander_of(coordinator).learner_tasks.append(learner_task("l"))
    coordinator.deal_with_worker_free("learner", "learner0")
    assert collector.expect("collector_start_task")["task_info"]["task_id"] == "c"


@pytest.mark.differs(
    "polls for tasks, data and the end, with waits of three seconds and more, and keeps every info of the learner",
    "wakes at once, and keeps the newest",
)
def test_a_worker_that_comes_free_gets_the_next_task_at_once(make, workers):
    collector = workers(batched_collector())
    coordinator = make([], [collector])
    tasks = [collector_task(f"e{i}", is_eval=True) for i in range(20)]
    start(coordinator, [], tasks)
    collector.expect("resource")
    for i in range(20):
        assert collector.expect("collector_start_task")["task_info"]["task_id"] == f"e{i}"
        collector.expect("collector_data_task")
        collector.reply(collected([], [info(True)]))
        collector.expect("collector_close_task")


def test_a_commander_that_goes_by_the_clock_is_asked_again(make, workers, monkeypatch):
    monkeypatch.setattr("ding.worker.coordinator.scheduler.IDLE_S", 0.01)
    learner, answers = workers(AutoLearner(iterations=1)), iter([None, None, learner_task("l")])
    coordinator = make([learner])
    commander_of(coordinator).get_learner_task = lambda: next(answers, None)
    coordinator.start()
    learner.worker.expect("resource"), learner.worker.expect("learner_start_task")


def test_a_task_whose_result_is_not_needed_any_more_is_ended(make, workers):
    collector = workers(batched_collector())
    coordinator = make([], [collector])
    start(coordinator, [], [collector_task("e", is_eval=True)])
    commander_of(coordinator).useless.add("e")
    collector.reply(collected())
    commander_of(coordinator).expect("finish_collector_task", "e")


def test_an_evaluation_is_recorded_with_the_env_steps_of_its_weights(make, workers):
    collector = workers(batched_collector())
    coordinator, recorded = make([], [collector]), []
    coordinator.on_evaluation = recorded.append
    monitor = coordinator._monitor
    for steps, learner_step in ((40, 3), (90, 7)):
        monitor.take_collector_info("c", {"cur_step": steps})
        monitor.take_learner_info({"learner_step": learner_step})
    start(coordinator, [], [collector_task("e", is_eval=True)])
    collector.answers["collector_close_task"] = lambda task: finish_info(True, train_iter=5)
    collector.reply(collected([], [info(True, eval_flag=True)]))
    commander_of(coordinator).expect("finish_collector_task", "e")
    assert recorded[0]["env_step"] == 40
    assert coordinator.status().evaluations[0].env_step == 40


# How a run ends.


@pytest.mark.differs("forgets that an evaluation has reached the stop value if another task ends first", "ends the run")
def test_the_commander_ends_the_run_and_nothing_takes_that_back(make, workers):
    collectors = [workers(batched_collector()) for _ in range(2)]
    coordinator = make([], collectors)
    commander_of(coordinator).results["e1"] = True
    start(coordinator, [], [collector_task("e1", is_eval=True), collector_task("e2", is_eval=True)])
    by_task = {}
    for collector in collectors:
        collector.expect("resource")
        by_task[collector.expect("collector_start_task")["task_info"]["task_id"]] = collector
    assert coordinator.system_shutdown_flag is False and coordinator.wait(0) is False
    by_task["e1"].reply(collected([], [info(True)]))
    assert coordinator.wait(PATIENCE_S)
    by_task["e2"].reply(collected([], [info(True)]))  # False of this one came later
    commander_of(coordinator).expect("finish_collector_task", "e1")
    commander_of(coordinator).expect("finish_collector_task", "e2")
    coordinator.close()
    assert coordinator.system_shutdown_flag is True and coordinator.failure is None
    assert "the commander ends the run" in text_log()


@pytest.mark.parametrize("told_by", ["samples", "info", "result"])
def test_enough_env_steps_end_the_run(make, workers, told_by):
    learner, collector = workers(AutoLearner(iterations=99)), workers(batched_collector())
    coordinator = make([learner], [collector], max_env_step=100)
    start(coordinator, [learner_task("l")], [collector_task("c")])
    if told_by == "result":
        collector.answers["collector_close_task"] = lambda task: finish_info(step_count=100)
    collector.reply(
        {
            "samples": collected(rows("a", 1, cur_step=100)),
            "info": collected([], [info(cur_step=100)]),
            "result": collected([], [info(True, cur_step=99)]),
        }[told_by]
    )
    assert coordinator.wait(PATIENCE_S)
    assert coordinator.failure is None and coordinator.progress().env_steps == 100
    collector.reply(collected())
    coordinator.close()
    assert "the run ends after 100 env steps" in text_log()


@pytest.mark.parametrize(
    ("kind", "at"),
    [
        ("collector", "collector_start_task"),
        ("collector", "collector_data_task"),
        ("collector", "collector_close_task"),
        ("learner", "learner_start_task"),
        ("learner", "learner_get_data_task"),
        ("learner", "learner_learn_task"),
        ("learner", "learner_close_task"),
    ],
)
def test_a_failing_task_ends_the_run_with_the_workers_traceback(make, workers, kind, at):
    def fail(task):
        raise TaskFail(result={"message": "m", "exception": "ValueError", "traceback": "Traceback: the env has died"})

    fails = {at: fail}
    learner = workers(AutoLearner(iterations=2, **(fails if kind == "learner" else {})))
    feed = {"collector_data_task": lambda task: collected(rows("a", 4), [info(True)])}
    collector = workers(batched_collector(**{**feed, **(fails if kind == "collector" else {})}))
    coordinator = make([learner], [collector])
    start(coordinator, [learner_task("l")], [collector_task("c")])
    assert coordinator.wait(PATIENCE_S)
    assert isinstance(coordinator.failure, TaskFailed)
    assert "Traceback: the env has died" in failure_text(coordinator.failure)
    while (told := commander_of(coordinator).told.get(timeout=PATIENCE_S))[0] != f"notify_fail_{kind}_task":
        continue
    assert told[1] == kind[0]
    coordinator.close()
    log = [
        name for name in (collector.log if kind == "collector" else learner.worker.log) if name.endswith("close_task")
    ]
    assert log == [f"{kind}_close_task"]
    assert "Traceback: the env has died" in text_log()


def test_a_failed_learner_task_takes_its_buffer_and_batches_with_it(make, workers, chunks):
    def learn(task):
        raise TaskFail(result={"message": "out of memory"})

    learner = workers(AutoLearner(iterations=2, learner_learn_task=learn))
    collector = workers(batched_collector())
    coordinator = make([learner], [collector], path_data=chunks.root)
    start(coordinator, [learner_task("l")], [collector_task("c")])
    chunks.write("a", b"")
    collector.reply(collected(rows("a", 4)))
    commander_of(coordinator).expect("notify_fail_learner_task", "l")
    assert coordinator._replay_buffer == {} and "l" not in coordinator._task_state
    with pytest.raises(FileNotFoundError):
        chunks.read("a")
    collector.reply(collected())


@pytest.mark.parametrize("method", ["get_collector_task", "get_learner_task"])
def test_a_commander_that_fails_to_give_a_task_ends_the_run(make, workers, method):
    learner, collector = workers(AutoLearner(iterations=1)), workers(batched_collector())
    coordinator = make([learner], [collector])

    def fail():
        raise RuntimeError("no plan")

    setattr(commander_of(coordinator), method, fail)
    coordinator.start()
    assert coordinator.wait(PATIENCE_S)
    assert "RuntimeError: no plan" in failure_text(coordinator.failure) and "in fail" in failure_text(
        coordinator.failure
    )
    assert "no plan" in text_log()


# Starting and closing.


def test_a_coordinator_that_cannot_start_is_closed(make, workers):
    collector = workers(batched_collector())
    coordinator = Coordinator(local_cfg([], [collector.port, 999, 998]))
    with pytest.raises(ConnectionError, match=r"collector1: .*999.*; collector2: .*998"):
        coordinator.start()
    assert commander_of(coordinator).is_closed and own_threads() == []
    coordinator.close()


def test_a_coordinator_starts_once(make):
    coordinator = make()
    coordinator.start()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="a coordinator starts once"):
            coordinator.start()
        coordinator.close()


# The documented callbacks.


def test_what_comes_from_unknown_collector_tasks_is_dropped_with_a_log_line(make):
    coordinator = make()
    coordinator.deal_with_collector_send_data("x", "b", "d", {"data_id": "d"})
    assert coordinator.deal_with_collector_judge_finish("x", info(True)) is False
    coordinator.deal_with_collector_finish_task("x", finish_info())
    assert text_log().count("of the unknown collector task x") == 3
    assert coordinator._historical_task == []


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("deal_with_learner_get_data", ("b", 2, 0)),
        ("deal_with_learner_send_info", ("b", {})),
        ("deal_with_learner_judge_finish", ({},)),
        ("deal_with_learner_finish_task", ({},)),
    ],
)
def test_what_comes_from_unknown_learner_tasks_is_an_error(make, method, arguments):
    with pytest.raises(RuntimeError, match="the learner task x is unknown"):
        getattr(make(), method)("x", *arguments)


def test_averages_of_a_learner_are_passed_on_and_not_shown_to_the_commander(make):
    coordinator, passed, infos = make(), [], []
    coordinator.on_averages = passed.append
    commander_of(coordinator).update_learner_info = lambda task_id, info: infos.append(info)
    coordinator._task_state["t"] = TaskState("t")
    rows = [{"train_iter": 3, "values": {"loss_avg": 0.5}}]
    coordinator.deal_with_learner_send_info("t", "b", {"learner_step": 3, "averages": rows})
    coordinator.deal_with_learner_send_info("t", "b", {"learner_step": 4})
    assert passed == [rows] and infos == [{"learner_step": 3}, {"learner_step": 4}]


def test_statistics_of_all_collectors_are_added_up_for_learners_and_saved(make):
    coordinator, told = make(), []
    commander_of(coordinator).update_collector_info = lambda task_id, info: told.append(info)
    coordinator._task_state["t"] = TaskState("t")
    for mean in (1.0, 3.0):
        gathered = {"normalization": {"obs": {"mean": [mean], "var": [0.0], "size": 1000}}}
        coordinator.deal_with_collector_judge_finish("t", {**info(), **gathered})
    total = coordinator.normalization["obs"]
    assert total == {"mean": [pytest.approx(2.0)], "var": [pytest.approx(1.0)], "size": pytest.approx(2000)}
    assert told == [info(), info()]
    assert coordinator.parts["normalization"].state_dict()["obs"]["mean"].tolist() == total["mean"]


def test_unknown_buffers_are_told_and_give_nothing(make):
    coordinator = make()
    coordinator._task_state["t"] = TaskState("t")
    coordinator.deal_with_collector_send_data("t", "b", "d", [{"data_id": "d"}])
    assert coordinator.deal_with_learner_get_data("t", "b", 2, 0) is None
    coordinator.deal_with_learner_send_info("t", "b", {"learner_step": 0, "priority_info": {"priority": [1.0]}})
    log = text_log()
    assert "1 samples for the unknown buffer b" in log and "priorities for the unknown buffer b" in log


def test_a_refused_push_counts_as_no_samples(make):
    coordinator = make()
    coordinator._task_state["t"] = TaskState("t")
    open_buffer(coordinator, "b", type="advanced", thruput_controller={"push_sample_rate_limit": {"max": 1}})
    coordinator.deal_with_collector_send_data("t", "b", "d", rows("a", 2))
    coordinator.deal_with_learner_get_data("t", "b", 1, 0)
    coordinator.deal_with_collector_send_data("t", "b", "d", rows("b", 2, cur_step=4))
    coordinator.deal_with_collector_send_data("t", "b", "d", [])
    progress = coordinator.progress()
    assert (progress.samples, progress.env_steps) == (2, 4)


def test_a_task_that_could_not_begin_in_time_is_told_to_the_commander(make, workers):
    coordinator = make([], [workers(batched_collector())], collector_task_timeout=0)
    start(coordinator, [], [collector_task("c")])  # there is no buffer for it
    commander_of(coordinator).expect("notify_fail_collector_task", "c")
    assert "collector task c could not begin in time" in text_log() and coordinator.failure is None


def test_the_default_config():
    assert Coordinator.default_config() == {
        "collector_task_timeout": 30,
        "learner_task_timeout": 600,
        "task_timeout": 60,
        "task_silence_s": 60,
        "worker_return_timeout": 60,
        "max_restarts": 3,
        "restart_window_s": 600,
        "operator_server": {},
        "state_interval_s": 0,
        "resume": False,
        "cfg_type": "CoordinatorDict",
    }


@pytest.mark.parametrize(
    "cfg",
    [
        {"collector_task_timeout": -1},
        {"transport": "pigeons"},
        {"port": 70000},
        {"path_data": 5},
        {"operator_server": "http://k8s"},
    ],
)
def test_the_config_is_checked(cfg):
    with pytest.raises(ConfigError, match=next(iter(cfg))):
        Coordinator(local_cfg([], [], **cfg))


# Tasks find their way to workers as soon as they can begin, and none waits behind another.


NEVER = {"learner": 1e9, "collector": 1e9}


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
