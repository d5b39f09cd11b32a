"""Workers that are lost and come back: what becomes of their tasks, and of the run."""

import threading

import pytest
from easydict import EasyDict

from ding.worker import Coordinator, create_comm_collector
from ding.worker.coordinator.worker_table import ReconnectSupervisor
from ding.worker.learner.comm import NaiveLearner
from ding.worker.transport import http_transport
from ding.worker.transport.stores import FolderPolicyStore, FolderSampleStore
from ding.worker.transport.transport import TaskStalled, WorkerGone, WorkerLost, WorkerReleased
from tests.worker.collector.parallel_fakes import GATES, Gate, collector_cfg, weights
from tests.worker.coordinator.fakes import (
    PATIENCE_S,
    AutoLearner,
    batched_collector,
    collected,
    collector_task,
    commander_of,
    info,
    learner_task,
    main_cfg,
    rows,
    start,
    states_of,
)
from tests.worker.coordinator.networks import FAULTS, Books, Network
from tests.worker.coordinator.test_training import CREATE, MAIN
from tests.worker.coordinator.trainings import Trainer


class Keeper:
    """Says that it brings back all workers, or none."""

    def __init__(self, is_able=True):
        self.is_able, self.asked, self.is_closed = is_able, [], False

    def lost(self, kind, name, error):
        self.asked.append((kind, name, type(error)))
        return self.is_able

    def close(self):
        self.is_closed = True


def hanging(arrived, let_go):
    """A learner's handler of batches that does nothing until it is let go."""

    def hang(task):
        arrived.set()
        assert let_go.wait(PATIENCE_S)
        return {"batch_num": 0, "infos": [], "batches_done": 0}

    return hang


def until_gone(coordinator, kind, name):
    """A keeper's word that a process has died."""
    coordinator.deal_with_worker_gone(kind, name, RuntimeError(f"the process of {name} was ended by SIGKILL"))


def test_the_work_of_a_lost_collector_goes_to_another_and_the_learner_goes_on(make, workers):
    keeper = Keeper()
    learner, first, second = workers(AutoLearner(99)), workers(batched_collector()), workers(batched_collector())
    coordinator = make([learner], [first], keeper)
    start(coordinator, [learner_task("l")], [collector_task("c")])
    first.expect("resource"), first.expect("collector_start_task"), first.expect("collector_data_task")
    until_gone(coordinator, "collector", "collector0")
    commander_of(coordinator).expect("notify_fail_collector_task", "c")
    assert keeper.asked == [("collector", "collector0", WorkerReleased)]
    assert states_of(coordinator, "collector") == ["lost"] and "c" not in coordinator._task_state
    commander_of(coordinator).collector_tasks.append(collector_task("d"))
    coordinator.deal_with_worker_back("collector", "collector0", "local", second.port)
    second.expect("resource")
    assert second.expect("collector_start_task")["task_info"]["task_id"] == "d"
    second.reply(collected(rows("a", 4)))
    commander_of(coordinator).expect("update_learner_info")
    assert coordinator.failure is None and not coordinator.system_shutdown_flag
    assert learner.tasks[0]["task_id"] == "l" and len(learner.tasks) == 1
    second.reply(collected([], [info(True)]))
    first.reply(collected())


# Workers whose tasks make no progress.


def silent(seconds, **more):
    return {**collected(), "silence_s": seconds, **more}


