"""A coordinator that was killed in the middle of a run, and the one that goes on with it."""

import copy
import os
import threading

import numpy as np
import pytest

from ding.interaction.exception import TaskFail
from ding.utils.config_helper import ConfigError
from ding.utils.data.nested import plain
from ding.utils.msgpack_helper import can_pack
from ding.utils.registry_factory import COMMANDER_REGISTRY
from ding.utils.running_stats import Moments
from ding.utils.state_folder import StateError, StateFolder
from ding.worker import Coordinator
from ding.worker.coordinator.parallel_run_state import config_of
from ding.worker.transport.stores import FolderSampleStore
from tests.worker.coordinator.fakes import (
    PATIENCE_S,
    AutoLearner,
    ScriptedCommander,
    batched_collector,
    collected,
    collector_task,
    commander_of,
    end_run,
    learner_task,
    local_cfg,
    rows,
    start,
)
from tests.worker.coordinator.test_training import CREATE, MAIN

PATH = os.path.join("exp", "run_state")
KEEPS = {"state_interval_s": 1000, "resume": True}


@COMMANDER_REGISTRY.register("scripted_with_state")
class KeptCommander(ScriptedCommander):
    """Knows how many states of it were taken."""

    states = 0

    def state_dict(self):
        self.states += 1
        return {"states": self.states}

    def load_state_dict(self, state_dict):
        self.states = state_dict["states"]


class IdleLearner(AutoLearner):
    """Wants no batches."""

    def __init__(self):
        super().__init__(0)
        self._closing = threading.Event()

    def get_data(self, task):
        self._closing.wait(0.02)
        return {**super().get_data(task), "infos": [], "batch_num": 0}

    def close(self):
        self._closing.set()
        super().close()


@pytest.fixture
def chunks():
    store = FolderSampleStore(os.path.join("exp", "data"))
    yield store


@pytest.fixture
def make(chunks, workers):
    made = []

    def make(learners=(), collectors=(), commander="scripted_with_state", seed=0, replay_buffer=None, **cfg):
        ports = [[getattr(worker, "worker", worker).port for worker in kind] for kind in (learners, collectors)]
        own = {"task_timeout": PATIENCE_S, "path_data": chunks.root, **KEEPS, **cfg}
        whole = local_cfg(*ports, commander=commander, **own)
        whole.seed = seed
        whole.main.policy.other.replay_buffer.update(replay_buffer or {})
        made.append(Coordinator(whole))
        return made[-1]

    yield make
    for coordinator in made:
        coordinator.close()


def write_state(coordinator, state):
    StateFolder(PATH).write(state, {"kind": "parallel", "config": config_of(coordinator._cfg)})


def read_state():
    state, _ = StateFolder(PATH).read()
    return state


def save(coordinator):
    write_state(coordinator, coordinator.state_dict())


def kill(coordinator):
    """Leave it as a coordinator is that was killed: it does nothing any more, and has closed nothing."""
    scheduler, comm, saved = coordinator._scheduler, coordinator._comm_coordinator, coordinator._run_state
    scheduler.end()
    coordinator.supervisor.close()
    comm._ending.set()
    comm.connector.close()
    saved._closing.set()
    assert saved._threads.join(PATIENCE_S)
    saved._interval_s, coordinator.buffers.is_deleting = 0, False


def push(store, collector, name, count, **more):
    """A collector that is asked for data writes a chunk and tells of it; asked again, it knows that it was taken in."""
    store.write(name, b"")
    collector.reply(collected(rows(name, count, policy_iter=0, eval_flag=False, **more)))
    collector.expect("collector_data_task")


def until_asked(collector):
    for name in ("resource", "collector_start_task", "collector_data_task"):
        collector.expect(name)


def content(coordinator, buffer_id="buffer"):
    seen = []
    coordinator._replay_buffer[buffer_id].discard(lambda row: seen.append((row["data_id"], row["data_index"])) or False)
    return seen


