"""What every sink of metrics promises: exact values by tag and step, resuming, odd input, and writes that fail."""

import csv
import errno
import json
import math
import sys
import threading
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ding.utils import metric_sinks
from ding.utils.metric_sinks import (
    METRIC_SINK_REGISTRY,
    MetricRecord,
    MetricSink,
    MetricWriter,
    RunInfo,
    create_metric_writer,
)
from ding.utils.registry_factory import Registry
from tests.utils.test_log_helper import events
from tests.utils.tracker_fakes import FakeMlflow, FakeWandb

Scalars = dict[str, list[tuple[int, Any]]]  # (step, value) by tag
_SUFFIXES = {"train_iter": "_iter", "env_step": "_step"}


class ShelfSink(MetricSink):
    """A sink of a user, which keeps records where the next process finds them."""

    shelf: list[MetricRecord]
    failures: int

    def __init__(self, run: RunInfo, settings: Mapping[str, Any]) -> None:
        pass

    def write(self, records: Sequence[MetricRecord]) -> None:
        if type(self).failures:
            type(self).failures -= 1
            raise OSError(errno.EIO, "no answer")
        self.shelf.extend(records)

    def state_dict(self) -> dict[str, Any]:
        return {"records": len(self.shelf)}

    def load_state_dict(self, state: Mapping[str, Any]) -> list[str]:
        del self.shelf[state["records"] :]
        return []


