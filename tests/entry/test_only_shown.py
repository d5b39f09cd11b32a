"""Runs in which something that is only for showing fails: it is told once, and the run goes on to its end."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import numpy as np
import pytest
from easydict import EasyDict

from ding.entry import serial_pipeline
from ding.entry.parallel_run import run_parallel
from ding.policy.dqn import DQNPolicy
from ding.utils import POLICY_REGISTRY, metric_sinks
from ding.utils.metric_sinks import METRIC_SINK_REGISTRY, MetricSink
from ding.utils.registry_factory import Registry
from ding.worker import BaseLearner
from tests.entry.fakes import TinyEnv, pair
from tests.entry.parallel_fakes import triple
from tests.worker.collector.parallel_fakes import TaskEnv


class ShyEnv(TinyEnv):
    """Says its name only after a step, as envs do that read what `reset` sets; and does not know its rewards."""

    def __init__(self, cfg: Any) -> None:
        super().__init__(cfg)
        self._rng = np.random.default_rng(0)

    @property
    def reward_space(self) -> Any:
        raise RuntimeError("rewards have no space")

    @reward_space.setter
    def reward_space(self, space: Any) -> None:
        pass

    def __repr__(self) -> str:
        return f"ShyEnv({self.name})"  # type: ignore[attr-defined]

    def __str__(self) -> str:
        raise ValueError("it has no text")

    def __bool__(self) -> bool:
        raise ValueError("it is neither")

    def info(self) -> Any:
        raise RuntimeError("it has no info")


@POLICY_REGISTRY.register("shy_dqn")
class ShyDQN(DQNPolicy):
    def __repr__(self) -> str:
        raise RuntimeError("it has no text")


def train(env: type[TinyEnv] = TinyEnv, manager: str = "base", iterations: int = 12, **policy: Any) -> Any:
    main, create = pair(env={"stop_value": 1e9}, **policy)
    main.run_state = {"every_iter": 3}
    create.env_manager.type = manager
    return serial_pipeline((main, create), env_setting=[env, [{}] * 2, [{}] * 2], max_train_iter=iterations)


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The warnings about what is only shown, up to the error's text."""
    return [m.split(";")[0] for m in caplog.messages if "is only shown" in m]


def assert_ended(iterations: int = 12) -> None:
    with open("exp/result.json") as file:
        assert json.load(file)["train_iter"] >= iterations


@pytest.mark.guarantees("logs")
@pytest.mark.parametrize("manager", ["base", "subprocess"])
def test_an_env_that_cannot_be_shown_is_trained_in(manager: str, caplog: pytest.LogCaptureFixture) -> None:
    train(ShyEnv, manager)
    assert_ended()
    assert sorted(warned(caplog)) == [
        "reward_space of the env ShyEnv fails with RuntimeError: rewards have no space",
        "showing a ShyEnv fails with ValueError: it has no text",
    ]


def test_an_error_of_such_an_env_is_still_the_error_that_ends_the_run() -> None:
    class Wrong(ShyEnv):
        def step(self, action: Any) -> Any:
            return 3

    with pytest.raises(TypeError, match="the step of <Wrong> returned 3, not a BaseEnvTimestep"):
        train(Wrong)


@pytest.mark.parametrize("name", ["observation_space", "action_space"])
def test_an_env_that_never_tells_a_space_is_trained_in(name: str, caplog: pytest.LogCaptureFixture) -> None:
    def missing(self: Any) -> Any:
        raise RuntimeError("not known")

    body = {name: property(missing, lambda self, space: None), "_rng": np.random.default_rng(0)}
    Spaceless = type("Spaceless", (TinyEnv,), body)
    train(Spaceless)
    assert_ended()
    assert warned(caplog) == [f"{name} of the env Spaceless fails with RuntimeError: not known"]


def test_an_env_that_fails_before_it_tells_its_spaces_is_an_error() -> None:
    class Broken(TinyEnv):
        observation_space = property(lambda self: 1 / 0, lambda self, space: None)  # type: ignore[assignment]

        def reset(self) -> Any:
            raise FileNotFoundError("the game is not installed")

    with pytest.raises(FileNotFoundError, match="the game is not installed"):
        train(Broken)


def test_a_policy_that_cannot_be_shown_is_trained(caplog: pytest.LogCaptureFixture) -> None:
    main, create = pair(env={"stop_value": 1e9})
    create.policy = EasyDict(type="shy_dqn")
    serial_pipeline((main, create), env_setting=[TinyEnv, [{}] * 2, [{}] * 2], max_train_iter=12)
    assert_ended()
    (message,) = warned(caplog)
    assert message.startswith("info() of the policy ") and message.endswith("RuntimeError: it has no text")


