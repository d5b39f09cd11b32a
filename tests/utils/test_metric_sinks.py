"""Sinks of metrics: the exact contents of the files, what trackers get, resuming, and writes that fail."""

from __future__ import annotations

import copy
import errno
import json
import logging
import math
import os
import pickle
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from ding.utils import metric_sinks
from ding.utils.config_helper import ConfigError
from ding.utils.log_helper import DistributedWriter
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
from ding.utils.registry import Registry
from ding.worker.worker_log import WorkerLog
from tests.utils.test_log_helper import events


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


def test_without_tensorboard_there_is_no_event_file(tmp_path: Path) -> None:
    with writer_of(tmp_path, list=sink()) as writer:
        writer.add_scalar("a/b", 1.0, 1)
        writer.add_histogram("a/c", np.zeros(3), 1)
    assert os.listdir(tmp_path) == []


def test_records_reach_a_sink_in_batches_at_a_flush_at_a_full_batch_and_at_close(tmp_path: Path) -> None:
    target = sink()
    writer = writer_of(tmp_path, list=target)
    for step in range(255):
        writer.add_scalars_of("learner", {"loss": 1.0}, step)
    assert target.records == []
    writer.add_scalars_of("learner", {"loss": 1.0}, 255)
    assert (len(target.records), target.batches) == (256, 1)
    writer.add_scalars_of("learner", {"loss": 1.0}, 256)
    writer.flush()
    writer.flush()
    assert (len(target.records), target.batches) == (257, 2)
    writer.add_scalars_of("learner", {"loss": 1.0}, 257)
    writer.close()
    writer.close()
    assert [record.axes["train_iter"] for record in target.records] == list(range(258))
    assert target.closed == 1


def test_a_record_does_not_wait_longer_than_ten_seconds_for_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(metric_sinks.time, "monotonic", lambda: now[0])
    target = sink()
    writer = writer_of(tmp_path, list=target)
    for second in (0, 9, 10, 11, 19.5, 21):
        now[0] = 100.0 + second
        writer.add_scalars_of("learner", {"second": second}, 0)
        if second == 9:
            assert target.records == []
    assert [record.values["second"] for record in target.records] == [0, 9, 10, 11, 19.5, 21]
    assert target.batches == 2
    writer.close()


def test_a_sink_that_fails_is_logged_once_gets_its_records_later_and_does_not_hold_up_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broken, sound = sink(failures=2), sink()
    writer = writer_of(tmp_path, broken=broken, sound=sound)
    with caplog.at_level(logging.ERROR, "ding"):
        for step in range(3):
            writer.add_scalars_of("learner", {"loss": 1.0}, step)
            writer.flush()
            assert len(sound.records) == step + 1
            assert len(broken.records) == (0 if step < 2 else 3)
    assert [record.getMessage() for record in caplog.records] == [
        "metrics are not written to broken: [Errno 28] no space; they are kept and written later"
    ]
    writer.close()
    assert [record.axes["train_iter"] for record in broken.records] == [0, 1, 2]


def test_only_so_many_records_wait_for_a_sink_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric_sinks, "_MAX_WAITING", 3)
    target = sink(failures=1)
    writer = writer_of(tmp_path, list=target)
    for step in range(5):
        writer.add_scalars_of("learner", {"loss": 1.0}, step)
    writer.flush()
    writer.close()
    assert [record.axes["train_iter"] for record in target.records] == [2, 3, 4]


def test_a_copy_of_the_writer_writes_event_files_only(tmp_path: Path) -> None:
    target = sink()
    writer = MetricWriter(str(tmp_path), {"list": target})
    for twin in (copy.copy(writer), pickle.loads(pickle.dumps(writer))):
        assert type(twin) is DistributedWriter and twin.logdir == str(tmp_path)
        with twin:
            twin.add_scalar("a/b", 1.0, 1)
    writer.close()
    assert target.records == []


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


