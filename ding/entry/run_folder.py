"""The folder of a run: what pipelines write into it, and what is read from it later."""

from __future__ import annotations

import copy
import json
import math
import os
import pickle
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from easydict import EasyDict

from ding.config.read import read_config_directly, read_json
from ding.config.save import split_config
from ding.utils.config_helper import ConfigError
from ding.utils.data.nested import plain
from ding.utils.file_helper import atomic_write
from ding.utils.log_helper import only_shows
from ding.utils.metric_sinks import append_text

CONFIG, EVALUATIONS, BEST = "total_config.py", "eval.jsonl", "ckpt_best.pth.tar"
METRICS, RESULT = "metrics.jsonl", "result.json"
_POSITION = ("worker", "train_iter", "env_step", "step")
Path = str | os.PathLike[str]
# Sections of the main config of a parallel run that a serial run does not have.
_PARALLEL_SECTIONS = (("collect", "collector"), ("learn", "learner"), ("other", "commander"))


class RunFolder:
    """The folder of a run.

    Args:
        path: the folder, the run's `exp_name`.

    Raises:
        FileNotFoundError: the folder does not exist or contains no run.

    Attributes:
        path: the folder.
        compiled: the compiled config of the main section.
    """

    def __init__(self, path: Path) -> None:
        self.path = os.fspath(path)
        config = os.path.join(self.path, CONFIG)
        if not os.path.isfile(config):
            what = "contains no training" if os.path.isdir(self.path) else "does not exist"
            raise FileNotFoundError(
                f"the folder {self.path!r} {what}: {CONFIG} is missing; give the folder that a training has written, "
                "its exp_name"
            )
        compiled = read_config_directly(os.path.abspath(config))["exp_config"]  # a folder `~` is no home
        self.is_parallel = "system" in compiled
        self.compiled = EasyDict(compiled["main"] if self.is_parallel else compiled)

    @property
    def seed(self) -> int | None:
        """The seed of the run; None if the config has none."""
        seed: int | None = self.compiled.get("seed")
        return seed

    def configs(self) -> tuple[EasyDict, EasyDict]:
        """Return the pair `(main_config, create_config)` that compiles to the run's config, for a serial pipeline."""
        compiled = copy.deepcopy(self.compiled)
        if self.is_parallel:
            for section, key in _PARALLEL_SECTIONS:
                compiled.policy.get(section, {}).pop(key, None)
            compiled.setdefault("exp_name", self.path)
        main, create = split_config(compiled)
        main["exp_name"] = self.path
        return EasyDict(main), EasyDict(create)

    def result(self) -> dict[str, Any]:
        """Return the content of `result.json`.

        Raises:
            FileNotFoundError: the run has not ended.
            ConfigError: the file is damaged.
        """
        outcome: dict[str, Any] = read_json(os.path.join(self.path, RESULT))
        return outcome

    def evaluations(self) -> list[dict[str, Any]]:
        """Return the lines of `eval.jsonl` in order, as dicts with `train_iter`, `env_step`, `returns` and more.

        Raises:
            ConfigError: a line is damaged; an incomplete last line is skipped.
        """
        return read_evaluations(self.path)

    def metric(self, name: str) -> list[tuple[dict[str, Any], float]]:
        """Return the values of `<worker>/<name>` in `metrics.jsonl` with their records, without null values.

        Raises:
            ConfigError: see `evaluations`.
        """
        worker, _, key = name.rpartition("/")
        records = [record for record in read_records(self.path, METRICS) if record["worker"] == worker]
        return [(record, record[key]) for record in records if key not in _POSITION and record.get(key) is not None]

    def metric_names(self) -> set[str]:
        """Return the names `<worker>/<name>` in `metrics.jsonl`."""
        records = read_records(self.path, METRICS)
        return {f"{record['worker']}/{key}" for record in records for key in record if key not in _POSITION}

    def checkpoints(self) -> dict[str, str]:
        """Return the paths of all checkpoints by name, the newest last."""
        folder = os.path.join(self.path, "ckpt")
        if not os.path.isdir(folder):
            return {}
        names = [name for name in os.listdir(folder) if name.endswith(".pth.tar")]
        names.sort(key=lambda name: (os.stat(os.path.join(folder, name)).st_mtime_ns, name))
        return {name: os.path.join(folder, name) for name in names}

    def checkpoint(self, name: str | None = None) -> str:
        """Return the path of a checkpoint.

        Args:
            name: a name with or without suffix, an iteration, or a path; None for the best checkpoint, else the newest.

        Raises:
            FileNotFoundError: there is no such checkpoint.
        """
        checkpoints = self.checkpoints()
        if name is not None:
            for candidate in (name, f"{name}.pth.tar", f"ckpt_{name}.pth.tar", f"iteration_{name}.pth.tar"):
                if candidate in checkpoints:
                    return checkpoints[candidate]
            if os.path.isfile(name):
                return name
        elif checkpoints:
            return checkpoints.get(BEST) or list(checkpoints.values())[-1]
        wanted = "" if name is None else f" {name!r}"
        raise FileNotFoundError(
            f"there is no checkpoint{wanted} in {os.path.join(self.path, 'ckpt')!r}; "
            f"there are: {', '.join(checkpoints) or 'none'}"
        )