def test_a_model_that_cannot_be_shown_is_trained(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ding.model import DQN

    monkeypatch.setattr(DQN, "__repr__", lambda self: self.nothing)
    train()
    assert_ended()
    (message,) = warned(caplog)
    assert message.startswith("showing a DQN fails with AttributeError")


class FailingSink(MetricSink):
    """Fails with something other than an OSError in all that it does."""

    def __init__(self, run: Any, settings: Any) -> None:
        pass

    def write(self, records: Any) -> None:
        raise RuntimeError("the service is gone")

    def close(self) -> None:
        raise RuntimeError("there is nothing to close")

    def state_dict(self) -> Any:
        raise KeyError("no position")


@pytest.fixture
def failing_sink(monkeypatch: pytest.MonkeyPatch) -> str:
    own = Registry({**METRIC_SINK_REGISTRY, "failing": FailingSink})
    monkeypatch.setattr(metric_sinks, "METRIC_SINK_REGISTRY", own)
    return "failing"


_OF_THE_SINK = [
    "closing the metrics of failing fails with RuntimeError: there is nothing to close",
    "saving the position in failing fails with KeyError: 'no position'",
    "writing metrics to failing fails with RuntimeError: the service is gone",
]


@pytest.mark.guarantees("logs")
def test_a_sink_that_fails_is_told_and_the_others_go_on(failing_sink: str, caplog: pytest.LogCaptureFixture) -> None:
    main, create = pair(env={"stop_value": 1e9})
    main.update(logger={"sinks": [failing_sink, "tensorboard"]}, run_state={"every_iter": 3})
    serial_pipeline((main, create), env_setting=[TinyEnv, [{}] * 2, [{}] * 2], max_train_iter=12)
    assert_ended()
    assert sorted(warned(caplog)) == _OF_THE_SINK
    with open("exp/metrics.jsonl") as file:
        assert {"learner", "evaluator"} <= {json.loads(line)["worker"] for line in file}


@pytest.mark.differs(
    "ends a run, or makes it wait forever, if TensorBoard or a log cannot be written",
    "warns once and goes on without",
)
def test_a_tensorboard_writer_that_fails_is_told(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tensorboardX

    def fail(*args: Any, **kwargs: Any) -> Any:
        raise MemoryError("no event")

    monkeypatch.setattr(tensorboardX.SummaryWriter, "add_scalar", fail)
    train()
    assert_ended()
    assert warned(caplog) == ["add_scalar of TensorBoard fails with MemoryError: no event"]


def test_a_foreign_writer_that_fails_is_told_once_by_each_worker(caplog: pytest.LogCaptureFixture) -> None:
    class Writer:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(f"no {name}")

    from tests.worker.learner.fakes import FakePolicy

    learner = BaseLearner(BaseLearner.default_config(), tb_logger=Writer(), exp_name="exp")
    learner.policy = FakePolicy()
    for _ in range(3):
        learner.call_hook("after_iter")
    learner.close()
    assert warned(caplog) == ["writing the log of learner fails with RuntimeError: no add_scalar"]


@pytest.mark.guarantees("logs")
def test_text_logs_and_records_that_cannot_be_written_later_are_told(caplog: pytest.LogCaptureFixture) -> None:
    class Spoiling(TinyEnv):
        """Puts folders in the places of the log files, in the middle of the run."""

        def step(self, action: Any) -> Any:
            if self.life == 6:
                for path in ("exp/eval.jsonl", "exp/log/learner/learner_logger.txt", "exp/metrics.jsonl"):
                    if os.path.isfile(path):
                        os.remove(path)
                    os.makedirs(path, exist_ok=True)
            return super().step(action)

    main, create = pair(env={"stop_value": 1e9})
    main.run_state = False
    serial_pipeline((main, create), env_setting=[Spoiling, [{}] * 2, [{}] * 2], max_train_iter=18)
    assert_ended()
    assert sorted({message.split(" fails with ")[0].rsplit("/")[-1] for message in warned(caplog)}) == [
        "eval.jsonl",
        "learner_logger.txt",
        "writing metrics to jsonl",
    ]
    assert len(warned(caplog)) == 3


def test_a_folder_that_cannot_be_written_at_the_beginning_is_an_error() -> None:
    with open("taken", "w"):
        pass
    main, create = pair()
    main.exp_name = "taken/exp"
    with pytest.raises(OSError, match="taken"):
        serial_pipeline((main, create), env_setting=[TinyEnv, [{}] * 2, [{}] * 2])


@pytest.mark.guarantees("logs")
def test_a_standard_error_that_is_closed_does_not_end_a_run(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Closed:
        def isatty(self) -> bool:
            return False

        def write(self, text: str) -> Any:
            raise ValueError("I/O operation on closed file.")

        flush = write

    monkeypatch.setattr(sys, "stderr", Closed())
    train()
    monkeypatch.undo()
    assert "writing the progress to standard error fails with ValueError" in caplog.text


def test_what_a_policy_logs_that_is_no_number_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    from ding.utils.metric_sinks import RunInfo, create_metric_writer

    with create_metric_writer("log", RunInfo("."), {}) as writer:
        for _ in range(2):
            writer.add_scalars_of("learner", {"pair": np.ones(2), "loss": 0.5}, train_iter=1)
    with open("metrics.jsonl") as file:
        assert [json.loads(line) for line in file] == [{"worker": "learner", "train_iter": 1, "loss": 0.5}] * 2
    assert len(warned(caplog)) == 2  # of TensorBoard, and of the value


@pytest.mark.guarantees("logs")
def test_a_parallel_run_goes_on_without_its_sink_and_the_text_of_its_envs(
    failing_sink: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TaskEnv, "__repr__", lambda self: self.nothing)
    often = {"coordinator": {"state_interval_s": 0.01}}
    main, create, system = triple("local", system=often, policy__other__commander__eval_interval=0.01)
    main.logger = {"sinks": [failing_sink]}
    run_parallel((main, create, system), seed=0, max_train_iter=20, max_seconds=120)
    assert_ended(20)
    assert [message for message in sorted(warned(caplog)) if "failing" in message] == _OF_THE_SINK