def test_the_file_of_a_worker_stays_in_its_folder(tmp_path: Path) -> None:
    with files_of(tmp_path) as writer:
        writer.add_scalar("../../outside/x", 1, 2)
        writer.add_scalar("../y", 3, 4)
    assert read(tmp_path).keys() == {"metrics.jsonl", "_.._outside.csv", "run.csv"}


def test_a_name_with_a_line_break_is_one_column(tmp_path: Path) -> None:
    for step in range(2):
        with files_of(tmp_path) as writer:
            writer.add_scalars_of("learner", {"a\r\nb": 1, "c": 2}, step)
    assert read(tmp_path)["learner.csv"] == "train_iter,a b,c\n0,1,2\n1,1,2\n"


def test_a_value_does_not_replace_the_position_of_its_row(tmp_path: Path) -> None:
    with files_of(tmp_path) as writer:
        writer.add_scalars_of("learner", {"train_iter": 7, "worker": 8, "loss": 0.5}, 3)
    assert read(tmp_path) == {
        "metrics.jsonl": '{"worker": "learner", "train_iter": 3, "loss": 0.5}\n',
        "learner.csv": "train_iter,worker,loss\n3,8,0.5\n",
    }


def test_half_a_line_of_a_killed_process_is_removed_when_a_state_is_loaded(tmp_path: Path) -> None:
    with files_of(tmp_path) as writer:
        writer.add_scalars_of("learner", {"loss": 1}, 0)
        state = writer.state_dict()
    wanted = read(tmp_path)
    for path in (tmp_path / "metrics.jsonl", tmp_path / "metrics" / "learner.csv"):
        with path.open("a") as file:
            file.write("1,")
    with files_of(tmp_path) as writer:
        assert writer.load_state_dict(state) == []
    assert read(tmp_path) == wanted


def test_no_table_gets_rows_of_a_batch_of_which_another_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    append = metric_sinks.append_lines

    def append_or_fail(path: str, lines: Sequence[str]) -> None:
        if path.endswith("evaluator.csv"):
            raise OSError(errno.ENOSPC, "no space")
        append(path, lines)

    with writer_of(tmp_path, csv=CsvSink(RunInfo(str(tmp_path)), {})) as writer:
        writer.add_scalars_of("learner", {"loss": 1}, 0)
        writer.flush()
        monkeypatch.setattr(metric_sinks, "append_lines", append_or_fail)
        writer.add_scalars_of("learner", {"loss": 2, "late": 3}, 1)  # rewrites the file
        writer.add_scalars_of("buffer", {"size": 4}, 1)
        writer.add_scalars_of("evaluator", {"reward": 5}, 1)
        state = writer.state_dict()
        assert state["sinks"]["csv"] == {"rows": {"buffer.csv": 0, "evaluator.csv": 0, "learner.csv": 1}}
        assert read(tmp_path) == {"buffer.csv": "train_iter,size\n", "learner.csv": "train_iter,loss,late\n0,1,\n"}
        monkeypatch.setattr(metric_sinks, "append_lines", append)
    assert read(tmp_path) == {
        "buffer.csv": "train_iter,size\n1,4\n",
        "evaluator.csv": "train_iter,reward\n1,5\n",
        "learner.csv": "train_iter,loss,late\n0,1,\n1,2,3\n",
    }
    assert "metrics are not written to csv" in caplog.text
    with writer_of(tmp_path, csv=CsvSink(RunInfo(str(tmp_path)), {})) as writer:
        assert writer.load_state_dict(state) == []
    assert read(tmp_path) == {"learner.csv": "train_iter,loss,late\n0,1,\n"}


def test_rows_are_appended_to_files_that_are_there(tmp_path: Path) -> None:
    for step in range(2):
        with files_of(tmp_path) as writer:
            writer.add_scalars_of("learner", {"loss": step}, step)
    assert read(tmp_path) == {
        "metrics.jsonl": '{"worker": "learner", "train_iter": 0, "loss": 0}\n'
        '{"worker": "learner", "train_iter": 1, "loss": 1}\n',
        "learner.csv": "train_iter,loss\n0,0\n1,1\n",
    }


