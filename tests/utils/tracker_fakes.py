"""Stand-ins for the packages wandb and mlflow, which keep what they get by run."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from types import ModuleType, SimpleNamespace
from typing import Any


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
        if "*" in name[:-1]:
            raise RuntimeError(f"Unhandled define_metric() arg: name (glob suffixes only): {name}")
        self.metrics.append((name, step_metric))

    def log(self, values: dict[str, Any], step: int) -> None:
        if step >= len(self.rows):
            self.rows.append(values)

    def finish(self) -> None:
        self.finished += 1


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
        if not metrics and not params:
            return
        for name in [*(m.key for m in metrics), *(name for name, _ in params)]:
            if re.search(r"[^\w\-. /]", name) or posixpath.normpath(name) != name or name.startswith((".", "/")):
                raise MlflowException(f"invalid name {name!r}")
        self.calls += 1
        if self.calls in self.failures:
            self._note(run_id, metrics[:1000] if len(metrics) > 1000 else ())  # of several requests the last fails
            raise MlflowException("no answer")
        self._note(run_id, metrics)
        self.runs[run_id]["params"] += params

    def _note(self, run_id: str, metrics: Sequence[Any]) -> None:
        self.runs[run_id]["metrics"] += [(m.key, m.value, m.step) for m in metrics]

    def get_metric_history(self, run_id: str, key: str) -> list[Any]:
        return [SimpleNamespace(step=step) for name, _, step in self.runs[run_id]["metrics"] if name == key]

    def update_run(self, run_id: str, status: str) -> None:
        assert status == "RUNNING" and run_id in self.runs
        self.ended = [ended for ended in self.ended if ended != run_id]

    def set_terminated(self, run_id: str) -> None:
        self.ended.append(run_id)