class Place:
    """Where the sinks of one kind write, and the scalars that are found there."""

    def __init__(self, kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kind, self.folder = kind, folder
        self.wandb, self.mlflow = FakeWandb(), FakeMlflow()
        monkeypatch.setitem(sys.modules, "wandb", self.wandb)
        monkeypatch.setitem(sys.modules, "mlflow", self.mlflow)
        self.own = type("OwnSink", (ShelfSink,), {"shelf": [], "failures": 0})
        monkeypatch.setattr(metric_sinks, "METRIC_SINK_REGISTRY", Registry({**METRIC_SINK_REGISTRY, "own": self.own}))

    def writer(self) -> MetricWriter:
        """The writer of a process."""
        folder, sinks = str(self.folder / "tb"), {}
        if self.kind != "tensorboard":
            sinks[self.kind] = metric_sinks.METRIC_SINK_REGISTRY.get(self.kind)(RunInfo(str(self.folder)), {})
        return MetricWriter(folder, sinks, has_tensorboard=not sinks)

    def scalars(self, kind: str | None = None) -> Scalars:
        """What was written, by tag; NaN and infinity are text."""
        found: Scalars = getattr(self, f"_{kind or self.kind}")()
        return found

    def _tensorboard(self) -> Scalars:
        return by_tag(events(self.folder / "tb"))

    def _mlflow(self) -> Scalars:
        runs = self.mlflow.runs.values()
        return by_tag([(key, step, value) for run in runs for key, value, step in run["metrics"]])

    def _wandb(self) -> Scalars:
        records = []
        for row in (row for run in self.wandb.runs.values() for row in run.rows):
            axes = {name: step for name, step in row.items() if "/" not in name}
            (worker,) = {name.rpartition("/")[0] for name in row if "/" in name}
            values = {name.rpartition("/")[2]: value for name, value in row.items() if "/" in name}
            records.append((worker, axes, values))
        return by_axis(records)

    def _own(self) -> Scalars:
        return by_axis(self.own.shelf)

    def _jsonl(self) -> Scalars:
        path = self.folder / "metrics.jsonl"
        rows = map(json.loads, path.read_text().splitlines()) if path.exists() else []
        return by_axis([(row.pop("worker"), *split(row)) for row in rows])

    def _csv(self) -> Scalars:
        records = []
        for path in sorted((self.folder / "metrics").glob("*.csv")):
            with path.open(newline="", encoding="utf-8") as file:
                for row in csv.DictReader(file, strict=True):
                    cells = {name: cell for name, cell in row.items() if cell != ""}
                    assert None not in row and None not in row.values()
                    records.append((path.stem, *split({name: float(cell) for name, cell in cells.items()})))
        return by_axis(records)


def split(row: dict[str, Any]) -> tuple[dict[str, int], dict[str, Any]]:
    axes = {name: int(row.pop(name)) for name in ("train_iter", "env_step", "step") if name in row}
    return axes, row


def by_tag(entries: Sequence[tuple[str, int, Any]]) -> Scalars:
    found: Scalars = {}
    for tag, step, value in entries:
        is_finite = value is not None and math.isfinite(value)
        found.setdefault(tag, []).append((step, value if is_finite else str(value)))
    return found


def by_axis(records: Sequence[tuple[str, Mapping[str, int], Mapping[str, Any]]]) -> Scalars:
    return by_tag(
        [
            (f"{worker}{_SUFFIXES.get(axis, '')}/{name}", step, value)
            for worker, axes, values in records
            for axis, step in axes.items()
            for name, value in values.items()
        ]
    )


KINDS = ("tensorboard", "csv", "jsonl", "wandb", "mlflow", "own")


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(request.param, tmp_path, monkeypatch)


def test_each_value_is_found_by_its_tag_and_step_in_the_order_of_writing(place: Place) -> None:
    with place.writer() as writer:
        for step in range(300):  # more than one batch
            writer.add_scalars_of("learner", {"loss": step / 4, "lr": 0.5}, step, 8 * step)
        writer.add_scalars_of("evaluator", {"reward": -(2.0**20)}, 300)
        writer.add_scalars_of("collector", {"reward": 1.5, "count": 3}, None, 24)
        writer.add_scalar("own/x", 2.25, 7)
    assert place.scalars() == {
        "learner_iter/loss": [(step, step / 4) for step in range(300)],
        "learner_iter/lr": [(step, 0.5) for step in range(300)],
        "learner_step/loss": [(8 * step, step / 4) for step in range(300)],
        "learner_step/lr": [(8 * step, 0.5) for step in range(300)],
        "evaluator_iter/reward": [(300, -(2.0**20))],
        "collector_step/reward": [(24, 1.5)],
        "collector_step/count": [(24, 3)],
        "own/x": [(7, 2.25)],
    }


def test_a_float_keeps_all_its_bits(place: Place) -> None:
    values = [0.1, 1 / 3, 1e-30, -1.5e38, 2.0**-30 + 1]
    with place.writer() as writer:
        for step, value in enumerate(values):
            writer.add_scalar("own/x", value, step)
    if place.kind == "tensorboard":
        values = [float(np.float32(value)) for value in values]
    assert place.scalars() == by_tag([("own/x", step, value) for step, value in enumerate(values)])


NUMBERS = [np.float32(1.5), np.int64(3), np.array([2.5]), torch.tensor(4), torch.tensor([0.25]), True, Fraction(1, 2)]


def test_numbers_and_steps_of_other_packages_are_written_as_those_of_python(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    numbers = NUMBERS[:-1] if place.kind == "tensorboard" else NUMBERS  # its package takes no fractions
    with place.writer() as writer:
        for step, value in enumerate(numbers):
            writer.add_scalar("own/x", value, np.int64(step))
        writer.add_scalars_of("learner", {"loss": np.float64(0.5)}, np.int32(3), torch.tensor(24))  # type: ignore[arg-type]
    assert place.scalars() == {
        "own/x": list(enumerate([1.5, 3, 2.5, 4, 0.25, 1, 0.5][: len(numbers)])),
        "learner_iter/loss": [(3, 0.5)],
        "learner_step/loss": [(24, 0.5)],
    }
    assert caplog.records == []


def test_a_value_that_is_no_number_is_lost_alone_with_one_warning(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    with place.writer() as writer:
        for step in range(2):
            writer.add_scalars_of("learner", {"bad": object(), "loss": step}, step)
    assert place.scalars() == {"learner_iter/loss": [(0, 0), (1, 1)]}
    wanted = "add_scalar of TensorBoard" if place.kind == "tensorboard" else "logging learner/bad = object"
    assert [message.partition(" fails with ")[0] for message in caplog.messages] == [wanted]


# the end of a writer


def test_a_writer_may_be_closed_twice_and_takes_no_records_of_sinks_after_that(place: Place) -> None:
    writer = place.writer()
    writer.add_scalar("own/x", 1, 0)
    writer.close()
    writer.close()
    before = place.scalars()
    writer.add_scalar("own/x", 2, 1)
    writer.flush()
    writer.close()
    wanted = {"own/x": [(0, 1), (1, 2)]} if place.kind == "tensorboard" else before  # it opens another file
    assert (before, place.scalars()) == ({"own/x": [(0, 1)]}, wanted)


def test_threads_write_at_the_same_time_and_each_in_its_order(place: Place) -> None:
    def write(worker: str) -> None:
        for step in range(400):
            writer.add_scalar(f"{worker}/x", step, step)
            if step % 100 == 99:
                writer.flush()

    with place.writer() as writer:
        threads = [threading.Thread(target=write, args=(f"worker{number}",)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    steps = [(step, step) for step in range(400)]
    assert place.scalars() == {f"worker{number}/x": steps for number in range(4)}


# resuming


def test_a_run_that_is_killed_and_resumed_has_every_value_once(place: Place) -> None:
    killed = place.writer()
    for step in range(5):
        killed.add_scalars_of("learner", {"loss": step}, step, 10 * step)
    state = json.loads(json.dumps(killed.state_dict()))
    late = {} if place.kind in ("wandb", "mlflow") else {"late": 1}  # services keep what they have got
    for step in range(5, 8):
        killed.add_scalars_of("learner", {"loss": step, **late}, step, 10 * step)
    killed.flush()
    killed._close_file()  # as the system does it
    with place.writer() as resumed:
        resumed.load_state_dict(state)
        for step in range(5, 10):
            resumed.add_scalars_of("learner", {"loss": step}, step, 10 * step)
    repeated = [5, 6, 7] if place.kind == "mlflow" else []  # it keeps what it has got, and takes values of any step
    steps = [*range(5), *repeated, *range(5, 10)]
    assert place.scalars() == {
        "learner_iter/loss": [(step, step) for step in steps],
        "learner_step/loss": [(10 * step, step) for step in steps],
    }


# failures


@pytest.mark.guarantees("logs")
def test_a_sink_that_fails_is_switched_off_with_one_warning_and_the_others_get_everything(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.wandb.failures, place.own.failures = int(place.kind == "wandb"), int(place.kind == "own")
    place.mlflow.failures = [1] if place.kind == "mlflow" else []
    for kind, path in {"csv": "metrics", "jsonl": "metrics.jsonl/x", "tensorboard": "tb"}.items():
        if place.kind == kind:
            (place.folder / path).parent.mkdir(exist_ok=True)
            (place.folder / path).touch()
    sinks = {"sinks": ["tensorboard", "wandb", "mlflow", "own"]}
    with create_metric_writer(str(place.folder / "tb"), RunInfo(str(place.folder)), sinks) as writer:
        for step in (1, 2):
            writer.add_scalars_of("learner", {"loss": 0.5, "lr": 2}, step, 8)
            writer.flush()
    wanted = {
        "learner_iter/loss": [(1, 0.5), (2, 0.5)],
        "learner_step/loss": [(8, 0.5), (8, 0.5)],
        "learner_iter/lr": [(1, 2), (2, 2)],
        "learner_step/lr": [(8, 2), (8, 2)],
    }
    assert [place.scalars(kind) for kind in KINDS if kind != place.kind] == [wanted] * 5
    (message,) = caplog.messages
    name = "entries for TensorBoard" if place.kind == "tensorboard" else f"metrics to {place.kind}"
    assert message.startswith(f"writing {name}")
