"""`tune`, the search for the settings with the best returns, by Optuna."""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
import math
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from easydict import EasyDict

from ding.config.read import put, read_config, read_config_directly, read_value
from ding.config.save import save_pair
from ding.entry.checks import UNLIMITED
from ding.entry.experiment import run_pipeline
from ding.entry.progress import say
from ding.entry.run_folder import Path, RunFolder
from ding.entry.serial_entry import rounds_for
from ding.entry.training import train
from ding.utils.config_helper import ConfigError
from ding.utils.import_helper import optional_module

SPACE = "search_space"  # in a config file
_STUDY, _JOURNAL, _CONFIG = "tune", "study.log", "best_config.py"
_WARM_UP = 5  # number of trials that are not pruned
_FORMS = "a list of choices that JSON can hold, or (low, high) or (low, high, 'log') for numbers"

Report = Callable[[int, float], bool | None]
# Trains with these values and this seed in a folder, reports each evaluation, and returns the folder of the run.
Train = Callable[[Mapping[str, Any], int, str, Report | None], str]


@dataclass(frozen=True, slots=True)
class Tuning:
    """The outcome of `tune`.

    Attributes:
        folder: the folder of the study; `trial_<number>/seed<seed>` in it are the folders of the trainings.
        values: the best settings by name.
        mean_return: their mean return in the last evaluation, over the seeds.
        config: the path of the config file with the best settings, for `ding train`.
        trials: the number of finished trials, including pruned ones.
    """

    folder: str
    values: dict[str, Any]
    mean_return: float
    config: str
    trials: int


def tune(
    policy: str,
    env: Any,
    search: Mapping[str, Any],
    *,
    trials: int = 20,
    seeds: Sequence[int] = (0,),
    folder: Path | None = None,
    prune: bool = True,
    **how: Any,
) -> Tuning:
    """Search for the settings of a policy with the best mean return on an env.

    A trial trains with each of the seeds; its value is the mean return of the last evaluations. The training with the
    first seed ends early if its returns are worse than the median of earlier trials at the same evaluation. A trial
    that diverges, or whose settings are not allowed, has failed, and the search goes on. A study continues where it
    stopped, even if it was killed, and several processes may share its folder.

    Args:
        policy, env: see `train`.
        search: the search space, by the name of a setting or its dotted key: a list of choices, `(low, high)`, or
            `(low, high, "log")`; two ints are a range of ints, both ends included.
        trials: the number of trials, including earlier ones in the folder.
        seeds: the seeds of each trial.
        folder: the folder of the study; by default `tune_<policy>`.
        prune: whether bad trials end early.
        how: further arguments of `train`, such as `env_steps`.

    Raises:
        ConfigError: a range is not allowed, or the settings of all trials are not.
        FloatingPointError: all trials have diverged.
        ImportError: the package optuna is not installed.

    Example:
        >>> found = tune(
        ...     "dqn", "CartPole-v1", {"learning_rate": (1e-4, 1e-2, "log")}, env_steps=10_000, trials=10
        ... )  # doctest: +SKIP
        >>> found.values  # doctest: +SKIP
        {'learning_rate': 0.0021}
    """

    def run(values: Mapping[str, Any], seed: int, path: str, report: Report | None) -> str:
        named = {name: value for name, value in values.items() if "." not in name}
        config = {**(how.get("config") or {}), **{key: value for key, value in values.items() if "." in key}}
        arguments = {**how, **named, "config": config, "seed": seed, "folder": path}
        return train(policy, env, on_evaluation=report, **arguments).folder

    return _search(run, search, trials, seeds, f"tune_{policy}" if folder is None else os.fspath(folder), prune)


def tune_config(
    path: str,
    search: Mapping[str, Any],
    *,
    trials: int = 20,
    seeds: Sequence[int] = (0,),
    folder: Path | None = None,
    prune: bool = True,
    settings: Mapping[str, Any] | None = None,
    max_train_iter: int = UNLIMITED,
    max_env_step: int = UNLIMITED,
) -> Tuning:
    """Search for the best values of a config file; see `tune`.

    Args:
        path: the path of the file.
        search: see `tune`, by dotted key; the entries of the file's `search_space` are added.
        settings: further values of the main config, by dotted key.
        max_train_iter, max_env_step: the limits of a training.
    """
    main, create = map(EasyDict, read_config(path))
    space = {**read_config_directly(path).get(SPACE, {}), **search}

    def run(values: Mapping[str, Any], seed: int, exp: str, report: Report | None) -> str:
        changed, types = EasyDict(copy.deepcopy(main)), EasyDict(copy.deepcopy(create))
        for key, value in {**(settings or {}), **values, "exp_name": exp}.items():
            put(changed, key, value)
        done = run_pipeline(
            rounds_for(changed, types),
            (changed, types),
            seed=seed,
            max_train_iter=max_train_iter,
            max_env_step=max_env_step,
            strict_config=True,
            on_evaluation=report,
        )
        return str(done.cfg.exp_name)

    name = f"tune_{main.get('exp_name', create.policy.type)}"
    return _search(run, space, trials, seeds, name if folder is None else os.fspath(folder), prune)


