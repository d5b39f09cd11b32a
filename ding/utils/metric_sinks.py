"""The sinks of a run's scalars: TensorBoard, files in the run folder, and the trackers W&B and MLflow."""

from __future__ import annotations

import csv
import json
import logging
import math
import os
import re
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ding.utils.config_helper import (
    ConfigError,
    Rule,
    check_values,
    instance_of,
)
from ding.utils.default_helper import flatten_dict
from ding.utils.file_helper import atomic_write
from ding.utils.import_helper import optional_module
from ding.utils.log_helper import DistributedWriter, only_shows, shown, warn_once
from ding.utils.msgpack_helper import pack, unpack
from ding.utils.registry_factory import Registry

# Sinks get records in batches of this size, after this many seconds at the latest.
_BATCH = 256
_BATCH_S = 10.0
_TENSORBOARD = "tensorboard"
# The sinks of every run.
_FILES = ("csv", "jsonl")
# The section `logger` of the main config.
DEFAULTS: dict[str, Any] = {"sinks": [_TENSORBOARD]}

_logger = logging.getLogger("ding")


class MetricRecord(NamedTuple):
    """Scalars that one worker logs at one moment.

    Attributes:
        worker: the worker's instance name, such as `learner`.
        axes: the moment: `train_iter` and `env_step`, or `step` for a direct `add_scalar`.
        values: the scalars by name.
    """

    worker: str
    axes: dict[str, int]
    values: dict[str, float]


class RunInfo(NamedTuple):
    """Information about the run for sinks.

    Attributes:
        folder: the folder of the run, `exp_name`.
        config: the compiled config.
        axis: the default x axis: `env_step`, or `train_iter` for offline training.
    """

    folder: str
    config: Mapping[str, Any] = {}
    axis: str = "env_step"