@pytest.fixture
def killed(make, workers, chunks):
    """A coordinator that was killed: 6 samples are in its last state, 2 came later and the first 2 had to make room for
    them."""
    learner, collector = workers(IdleLearner()), workers(batched_collector())
    first = make([learner], [collector])
    start(first, [learner_task("l", replay_buffer_size=6)], [collector_task("c")])
    until_asked(collector)
    for index in range(3):
        push(chunks, collector, f"env_c_{index}", 2, cur_step=10 * index)
    first.deal_with_learner_send_info("l", "buffer", {"learner_step": 7})
    save(first)
    push(chunks, collector, "env_c_3", 2, cur_step=30)
    first.deal_with_learner_send_info("l", "buffer", {"learner_step": 9})
    assert chunks.names() == {"env_c_1", "env_c_2", "env_c_3"}
    kill(first)
    collector.reply(collected())
    return first


def test_the_run_goes_on_with_the_samples_that_are_there_and_its_learner_task(make, workers, chunks, killed):
    learner, collector = workers(AutoLearner(3)), workers(batched_collector())
    second = make([learner], [collector])
    start(second)
    commander = commander_of(second)
    assert commander.states == 1
    told = [commander.expect("update_learner_info")[2] for _ in range(3)]
    commander.expect("finish_learner_task", "l")
    own = {"learner_id": "learner0", "resource_info": {"gpu": 1}}
    ids = {"task_id": "l", "policy_id": "policy", "buffer_id": "buffer"}
    assert learner.tasks == [{**ids, **own, "resume": True}] and told == [0, 1, 2]
    drawn = {row["data_id"] for batch in learner.batches for row in batch}
    assert drawn <= {"env_c_1", "env_c_2"}
    assert second.failure is None and second.state_dict()["learner_tasks"] == []
    progress = second.progress()
    assert (progress.samples, progress.env_steps, progress.train_iter) == (6, 20, 8)


class Part:
    def __init__(self):
        self.value = 0

    def state_dict(self):
        return {"value": self.value}

    def load_state_dict(self, state):
        self.value = state["value"]
        return ["a file is missing"]


def test_parts_of_a_run_go_on_with_it(make):
    first, second, other = make([], []), make([], []), make([], [])
    first.parts["counter"], second.parts["counter"] = Part(), Part()
    first.parts["counter"].value = 7
    second.load_state_dict(first.state_dict())
    assert second.parts["counter"].value == 7
    assert [error.text for error in second.status().errors] == ["a file is missing"]
    other.parts["one_of_its_own"] = Part()
    other.load_state_dict(first.state_dict())
    assert other.parts["one_of_its_own"].value == 0


def test_statistics_of_the_collectors_go_on_with_the_run(make):
    first, second = make([], []), make([], [])
    first._normalization.merge([{"obs": Moments(np.array([3.0, 4.0]), np.array([1.0, 2.0]), 50)}])
    state = first.state_dict()
    assert can_pack(state)
    second.load_state_dict(state)
    second.start()
    shared = second.normalization["obs"]
    assert shared == plain(first._normalization.state_dict())["obs"] and shared["size"] == pytest.approx(50, rel=1e-4)


def test_rows_without_chunks_are_dropped_and_chunks_without_rows_deleted(make, chunks, killed):
    second = make()
    second.start()
    assert content(second) == [(f"env_c_{chunk}", index) for chunk in (1, 2) for index in (0, 1)]
    assert chunks.names() == {"env_c_1", "env_c_2"}
    with open("exp/log/coordinator_logger.txt", encoding="utf-8") as file:
        text = file.read()
    assert "4 samples are restored; 2 are lost" in text and "1 unneeded chunks are deleted" in text


# When there is a state, and when not.


def test_a_run_that_has_ended_well_leaves_no_state_and_no_chunks(make, killed, chunks):
    second = make()
    second.start()
    end_run(second)
    second.close()
    assert StateFolder(PATH).read() is None and chunks.names() == set()


@pytest.mark.parametrize("fails", [False, True])
def test_a_run_that_is_closed_before_its_end_or_has_failed_can_go_on(make, workers, chunks, fails):
    learner, collector = workers(IdleLearner()), workers(batched_collector())
    first = make([learner], [collector])
    start(first, [learner_task("l")], [collector_task("c")])
    until_asked(collector)
    push(chunks, collector, "env_c_0", 2)
    if fails:
        save(first)
    collector.reply(TaskFail(result={"message": "it broke"}) if fails else collected())
    assert not fails or first.wait(PATIENCE_S)
    first.close()
    assert chunks.names() == {"env_c_0"} and first._replay_buffer == {}
    assert read_state()["learner_tasks"][0]["task_id"] == "l"
    second = make()
    second.start()
    assert content(second) == [("env_c_0", 0), ("env_c_0", 1)] and second.failure is None


