"""Real learners behind an aggregator, with a real coordinator in front of it."""

import pathlib
import queue
import threading

import pytest
import torch
from easydict import EasyDict

from ding.interaction import Slave
from ding.worker import Coordinator, LearnerAggregator
from ding.worker.coordinator.coordinator import failure_text
from ding.worker.learner.comm import create_comm_learner
from ding.worker.transport.chunk import encode_chunk
from ding.worker.transport.local_transport import LocalWorkerServer
from ding.worker.transport.stores import FolderSampleStore
from tests.worker.coordinator.fakes import collected, collector_task, finish_info, learner_task, local_cfg
from tests.worker.learner.comm.workers import POLICIES, task_info

DEADLINE_S = 60
LEARNERS, ITERATIONS = 2, 12


class Collector:
    """Gives chunks of four samples, each with its number as observation, until its task is closed."""

    def __init__(self, kind, store):
        self.store, self.count = store, 0
        self.closed = threading.Event()
        if kind == "local":
            self.server = LocalWorkerServer(self.serve)
        else:
            self.server = _CollectorSlave(self.serve)
        self.server.start()

    def serve(self, task):
        return getattr(self, task["name"])(task)

    def resource(self, task):
        return {"gpu": 1, "cpu": 1}

    def collector_start_task(self, task):
        return {}

    def collector_data_task(self, task):
        if self.count >= 40:  # enough of them
            self.closed.wait(0.05)
            return collected()
        name, first = f"env_uid_{self.count}", self.count
        self.count += 4
        self.store.write(name, encode_chunk([{"obs": torch.tensor(float(first + i))} for i in range(4)], "lz4"))
        return collected([{"data_id": name, "data_index": i, "compressor": "lz4", "policy_iter": 0} for i in range(4)])

    def collector_close_task(self, task):
        self.closed.set()
        return finish_info()


class _CollectorSlave(Slave):
    def __init__(self, serve):
        super().__init__("127.0.0.1", 0)
        self._serve = serve

    def _process_task(self, task):
        return self._serve(task)


class Run:
    """All roles of a training over one transport, with the learner task that the test gives."""

    def __init__(self, kind, tmp_path):
        self.kind, self.paths = kind, {"path_data": str(tmp_path / "data"), "path_policy": str(tmp_path / "policy")}
        worker = {"type": kind, "host": "127.0.0.1", "port": 0, **self.paths}
        self.learners = [create_comm_learner(EasyDict(worker)) for _ in range(LEARNERS)]
        for learner in self.learners:
            learner.start()
        store = FolderSampleStore(self.paths["path_data"])
        self.collector = Collector(kind, store)
        ends = {end: {"host": "127.0.0.1", "port": 0} for end in ("master", "slave")}
        addresses = {str(i): (str(i), "127.0.0.1", learner.port) for i, learner in enumerate(self.learners)}
        self.aggregator = LearnerAggregator(EasyDict(ends, transport=kind, learner=addresses))
        self.aggregator.start()
        cfg = local_cfg([self.aggregator.port], [self.collector.server.port], path_data=self.paths["path_data"])
        coordinator = cfg.system.coordinator
        coordinator.transport, coordinator.host = kind, "127.0.0.1"
        for section in (coordinator.learner, coordinator.collector):
            for address in section.values():
                address[1] = "127.0.0.1"
        self.coordinator = Coordinator(cfg)

    def start(self, **changes):
        commander = self.coordinator._commander
        info = task_info("l", **changes)
        commander.learner_tasks.append({**info, **learner_task("l", "b"), "policy_id": "policy"})
        commander.collector_tasks.append(collector_task("c", "b"))
        self.coordinator.start()

    def told(self, name):
        """What the commander is told by this name next; the rest is returned with it."""
        before = []
        while (told := self.coordinator._commander.told.get(timeout=DEADLINE_S))[0] != name:
            before.append(told)
        return told, before

    def close(self):
        self.coordinator.close()
        self.aggregator.close()
        for part in (self.collector.server, *self.learners):
            part.close()


@pytest.fixture(params=["local", "flask_fs"])
def run(request, tmp_path):
    POLICIES.clear()
    run = Run(request.param, tmp_path)
    yield run
    run.close()
    POLICIES.clear()


def test_learners_train_as_many_batches_each_and_the_task_is_finished(run):
    given, draw = [], run.coordinator.deal_with_learner_get_data

    def recorded(task_id, buffer_id, batch_size, cur_learner_iter):  # the documented signature
        batch = draw(task_id, buffer_id, batch_size, cur_learner_iter)
        given.extend([] if batch is None else [[row["replay_unique_id"] for row in batch]])
        return batch

    run.coordinator.deal_with_learner_get_data = recorded
    run.start(learner={"train_iterations": ITERATIONS}, policy={"with_priority": True})
    finished, before = run.told("finish_learner_task")
    assert finished[1] == "l" and finished[2]["buffer_id"] == "b"
    steps = [told[2] for told in before if told[0] == "update_learner_info"]
    assert steps == list(range(ITERATIONS))
    run.coordinator.close()
    assert run.coordinator.failure is None
    one, other = [policy.seen() for policy in POLICIES]
    assert len(one) == len(other) == ITERATIONS
    assert all(len(batch) == 2 for batch in one + other)
    trained = [[[row["replay_unique_id"] for row in batch] for batch in policy.batches] for policy in POLICIES]
    first = 0 if trained[0][0] == given[0][:2] else 1  # either may have begun first
    halves = zip(trained[first], trained[1 - first], strict=True)
    assert [a + b for a, b in halves] == given[:ITERATIONS]  # each learner got its own half of each batch
    assert not any(pathlib.Path(run.paths["path_data"]).glob("env_*"))


def test_a_run_that_ends_in_the_middle_leaves_the_learners_in_step(run):
    run.start()
    for _ in range(5):
        run.told("update_learner_info")
    run.coordinator.close()
    assert run.coordinator.failure is None
    one, other = (len(policy.seen()) for policy in POLICIES)
    assert one == other >= 5
    assert not {"learner_start", "dataloader"} & {thread.name for thread in threading.enumerate()}


def test_a_policy_that_fails_in_one_of_the_learners_ends_the_run_with_its_traceback(run):
    run.start(policy={"raise_at": 3})
    assert run.coordinator.wait(DEADLINE_S)
    text = failure_text(run.coordinator.failure)
    assert "ZeroDivisionError: the policy was told to fail" in text and "in forward" in text
    with pytest.raises(queue.Empty):
        while run.coordinator._commander.told.get_nowait()[0] != "finish_learner_task":
            continue