@pytest.mark.differs(
    "ends all evaluation if the env of one hangs, and reports nothing",
    "abandons a task without a step for `task_silence_s`, and restarts its worker",
)
@pytest.mark.parametrize("is_eval", [True, False])
def test_a_collector_that_makes_no_step_loses_its_task_and_the_run_goes_on_and_tells(is_eval, make, workers):
    keeper = Keeper()
    learner, first, second = workers(AutoLearner(99)), workers(batched_collector()), workers(batched_collector())
    coordinator = make([learner], [first], keeper, task_silence_s=5)
    start(coordinator, [learner_task("l")], [collector_task("c", is_eval=is_eval)])
    first.reply(silent(5.0))
    first.reply({**silent(99.0), **collected(rows("a", 1))})  # it brings something
    first.reply(silent(5.1))
    commander_of(coordinator).expect("notify_fail_collector_task", "c")
    assert keeper.asked == [("collector", "collector0", TaskStalled)]
    status = coordinator.status()
    assert status.stalled_tasks == 1 and [(w.name, w.state) for w in status.workers][1:] == [("collector0", "lost")]
    [told] = [note.text for note in status.errors]
    assert told == (
        "collector collector0 is lost: collector collector0 has made no env step for 5 s in the task c, more than "
        "task_silence_s = 5 allows"
    )
    assert first.log.count("collector_data_task") == 3 and first.log[-1] == "collector_data_task"
    commander_of(coordinator).collector_tasks.append(collector_task("d", is_eval=is_eval))
    coordinator.deal_with_worker_back("collector", "collector0", "local", second.port)
    second.expect("resource")
    assert second.expect("collector_start_task")["task_info"]["task_id"] == "d"
    second.reply(collected([], [info(True)]))
    commander_of(coordinator).expect("finish_collector_task", "d")
    assert coordinator.failure is None and not coordinator.system_shutdown_flag


def test_a_learner_that_trains_on_nothing_it_has_loses_its_task_which_runs_again(make, workers):
    silences, keeper, second = [0.0, 5.0, 5.1], Keeper(), workers(AutoLearner(99))

    def get_data(task):
        demand = {"batch_size": 2, "cur_learner_iter": 3, "batch_num": 0, "infos": [], "batches_done": 0}
        return {**demand, "silence_s": silences.pop(0)}

    first = workers(AutoLearner(99, learner_get_data_task=get_data))
    coordinator = make([first], [], keeper, task_silence_s=5)
    start(coordinator, [learner_task("l")])
    while keeper.asked == []:
        coordinator.wait(0.01)
    assert keeper.asked == [("learner", "learner0", TaskStalled)] and silences == []
    coordinator.deal_with_worker_back("learner", "learner0", "local", second.worker.port)
    second.worker.expect("resource"), second.worker.expect("learner_start_task")
    assert [(task["task_id"], task.get("resume")) for task in (*first.tasks, *second.tasks)] == [
        ("l", None), ("l", True)
    ]  # fmt: skip
    assert coordinator.failure is None and coordinator.status().stalled_tasks == 1
    assert "has made no iteration, though it has data, for 5 s in the task l" in coordinator.status().errors[0].text


@pytest.mark.parametrize(("is_eval", "name"), [(True, "evaluation"), (False, "collecting task")])
def test_the_user_is_told_once_and_soon_of_a_task_that_makes_no_step(is_eval, name, make, workers, caplog):
    learner, collector = workers(AutoLearner(99)), workers(batched_collector())
    coordinator = make([learner], [collector], Keeper())
    start(coordinator, [learner_task("l")], [collector_task("c", is_eval=is_eval)])
    for silence_s in (14.9, 15.1, 16.2):
        collector.reply({**silent(silence_s), "progress": {"eval_flag": is_eval, "silence_s": silence_s}})
    collector.reply(collected([], [info(True)]))
    commander_of(coordinator).expect("finish_collector_task", "c")
    told = [text for text in caplog.messages if text.startswith("exp: the")]
    assert told == [f"exp: the {name} c has made no env step for 15 s"]


def test_a_collector_that_hangs_takes_another_task_where_nobody_can_restart_it():
    gate = GATES["g"] = Gate()
    FolderPolicyStore("policy").write("policy", weights(0))
    paths = {"path_data": "data", "path_policy": "policy"}
    cfg = EasyDict(type="flask_fs", host="127.0.0.1", port=0, data_wait_s=0.05, close_timeout_s=0.2, **paths)
    worker = create_comm_collector(cfg)
    worker.start()
    own = {"host": "127.0.0.1", "port": 0, "task_silence_s": 0.3}
    own["collector"] = {"collector0": ["collector0", "127.0.0.1", worker.port]}
    coordinator = Coordinator(EasyDict(main=main_cfg("scripted"), system={"coordinator": own}, seed=0))
    commander = commander_of(coordinator)
    try:
        for task_id, env in (("hangs", {"wait_at": [0, 0, 2], "gate": "g"}), ("next", {})):
            task = collector_cfg(is_eval=True, lengths=(3,), env=env)
            commander.collector_tasks.append({"task_id": task_id, "buffer_id": "b", "collector_cfg": task})
        coordinator.start()
        commander.expect("notify_fail_collector_task", "hangs")
        assert commander.expect("finish_collector_task", "next")[2]["reward_raw"] == [3.0]
        assert coordinator.failure is None and coordinator.status().workers[0].restarts == 1
        assert gate.reached.is_set() and not gate.opened.is_set()
    finally:
        gate.open()
        coordinator.close()
        worker.close()


