"""Sinks of metrics: the exact contents of the files, what trackers get, resuming, and writes that fail."""

import errno
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ding.utils import metric_sinks
from ding.utils.config_helper import ConfigError
from ding.utils.metric_sinks import (
    METRIC_SINK_REGISTRY,
    CsvSink,
    JsonLinesSink,
    MetricRecord,
    MetricSink,
    MetricWriter,
    RunInfo,
    check_logger,
    create_metric_writer,
)
from ding.utils.registry_factory import Registry
from ding.worker.worker_log import WorkerLog
from tests.utils.test_log_helper import events
from tests.utils.tracker_fakes import FakeMlflow, FakeWandb


class ListSink(MetricSink):
    """Keeps what is written; the first `failures` calls of `write` fail."""

    def __init__(self, run: RunInfo, settings: Mapping[str, Any]) -> None:
        self.run, self.settings = run, settings
        self.records: list[MetricRecord] = []
        self.batches = 0
        self.failures = settings.get("failures", 0)
        self.closed = 0

    def write(self, records: Sequence[MetricRecord]) -> None:
        self.batches += 1
        if self.failures:
            self.failures -= 1
            raise OSError(errno.ENOSPC, "no space")
        self.records += records

    def close(self) -> None:
        self.closed += 1


def sink(**settings: Any) -> ListSink:
    return ListSink(RunInfo(""), settings)


def writer_of(folder: Path, **sinks: MetricSink) -> MetricWriter:
    return MetricWriter(str(folder / "tb"), sinks, has_tensorboard=False)


def files_of(folder: Path) -> MetricWriter:
    run = RunInfo(str(folder))
    return writer_of(folder, csv=CsvSink(run, {}), jsonl=JsonLinesSink(run, {}))


def read(folder: Path) -> dict[str, str]:
    paths = [folder / "metrics.jsonl", *sorted((folder / "metrics").glob("*"))]
    return {path.name: path.read_text() for path in paths if path.exists()}


# the writer


def test_a_worker_s_scalars_go_to_tensorboard_under_both_axes_and_to_a_sink_once(tmp_path: Path) -> None:
    target = sink()
    with MetricWriter(str(tmp_path), {"list": target}) as writer:
        log = WorkerLog(str(tmp_path / "exp"), "collector", writer)
        log.scalars({"reward": 1.5, "steps": 8}, 3, 24, iter_only=("steps",))
        log.close()
    assert target.records == [MetricRecord("collector", {"train_iter": 3, "env_step": 24}, {"reward": 1.5, "steps": 8})]
    assert events(tmp_path) == [
        ("collector_iter/reward", 3, 1.5),
        ("collector_step/reward", 24, 1.5),
        ("collector_iter/steps", 3, 8.0),
    ]


def test_an_entry_of_one_s_own_has_the_worker_of_its_tag_and_a_step(tmp_path: Path) -> None:
    target = sink()
    with MetricWriter(str(tmp_path), {"list": target}) as writer:
        writer.add_scalar("selfplay/a/score", torch.tensor(2.5), 7)
        writer.add_scalar("loss", np.float32(0.5), global_step=8)
        writer.add_scalar("loss", 1)
    assert target.records == [
        MetricRecord("selfplay/a", {"step": 7}, {"score": 2.5}),
        MetricRecord("run", {"step": 8}, {"loss": 0.5}),
        MetricRecord("run", {}, {"loss": 1}),
    ]
    assert all(type(value) in (int, float) for record in target.records for value in record.values.values())
    assert [event[0] for event in events(tmp_path)] == ["selfplay/a/score", "loss", "loss"]


# files


def test_the_files_hold_exactly_what_was_logged(tmp_path: Path) -> None:
    with files_of(tmp_path) as writer:
        writer.add_scalars_of("evaluator", {"reward_mean": 9.5, "episodes": 3}, 0, 0)
        writer.add_scalars_of("learner", {"loss": 0.1}, 100, 768)
        writer.add_scalars_of("evaluator", {"reward_mean": math.nan, "episodes": 3}, 100, 768)
    assert read(tmp_path) == {
        "metrics.jsonl": '{"worker": "evaluator", "train_iter": 0, "env_step": 0, "reward_mean": 9.5, "episodes": 3}\n'
        '{"worker": "learner", "train_iter": 100, "env_step": 768, "loss": 0.1}\n'
        '{"worker": "evaluator", "train_iter": 100, "env_step": 768, "reward_mean": null, "episodes": 3}\n',
        "evaluator.csv": "train_iter,env_step,reward_mean,episodes\n0,0,9.5,3\n100,768,nan,3\n",
        "learner.csv": "train_iter,env_step,loss\n100,768,0.1\n",
    }


