"""A training over a network that delays, loses and doubles messages, in both directions."""

import pytest

from tests.worker.coordinator.networks import FAULTS, Books, Network
from tests.worker.coordinator.test_training import CREATE, MAIN
from tests.worker.coordinator.trainings import Trainer

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
def test_a_bad_network_changes_neither_counts_nor_the_end(seed, token, train, monkeypatch):
    monkeypatch.setenv("DING_TOKEN", token)
    faults = train(seed)
    assert all(faults[fault] > 0 for fault in FAULTS)
