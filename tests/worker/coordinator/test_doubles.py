"""A coordinator and stand-ins for its workers, over HTTP, one sample and one batch at a time."""

import pathlib
import threading

import pytest
from easydict import EasyDict

from ding.worker import Coordinator, NaiveCollector
from ding.worker.coordinator.base_parallel_commander import NaiveCommander
from ding.worker.learner.comm import NaiveLearner
from tests.worker.coordinator.fakes import PATIENCE_S, main_cfg


def cfg_for(learners, collectors, **coordinator):
    def addresses(kind, slaves):
        return {f"{kind}{i}": [f"{kind}{i}", "127.0.0.1", slave.port] for i, slave in enumerate(slaves)}

    own = {"host": "127.0.0.1", "port": 0, **coordinator}
    own.update(learner=addresses("learner", learners), collector=addresses("collector", collectors))
    return EasyDict(main=main_cfg("naive", collector_task_space=2), system={"coordinator": own}, seed=0)


@pytest.fixture
def doubles():
    made = []

    def make(cls, prefix):
        made.append(cls("127.0.0.1", 0, prefix=prefix))
        made[-1].start()
        return made[-1]

    yield make
    for slave in made:
        slave.close()


class Watched:
    """Calls `event.set()` when a commander's method was called for the n-th time."""

    def __init__(self, monkeypatch, method, count):
        self.reached, left = threading.Event(), [count]
        original = getattr(NaiveCommander, method)

        def call(commander, *arguments):
            result = original(commander, *arguments)
            left[0] -= 1
            if left[0] == 0:
                self.reached.set()
            return result

        monkeypatch.setattr(NaiveCommander, method, call)


def test_stand_ins_run_their_tasks_to_the_end(doubles, monkeypatch):
    learner_ends = Watched(monkeypatch, "finish_learner_task", 1)
    collector_ends = Watched(monkeypatch, "finish_collector_task", 2)
    learner = doubles(NaiveLearner, "learner")
    collectors = [doubles(NaiveCollector, f"collector{i}") for i in range(2)]
    coordinator = Coordinator(cfg_for([learner], collectors))
    coordinator.start()
    try:
        assert learner_ends.reached.wait(PATIENCE_S) and collector_ends.reached.wait(PATIENCE_S)
        assert coordinator.failure is None
    finally:
        coordinator.close()
    commander = coordinator._commander
    assert len(coordinator._replay_buffer) == 0
    assert pathlib.Path("learner_final_model.pth").exists()
    finished = coordinator._historical_task
    learner_tasks = [task_id for task_id in finished if task_id.startswith("learner")]
    collector_tasks = [task_id for task_id in finished if task_id.startswith("collector")]
    assert len(learner_tasks) == commander._learner_task_finish_count >= 1
    assert len(collector_tasks) == commander._collector_task_finish_count >= 2
    for task_id in learner_tasks:
        assert len(commander._learner_info[task_id]) == 5
    for task_id in collector_tasks:
        names = [path.name for path in pathlib.Path().glob(f"*_{task_id}_*")]
        numbers = sorted(int(name.rpartition("_")[2]) for name in names)
        assert numbers == list(range(1, 21))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("coordinator")]