def read_evaluations(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of `eval.jsonl` in a folder, see `RunFolder.evaluations`; [] if the file is missing."""
    records = read_records(folder, EVALUATIONS)
    for record in records:
        if isinstance(record.get("returns"), list):
            record["returns"] = [math.nan if value is None else value for value in record["returns"]]
    return records


def read_records(folder: Path, file: str) -> list[dict[str, Any]]:
    """Return the lines of a JSON lines file in a folder; [] if the file is missing.

    Raises:
        ConfigError: a line is damaged; an incomplete last line is skipped.
    """
    path = os.path.join(folder, file)
    if not os.path.isfile(path):
        return []
    with open(path, encoding="utf-8") as f:
        lines = f.read().splitlines()
    records = []
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
        except ValueError as e:
            if number < len(lines):
                raise ConfigError(f"{path}, line {number}, is damaged: {e}") from e
        else:
            records.append(record)
    return records


def append_evaluation(exp_name: str, seed: int, train_iter: int, envstep: int, evaluator: Any, info: Any) -> None:
    """Append one JSON line to `<exp_name>/eval.jsonl`.

    Its keys are `train_iter`, `env_step`, `seed`, `returns` and `lengths` of the episodes, and `seconds`. Lengths and
    seconds come from `evaluator.last_eval`; both are null if the evaluator does not record that. So is a return that
    is NaN or infinite. `success_rate` is there if the infos of the env have `is_success`.
    """
    last = evaluator.last_eval
    record = {
        "train_iter": train_iter,
        "env_step": envstep,
        "seed": seed,
        "returns": episode_returns(info) if last is None else plain(last.returns),
        "lengths": None if last is None else plain(last.lengths),
        "seconds": None if last is None else float(last.seconds),
    }
    if last is not None and last.success_rate is not None:
        record["success_rate"] = last.success_rate
    append_record(exp_name, record)


def append_record(exp_name: str, record: Mapping[str, Any]) -> None:
    """Append `record` as one JSON line to `<exp_name>/eval.jsonl`; see `append_evaluation`."""
    path = os.path.join(exp_name, EVALUATIONS)
    with only_shows(f"writing {path}"):
        append_text(path, json.dumps(_json_value(record), allow_nan=False) + "\n")


def write_result(exp_name: str, stop: bool, envstep: int, train_iter: int, info: Any) -> None:
    """Write the outcome of a run in plain Python types to `<exp_name>/result.json` and `result.pkl`.

    Args:
        info: the result of the last evaluation; if None, `eval_value` is NaN and `eval_value_raw` empty. In JSON, NaN
            and infinities are null.
    """
    returns = episode_returns(info)
    result: dict[str, Any] = {
        "stop": bool(stop),
        "env_step": int(envstep),
        "train_iter": int(train_iter),
        "eval_value": mean_return(info),
        "eval_value_raw": returns,
        "finish_time": time.ctime(),
    }
    with atomic_write(os.path.join(exp_name, "result.pkl"), "wb") as f:
        pickle.dump(result, f)
    with atomic_write(os.path.join(exp_name, RESULT), "w") as f:
        json.dump(_json_value(result), f, indent=2, allow_nan=False)


def episode_returns(info: Any) -> list[Any]:
    """Return the episode returns of an evaluation in plain Python types; [] if there are none."""
    return list(plain((info or {}).get("eval_episode_return", [])))


def mean_return(info: Any) -> float:
    """Return the mean of `episode_returns`; NaN if there are none."""
    returns = episode_returns(info)
    return float(np.mean(returns)) if returns else math.nan


def _json_value(value: Any) -> Any:
    """Return plain data with None for NaN and infinities, which JSON does not know."""
    if isinstance(value, Mapping):
        return {key: _json_value(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_json_value(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
