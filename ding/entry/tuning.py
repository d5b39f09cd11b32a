"""`tune`, the search for the settings with the best returns, by Optuna."""

from __future__ import annotations

import copy
import itertools
import json
import logging
import math
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from easydict import EasyDict

from ding.config.read import put, read_config, read_config_directly, read_value
from ding.config.save import save_pair
from ding.entry.progress import say
from ding.entry.run_folder import Path, RunFolder
from ding.entry.serial_entry import pipeline_for
from ding.entry.training import Training, train
from ding.utils.config_helper import ConfigError
from ding.utils.file_helper import atomic_write
from ding.utils.import_helper import missing_package

SPACE = "search_space"  # in a config file
_STUDY, _JOURNAL, _CONFIG, _PLOT = "tune", "study.log", "best_config.py", "tuning.png"
_WARM_UP = 5  # number of trials that are not pruned
_REFUSED = 3  # if this number of first trials have settings that are not allowed, the study ends
_FORMS = "a list of choices that JSON can hold, or (low, high) or (low, high, 'log') for numbers"

Report = Callable[[int, float], bool | None]
# Trains with these values and this seed in a folder, and reports each evaluation; returns the folder and the configs.
Train = Callable[[Mapping[str, Any], int, str, Report | None], tuple[str, tuple[Any, Any]]]


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
        ConfigError: a range is not allowed, the settings of the first three trials are not, or the study in the folder
            searches in another space.
        FloatingPointError: all trials have diverged.
        ImportError: the package optuna is not installed.

    Example:
        >>> found = tune(
        ...     "dqn", "CartPole-v1", {"learning_rate": (1e-4, 1e-2, "log")}, env_steps=10_000, trials=10
        ... )  # doctest: +SKIP
        >>> found.values  # doctest: +SKIP
        {'learning_rate': 0.0021}
    """

    def run(values: Mapping[str, Any], seed: int, path: str, report: Report | None) -> tuple[str, tuple[Any, Any]]:
        named = {name: value for name, value in values.items() if "." not in name}
        config = {**(how.get("config") or {}), **{key: value for key, value in values.items() if "." in key}}
        given = {**how, **named, "config": config, "seed": seed, "folder": path}
        training: Training = train(policy, env, on_evaluation=report, **given)
        return training.folder, training.config

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
    **limits: Any,
) -> Tuning:
    """Search for the best values of a config file; see `tune`.

    Args:
        path: the path of the file.
        search: see `tune`, by dotted key; the entries of the file's `search_space` are added.
        settings: further values of the main config, by dotted key.
        limits: the limits `max_train_iter` and `max_env_step`.
    """
    main, create = map(EasyDict, read_config(path))
    space = {**read_config_directly(path).get(SPACE, {}), **search}

    def run(values: Mapping[str, Any], seed: int, exp: str, report: Report | None) -> tuple[str, tuple[Any, Any]]:
        pair = EasyDict(copy.deepcopy(main)), EasyDict(copy.deepcopy(create))
        for key, value in {**(settings or {}), **values, "exp_name": exp}.items():
            put(pair[0], key, value)
        train_with = pipeline_for(*pair)
        done = train_with(pair, seed=seed, **limits, strict_config=True, on_evaluation=report)
        return str(done.cfg.exp_name), pair

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
            raise ConfigError(
                f"--search {text!r} is not allowed; it must be name=low:high, name=low:high:log or name=a,b,c"
            )
    return space


def _search(
    run: Train, space: Mapping[str, Any], trials: int, seeds: Sequence[int], folder: str, prune: bool
) -> Tuning:
    optuna = _optuna()
    _check(space)
    if trials < 1 or not seeds:
        raise ConfigError(f"trials = {trials!r} and seeds = {seeds!r} are not allowed; each must be at least one")
    os.makedirs(folder, exist_ok=True)
    journal = optuna.storages.journal
    storage = optuna.storages.JournalStorage(journal.JournalFileBackend(os.path.join(folder, _JOURNAL)))
    study = optuna.create_study(
        storage=storage,
        study_name=_STUDY,
        load_if_exists=True,
        direction="maximize",
        pruner=optuna.pruners.MedianPruner(_WARM_UP) if prune else optuna.pruners.NopPruner(),
    )
    _check_same(study, space, folder)
    refused = 0
    while len(_finished(optuna, study)) < trials:
        failure = _try(optuna, study, run, space, seeds, folder)
        refused = refused + 1 if isinstance(failure, ConfigError) else 0
        if failure is not None and refused == min(_REFUSED, trials) == len(study.trials):
            optuna.delete_study(study_name=_STUDY, storage=storage)  # the space may be corrected
            raise failure
    finished = _finished(optuna, study)
    if not study.get_trials(states=(optuna.trial.TrialState.COMPLETE,)):
        raise FloatingPointError(
            f"none of the {len(finished)} trials in {folder} has reached a mean return: their losses or returns are "
            "NaN, or their settings are not allowed"
        )
    best = study.best_trial
    config = os.path.join(folder, _CONFIG)
    _draw(finished, space, os.path.join(folder, _PLOT))
    say(f"The best of {len(finished)} trials: mean return {best.value:.1f} with {best.params}. Config: {config}")
    return Tuning(folder, dict(best.params), float(best.value), config, len(finished))


def _try(
    optuna: Any, study: Any, run: Train, space: Mapping[str, Any], seeds: Sequence[int], folder: str
) -> Exception | None:
    """Train with the values of a new trial, report the result to the study, and return the error of one that failed."""
    trial = study.ask()
    # By its number, so that neither a study that continues nor two processes that begin together draw anything twice.
    study.sampler = optuna.samplers.TPESampler(seed=int(seeds[0]) + trial.number)
    values = {name: _suggest(trial, name, spec) for name, spec in space.items()}
    say(f"Trial {trial.number}: {values}")
    is_pruned, reached = False, []
    pair: Any = None

    evaluations = itertools.count()

    def report(env_steps: int, mean_return: float) -> bool:
        nonlocal is_pruned
        number = next(evaluations)  # trials are compared by it, as their env steps may differ
        if not math.isnan(mean_return):
            trial.report(mean_return, number)
            is_pruned = trial.should_prune()
        return is_pruned

    for seed in seeds:
        place = os.path.join(folder, f"trial_{trial.number:03}", f"seed{seed}")
        try:
            run_folder, pair = run(values, seed, place, report if seed == seeds[0] else None)
        except Exception as e:  # the study must know of the end of a trial
            _fail(optuna, study, trial, e)
            if not isinstance(e, FloatingPointError | ConfigError):  # a learning rate that is too high; a bad choice
                raise
            return e
        if is_pruned:
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
            return None
        reached.append(RunFolder(run_folder).result()["eval_value"])
    if None in reached or not np.isfinite(reached).all():
        _fail(optuna, study, trial, f"its mean returns are {reached}")
        return None
    study.tell(trial, float(np.mean(reached)))
    if study.best_trial.number == trial.number:
        main, create = pair
        main.exp_name = f"{os.path.basename(os.path.normpath(folder))}_best"
        save_pair(main, create, os.path.join(folder, _CONFIG))
    return None


def _fail(optuna: Any, study: Any, trial: Any, reason: object) -> None:
    study.tell(trial, state=optuna.trial.TrialState.FAIL)
    logging.getLogger("ding").warning("trial %d fails: %s", trial.number, reason)


def _check_same(study: Any, space: Mapping[str, Any], folder: str) -> None:
    """Check that earlier trials have drawn from this space, or from other ranges of the same kinds.

    Raises:
        ConfigError: they have drawn from another space.
    """
    kinds = {name: _choices(spec) if isinstance(spec, list) else _kind(spec) for name, spec in space.items()}
    before = study.user_attrs.get(SPACE, kinds)
    if before != kinds:
        raise ConfigError(
            f"the study in {folder} searches {before}, and this one {kinds}: give another folder, or delete that one"
        )
    study.set_user_attr(SPACE, kinds)


def _choices(spec: list[Any]) -> list[Any]:
    """Return the choices in the form in which the file of a study returns them."""
    choices: list[Any] = json.loads(json.dumps(spec))
    return choices


def _kind(spec: tuple[Any, ...]) -> str:
    low, high, *log = spec
    return " ".join(["int" if isinstance(low, int) and isinstance(high, int) else "float", *log])


def _finished(optuna: Any, study: Any) -> list[Any]:
    states = optuna.trial.TrialState
    trials: list[Any] = study.get_trials(states=(states.COMPLETE, states.PRUNED, states.FAIL))
    return trials


def _suggest(trial: Any, name: str, spec: Any) -> Any:
    if isinstance(spec, list):
        return trial.suggest_categorical(name, _choices(spec))
    low, high, *log = spec
    suggest = trial.suggest_int if _kind(spec).startswith("int") else trial.suggest_float
    return suggest(name, low, high, log=bool(log))


def _check(space: Mapping[str, Any]) -> None:
    if not space:
        raise ConfigError(f"there is nothing to search: give names with {_FORMS}")
    for name, spec in space.items():
        if not (isinstance(spec, list) and spec and _is_json(spec)) and not _is_range(spec):
            raise ConfigError(
                f"{SPACE}[{name!r}] = {spec!r} is not allowed; it must be {_FORMS}, with low < high, and 0 < low for "
                "'log'"
            )


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True


def _is_range(spec: Any) -> bool:
    if not isinstance(spec, tuple) or len(spec) not in (2, 3):
        return False
    low, high, *log = spec
    are_numbers = all(isinstance(end, (int, float)) and not isinstance(end, bool) for end in (low, high))
    return are_numbers and low < high and (not log or (log == ["log"] and low > 0))


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as e:
        raise missing_package("tuning", "optuna", "tune") from e
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    # Of lists, which the file of a study holds as well as numbers.
    warnings.filterwarnings("ignore", message="Choices for a categorical distribution should be")
    return optuna


def _draw(trials: Sequence[Any], space: Mapping[str, Any], path: str) -> None:
    """Draw the value of each trial, and the values by each setting, if matplotlib is installed.

    A setting that is searched on a logarithmic scale has such an axis.
    """
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import NullFormatter
    except ImportError:
        say("No plot: drawing needs the extra [plot] of ding.")
        return
    done = [trial for trial in trials if trial.value is not None and trial.state.name == "COMPLETE"]
    values = [trial.value for trial in done]
    figure = Figure(figsize=(4 * (len(space) + 1), 3.5), layout="constrained")
    first, *others = np.atleast_1d(figure.subplots(1, len(space) + 1, sharey=True))
    first.plot([trial.number for trial in done], values, "o", label="trials")
    first.step([trial.number for trial in done], np.maximum.accumulate(values), where="post", label="best so far")
    first.set_xlabel("trial")
    first.set_ylabel("mean return")
    first.legend(frameon=False, ncols=2, loc="lower left", bbox_to_anchor=(0, 1))  # above the axes
    for axes, (name, spec) in zip(others, space.items(), strict=True):
        there = [(trial.params[name], trial.value) for trial in done if name in trial.params]
        if isinstance(spec, list):
            choices = [str(choice) for choice in _choices(spec)]
            axes.plot([choices.index(str(x)) for x, _ in there], [y for _, y in there], "o", clip_on=False)
            axes.set_xticks(range(len(choices)), choices)
        else:
            numbers = [x for x, _ in there]
            axes.plot(numbers, [y for _, y in there], "o", clip_on=False)
            if len(spec) == 3:
                axes.set_xscale("log")
                axes.xaxis.set_minor_formatter(NullFormatter())
            ends = [*spec[:2], *numbers]  # a study may continue with another range
            axes.set_xlim(min(ends), max(ends))
        axes.set_xlabel(name)
    with atomic_write(path, "wb") as f:
        figure.savefig(f, format="png", dpi=120)