class MetricSink(ABC):
    """A place for the scalars of a run, constructed with `(run, settings)`.

    `settings` is the section `logger.<name>` of the main config. To add a sink, register a subclass in
    `METRIC_SINK_REGISTRY` and name it in `logger.sinks`.

    Raises:
        ImportError: on construction, if a package is missing.

    Example:
        >>> @METRIC_SINK_REGISTRY.register("doctest_list")
        ... class ListSink(MetricSink):
        ...     def __init__(self, run, settings):
        ...         self.records = []
        ...     def write(self, records):
        ...         self.records += records
    """

    @abstractmethod
    def __init__(self, run: RunInfo, settings: Mapping[str, Any]) -> None: ...

    @abstractmethod
    def write(self, records: Sequence[MetricRecord]) -> None:
        """Write `records`. After an exception, the sink gets no more of them."""

    def close(self) -> None:  # noqa: B027 - optional for subclasses
        """Release resources; called once, after the last `write`."""

    def state_dict(self) -> dict[str, Any]:
        """Return the position for `load_state_dict`, in plain values."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:  # noqa: B027 - optional for subclasses
        """Remove records that were written after `state_dict` returned `state`, or ignore them when written again."""


METRIC_SINK_REGISTRY = Registry()


@METRIC_SINK_REGISTRY.register("jsonl")
class JsonLinesSink(MetricSink):
    """Sink that appends a line of JSON for each record to `metrics.jsonl` in the run folder.

    The keys are `worker`, the axes and the names of the values. NaN and infinity are null. A value that has the name of
    another key is left out.
    """

    def __init__(self, run: RunInfo, settings: Mapping[str, Any]) -> None:
        self._path = os.path.join(run.folder, "metrics.jsonl")

    def write(self, records: Sequence[MetricRecord]) -> None:
        lines = []
        for record in records:
            position = {"worker": record.worker, **record.axes}
            values = {name: value if math.isfinite(value) else None for name, value in record.values.items()}
            lines.append(json.dumps({**position, **values, **position}) + "\n")
        append_text(self._path, "".join(lines))

    def state_dict(self) -> dict[str, Any]:
        return {"size": os.path.getsize(self._path) if os.path.exists(self._path) else 0}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        cut_file(self._path, state["size"])


@METRIC_SINK_REGISTRY.register("csv")
class CsvSink(MetricSink):
    """Sink that appends a row for each record to `metrics/<worker>.csv` in the run folder.

    The columns are the axes and the names of the values. A new name adds a column, which rewrites the file. A value
    that has the name of an axis is left out.
    """

    def __init__(self, run: RunInfo, settings: Mapping[str, Any]) -> None:
        self._folder = Path(run.folder, "metrics")
        self._columns: dict[Path, list[str]] = {}

    def write(self, records: Sequence[MetricRecord]) -> None:
        tables: defaultdict[Path, list[dict[str, Any]]] = defaultdict(list)
        for record in records:
            name = re.sub(r"[^\w.-]+", "_", record.worker).lstrip(".") or "run"
            tables[self._folder / f"{name}.csv"].append({**record.axes, **record.values, **record.axes})
        for path, rows in tables.items():
            if path not in self._columns:
                self._columns[path] = _read_csv(path)[0]
            known = self._columns[path]
            columns = list(dict.fromkeys([*known, *(name for row in rows for name in row)]))
            if columns == known:
                with path.open("a", encoding="utf-8") as file:
                    csv.DictWriter(file, columns, lineterminator="\n").writerows(rows)
            else:
                _write_csv(path, columns, [*_read_csv(path)[1], *rows])
                self._columns[path] = columns

    def state_dict(self) -> dict[str, Any]:
        return {"rows": {path.name: len(_read_csv(path)[1]) for path in self._folder.glob("*.csv")}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._columns.clear()
        for path in self._folder.glob("*.csv"):
            rows = state["rows"].get(path.name, 0)
            if rows:
                columns, found = _read_csv(path)
                _write_csv(path, columns, found[:rows])
            else:
                path.unlink()


def _read_csv(path: Path) -> tuple[list[str], list[dict[str, Any]]]:
    """Return the columns and rows of a file; none if it is missing."""
    if not path.exists():
        return [], []
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        rows = list(reader)
        return list(reader.fieldnames or ()), rows


def _write_csv(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    with atomic_write(path, "w") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


class MetricWriter(DistributedWriter):
    """A TensorBoard writer that also passes every scalar to sinks.

    Sinks get records in batches: at `flush`, at `close`, and with the first record after ten seconds. A sink that
    raises an exception gets no more records, and one warning is logged. A value that is not a number is left out, also
    with one warning.

    Args:
        logdir: the folder of the TensorBoard files.
        sinks: the sinks by name.
        has_tensorboard: whether to write TensorBoard files.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     sinks = {"jsonl": JsonLinesSink(RunInfo(folder), {})}
        ...     with MetricWriter(folder, sinks, has_tensorboard=False) as writer:
        ...         writer.add_scalars_of("learner", {"loss": 0.5}, train_iter=100, env_step=800)
        ...     with open(os.path.join(folder, "metrics.jsonl")) as file:
        ...         print(file.read(), end="")
        {"worker": "learner", "train_iter": 100, "env_step": 800, "loss": 0.5}
    """

    def __init__(self, logdir: str, sinks: Mapping[str, MetricSink], has_tensorboard: bool = True) -> None:
        super().__init__(logdir, write_to_disk=has_tensorboard)
        self._is_off = not has_tensorboard
        self._sinks = dict(sinks)
        self._failed: set[str] = set()  # sinks that get no more records
        self._waiting: list[MetricRecord] = []
        self._due_s = time.monotonic() + _BATCH_S

    def add_scalars_of(
        self,
        worker: str,
        values: Mapping[str, Any],
        train_iter: int | None = None,
        env_step: int | None = None,
        iter_only: Collection[str] = (),
    ) -> None:
        """Write the values of a worker; see `WorkerLog.scalars`."""
        self._record(worker, {"train_iter": train_iter, "env_step": env_step}, values)
        add_by_axis(super().add_scalar, worker, values, train_iter, env_step, iter_only)

    def add_scalar(self, tag: str, scalar_value: Any, *args: Any, **kwargs: Any) -> None:
        """Write one value; for sinks, the worker is the part of `tag` before the last `/`."""
        worker, _, name = tag.rpartition("/")
        self._record(worker or "run", {"step": args[0] if args else kwargs.get("global_step")}, {name: scalar_value})
        super().add_scalar(tag, scalar_value, *args, **kwargs)

    def _record(self, worker: str, axes: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        if not self._sinks:
            return
        known_axes = {name: step for name, step in axes.items() if step is not None}
        record = MetricRecord(worker, self._numbers(worker, known_axes), self._numbers(worker, values))
        with self._lock:
            self._waiting.append(record)
            if len(self._waiting) >= _BATCH or time.monotonic() >= self._due_s:
                self._write_waiting()

    def _numbers(self, worker: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values that are numbers as those of Python, which every sink can write."""
        numbers_only = {}
        for name, value in values.items():
            with only_shows(f"logging {worker}/{name} = {type(value).__name__}", self._warned):
                item = value.item() if hasattr(value, "item") else value
                numbers_only[str(name)] = item if type(item) is int else float(item)
        return numbers_only

    def _write_waiting(self) -> None:
        waiting, self._waiting, self._due_s = self._waiting, [], time.monotonic() + _BATCH_S
        for name, sink in self._sinks.items():
            if waiting and name not in self._failed:
                try:
                    sink.write(waiting)
                except Exception as e:  # whatever it is, the run goes on without the sink
                    self._failed.add(name)
                    warn_once(f"writing metrics to {name}", e, self._warned)

    def flush(self) -> None:
        """Write all waiting records to the sinks, and flush the event file."""
        with self._lock:
            self._write_waiting()
        super().flush()

    def close(self) -> None:
        """Write everything, and close the sinks and the event file; a second call does nothing."""
        with self._lock:
            self._write_waiting()
            sinks, self._sinks = self._sinks, {}
            for name, sink in sinks.items():
                with only_shows(f"closing the metrics of {name}", self._warned):
                    sink.close()
        super().close()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the event files, see `DistributedWriter`, and of the sinks under `sinks`."""
        with self._lock:
            self._write_waiting()
            states = {}
            for name, sink in self._sinks.items():
                with only_shows(f"saving the position in {name}", self._warned):
                    states[name] = unpack(pack(sink.state_dict()))  # whatever cannot be saved must not end the run
        return {**super().state_dict(), "sinks": states}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Remove what was written after `state_dict` returned `state`."""
        super().load_state_dict(state)
        self._waiting.clear()
        for name in self._sinks.keys() & state["sinks"].keys():
            with only_shows(f"going on in {name}", self._warned):
                self._sinks[name].load_state_dict(state["sinks"][name])