def test_the_state_is_written_now_and_then(make):
    first = make(state_interval_s=0.001)
    start(first, [learner_task("l")])
    while not [*StateFolder(PATH).states()]:
        assert not first.wait(0.01)
    assert read_state()["commander"]["states"] >= 1


def test_a_state_that_cannot_be_written_is_told_once_and_ends_no_run(make, monkeypatch):
    failed = threading.Semaphore(0)

    def fail(folder, state, about):
        failed.release()
        raise OSError("the disk is full")

    monkeypatch.setattr(StateFolder, "write", fail)
    coordinator = make(state_interval_s=0.001)
    coordinator.start()
    assert failed.acquire(timeout=PATIENCE_S) and failed.acquire(timeout=PATIENCE_S)
    coordinator.close()
    (note,) = coordinator.status().errors
    assert "the disk is full" in note.text and coordinator.failure is None


# What is refused.


def refused(make, chunks, match, error=StateError, **cfg):
    before = chunks.names(), os.listdir(PATH)
    coordinator = make(**cfg)
    with pytest.raises(error, match=match):
        coordinator.start()
    assert (chunks.names(), os.listdir(PATH)) == before


def test_a_truncated_state_is_refused_and_nothing_is_lost(make, killed, chunks):
    os.truncate(os.path.join(PATH, "state_000001.zip"), 100)
    refused(make, chunks, "no state in .* can be read; the last reason: .* is damaged")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"seed": 1}, "seed: 0 then, 1 now"),
        ({"commander": "solo"}, "policy.other.commander.type: 'scripted_with_state' then, 'solo' now"),
        ({"replay_buffer": {"alpha": 0.5}}, "policy.other.replay_buffer.alpha: missing then, 0.5 now"),
    ],
    ids=["seed", "commander", "buffer"],
)
def test_the_state_of_another_config_is_refused_with_the_keys_that_differ(make, killed, chunks, changes, told):
    refused(make, chunks, f"the state in .* has another config: .*{told}", ConfigError, **changes)


def test_the_state_of_a_serial_run_is_refused(make, chunks):
    StateFolder(PATH).write({"parts": {}}, {"kind": "serial", "config": {}})
    refused(make, chunks, "is that of a serial run, which no parallel run resumes")


def test_with_a_commander_that_keeps_no_state_only_the_counters_go_on(make, killed, chunks):
    second = make(commander="scripted")
    state = read_state()
    second.load_state_dict({**state, "commander": {}})
    second.start()
    assert second.progress().samples == 6 and second._replay_buffer == {} and second.state_dict()["learner_tasks"] == []
    assert chunks.names() == set()


# A training.


@pytest.mark.guarantees("resume")
def test_a_training_goes_on_where_its_coordinator_was_killed(trainer):
    changes = {"policy__learn__learner__train_iterations": 200, "policy__other__replay_buffer__replay_buffer_size": 500}
    first = trainer.begin(MAIN, CREATE, **changes)
    while first.progress().train_iter < 20 or not commander_of(first).evaluations:
        assert not first.wait(0.001), first.failure
    save(first)
    kill(first)
    for worker in trainer.workers:  # as over HTTP, where they notice it themselves
        worker.deal_with_lost_coordinator()
    state = read_state()
    cfg = copy.deepcopy(first._cfg)
    cfg.system.coordinator.update(KEEPS)
    second = Coordinator(cfg)
    try:
        second.start()
        assert [task["task_id"] for task in second.state_dict()["learner_tasks"]] == [
            task["task_id"] for task in state["learner_tasks"]
        ]
        assert second.wait(PATIENCE_S)
    finally:
        second.close()
    assert second.failure is None
    before, after = state["run"], second.progress()
    assert after.train_iter >= 200 > before["train_iter"] >= 20
    assert after.samples >= before["samples"] and after.env_steps >= before["env_steps"]
    assert commander_of(second).evaluations[0] == commander_of(first).evaluations[0]
    assert StateFolder(PATH).read() is None
