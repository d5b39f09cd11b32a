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


def test_stand_ins_that_are_not_there_are_named(doubles, monkeypatch):
    monkeypatch.setattr("ding.worker.coordinator.comm_coordinator.CommCoordinator._max_retry_second", 0.3)
    learner = doubles(NaiveLearner, "learner")
    gone = NaiveCollector("127.0.0.1", 0)
    gone.start()
    gone.close()
    coordinator = Coordinator(cfg_for([learner], [gone, gone]))
    with pytest.raises(ConnectionError, match=r"within 0.3 s to collector0: .*; collector1: "):
        coordinator.start()


def test_a_stand_in_that_dies_ends_the_run(doubles, monkeypatch):
    class DyingCollector(NaiveCollector):
        def _get_timestep(self):
            raise ZeroDivisionError("the env has died")

    learner, collector = doubles(NaiveLearner, "learner"), doubles(DyingCollector, "collector")
    coordinator = Coordinator(cfg_for([learner], [collector]))
    coordinator.start()
    try:
        assert coordinator.wait(PATIENCE_S)
        assert "in _get_timestep" in str(coordinator.failure) and "the env has died" in str(coordinator.failure)
    finally:
        coordinator.close()


def test_a_stand_in_that_goes_away_ends_the_run_and_is_named(doubles):
    learner, collector = doubles(NaiveLearner, "learner"), doubles(NaiveCollector, "collector")
    coordinator = Coordinator(cfg_for([learner], [collector], worker_return_timeout=0))
    coordinator.start()
    try:
        collector.close()
        assert coordinator.wait(PATIENCE_S)
        assert "collector0" in str(coordinator.failure)
    finally:
        coordinator.close()


def test_files_of_stand_ins_are_deleted_with_their_samples(doubles, monkeypatch):
    class PlainCollector(NaiveCollector):
        """Puts its samples into the data folder."""

        def _data(self):
            reply = super()._data()
            if "data_id" in reply:
                name = pathlib.Path(reply["data_id"])
                reply["data_id"] = name.name
                name.rename(pathlib.Path("data") / name.name)
            return reply

    ends = Watched(monkeypatch, "finish_collector_task", 1)
    learner, collector = doubles(NaiveLearner, "learner"), doubles(PlainCollector, "collector")
    coordinator = Coordinator(cfg_for([learner], [collector], path_data="data"))
    coordinator.start()
    assert ends.reached.wait(PATIENCE_S)
    coordinator.close()
    assert coordinator.failure is None
    assert list(pathlib.Path("data").iterdir()) == []
