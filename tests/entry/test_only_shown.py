"""Runs in which something that is only for showing fails: it is told once, and the run goes on to its end."""

import json
import os
import sys
from typing import Any

import numpy as np
import pytest

from ding.entry import serial_pipeline
from ding.entry.parallel_run import run_parallel
from ding.utils import metric_sinks
from ding.utils.metric_sinks import METRIC_SINK_REGISTRY, MetricSink
from ding.utils.registry_factory import Registry
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
    space, text = sorted(warned(caplog))
    assert space.startswith("reward_space") and text.startswith("showing a ShyEnv")


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


@pytest.mark.guarantees("logs")
def test_a_sink_that_fails_is_told_and_the_others_go_on(failing_sink: str, caplog: pytest.LogCaptureFixture) -> None:
    main, create = pair(env={"stop_value": 1e9})
    main.update(logger={"sinks": [failing_sink, "tensorboard"]}, run_state={"every_iter": 3})
    serial_pipeline((main, create), env_setting=[TinyEnv, [{}] * 2, [{}] * 2], max_train_iter=12)
    assert_ended()
    assert sorted(line.split()[0] for line in warned(caplog)) == ["closing", "saving", "writing"]
    with open("exp/metrics.jsonl") as file:
        assert {"learner", "evaluator"} <= {json.loads(line)["worker"] for line in file}


@pytest.mark.differs(
    "ends a run, or hangs, if TensorBoard or a log cannot be written",
    "warns once and continues without it",
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
    (message,) = warned(caplog)
    assert "TensorBoard" in message


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
    told = sorted(line.split()[0] for line in warned(caplog) if "failing" in line)
    assert told == ["closing", "saving", "writing"]