def test_what_was_written_after_a_state_is_removed_when_it_is_loaded(tmp_path: Path) -> None:
    with files_of(tmp_path) as writer:
        writer.add_scalars_of("learner", {"loss": 1}, 0)
        state = json.loads(json.dumps(writer.state_dict()))
        wanted = read(tmp_path)
        writer.add_scalars_of("learner", {"loss": 2, "late": 0}, 1)
        writer.add_scalars_of("evaluator", {"reward": 3}, 1)
    assert read(tmp_path) != wanted
    with files_of(tmp_path) as writer:
        assert writer.load_state_dict(state) == []
        writer.add_scalars_of("learner", {"loss": 4}, 1)
    assert read(tmp_path) == {
        "metrics.jsonl": wanted["metrics.jsonl"] + '{"worker": "learner", "train_iter": 1, "loss": 4}\n',
        "learner.csv": "train_iter,loss,late\n0,1,\n1,4,\n",
    }


def test_a_state_tells_of_files_of_an_earlier_process_too(tmp_path: Path) -> None:
    with files_of(tmp_path) as writer:
        writer.add_scalars_of("learner", {"loss": 1}, 0)
    with files_of(tmp_path) as writer:
        state = writer.state_dict()
        assert writer.load_state_dict(state) == []
    assert read(tmp_path)["learner.csv"] == "train_iter,loss\n0,1\n"


def test_missing_rows_are_named_when_a_state_is_loaded(tmp_path: Path) -> None:
    with files_of(tmp_path) as writer:
        writer.add_scalars_of("learner", {"loss": 1}, 0)
        state = writer.state_dict()
    (tmp_path / "metrics.jsonl").unlink()
    (tmp_path / "metrics" / "learner.csv").unlink()
    with files_of(tmp_path) as writer:
        assert sorted(writer.load_state_dict(state)) == [
            f"{tmp_path}/metrics.jsonl is shorter than it was",
            f"{tmp_path}/metrics/learner.csv is shorter than it was",
        ]


def test_a_state_of_a_plain_tensorboard_writer_loads(tmp_path: Path) -> None:
    with DistributedWriter(str(tmp_path / "tb")) as writer:
        state = writer.state_dict()
    with files_of(tmp_path) as other:
        assert other.load_state_dict(state) == []


def test_of_a_batch_that_does_not_fit_on_the_disk_nothing_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "metrics.jsonl"
    metric_sinks.append_lines(str(path), ["first"])
    real_open = open

    class FullDisk:
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self._file = real_open(*args, **kwargs)

        def write(self, data: Any) -> int:
            if self._file.tell() > 8:
                raise OSError(errno.ENOSPC, "no space")
            return self._file.write(data[:4])

        def __enter__(self) -> FullDisk:
            return self

        def __exit__(self, *exc: object) -> None:
            self._file.close()

        def __getattr__(self, name: str) -> Any:
            return getattr(self._file, name)

    monkeypatch.setattr(metric_sinks, "open", FullDisk, raising=False)
    with pytest.raises(OSError, match="no space"):
        metric_sinks.append_lines(str(path), ["second", "third"])
    assert path.read_text() == "first\n"


# the config


def test_the_files_are_written_whatever_sinks_are_chosen(tmp_path: Path) -> None:
    with create_metric_writer(str(tmp_path / "tb"), RunInfo(str(tmp_path)), {"sinks": []}) as writer:
        writer.add_scalar("a/b", 1, 2)
    assert read(tmp_path).keys() == {"metrics.jsonl", "a.csv"}
    assert not (tmp_path / "tb").exists()