def test_a_lost_learner_task_runs_again_with_its_buffer(make, workers):
    store, keeper = FolderSampleStore("lost"), Keeper()
    arrived, let_go = threading.Event(), threading.Event()
    first = workers(AutoLearner(99, learner_learn_task=hanging(arrived, let_go)))
    second = workers(AutoLearner(2))
    collector = workers(batched_collector())
    coordinator = make([first], [collector], keeper, path_data=store.root)
    start(coordinator, [learner_task("l", replay_buffer_size=4)], [collector_task("c")])
    store.write("a", b"")
    store.write("b", b"")
    collector.reply(collected(rows("a", 4)))
    assert arrived.wait(PATIENCE_S)
    until_gone(coordinator, "learner", "learner0")
    while keeper.asked == []:  # the task's own thread asks
        coordinator.wait(0.01)
    collector.reply(collected(rows("b", 4), [info(True)]))
    commander_of(coordinator).expect("finish_collector_task", "c")
    with pytest.raises(FileNotFoundError):  # the batches on their way to the lost learner need it no more
        store.read("a")
    coordinator.deal_with_worker_back("learner", "learner0", "local", second.worker.port)
    assert second.closed.wait(PATIENCE_S)
    own = {"learner_id": "learner0", "resource_info": {"gpu": 1}}
    task = {"task_id": "l", "policy_id": "policy", "buffer_id": "buffer"}
    assert (first.tasks, second.tasks) == ([{**task, **own}], [{**task, **own, "resume": True}])
    assert {row["data_id"] for batch in second.batches for row in batch} == {"b"}
    let_go.set()
    told = [commander_of(coordinator).told.get(timeout=PATIENCE_S)[0] for _ in range(3)]
    assert told == ["update_learner_info", "update_learner_info", "finish_learner_task"]
    assert coordinator.failure is None


@pytest.mark.parametrize("is_able", [True, False])
def test_a_worker_that_is_back_but_cannot_be_connected_is_lost_again(is_able, make):
    keeper = Keeper(is_able)
    coordinator = make(keeper=keeper)
    coordinator.start()
    coordinator.deal_with_worker_back("collector", "collector0", "local", 999)
    assert keeper.asked == [("collector", "collector0", WorkerGone)]
    assert coordinator.system_shutdown_flag is not is_able
    assert isinstance(coordinator.failure, WorkerLost) is not is_able


# Workers that somebody else starts again, at their old addresses.


class Joiner:
    """Connects a worker at the attempt number `at`; before, it fails with `error`."""

    def __init__(self, at, error=None):
        self.at, self.error, self.attempts = at, error or WorkerLost("not yet"), []
        self.has_joined, self.given_up, self.has_given_up = threading.Event(), [], threading.Event()

    def join(self, kind, name, timeout_s):
        self.attempts.append((kind, name, timeout_s > 0))
        if len(self.attempts) < self.at:
            raise self.error
        self.has_joined.set()

    def give_up(self, *told):
        self.given_up.append(told)
        self.has_given_up.set()


@pytest.fixture
def keep():
    made = []

    def keep(joiner, timeout_s):
        made.append(ReconnectSupervisor(joiner.join, joiner.give_up, timeout_s))
        return made[-1]

    yield keep
    for keeper in made:
        keeper.close()
        assert keeper.lost("collector", "c", WorkerLost("gone")) is False


