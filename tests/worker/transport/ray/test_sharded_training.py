"""Whole trainings whose samples lie in shards, in this process."""

from functools import partial
from time import monotonic

import pytest

from tests.worker.coordinator.test_training import CREATE, MAIN
from tests.worker.coordinator.trainings import Trainer
from tests.worker.transport.ray.doubles import SHARDS

DEADLINE_S = 30.0


@pytest.fixture
def trainer():
    trainer = Trainer()
    yield trainer
    trainer.close()
    assert SHARDS.by_name == {}


@pytest.fixture
def train(trainer):
    return partial(trainer.train, MAIN, CREATE, "sharded", own={"replay_shards": 2})


BUFFERS = {
    "naive": {"type": "naive"},
    "advanced": {"type": "advanced"},
    "deque, used once": {"type": "deque", "max_use": 1},
}


@pytest.mark.parametrize("buffer", BUFFERS)
def test_a_training_ends_well(train, buffer):
    coordinator = train(policy__other__replay_buffer={"replay_buffer_size": 64, **BUFFERS[buffer]})
    assert coordinator.failure is None
    progress = coordinator.progress()
    assert progress.train_iter == 30 and progress.last_return == 7.5
    assert progress.env_steps == coordinator._commander.envstep >= progress.samples >= 4


def test_a_shard_that_is_lost_is_reported_and_the_training_goes_on(trainer):
    main = {**MAIN, "exp_name": "lost"}
    begun = trainer.begin(main, CREATE, "sharded", {"replay_shards": 2}, policy__learn__learner__train_iterations=10**9)
    wait_until(begun, lambda: begun.progress().train_iter >= 20)
    next(shard for shard in SHARDS.by_name.values() if shard.name.endswith("/1")).lose()
    wait_until(begun, lambda: any("has lost 1 shards" in error.text for error in begun.status().errors))
    trained = begun.progress().train_iter
    wait_until(begun, lambda: begun.progress().train_iter >= trained + 20)
    begun.close()
    assert begun.failure is None


def test_another_coordinator_goes_on_with_the_samples(trainer):
    changes = {"policy__learn__learner__train_iterations": 10**9, "policy__other__replay_buffer": {"type": "naive"}}
    own = {"state_interval_s": 1000, "resume": True, "replay_shards": 2}
    first = trainer.begin(MAIN, CREATE, "sharded", own, **changes)
    wait_until(first, lambda: first.progress().samples >= 30 and first.progress().train_iter > 0)
    first.close()
    assert SHARDS.by_name == {}
    samples = first.progress().samples
    second = trainer.begin(MAIN, CREATE, "sharded", own, **changes)
    counts = [shard.replay.plan(0, 1.0, [])["count"] for shard in SHARDS.by_name.values()]
    assert sum(counts) >= samples and len(counts) == 2
    wait_until(second, lambda: second.progress().samples >= samples + 10)
    second.close()
    assert second.failure is None


def wait_until(coordinator, is_true):
    deadline = monotonic() + DEADLINE_S
    while not is_true():
        assert monotonic() < deadline and coordinator.failure is None
        coordinator.wait(0.02)