def test_tensorboard_is_the_default(tmp_path: Path) -> None:
    with create_metric_writer(str(tmp_path / "tb"), RunInfo(str(tmp_path)), {}) as writer:
        writer.add_scalar("a/b", 1, 2)
    assert events(tmp_path / "tb") == [("a/b", 2, 1.0)]
    assert read(tmp_path).keys() == {"metrics.jsonl", "a.csv"}


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
        ({"sinks": ["wandbd"]}, "unknown sink 'wandbd'; did you mean 'wandb'?"),
        ({"sinks": ["zzzzzzzzzz"]}, "Known are csv, jsonl, mlflow, tensorboard, wandb"),
        ({"sinks": "wandb"}, "sinks = 'wandb' is not allowed; it must be list or tuple"),
        ({"wandb": 3}, "wandb = 3 is not allowed"),
        (["wandb"], "logger = \\['wandb'\\] is not allowed; it must be a dict"),
    ],
)
def test_a_wrong_section_is_refused(section: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("?", r"\?")):
        check_logger(section)


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_missing_package_is_named_with_the_line_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=f"needs the package {name}, which is not installed: pip install {name}"):
        create_metric_writer(str(tmp_path), RunInfo(str(tmp_path)), {"sinks": [name]})


# Weights & Biases


class CommError(Exception):
    pass


class FakeWandb(ModuleType):
    """Runs by id; like the real service, a run ignores values for a step that it is past."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.errors = SimpleNamespace(CommError=CommError)
        self.failures = 0  # of the next calls of `init`
        self.inits: list[dict[str, Any]] = []
        self.runs: dict[str, Any] = {}

    def init(self, **kwargs: Any) -> Any:
        if self.failures:
            self.failures -= 1
            raise CommError("no answer")
        self.inits.append(kwargs)
        run_id = kwargs.get("id") or f"run{len(self.runs)}"
        return self.runs.setdefault(run_id, FakeWandbRun(run_id))


class FakeWandbRun:
    def __init__(self, run_id: str) -> None:
        self.id = run_id
        self.metrics: list[tuple[str, str | None]] = []
        self.rows: list[dict[str, Any]] = []
        self.finished = 0

    def define_metric(self, name: str, step_metric: str | None = None) -> None:
        self.metrics.append((name, step_metric))

    def log(self, values: dict[str, Any], step: int) -> None:
        if step >= len(self.rows):
            self.rows.append(values)

    def finish(self) -> None:
        self.finished += 1


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> FakeWandb:
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
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


def test_the_training_goes_on_while_wandb_does_not_answer(
    tmp_path: Path, wandb: FakeWandb, caplog: pytest.LogCaptureFixture
) -> None:
    wandb.failures = 1
    with tracked(tmp_path, "wandb") as writer:
        writer.add_scalars_of("learner", {"loss": 1}, 0)
        writer.flush()
        assert "metrics are not written to wandb: W&B: no answer" in caplog.text
        writer.add_scalars_of("learner", {"loss": 2}, 1)
    assert [row["learner/loss"] for row in wandb.runs["run0"].rows] == [1, 2]


class Mute:
    """A config value that cannot be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")


def test_a_config_with_a_value_that_cannot_be_shown_is_logged_with_the_name_of_its_class(
    tmp_path: Path, wandb: FakeWandb, mlflow: FakeMlflow
) -> None:
    for name in ("wandb", "mlflow"):
        with tracked(tmp_path, name, {"model": Mute()}) as writer:
            writer.add_scalar("learner/loss", 0.5, 1)
    assert wandb.inits[0]["config"] == {"model": "<Mute>"}
    assert mlflow.runs["run0"]["params"] == [("model", "<Mute>")]