def test_a_new_name_adds_a_column_and_a_missing_one_leaves_a_cell_empty(tmp_path: Path) -> None:
    with files_of(tmp_path) as writer:
        writer.add_scalars_of("learner", {"a": 1, "b": 2}, 0)
        writer.flush()
        writer.add_scalars_of("learner", {"b": 3, 'c,"d"': 4}, 1)
        writer.add_scalars_of("learner", {"a": 5}, 2)
    assert read(tmp_path)["learner.csv"] == 'train_iter,a,b,"c,""d"""\n0,1,2,\n1,,3,4\n2,5,,\n'


def test_half_a_line_of_a_killed_process_is_removed_when_a_state_is_loaded(tmp_path: Path) -> None:
    with files_of(tmp_path) as writer:
        writer.add_scalars_of("learner", {"loss": 1}, 0)
        state = writer.state_dict()
    wanted = read(tmp_path)
    for path in (tmp_path / "metrics.jsonl", tmp_path / "metrics" / "learner.csv"):
        with path.open("a") as file:
            file.write("1,")
    with files_of(tmp_path) as writer:
        writer.load_state_dict(state)
    assert read(tmp_path) == wanted


# the config


@pytest.mark.parametrize(("section", "in_tensorboard"), [({"sinks": []}, []), ({}, [("a/b", 2, 1.0)])])
def test_the_files_are_written_whatever_sinks_are_chosen_and_tensorboard_is_the_default(
    tmp_path: Path, section: Any, in_tensorboard: Any
) -> None:
    with create_metric_writer(str(tmp_path / "tb"), RunInfo(str(tmp_path)), section) as writer:
        writer.add_scalar("a/b", 1, 2)
    assert read(tmp_path).keys() == {"metrics.jsonl", "a.csv"}
    assert (tmp_path / "tb").exists() == bool(in_tensorboard)
    assert not in_tensorboard or events(tmp_path / "tb") == in_tensorboard


