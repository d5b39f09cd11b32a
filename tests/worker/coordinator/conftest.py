import pytest

from ding.worker import Coordinator
from ding.worker.coordinator.base_parallel_commander import create_parallel_commander
from tests.worker.coordinator.fakes import PATIENCE_S, local_cfg, main_cfg
from tests.worker.coordinator.trainings import Trainer


class Clock:
    """The time of commanders."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("ding.worker.coordinator.solo_parallel_commander.monotonic", clock)
    return clock


@pytest.fixture
def make_commander(clock):
    """Makes commanders of a kind, which are closed at the end."""
    made = []

    def make_commander(kind, stop_value=9, patience=None, **cfg):
        main = main_cfg(kind, **{"path_policy": "policy", **cfg})
        main.env.stop_value, main.policy.eval = stop_value, {"evaluator": {"patience": patience}}
        made.append(create_parallel_commander(main))
        return made[-1]

    yield make_commander
    for commander in made:
        commander.close()


@pytest.fixture
def workers():
    """Takes workers that are closed at the end."""
    made = []
    yield lambda worker: made.append(worker) or worker
    for worker in made:
        worker.close()


@pytest.fixture
def trainer():
    trainer = Trainer()
    yield trainer
    trainer.close()


@pytest.fixture
def make():
    """Makes coordinators for these workers; they are closed at the end, and have no buffer left."""
    made = []

    def make(learners=(), collectors=(), keeper=None, **cfg):
        ports = [[getattr(worker, "worker", worker).port for worker in kind] for kind in (learners, collectors)]
        made.append(Coordinator(local_cfg(*ports, task_timeout=PATIENCE_S, **cfg)))
        if keeper is not None:
            made[-1].supervisor = keeper
        return made[-1]

    yield make
    for coordinator in made:
        coordinator.close()
        assert len(coordinator._replay_buffer) == 0