def test_a_resumed_run_goes_on_in_the_same_wandb_run_without_doubled_rows(tmp_path: Path, wandb: FakeWandb) -> None:
    with tracked(tmp_path, "wandb") as writer:
        writer.add_scalars_of("learner", {"loss": 1}, 0)
        state = json.loads(json.dumps(writer.state_dict()))
        writer.add_scalars_of("learner", {"loss": 2}, 1)
    with tracked(tmp_path, "wandb") as writer:
        assert writer.load_state_dict(state) == []
        writer.add_scalars_of("learner", {"loss": 2}, 1)
        writer.add_scalars_of("learner", {"loss": 3}, 2)
    assert [(init.get("id"), init.get("resume")) for init in wandb.inits] == [(None, None), ("run0", "allow")]
    assert list(wandb.runs) == ["run0"]
    assert [row["learner/loss"] for row in wandb.runs["run0"].rows] == [1, 2, 3]


# MLflow


class MlflowException(Exception):
    pass


class FakeMlflow(ModuleType):
    """Experiments and the metrics of their runs, in the order in which they were logged."""

    def __init__(self) -> None:
        super().__init__("mlflow")
        self.exceptions = SimpleNamespace(MlflowException=MlflowException)
        self.entities = SimpleNamespace(
            Metric=lambda key, value, timestamp, step: SimpleNamespace(key=key, value=value, step=step),
            Param=lambda key, value: (key, value),
        )
        self.experiments: list[str] = []
        self.runs: dict[str, dict[str, Any]] = {}
        self.uris: list[str | None] = []
        self.ended: list[str] = []
        self.failures: list[int] = []  # numbers of the calls of `log_batch` that fail
        self.calls = 0

    def MlflowClient(self, tracking_uri: str | None) -> FakeMlflow:
        self.uris.append(tracking_uri)
        return self

    def get_experiment_by_name(self, name: str) -> Any:
        found = name in self.experiments
        return SimpleNamespace(experiment_id=str(self.experiments.index(name))) if found else None

    def create_experiment(self, name: str) -> str:
        self.experiments.append(name)
        return str(len(self.experiments) - 1)

    def create_run(self, experiment_id: str, run_name: str, tags: dict[str, str]) -> Any:
        run_id = f"run{len(self.runs)}"
        self.runs[run_id] = {"experiment": experiment_id, "name": run_name, "tags": tags, "params": [], "metrics": []}
        return SimpleNamespace(info=SimpleNamespace(run_id=run_id))

    def log_batch(self, run_id: str, metrics: Sequence[Any] = (), params: Sequence[Any] = ()) -> None:
        assert len(metrics) <= 1000 and len(params) <= 100
        self.calls += 1
        if self.calls in self.failures:
            raise MlflowException("no answer")
        self.runs[run_id]["metrics"] += [(m.key, m.value, m.step) for m in metrics]
        self.runs[run_id]["params"] += params

    def get_metric_history(self, run_id: str, key: str) -> list[Any]:
        return [SimpleNamespace(step=step) for name, _, step in self.runs[run_id]["metrics"] if name == key]

    def update_run(self, run_id: str, status: str) -> None:
        self.ended.remove(run_id)
        assert status == "RUNNING"

    def set_terminated(self, run_id: str) -> None:
        self.ended.append(run_id)


@pytest.fixture
def mlflow(monkeypatch: pytest.MonkeyPatch) -> FakeMlflow:
    fake = FakeMlflow()
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    return fake


def test_mlflow_gets_each_value_under_both_axes_and_the_config_as_parameters(
    tmp_path: Path, mlflow: FakeMlflow
) -> None:
    config = {"seed": 0, "policy": {"learn": {"batch_size": 64}, "long": "x" * 600}}
    settings = {"tracking_uri": "file:x", "experiment_name": "cart", "tags": {"n": 1}}
    with tracked(tmp_path, "mlflow", config, **settings) as writer:
        writer.add_scalars_of("learner", {"loss": 0.5, "a b[c]": math.nan, "q[0]": 1}, 100, 768)
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