def add_by_axis(
    add_scalar: Callable[[str, Any, int], Any],
    worker: str,
    values: Mapping[str, Any],
    train_iter: int | None,
    env_step: int | None,
    iter_only: Collection[str] = (),
) -> None:
    """Call `add_scalar` with `<worker>_iter/<name>` at `train_iter` and with `<worker>_step/<name>` at `env_step`.

    An axis whose position is None is left out; the names in `iter_only` are left out on the axis of env steps.
    """
    for name, value in values.items():
        if train_iter is not None:
            add_scalar(f"{worker}_iter/{name}", value, train_iter)
        if env_step is not None and name not in iter_only:
            add_scalar(f"{worker}_step/{name}", value, env_step)


def known_sinks() -> list[str]:
    """Return the names of all sinks."""
    return sorted({_TENSORBOARD, *METRIC_SINK_REGISTRY})


def check_logger(section: Any) -> dict[str, Any]:
    """Check the section `logger` of a main config, and return it merged with its defaults.

    Its keys are `sinks`, a list of names, and a section of settings for each sink.

    Raises:
        ConfigError: a name or value is not allowed.
    """
    if not isinstance(section, Mapping):
        raise ConfigError(f"logger = {section!r} is not allowed; it must be a dict, as in dict(sinks=['tensorboard'])")
    known = known_sinks()
    rules: dict[str, Rule] = {"sinks": instance_of(list, tuple), **{name: instance_of(Mapping) for name in known}}
    check_values(section, "the section logger", rules)
    settings = {**DEFAULTS, **section}
    for name in settings["sinks"]:
        if name not in known:
            raise ConfigError(f"logger.sinks: unknown sink {name!r}; known are {', '.join(known)}")
    return settings


