"""The command `ding train`: it reads a config file, changes values, and calls pipelines, also for several seeds."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import click

from ding.config.read import change, read_config, read_config_directly, read_config_with_system
from ding.entry.checks import cuda_of
from ding.entry.run_folder import RunFolder
from ding.entry.serial_entry import kind_of_pipeline, pipeline_for, pipeline_named, pipeline_of
from ding.torch_utils.checkpoint_helper import guard_training
from ding.utils.child_helper import Commands
from ding.utils.config_helper import ConfigError
from ding.utils.state_folder import FOLDER, StateError, StateFolder

# How long a training may take to end on request: it saves its state between two rounds, or after 15 seconds.
_END_S = 20.0
# How long the last lines of a training that has ended may take.
_LAST_LINES_S = 2.0
_writing = threading.Lock()  # so that lines of two seeds are not mixed
# Starts the command as its script does: the current folder hides no installed module.
_COMMAND = (sys.executable, "-c", "import sys; sys.path.remove(''); from ding.entry.cli import cli; cli()")


def train_seeds(
    arguments: Sequence[str],
    settings: Sequence[str],
    options: Mapping[str, Any],
    folders: Mapping[int, str | None],
    jobs: int,
) -> None:
    """Run `ding train` for each seed in a process of its own, at most `jobs` at the same time.

    Their output goes to standard error, each line behind its seed. A training that fails leaves the others alone. A
    signal ends all of them, and each saves its state as a single one does; if this process is killed, they receive
    SIGTERM, on systems with a parent death signal.

    Args:
        settings: `key=value`.
        options: further options by name.
        folders: that of each seed, None for the one that follows from the arguments.

    Raises:
        ConfigError: trainings have failed; the message names their seeds.
    """
    words = [*arguments, *(f"--set={setting}" for setting in settings), *_flags(options)]
    waiting, failed = list(folders), []
    with guard_training(None), Commands(_END_S, _LAST_LINES_S) as running:
        while waiting or running:
            while waiting and len(running) < jobs:
                seed = waiting.pop(0)
                own = [f"--seed={seed}", *_flags({"exp_name": folders[seed]})]
                # In a session of its own, so that Ctrl-C reaches this process alone, which tells it once.
                command = [*_COMMAND, "train", *words, *own]
                running.start(seed, command, partial(_show, seed), start_new_session=True)
            seed, status = running.wait()
            if status:
                failed.append(seed)
    if failed:
        raise ConfigError(f"of the seeds {list(folders)}, {sorted(failed)} have failed; their output is above")


def _show(seed: int, line: str) -> None:
    with _writing:
        click.echo(f"seed {seed} | {line}", err=True)


def _flags(options: Mapping[str, Any]) -> Iterator[str]:
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if name == "strict_config":
            yield flag if value else "--no-strict-config"
        elif value is not None and value is not False:
            yield flag if value is True else f"{flag}={value}"


def train_config(
    path: str,
    seed: int = 0,
    settings: Sequence[str] = (),
    mode: str | None = None,
    exp_name: str | None = None,
    train_iter: int | None = None,
    env_step: int | None = None,
    device: str | None = None,
    **how: Any,
) -> None:
    """Train with a config file.

    Args:
        settings: changes to the main config, texts `key=value`.
        mode: the pipeline, `serial`, `serial_onpolicy`, `serial_offline` or `parallel`; None for the pipeline that the
            config needs.
        how: further arguments of the pipeline, such as `resume`.

    Raises:
        ConfigError: a setting is malformed, or the pipeline refuses the config.
    """
    mode = mode or pipeline_of(path)
    configs = read_config_with_system(path) if mode == "parallel" else read_config(path)
    for setting in settings:
        change(configs[0], setting)
    if exp_name is not None:
        configs[0]["exp_name"] = exp_name
    if device is not None:
        change(configs[0], f"policy.cuda={cuda_of(device)}")
    limits = {"max_train_iter": train_iter, "max_env_step": env_step}
    if mode == "serial_offline" and limits.pop("max_env_step") is not None:
        raise ConfigError("--env-step has no effect on training from a data set; use --train-iter")
    given = {name: limit for name, limit in limits.items() if limit is not None}
    pipeline_named(mode)(configs, seed=seed, **given, **how)


def resume_run(
    folder: str, train_iter: int | None = None, env_step: int | None = None, device: str | None = None, **how: Any
) -> None:
    """Resume the serial run in `folder` with the config and the limits that are stored there.

    Args:
        train_iter, env_step: other limits than those of the run.
        how: further arguments of the pipeline.

    Raises:
        ConfigError: the run had objects that no file can hold, or is a parallel one.
        FileNotFoundError: the folder contains no run.
        StateError: there is no state to resume from.
    """
    run, states = RunFolder(folder), list(StateFolder(os.path.join(folder, FOLDER)).states())
    if run.is_parallel:
        raise ConfigError(f"{folder} has a parallel run: start it as before, with its config file and --resume")
    if not states:
        raise StateError(f"there is no state in {folder!r} to resume from; start the run again as before")
    arguments = states[-1].about.get("arguments", {})
    if arguments.get("objects"):
        raise ConfigError(
            f"the run in {folder} had {', '.join(arguments['objects'])} of its own, which its folder cannot hold: "
            "start its script again, with resume=True"
        )
    main, create = run.configs()
    if device is not None:
        main.policy.cuda = cuda_of(device)
    given = {"max_train_iter": train_iter, "max_env_step": env_step}
    limits = {**arguments.get("limits", {}), **{name: limit for name, limit in given.items() if limit is not None}}
    kind = kind_of_pipeline(main, create)
    if kind == "serial_offline":
        limits.pop("max_env_step", None)
        pipeline_named(kind)((main, create), seed=run.seed or 0, resume=True, **limits, **how)
        return
    how["evaluates_end"] = arguments.get("evaluates_end", False)
    pipeline_for(main, create)((main, create), seed=run.seed or 0, resume=True, **limits, **how)


def exp_name_of(path: str, settings: Sequence[str] = ()) -> str:
    """Return the folder that a config file and changes to it name, see `train_config`."""
    main = read_config_directly(path).get("main_config", {})
    for setting in settings:
        change(main, setting)
    return str(main.get("exp_name", "default_experiment"))