def test_a_known_experiment_of_mlflow_is_used_and_requests_are_split(tmp_path: Path, mlflow: FakeMlflow) -> None:
    mlflow.experiments += ["other", "ding"]
    config = {str(index): index for index in range(250)}
    with tracked(tmp_path, "mlflow", config) as writer:
        for step in range(255):
            writer.add_scalars_of("learner", {str(index): step for index in range(5)}, step)
    run = mlflow.runs["run0"]
    assert (run["experiment"], mlflow.experiments) == ("1", ["other", "ding"])
    assert run["params"] == [(str(index), str(index)) for index in range(250)]
    assert run["metrics"] == [(f"learner_iter/{i}", float(step), step) for step in range(255) for i in range(5)]


def test_a_resumed_run_goes_on_in_the_same_mlflow_run_without_doubled_values(
    tmp_path: Path, mlflow: FakeMlflow
) -> None:
    with tracked(tmp_path, "mlflow") as writer:
        writer.add_scalars_of("learner", {"loss": 1}, 0)
        state = json.loads(json.dumps(writer.state_dict()))
        writer.add_scalars_of("learner", {"loss": 2}, 1)
    with tracked(tmp_path, "mlflow") as writer:
        assert writer.load_state_dict(state) == []
        for step in (1, 2, 3):
            writer.add_scalars_of("learner", {"loss": step + 1}, step)
    assert list(mlflow.runs) == mlflow.ended == ["run0"]
    assert mlflow.runs["run0"]["metrics"] == [("learner_iter/loss", float(step + 1), step) for step in range(4)]


def test_a_request_that_mlflow_does_not_answer_is_made_again_without_doubled_values(
    tmp_path: Path, mlflow: FakeMlflow, caplog: pytest.LogCaptureFixture
) -> None:
    mlflow.failures = [1, 3]
    with tracked(tmp_path, "mlflow") as writer, caplog.at_level(logging.ERROR, "ding"):
        for step in range(250):
            writer.add_scalars_of("learner", {str(index): step for index in range(5)}, step)
        writer.flush()
        assert mlflow.runs["run0"]["metrics"] == []
        writer.flush()
        writer.flush()
    wanted = [(f"learner_iter/{i}", float(step), step) for step in range(250) for i in range(5)]
    assert mlflow.runs["run0"]["metrics"] == wanted
    assert [record.getMessage() for record in caplog.records] == [
        "metrics are not written to mlflow: MLflow: no answer; they are kept and written later"
    ]


def test_a_wrong_setting_of_mlflow_is_refused(tmp_path: Path, mlflow: FakeMlflow) -> None:
    with pytest.raises(ConfigError, match="tags = 3"):
        tracked(tmp_path, "mlflow", tags=3)


@pytest.mark.filterwarnings("ignore")  # of what MLflow imports
def test_values_reach_a_real_store_of_mlflow(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    with tracked(tmp_path, "mlflow", {"seed": 7}, tracking_uri=uri) as writer:
        writer.add_scalars_of("learner", {"loss": 1}, 0, 0)
        state = writer.state_dict()
        writer.add_scalars_of("learner", {"loss": 2}, 1, 10)
    with tracked(tmp_path, "mlflow", {"seed": 7}, tracking_uri=uri) as writer:
        assert writer.load_state_dict(state) == []
        writer.add_scalars_of("learner", {"loss": 2}, 1, 10)
        writer.add_scalars_of("learner", {"loss": 3}, 2, 20)
    client = mlflow.MlflowClient(tracking_uri=uri)
    run = client.search_runs([client.get_experiment_by_name("ding").experiment_id])
    assert [(found.info.run_name, found.info.status, found.data.params) for found in run] == [
        ("exp", "FINISHED", {"seed": "7"})
    ]
    history = client.get_metric_history(run[0].info.run_id, "learner_step/loss")
    assert sorted((metric.step, metric.value) for metric in history) == [(0, 1.0), (10, 2.0), (20, 3.0)]