def test_a_sink_of_one_s_own_gets_the_run_and_its_section(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric_sinks, "METRIC_SINK_REGISTRY", Registry({**METRIC_SINK_REGISTRY, "list": ListSink}))
    run = RunInfo(str(tmp_path), {"seed": 0}, "train_iter")
    writer = create_metric_writer(str(tmp_path / "tb"), run, {"sinks": ["list"], "list": {"color": "red"}})
    own = writer._sinks["list"]
    assert isinstance(own, ListSink) and (own.run, own.settings) == (run, {"color": "red"})
    writer.close()


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"sinks": ["wandbd"]}, "wandbd"),
        ({"sinks": ["zzzzzzzzzz"]}, "known are csv, jsonl, mlflow, tensorboard, wandb"),
        ({"sinks": "wandb"}, "sinks = 'wandb'"),
        (["wandb"], "must be a dict"),
    ],
)
def test_a_wrong_section_is_refused(section: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_logger(section)


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_missing_package_is_named_with_the_line_that_installs_it(
    tmp_path: Path, put_module: Callable[[str, object], None], name: str
) -> None:
    put_module(name, None)
    with pytest.raises(ImportError, match=f"pip install {name}"):
        create_metric_writer(str(tmp_path), RunInfo(str(tmp_path)), {"sinks": [name]})


# Weights & Biases


@pytest.fixture
def wandb(put_module: Callable[[str, object], None]) -> FakeWandb:
    fake = FakeWandb()
    put_module("wandb", fake)
    return fake


def tracked(folder: Path, name: str, config: Mapping[str, Any] | None = None, **settings: Any) -> MetricWriter:
    run = RunInfo(str(folder / "exp"), config or {})
    return create_metric_writer(str(folder / "tb"), run, {"sinks": [name], name: settings})


def test_wandb_gets_each_record_with_its_axes(tmp_path: Path, wandb: FakeWandb) -> None:
    with tracked(tmp_path, "wandb", {"seed": 0, "env": {"cls": dict}}, entity="me", project="mine") as writer:
        writer.add_scalars_of("evaluator", {"reward_mean": 9.5}, 0, 0)
        writer.add_scalars_of("learner", {"loss": 0.5, "cur_lr": 1e-3}, 100, 768)
        writer.add_scalar("own/x", 1, 5)
        assert wandb.inits == []
    assert wandb.inits == [
        {
            "project": "mine",
            "name": "exp",
            "dir": str(tmp_path / "exp"),
            "entity": "me",
            "config": {"seed": 0, "env": {"cls": "<class 'dict'>"}},
        }
    ]
    run = wandb.runs["run0"]
    assert run.metrics == [("evaluator/*", "env_step"), ("learner/*", "env_step"), ("own/*", "step")]
    assert run.rows == [
        {"evaluator/reward_mean": 9.5, "train_iter": 0, "env_step": 0},
        {"learner/loss": 0.5, "learner/cur_lr": 1e-3, "train_iter": 100, "env_step": 768},
        {"own/x": 1, "step": 5},
    ]
    assert run.finished == 1


# MLflow


@pytest.fixture
def mlflow(put_module: Callable[[str, object], None]) -> FakeMlflow:
    fake = FakeMlflow()
    put_module("mlflow", fake)
    return fake


def test_mlflow_gets_each_value_under_both_axes_and_the_config_as_parameters(
    tmp_path: Path, mlflow: FakeMlflow
) -> None:
    config = {"seed": 0, "policy": {"learn": {"batch_size": 64}, "long": "x" * 600}}
    settings = {"tracking_uri": "file:x", "experiment_name": "cart", "tags": {"n": 1}}
    with tracked(tmp_path, "mlflow", config, **settings) as writer:
        writer.add_scalars_of("learner", {"loss": 0.5, "q[0]": 1}, 100, 768)
        writer.add_scalar("own/x", 2, 5)
        assert mlflow.runs == {}
    assert mlflow.uris == ["file:x"] and mlflow.experiments == ["cart"]
    assert mlflow.runs == {
        "run0": {
            "experiment": "0",
            "name": "exp",
            "tags": {"n": "1"},
            "params": [("seed", "0"), ("policy.learn.batch_size", "64"), ("policy.long", "x" * 500)],
            "metrics": [
                ("learner_iter/loss", 0.5, 100),
                ("learner_iter/q_0_", 1.0, 100),
                ("learner_step/loss", 0.5, 768),
                ("learner_step/q_0_", 1.0, 768),
                ("own/x", 2.0, 5),
            ],
        }
    }
    assert mlflow.ended == ["run0"]


@pytest.mark.filterwarnings("ignore")  # of what MLflow imports
@pytest.mark.slow
def test_values_reach_a_real_store_of_mlflow(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    with tracked(tmp_path, "mlflow", {"seed": 7}, tracking_uri=uri) as writer:
        writer.add_scalars_of("learner", {"loss": 1}, 0, 0)
        state = writer.state_dict()
        writer.add_scalars_of("learner", {"loss": 2}, 1, 10)
    with tracked(tmp_path, "mlflow", {"seed": 7}, tracking_uri=uri) as writer:
        writer.load_state_dict(state)
        writer.add_scalars_of("learner", {"loss": 2}, 1, 10)
        writer.add_scalars_of("learner", {"loss": 3}, 2, 20)
    client = mlflow.MlflowClient(tracking_uri=uri)
    run = client.search_runs([client.get_experiment_by_name("ding").experiment_id])
    assert [(found.info.run_name, found.info.status, found.data.params) for found in run] == [
        ("exp", "FINISHED", {"seed": "7"})
    ]
    history = client.get_metric_history(run[0].info.run_id, "learner_step/loss")
    found = {(metric.step, metric.value) for metric in history}  # it may keep what it is told twice
    assert found == {(0, 1.0), (10, 2.0), (20, 3.0)}
