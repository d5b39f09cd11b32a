"""The command `ding train`: it reads a config file, changes values, and calls pipelines, also for several seeds."""

from __future__ import annotations

import ast
import importlib
import math
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import click
from easydict import EasyDict

from ding.config.read import read_config, read_config_directly, read_config_with_system
from ding.torch_utils.checkpoint_helper import guard_training
from ding.utils.child_helper import Commands
from ding.utils.config_helper import ConfigError

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


# Policies that learn from demonstrations of an expert, with their pipelines, and those that learn only from a data set.
_FROM_EXPERTS = {"bc": "serial_pipeline_bc", "dqfd": "serial_pipeline_dqfd"}
_OFFLINE = ("cql", "discrete_cql", "td3_bc", "iql")


def train_config(
    path: str,
    seed: int = 0,
    settings: Sequence[str] = (),
    mode: str | None = None,
    exp_name: str | None = None,
    train_iter: int | None = None,
    env_step: int | None = None,
    resume: bool = False,
    strict_config: bool = True,
) -> None:
    """Train with a config file.

    Args:
        settings: changes to the main config, texts `key=value`.
        mode: the pipeline, `serial`, `serial_onpolicy`, `serial_offline` or `parallel`; None for the pipeline that the
            config needs.
        resume: whether to resume from the newest state in the folder, if any.
        strict_config: whether keys that nothing reads raise an error instead of logging a warning.

    Raises:
        ConfigError: a setting is malformed, or the pipeline refuses the config.
    """
    mode = mode or pipeline_of(path)
    configs = read_config_with_system(path) if mode == "parallel" else read_config(path)
    for setting in settings:
        change(configs[0], setting)
    if exp_name is not None:
        configs[0]["exp_name"] = exp_name
    limits = {"max_train_iter": train_iter, "max_env_step": env_step}
    if mode == "serial_offline" and limits.pop("max_env_step") is not None:
        raise ConfigError("--env-step has no effect on training from a data set; use --train-iter")
    given = {name: limit for name, limit in limits.items() if limit is not None}
    pipeline_named(mode)(configs, seed=seed, **given, resume=resume, strict_config=strict_config)


def pipeline_named(mode: str) -> Callable[..., Any]:
    """Return the pipeline of a mode, such as `serial_pipeline_onpolicy` of `serial_onpolicy`."""
    name = "parallel_pipeline" if mode == "parallel" else mode.replace("serial", "serial_pipeline")
    pipeline: Callable[..., Any] = getattr(importlib.import_module("ding.entry"), name)
    return pipeline


def exp_name_of(path: str, settings: Sequence[str] = ()) -> str:
    """Return the folder that a config file and changes to it name, see `train_config`."""
    main = read_config_directly(path).get("main_config", {})
    for setting in settings:
        change(main, setting)
    return str(main.get("exp_name", "default_experiment"))


def pipeline_of(path: str) -> str:
    """Return the name of the pipeline that a config file needs; `parallel` if it has a `system_config`.

    Raises:
        KeyError: the policy is not registered.
    """
    if "system_config" in read_config_directly(path):
        return "parallel"
    return kind_of_pipeline(*read_config(os.path.abspath(path)))


def kind_of_pipeline(main: Mapping[str, Any], create: Mapping[str, Any]) -> str:
    """Return the pipeline that the policy of two configs needs: `serial`, `serial_onpolicy` or `serial_offline`.

    Raises:
        KeyError: the policy is not registered.
    """
    from ding.config.config import resolve_class

    kind = str(create.get("policy", {}).get("type", "")).removesuffix("_command")
    if kind in _OFFLINE:
        return "serial_offline"
    defaults = resolve_class("policy", create.get("policy", {})).default_config()
    on_policy = main.get("policy", {}).get("on_policy", defaults.get("on_policy", False))
    return "serial_onpolicy" if on_policy else "serial"


def pipeline_for(main: Mapping[str, Any], create: Mapping[str, Any]) -> Callable[..., Any]:
    """Return the function that trains with two configs in this process and returns the run.

    Raises:
        ConfigError: the policy learns from a data set or from an expert.
        KeyError: the policy is not registered.
    """
    from ding.entry.serial_entry import run_serial, run_serial_onpolicy

    name = str(create["policy"]["type"]).removesuffix("_command")
    if name in _FROM_EXPERTS:
        raise ConfigError(f"policy = {name!r} learns from demonstrations of an expert: use {_FROM_EXPERTS[name]}")
    kind = kind_of_pipeline(main, create)
    if kind == "serial_offline":
        raise ConfigError(f"policy = {name!r} learns from a data set, not from an env: use serial_pipeline_offline")
    return run_serial if kind == "serial" else run_serial_onpolicy


_WORDS: dict[str, Any] = {"inf": math.inf, "-inf": -math.inf, "true": True, "false": False, "null": None}


def change(cfg: Any, setting: str) -> None:
    """Set one value in place; see `read_setting`.

    Raises:
        ConfigError: the setting is malformed, or a part of its path is not a section.
    """
    put(cfg, *read_setting(setting), f"--set {setting!r}")


def read_setting(setting: str) -> tuple[str, Any]:
    """Return the key and the value of a setting, as in `policy.learn.batch_size=128`.

    The value is a Python literal, `inf`, `-inf`, or `true`, `false` or `null` as in YAML, else a string.

    Raises:
        ConfigError: the setting is malformed.
    """
    key, equals, text = setting.partition("=")
    names = key.strip().split(".")
    if not equals or not all(name.isidentifier() and not hasattr(EasyDict, name) for name in names):
        raise ConfigError(f"--set {setting!r} is not allowed; it must be key=value, as policy.learn.batch_size=128")
    if names == ["seed"]:
        raise ConfigError(f"--set {setting!r} is not allowed, for --seed sets the seed of all parts; use --seed")
    return ".".join(names), read_value(text)


def read_value(text: str) -> Any:
    """Return the value that a text stands for; see `read_setting`."""
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError):
        return _WORDS.get(text.strip(), text.strip())


def put(cfg: Any, key: str, value: Any, what: str = "") -> None:
    """Set the value at a dotted key in place; missing sections are made.

    Args:
        what: the setting in words, for error messages.

    Raises:
        ConfigError: a part of the path is not a section.
    """
    names = key.split(".")
    for depth, name in enumerate(names[:-1], 1):
        cfg = cfg.setdefault(name, {})
        if not hasattr(cfg, "setdefault"):
            section = ".".join(names[:depth])
            raise ConfigError(f"{what or f'{key} = {value!r}'} is not allowed: {section} is {cfg!r}, not a section")
    cfg[names[-1]] = value
