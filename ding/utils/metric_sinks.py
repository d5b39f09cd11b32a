"""The sinks of a run's scalars: TensorBoard, files in the run folder, and the trackers W&B and MLflow."""

from __future__ import annotations

import contextlib
import csv
import importlib
import io
import json
import logging
import math
import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from ding.utils.config_helper import (
    NO_DEFAULT,
    ConfigError,
    Rule,
    Setting,
    Settings,
    check_config,
    check_values,
    edit_distance,
    instance_of,
)
from ding.utils.default_helper import flatten_dict
from ding.utils.file_helper import atomic_write
from ding.utils.import_helper import missing_package
from ding.utils.log_helper import DistributedWriter, only_shows, shown, tell_once
from ding.utils.msgpack_helper import pack
from ding.utils.registry_factory import Registry

# Sinks get records in batches of this size, after this many seconds at the latest.
_BATCH = 256
_BATCH_S = 10.0
# The largest number of records to keep for a sink that fails; the oldest are dropped.
_MAX_WAITING = 100_000
_TENSORBOARD = "tensorboard"
# The sinks of every run.
_FILES = ("csv", "jsonl")
_CSV_NAME = 200  # the largest number of bytes of a worker's name in that of its file
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
        """Write `records`, all or none of them.

        Raises:
            OSError: they cannot be written now; the writer logs the error and passes them again later.
        """

    def close(self) -> None:  # noqa: B027 - optional for subclasses
        """Release resources; called once, after the last `write`."""

    def state_dict(self) -> dict[str, Any]:
        """Return the position for `load_state_dict`, in plain values."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> list[str]:
        """Remove records that were written after `state_dict` returned `state`, or ignore them when written again.

        Returns:
            A message for each record or file that is missing.
        """
        return []


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
            lines.append(json.dumps({**position, **values, **position}))
        append_lines(self._path, lines)

    def state_dict(self) -> dict[str, Any]:
        return {"size": _size(self._path)}

    def load_state_dict(self, state: Mapping[str, Any]) -> list[str]:
        size = _size(self._path)
        if size < state["size"]:
            return [f"{self._path} is shorter than it was"]
        if size > state["size"]:
            os.truncate(self._path, state["size"])
        return []


@METRIC_SINK_REGISTRY.register("csv")
class CsvSink(MetricSink):
    """Sink that appends a row for each record to `metrics/<worker>.csv` in the run folder.

    The columns are the axes and the names of the values, without line breaks. A new name adds a column, which rewrites
    the file. A value that has the name of an axis is left out.
    """

    def __init__(self, run: RunInfo, settings: Mapping[str, Any]) -> None:
        self._folder = os.path.join(run.folder, "metrics")
        self._columns: dict[str, list[str]] = {}  # by file
        self._rows: dict[str, int] = {}

    def write(self, records: Sequence[MetricRecord]) -> None:
        tables: dict[str, list[dict[str, Any]]] = {}
        for record in records:
            name = re.sub(r"[^\w.-]+", "_", record.worker).lstrip(".") or "run"
            name = name.encode()[:_CSV_NAME].decode(errors="ignore")
            values = {" ".join(name.splitlines()): value for name, value in record.values.items()}
            tables.setdefault(f"{name}.csv", []).append({**record.axes, **values, **record.axes})
        with contextlib.ExitStack() as undo:
            for file, rows in tables.items():
                size = self._write_rows(file, rows)
                undo.callback(self._remove_rows, file, size, len(rows))
            undo.pop_all()  # all are written

    def _remove_rows(self, file: str, size: int, count: int) -> None:
        os.truncate(os.path.join(self._folder, file), size)
        self._rows[file] -= count

    def _write_rows(self, file: str, rows: list[dict[str, Any]]) -> int:
        """Append rows, and return the size of the file without them."""
        path = os.path.join(self._folder, file)
        columns = self._known_columns(file)
        names = list(dict.fromkeys([*columns, *(name for row in rows for name in row)]))
        lines = [_csv_line([row.get(name, "") for name in names]) for row in rows]
        if not columns:
            append_lines(path, [_csv_line(names), *lines])
        elif names == columns:
            append_lines(path, lines)
        else:
            padding = "," * (len(names) - len(columns))
            former = [line + padding for line in _lines(path)[1:]]
            with atomic_write(path) as new:
                new.writelines(f"{line}\n".encode() for line in [_csv_line(names), *former, *lines])
        self._columns[file] = names
        self._rows[file] += len(rows)
        return _size(path) - _size_of(lines)

    def _known_columns(self, file: str) -> list[str]:
        if file not in self._columns:
            lines = _lines(os.path.join(self._folder, file))
            self._columns[file] = next(csv.reader(lines[:1]), [])
            self._rows[file] = max(len(lines) - 1, 0)
        return self._columns[file]

    def state_dict(self) -> dict[str, Any]:
        for file in _csv_files(self._folder):
            self._known_columns(file)
        return {"rows": dict(self._rows)}

    def load_state_dict(self, state: Mapping[str, Any]) -> list[str]:
        missing = []
        self._columns.clear()
        self._rows.clear()
        for file in {*_csv_files(self._folder), *state["rows"]}:
            path, rows = os.path.join(self._folder, file), state["rows"].get(file, 0)
            lines = _lines(path)
            if not rows:
                with contextlib.suppress(FileNotFoundError):
                    os.remove(path)
            elif len(lines) - 1 < rows:
                missing.append(f"{path} is shorter than it was")
            else:  # a process that was killed may have left half a line, too
                os.truncate(path, _size_of(lines[: rows + 1]))
        return missing


class MetricWriter(DistributedWriter):
    """A TensorBoard writer that also passes every scalar to sinks.

    Sinks get records in batches: at `flush`, at `close`, and with the first record after ten seconds. If a sink cannot
    write, an error is logged, the sink gets the records again with the next batch, and the run continues. It also
    continues after any other exception of a sink, with one warning; then the batch is lost. A value that is not a
    number is lost, too. In a forked process the writer passes nothing to sinks.

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
        self._has_tensorboard = has_tensorboard
        self._sinks = dict(sinks)
        self._waiting_for: dict[str, list[MetricRecord]] = {name: [] for name in sinks}
        self._failing: set[str] = set()  # sinks that keep their records for now
        self._dropped: dict[str, int] = dict.fromkeys(sinks, 0)
        self._errors: dict[str, OSError] = {}  # the last one of each sink
        self._oldest_s: float | None = None

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
        add_by_axis(partial(self._add, "add_scalar"), worker, values, train_iter, env_step, iter_only)

    def add_scalar(self, tag: str, scalar_value: Any, *args: Any, **kwargs: Any) -> None:
        """Write one value; for sinks, the worker is the part of `tag` before the last `/`."""
        worker, _, name = tag.rpartition("/")
        self._record(worker or "run", {"step": args[0] if args else kwargs.get("global_step")}, {name: scalar_value})
        super().add_scalar(tag, scalar_value, *args, **kwargs)

    def _add(self, method: str, *args: Any, **kwargs: Any) -> None:
        if self._has_tensorboard:
            super()._add(method, *args, **kwargs)

    def _record(self, worker: str, axes: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        if not self._sinks:
            return
        given = {name: step for name, step in axes.items() if step is not None}
        record = MetricRecord(worker, self._numbers(worker, given), self._numbers(worker, values))
        now_s = time.monotonic()
        with self._lock:
            for waiting in self._waiting_for.values():
                waiting.append(record)
            if self._oldest_s is None:
                self._oldest_s = now_s
            longest = max(map(len, self._waiting_for.values()))
            if now_s - self._oldest_s >= _BATCH_S or longest % _BATCH == 0:
                self._write_waiting()

    def _numbers(self, worker: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values that are numbers as those of Python, which every sink can write."""
        numbers_only = {}
        for name, value in values.items():
            with only_shows(f"logging {worker}/{name} = {type(value).__name__}", self._told):
                item = value.item() if hasattr(value, "item") else value
                numbers_only[str(name)] = item if type(item) is int and math.isfinite(item) else float(item)
        return numbers_only

    def _write_waiting(self) -> None:
        self._oldest_s = None
        for name, waiting in self._waiting_for.items():
            if not waiting:
                continue
            try:
                self._sinks[name].write(waiting)
            except OSError as e:
                if name not in self._failing:
                    _logger.error("metrics are not written to %s: %s; they are kept and written later", name, e)
                self._failing.add(name)
                self._errors[name] = e
                self._dropped[name] += len(waiting[:-_MAX_WAITING])
                del waiting[:-_MAX_WAITING]
            except Exception as e:  # it may refuse these records for ever
                tell_once(f"writing metrics to {name}", e, self._told)
                self._waiting_for[name] = []
            else:
                self._failing.discard(name)
                self._waiting_for[name] = []

    def flush(self) -> None:
        """Write all waiting records to the sinks, and flush the event file."""
        with self._lock:
            self._write_waiting()
        super().flush()

    def close(self) -> None:
        """Write everything, and close the sinks and the event file; a second call does nothing.

        An error is logged for each sink that could not write all records.
        """
        with self._lock:
            self._write_waiting()
            for name, waiting in self._waiting_for.items():
                if lost := self._dropped[name] + len(waiting):
                    _logger.error("%d records of metrics for %s are lost: %s", lost, name, self._errors[name])
            sinks, self._sinks, self._waiting_for = self._sinks, {}, {}
        with contextlib.ExitStack() as stack:
            stack.callback(self._close_file)
            for name, sink in sinks.items():
                stack.callback(self._close_sink, name, sink)

    def _close_sink(self, name: str, sink: MetricSink) -> None:
        with only_shows(f"closing the metrics of {name}", self._told):
            sink.close()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the event files, see `DistributedWriter`, and of the sinks under `sinks`."""
        with self._lock:
            self._write_waiting()
        states = {}
        for name, sink in self._sinks.items():
            with only_shows(f"saving the position in {name}", self._told):
                state = sink.state_dict()
                pack(state)  # raises an exception if it could not be saved with that of the run
                states[name] = state
        return {**super().state_dict(), "sinks": states}

    def load_state_dict(self, state: Mapping[str, Any]) -> list[str]:
        """Remove what was written after `state_dict` returned `state`, and return a message for each missing part."""
        missing = super().load_state_dict(state)
        states = state.get("sinks", {})
        for name, sink in self._sinks.items():
            self._waiting_for[name].clear()
            if name in states:
                try:
                    told = sink.load_state_dict(states[name])
                    missing += told if isinstance(told, list) else []
                except Exception as e:  # of a sink, which must not end the run
                    missing.append(f"the metrics of {name} do not go on from the state: {e!r}")
        return missing

    # A copy, and the writer in a forked process, write only their own event file: the sinks have one writer.

    def _enter_child(self) -> None:
        super()._enter_child()
        self._of_parent = self._sinks  # kept, as a file that is dropped writes what it has in its memory
        self._sinks, self._waiting_for = {}, {}

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(DistributedWriter, self.logdir), ()


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
            meant = min(known, key=partial(edit_distance, str(name)))
            raise ConfigError(
                f"logger.sinks: unknown sink {name!r}; did you mean {meant!r}? Known are {', '.join(known)}"
            )
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


def _csv_line(cells: Sequence[Any]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(cells)
    return text.getvalue()


def _csv_files(folder: str) -> list[str]:
    return sorted(name for name in os.listdir(folder) if name.endswith(".csv")) if os.path.isdir(folder) else []


def _size(path: str) -> int:
    return os.path.getsize(path) if os.path.exists(path) else 0


def _lines(path: str) -> list[str]:
    if not os.path.exists(path):
        return []
    with open(path, "rb") as file:
        *lines, _ = file.read().split(b"\n")  # the rest is empty, or half a line
    return [line.decode() for line in lines]


def _size_of(lines: Iterable[str]) -> int:
    return sum(len(line.encode()) + 1 for line in lines)


def append_lines(path: str, lines: Sequence[str]) -> None:
    """Append whole lines, or nothing if that fails.

    Raises:
        OSError: they cannot be written; the error names `path`.
    """
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "ab", buffering=0) as file:
        size = file.tell()
        data = memoryview("".join(f"{line}\n" for line in lines).encode())
        try:
            while data:
                data = data[file.write(data) :]
        except OSError as e:
            file.truncate(size)
            raise OSError(e.errno, e.strerror, path) from e


# The largest number of characters that MLflow allows in the value of a parameter and in the name of a metric.
_MLFLOW_VALUE, _MLFLOW_NAME = 500, 250
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
            if record.worker not in self._workers and "*" not in record.worker:  # W&B would refuse that
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
            client.log_batch(self._run_id, [metric for record in records for metric in self._metrics(record)])
        except self._mlflow.exceptions.MlflowException as e:
            self._may_repeat = True
            self._last_steps.clear()
            raise OSError(f"MLflow: {e}") from e

    def _metrics(self, record: MetricRecord) -> list[Any]:
        metric, now_ms = self._mlflow.entities.Metric, int(time.time() * 1000)
        found = []
        for axis, step in record.axes.items():
            for name, value in record.values.items():
                key = _mlflow_name(f"{record.worker}{_SUFFIXES.get(axis, '')}/{name}")
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
        leaves = flatten_dict(self._info.config, ".").items()
        texts = {_mlflow_name(str(key)): _text(value)[:_MLFLOW_VALUE] for key, value in leaves}
        client.log_batch(run_id, params=[param(name, text) for name, text in texts.items()])
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


def _mlflow_name(tag: str) -> str:
    """Return the tag as MLflow allows it: a normalized relative path of some of the characters."""
    parts = re.sub(r"[^\w\-. /]", "_", tag).split("/")
    return "/".join(part for part in parts if part.strip("."))[:_MLFLOW_NAME] or "_"


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as e:
        raise missing_package(f"logger.sinks = {name!r}", name) from e


def _text(value: Any) -> str:
    return shown(value, str)


def _name(run: RunInfo) -> str:
    return os.path.basename(os.path.normpath(run.folder))