@pytest.mark.parametrize(
    ("attempt", "error", "timeout_s"),
    [
        (2, WorkerGone("it will not be back"), PATIENCE_S),
        (10**9, WorkerLost("not yet"), 0.01),
        (2, ValueError("it is back, and has no resources"), PATIENCE_S),
    ],
)
def test_a_worker_is_given_up_when_it_will_not_be_back_or_not_in_time_or_fails(keep, attempt, error, timeout_s):
    joiner, loss = Joiner(attempt, error), WorkerLost("gone")
    assert keep(joiner, timeout_s).lost("collector", "c", loss) is True
    assert joiner.has_given_up.wait(PATIENCE_S)
    assert joiner.given_up == [("collector", "c", error if isinstance(error, ValueError) else loss)]


def test_a_lost_worker_is_tried_until_it_is_back(keep):
    joiner = Joiner(at=3)
    keeper = keep(joiner, PATIENCE_S)
    assert keeper.lost("collector", "c", WorkerLost("gone")) is True
    assert joiner.has_joined.wait(PATIENCE_S)
    assert (joiner.attempts, joiner.given_up) == ([("collector", "c", True)] * 3, [])


@pytest.mark.parametrize("others", [0, 1])
def test_a_run_goes_on_without_a_worker_if_there_are_others(others, make, workers):
    collectors = [workers(batched_collector()) for _ in range(others)]
    coordinator, error = make([], collectors, keeper=Keeper(False)), WorkerLost("gone")
    coordinator.start()
    coordinator.deal_with_worker_lost("collector", "collector9", None, error)
    assert coordinator.failure is (None if others else error)


@pytest.mark.parametrize("return_s", [PATIENCE_S, 0])
def test_a_worker_that_is_lost_without_a_task_is_noticed(return_s, monkeypatch):
    monkeypatch.setattr(http_transport, "TOLERANCE_S", 0.3)
    first = NaiveLearner("127.0.0.1", 0, prefix="l")
    first.start()
    own = {"host": "127.0.0.1", "port": 0, "learner": {"learner0": ["learner0", "127.0.0.1", first.port]}}
    own["worker_return_timeout"] = return_s
    coordinator = Coordinator(EasyDict(main=main_cfg("scripted"), system={"coordinator": own}, seed=0))
    is_lost, is_back = threading.Event(), threading.Event()
    tell, second = coordinator.deal_with_worker_lost, NaiveLearner("127.0.0.1", first.port, prefix="l")
    coordinator.deal_with_worker_lost = lambda *told: (tell(*told), is_lost.set())
    coordinator.deal_with_worker_free = lambda kind, worker_id: is_back.set()
    try:
        coordinator.start()
        first.close()
        assert is_lost.wait(PATIENCE_S) and "lost" in states_of(coordinator, "learner")
        if return_s:
            second.start()
            assert is_back.wait(PATIENCE_S) and coordinator.failure is None
        else:  # it was the only one
            assert coordinator.wait(PATIENCE_S)
            assert "learner0 was lost while it had no task" in str(coordinator.failure)
    finally:
        coordinator.close()
        first.close()
        second.close()


# A training over a network that delays, loses and doubles messages, in both directions.


ITERATIONS = 60


class BadTrainer(Trainer):
    """All messages to workers pass through the network."""

    def __init__(self, network):
        super().__init__()
        self._network = network

    def reach(self, port):
        return self._network.reach(port)


@pytest.fixture
def train(monkeypatch):
    books = Books(monkeypatch)

    def train(seed):
        network = Network(seed)
        trainer = BadTrainer(network)
        try:
            changes = {"env__collector_episode_num": 1, "policy__learn__learner": {"train_iterations": ITERATIONS}}
            coordinator = trainer.train(MAIN, CREATE, "http", **changes)  # some tasks end by themselves
        finally:
            trainer.close()
            network.close()
        assert coordinator.failure is None and coordinator.progress().train_iter == ITERATIONS
        books.check(coordinator.progress().samples)
        return network.faults

    return train


@pytest.mark.parametrize(
    "seed", [0, pytest.param(100, marks=pytest.mark.slow), pytest.param(200, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("token", ["", "s3cret"], ids=["without token", "with token"])
def test_a_bad_network_changes_neither_counts_nor_the_end(seed, token, train, set_env):
    set_env(DING_TOKEN=token)
    faults = train(seed)
    assert all(faults[fault] > 0 for fault in FAULTS)