def read_space(texts: Sequence[str]) -> dict[str, Any]:
    """Return the search space of texts such as `learning_rate=1e-4:1e-2:log` and `batch_size=32,64,128`.

    Raises:
        ConfigError: a text is malformed.
    """
    space: dict[str, Any] = {}
    for text in texts:
        name, equals, spec = text.partition("=")
        parts = spec.split(":")
        if equals and len(parts) in (2, 3) and "," not in spec:
            space[name.strip()] = (*map(read_value, parts[:2]), *parts[2:])
        elif equals and len(parts) == 1 and spec:
            space[name.strip()] = [read_value(part) for part in spec.split(",")]
        else:
            raise ConfigError(f"--search {text!r} is not allowed; write name=low:high, name=low:high:log or name=a,b")
    return space


def _search(
    run: Train, space: Mapping[str, Any], trials: int, seeds: Sequence[int], folder: str, prune: bool
) -> Tuning:
    optuna = optional_module("optuna", "tuning", extra="tune")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    # Of lists, which the file of a study holds as well as numbers.
    warnings.filterwarnings("ignore", message="Choices for a categorical distribution should be")
    if not space or trials < 1 or not seeds:
        raise ConfigError(
            f"search = {space!r}, trials = {trials!r} and seeds = {seeds!r} are not allowed: there is nothing to search"
        )
    suggestions = {name: _suggestion(name, spec) for name, spec in space.items()}
    os.makedirs(folder, exist_ok=True)
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(os.path.join(folder, _JOURNAL)))
    study = optuna.create_study(
        storage=storage,
        study_name=_STUDY,
        load_if_exists=True,
        direction="maximize",
        pruner=optuna.pruners.MedianPruner(_WARM_UP) if prune else optuna.pruners.NopPruner(),
    )
    refused: list[ConfigError] = []

    def value_of(trial: Any) -> float:
        # By its number, so that neither a study that continues nor two processes that begin together draw anything
        # twice.
        study.sampler = optuna.samplers.TPESampler(seed=int(seeds[0]) + trial.number)
        values = {name: suggest(trial) for name, suggest in suggestions.items()}
        say(f"Trial {trial.number}: {values}")
        try:
            return _try(trial, optuna.TrialPruned, partial(run, values), seeds, folder)
        except ConfigError as e:
            refused.append(e)
            raise

    states = optuna.trial.TrialState
    ended = states.COMPLETE, states.PRUNED, states.FAIL
    if len(study.get_trials(states=ended)) < trials:
        enough = optuna.study.MaxTrialsCallback(trials, states=ended)
        study.optimize(value_of, callbacks=[enough], catch=(FloatingPointError, ConfigError))
    finished = study.get_trials(states=ended)
    if not study.get_trials(states=(states.COMPLETE,)):
        optuna.delete_study(study_name=_STUDY, storage=storage)  # the space may be corrected
        none = f"none of the {len(finished)} trials in {folder} has reached a mean return: losses or returns are NaN"
        raise refused[-1] if refused else FloatingPointError(none)
    best, config = study.best_trial, os.path.join(folder, _CONFIG)
    main, create = RunFolder(_place(folder, best.number, seeds[0])).configs()
    main.exp_name = f"{os.path.basename(os.path.normpath(folder))}_best"
    save_pair(main, create, config)
    say(f"The best of {len(finished)} trials: mean return {best.value:.1f} with {best.params}. Config: {config}")
    return Tuning(folder, dict(best.params), float(best.value), config, len(finished))


def _place(folder: str, trial: int, seed: int) -> str:
    return os.path.join(folder, f"trial_{trial:03}", f"seed{seed}")


def _try(trial: Any, pruned: type[Exception], run: Callable[..., str], seeds: Sequence[int], folder: str) -> float:
    """Return the mean return of a trial over the seeds, NaN if one has none.

    Raises:
        Exception: `pruned`, if the trial has ended early.
    """
    is_pruned = False
    evaluations = itertools.count()

    def report(env_steps: int, mean_return: float) -> bool:
        nonlocal is_pruned
        number = next(evaluations)  # trials are compared by it, as their env steps may differ
        if not math.isnan(mean_return):
            trial.report(mean_return, number)
            is_pruned = trial.should_prune()
        return is_pruned

    reached = []
    for seed in seeds:
        run_folder = run(seed, _place(folder, trial.number, seed), report if seed == seeds[0] else None)
        if is_pruned:
            raise pruned
        reached.append(RunFolder(run_folder).result()["eval_value"])
    return float(np.mean(np.array(reached, np.float64)))  # None is NaN there


def _suggestion(name: str, spec: Any) -> Callable[[Any], Any]:
    """Return a function that draws a value of the setting `name` for a trial.

    Raises:
        ConfigError: `spec` is no range or list of choices.
    """
    if isinstance(spec, list) and spec:
        with contextlib.suppress(TypeError, ValueError):
            choices = json.loads(json.dumps(spec))  # in the form in which the file of a study returns them
            return lambda trial: trial.suggest_categorical(name, choices)
    if isinstance(spec, tuple) and len(spec) in (2, 3):
        low, high, *log = spec
        kinds = {type(low), type(high)}
        if kinds <= {int, float} and low < high and (not log or (log == ["log"] and low > 0)):
            suggest = "suggest_int" if kinds == {int} else "suggest_float"
            return lambda trial: getattr(trial, suggest)(name, low, high, log=bool(log))
    raise ConfigError(f"{SPACE}[{name!r}] = {spec!r} is not allowed; it must be {_FORMS}")
