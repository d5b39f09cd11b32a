"""The sinks of experiment trackers, Weights & Biases and MLflow; no other module uses these packages."""

from __future__ import annotations

import importlib
import json
import math
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ding.utils.config_helper import NO_DEFAULT, Setting, Settings, check_config, instance_of
from ding.utils.import_helper import missing_package
from ding.utils.metric_sinks import METRIC_SINK_REGISTRY, MetricRecord, MetricSink, RunInfo
from ding.utils.showing import shown

# The largest number of metrics and parameters in a request of MLflow, and of characters in a value.
_MLFLOW_METRICS = 1000
_MLFLOW_PARAMETERS = 100
_MLFLOW_VALUE = 500
_MLFLOW_SETTINGS = Settings(
    {
        "tracking_uri": Setting(NO_DEFAULT, instance_of(str, optional=True), "Server or folder of the runs."),
        "experiment_name": Setting("ding", instance_of(str), "Experiment of the run."),
        "run_name": Setting(NO_DEFAULT, instance_of(str), "Name of the run; that of its folder by default."),
        "tags": Setting(NO_DEFAULT, instance_of(Mapping), "Tags of the run."),
    }
)
_SUFFIXES = {"train_iter": "_iter", "env_step": "_step"}


@METRIC_SINK_REGISTRY.register("wandb")
class WandbSink(MetricSink):
    """Sink that logs `<worker>/<name>` and the axes to a run of Weights & Biases, which starts with the first record.

    A resumed run continues the same W&B run. Records that it logs again have the same step, so that W&B ignores them.

    Args:
        settings: keyword arguments of `wandb.init`, such as `project`, `entity`, `group`, `tags` and `mode`. `name` is
            the folder's name, `project` is `ding` and `dir` the folder unless given.

    Raises:
        ImportError: wandb is not installed.
    """

    def __init__(self, run: RunInfo, settings: Mapping[str, Any]) -> None:
        self._wandb = _package("wandb")
        self._info = run
        self._settings = {"project": "ding", "name": _name(run), "dir": run.folder, **settings}
        self._run: Any = None
        self._run_id: str | None = None
        self._count = 0
        self._workers: set[str] = set()

    def write(self, records: Sequence[MetricRecord]) -> None:
        run = self._open()
        for record in records:
            if record.worker not in self._workers:
                self._workers.add(record.worker)
                axis = self._info.axis if self._info.axis in record.axes else next(iter(record.axes), None)
                run.define_metric(f"{record.worker}/*", step_metric=axis)
            values = {f"{record.worker}/{name}": value for name, value in record.values.items()}
            run.log({**values, **record.axes}, step=self._count)
            self._count += 1

    def _open(self) -> Any:
        if self._run is None:
            again = {} if self._run_id is None else {"id": self._run_id, "resume": "allow"}
            config = json.loads(json.dumps(self._info.config, default=_text))
            try:
                self._run = self._wandb.init(config=config, **self._settings, **again)
            except self._wandb.errors.CommError as e:
                raise OSError(f"W&B: {e}") from e
            self._run_id = self._run.id
        return self._run

    def close(self) -> None:
        if self._run is not None:
            self._run.finish()

    def state_dict(self) -> dict[str, Any]:
        return {"run_id": self._run_id, "count": self._count}

    def load_state_dict(self, state: Mapping[str, Any]) -> list[str]:
        self._run_id, self._count = state["run_id"], state["count"]
        return []


@METRIC_SINK_REGISTRY.register("mlflow")
class MlflowSink(MetricSink):
    """Sink that logs `<worker>_iter/<name>` and `<worker>_step/<name>` to an MLflow run, started by the first record.

    Like TensorBoard, MLflow has one integer axis per metric. The config is logged as parameters. A resumed run
    continues the same MLflow run and does not log recorded values again.

    Args:
        settings: `tracking_uri` (default: the environment variable `MLFLOW_TRACKING_URI`), `experiment_name`
            (`ding`), `run_name` (the folder's name) and `tags`.

    Raises:
        ImportError: mlflow is not installed.
        ConfigError: a setting is of the wrong type.
    """

    def __init__(self, run: RunInfo, settings: Mapping[str, Any]) -> None:
        self._mlflow = _package("mlflow")
        self._info = run
        check_config(settings, "the section logger.mlflow", _MLFLOW_SETTINGS.rules())
        self._settings = {**_MLFLOW_SETTINGS.config(), "run_name": _name(run), **settings}
        self._client: Any = None
        self._run_id: str | None = None
        self._last_steps: dict[str, int] = {}  # of metrics that may already be recorded
        self._may_repeat = False

    def write(self, records: Sequence[MetricRecord]) -> None:
        try:
            client = self._open()
            metrics = [metric for record in records for metric in self._metrics(record)]
            for first in range(0, len(metrics), _MLFLOW_METRICS):
                client.log_batch(self._run_id, metrics=metrics[first : first + _MLFLOW_METRICS])
        except self._mlflow.exceptions.MlflowException as e:
            self._may_repeat = True
            self._last_steps.clear()
            raise OSError(f"MLflow: {e}") from e

    def _metrics(self, record: MetricRecord) -> list[Any]:
        metric, now_ms = self._mlflow.entities.Metric, int(time.time() * 1000)
        found = []
        for axis, step in record.axes.items():
            for name, value in record.values.items():
                key = re.sub(r"[^\w\-. /]", "_", f"{record.worker}{_SUFFIXES.get(axis, '')}/{name}")
                if math.isfinite(value) and not self._is_there(key, step):
                    found.append(metric(key, float(value), now_ms, int(step)))
        return found

    def _is_there(self, key: str, step: int) -> bool:
        if not self._may_repeat:
            return False
        if key not in self._last_steps:
            history = self._client.get_metric_history(self._run_id, key)
            self._last_steps[key] = max((metric.step for metric in history), default=-1)
        return step <= self._last_steps[key]

    def _open(self) -> Any:
        if self._client is None:
            client = self._mlflow.MlflowClient(tracking_uri=self._settings.get("tracking_uri"))
            if self._run_id is None:
                self._run_id = self._begin(client)
            else:
                client.update_run(self._run_id, status="RUNNING")
            self._client = client
        return self._client

    def _begin(self, client: Any) -> str:
        settings, param = self._settings, self._mlflow.entities.Param
        name, tags = settings["experiment_name"], {key: str(tag) for key, tag in settings.get("tags", {}).items()}
        experiment = client.get_experiment_by_name(name)
        found = client.create_experiment(name) if experiment is None else experiment.experiment_id
        run_id: str = client.create_run(found, run_name=settings["run_name"], tags=tags).info.run_id
        leaves = [param(key, _text(value)[:_MLFLOW_VALUE]) for key, value in _leaves(self._info.config)]
        for first in range(0, len(leaves), _MLFLOW_PARAMETERS):
            client.log_batch(run_id, params=leaves[first : first + _MLFLOW_PARAMETERS])
        return run_id

    def close(self) -> None:
        if self._client is not None:
            self._client.set_terminated(self._run_id)

    def state_dict(self) -> dict[str, Any]:
        return {"run_id": self._run_id}

    def load_state_dict(self, state: Mapping[str, Any]) -> list[str]:
        self._run_id = state["run_id"]
        self._may_repeat = self._run_id is not None
        return []


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as e:
        raise missing_package(f"logger.sinks = {name!r}", name) from e


def _text(value: Any) -> str:
    return shown(value, str)


def _name(run: RunInfo) -> str:
    return os.path.basename(os.path.normpath(run.folder))


def _leaves(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
