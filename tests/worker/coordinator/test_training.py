"""A training with learner, collectors and the solo commander of this package, all in this process."""

import pathlib
import threading
from functools import partial

import pytest
from easydict import EasyDict

from ding.policy.dqn import DQNPolicy
from ding.worker import Coordinator, NaiveCollector
from ding.worker.coordinator.base_parallel_commander import NaiveCommander
from ding.worker.coordinator.coordinator import failure_text
from ding.worker.learner.comm import NaiveLearner
from tests.worker.collector import parallel_fakes
from tests.worker.coordinator.fakes import PATIENCE_S, commander_of, main_cfg

MAIN = {
    "exp_name": "exp",
    "env": {
        "lengths": [6, 9],
        "collector_env_num": 2,
        "evaluator_env_num": 2,
        "collector_episode_num": 4,
        "evaluator_episode_num": 1,
        "n_evaluator_episode": 2,
        "stop_value": 1000,
    },
    "policy": {
        "nstep": 1,
        "model": {"obs_shape": 3, "action_shape": 2, "encoder_hidden_size_list": [8, 8], "dueling": False},
        "learn": {"batch_size": 4, "learner": {"train_iterations": 30}},
        "collect": {"n_sample": 4, "collector": {"collector_num": 2, "flush_interval_s": 0, "update_policy_second": 0}},
        "other": {
            "eps": {"type": "exp", "start": 0.95, "end": 0.1, "decay": 1000},
            "replay_buffer": {"replay_buffer_size": 64},
            "commander": {"collector_task_space": 2, "eval_interval": 1000},
        },
    },
}
CREATE = {
    "env": {"type": "counting_task", "import_names": [parallel_fakes.__name__]},
    "env_manager": {"type": "base"},
    "policy": {"type": "dqn_command"},
}


@pytest.fixture
def train(trainer):
    return partial(trainer.train, MAIN, CREATE)


def test_a_training_ends_when_its_learner_is_through_with_an_evaluation_of_its_last_weights(train):
    coordinator = train()
    assert coordinator.failure is None
    progress = coordinator.progress()
    assert progress.train_iter == 30 and progress.samples >= 4 and progress.last_return == 7.5
    assert progress.env_steps == commander_of(coordinator).envstep >= progress.samples
    evaluations = commander_of(coordinator).evaluations
    assert evaluations[-1]["train_iter"] == 30 and evaluations[-1]["reward_raw"] == [6.0, 9.0]
    assert len(coordinator._replay_buffer) == 0


def test_a_training_ends_at_its_stop_value(train):
    coordinator = train(env__stop_value=7.5, policy__learn__learner__train_iterations=10**9)
    assert coordinator.failure is None
    assert [result["reward_mean"] for result in commander_of(coordinator).evaluations] == [7.5]


def test_an_env_that_fails_ends_the_training_with_its_traceback(train):
    coordinator = train(env__raise_at=[1, 0, 7])
    text = failure_text(coordinator.failure)
    assert "ZeroDivisionError: env 1 was told to fail" in text and "in _mark" in text


@pytest.mark.parametrize(("method", "worker"), [("_forward_learn", "learner0"), ("_forward_collect", "collector")])
def test_a_policy_that_fails_ends_the_training_with_its_traceback(train, monkeypatch, method, worker):
    def fail(policy, *args, **kwargs):
        raise ArithmeticError("the policy was told to fail")

    monkeypatch.setattr(DQNPolicy, method, fail)
    coordinator = train()
    text = failure_text(coordinator.failure)
    assert f"worker {worker}" in text
    assert "ArithmeticError: the policy was told to fail" in text and "in fail" in text


# A coordinator and stand-ins for its workers, over HTTP, one sample and one batch at a time.


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
    commander = commander_of(coordinator)
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