def create_metric_writer(
    logdir: str, run: RunInfo, section: Mapping[str, Any], has_tensorboard: bool = True
) -> MetricWriter:
    """Return the writer of a run; `csv` and `jsonl` are always among its sinks.

    Args:
        logdir: the folder of the TensorBoard files.
        section: the section `logger` of the main config.
        has_tensorboard: False for no TensorBoard files, even if `section` names them.

    Raises:
        ConfigError: a name or value in `section` is not allowed.
        ImportError: a sink needs a package that is not installed.
    """
    settings = check_logger(section)
    names = dict.fromkeys([*_FILES, *settings["sinks"]])
    sinks = {
        name: METRIC_SINK_REGISTRY.get(name)(run, settings.get(name, {})) for name in names if name != _TENSORBOARD
    }
    return MetricWriter(logdir, sinks, has_tensorboard=has_tensorboard and _TENSORBOARD in names)


def append_text(path: str | os.PathLike[str], text: str) -> None:
    """Append `text` to a file, whose folder is created if it is missing.

    Raises:
        OSError: it cannot be written.
    """
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "a", encoding="utf-8") as file:
        file.write(text)


def cut_file(path: str, size: int) -> None:
    """Remove what is beyond `size` bytes from a file, if it exists."""
    if os.path.exists(path):
        os.truncate(path, min(size, os.path.getsize(path)))


# The largest number of characters that MLflow allows in the value of a parameter.
_MLFLOW_VALUE = 500
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
        self._wandb = optional_module("wandb", "logger.sinks = 'wandb'")
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
            self._run = self._wandb.init(config=config, **self._settings, **again)
            self._run_id = self._run.id
        return self._run

    def close(self) -> None:
        if self._run is not None:
            self._run.finish()

    def state_dict(self) -> dict[str, Any]:
        return {"run_id": self._run_id, "count": self._count}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._run_id, self._count = state["run_id"], state["count"]


@METRIC_SINK_REGISTRY.register("mlflow")
class MlflowSink(MetricSink):
    """Sink that logs `<worker>_iter/<name>` and `<worker>_step/<name>` to an MLflow run, started by the first record.

    Like TensorBoard, MLflow has one integer axis per metric. The config is logged as parameters. A resumed run
    continues the same MLflow run, which then has the values of repeated iterations twice.

    Args:
        settings: `tracking_uri` (default: the environment variable `MLFLOW_TRACKING_URI`), `experiment_name`
            (`ding`), `run_name` (the folder's name) and `tags`.

    Raises:
        ImportError: mlflow is not installed.
    """

    def __init__(self, run: RunInfo, settings: Mapping[str, Any]) -> None:
        self._mlflow = optional_module("mlflow", "logger.sinks = 'mlflow'")
        self._info = run
        self._settings = {"experiment_name": "ding", "run_name": _name(run), **settings}
        self._client: Any = None
        self._run_id: str | None = None

    def write(self, records: Sequence[MetricRecord]) -> None:
        metric, now_ms = self._mlflow.entities.Metric, int(time.time() * 1000)
        metrics = [
            metric(_mlflow_name(f"{record.worker}{_SUFFIXES.get(axis, '')}/{name}"), float(value), now_ms, int(step))
            for record in records
            for axis, step in record.axes.items()
            for name, value in record.values.items()
        ]
        self._open().log_batch(self._run_id, metrics)

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
        leaves = flatten_dict(self._info.config, ".").items()
        texts = {_mlflow_name(str(key)): _text(value)[:_MLFLOW_VALUE] for key, value in leaves}
        client.log_batch(run_id, params=[param(name, text) for name, text in texts.items()])
        return run_id

    def close(self) -> None:
        if self._client is not None:
            self._client.set_terminated(self._run_id)

    def state_dict(self) -> dict[str, Any]:
        return {"run_id": self._run_id}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._run_id = state["run_id"]


def _mlflow_name(tag: str) -> str:
    """Return the tag without the characters that MLflow refuses."""
    return re.sub(r"[^\w\-. /]", "_", tag)


def _text(value: Any) -> str:
    return shown(value, str)


def _name(run: RunInfo) -> str:
    return os.path.basename(os.path.normpath(run.folder))
