"""What the command `ding` does: it reads config files, changes values, and calls pipelines, also for several seeds."""

from __future__ import annotations

import contextlib
import functools
import os
import shlex
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import click

from ding.config.read import change, read_config, read_config_directly, read_config_with_system
from ding.entry import dist_entry
from ding.entry.checks import UNLIMITED, cuda_of
from ding.entry.experiment import run_pipeline
from ding.entry.run_folder import RunFolder
from ding.entry.serial_entry import kind_of_pipeline, pipeline_named, pipeline_of, rounds_for
from ding.entry.serial_entry_offline import EpochRounds
from ding.torch_utils.checkpoint_helper import guard_training
from ding.utils.child_helper import Commands
from ding.utils.config_helper import ConfigError
from ding.utils.references import on_path
from ding.utils.state_folder import FOLDER, StateError, StateFolder

Options = Mapping[str, Any]
_writing = threading.Lock()  # so that lines of two seeds are not mixed
# Starts the command as its script does: the current folder hides no installed module.
_COMMAND = (sys.executable, "-c", "import sys; sys.path.remove(''); from ding.entry.cli import cli; cli()")


def run(action: str, options: Options) -> None:
    """Run a mode, or for `dist` a module."""
    with contextlib.ExitStack() as stack:
        if options["profile"] is not None:
            from ding.utils.time_helper import Profiler

            profiler = Profiler()
            profiler.profile(os.path.abspath(options["profile"]))
            stack.callback(profiler.stop)
        if options["config"] is not None:
            stack.enter_context(on_path(os.path.dirname(os.path.abspath(options["config"])), first=True))
        _ACTIONS.get(action, _train)(options)


# Training in this process, or from it; evaluating.


def _evaluate(options: Options) -> None:
    from ding.entry.application_entry import eval

    main, create = read_config(os.path.abspath(options["config"]))
    if options["exp_name"] is not None:
        main["exp_name"] = options["exp_name"]
    for seed in options["seed"] or (0,):
        reached = eval((main, create), seed, load_path=options["load_path"], replay_path=options["replay_path"])
        click.echo(f"seed {seed}: mean return {reached:.1f}")


def _train(options: Options) -> None:
    seeds, path = options["seed"] or (0,), os.path.abspath(options["config"])
    how: dict[str, Any] = {name: options[name] for name in ("mode", "train_iter", "env_step")}
    if options["resume"]:
        how["resume"] = True
    if options["mode"] == "parallel":
        names = ["enable_total_log", "disable_flask_log"]
        if (options["platform"], options["address"]) != ("local", None):
            names += ["platform", "address"]
        how |= {name: options[name] for name in names}
    if options["mode"] in ("serial_sqil", "serial_dqfd"):
        how["expert_cfg"] = read_config(
            os.path.abspath(options["expert_config"] or click.prompt("Config file of the expert"))
        )
    if len(seeds) == 1:
        train_config(path, seeds[0], exp_name=options["exp_name"], **how)
        return
    root = options["exp_name"] or f"{os.path.splitext(os.path.basename(path))[0]}_result"
    for seed in seeds:
        with _working_in(os.path.join(root, f"seed{seed}")):
            train_config(path, seed, **how)


@contextlib.contextmanager
def _working_in(folder: str) -> Iterator[None]:
    before = os.getcwd()
    os.makedirs(folder, exist_ok=True)
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


# The roles of a training on several machines.


def _prepare(options: Options) -> None:
    from ding.entry.dist_config import read_dist_config

    places = [f"{kind}_{what}" for what in ("host", "port") for kind in ("coordinator", "learner", "collector")]
    path = dist_entry.dist_prepare_config(
        options["config"],
        _seed(options) or 0,
        options["platform"],
        exp_name=options["exp_name"],
        max_train_iter=options["train_iter"] or UNLIMITED,
        max_env_step=options["env_step"] or UNLIMITED,
        **{place: _one_or_all(options[place]) for place in places},
    )
    click.echo(f"{path} is written.")
    if options["platform"] == "local":
        for line in _commands(read_dist_config(path).system, path):
            click.echo(line)


def _commands(system: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yield the command for each machine."""
    from ding.config.utils import workers_of
    from ding.interaction.http_client import is_loopback

    places = [("coordinator", "", system["coordinator"])]
    for kind in ("learner", "learner_aggregator", "collector"):
        for name in workers_of(system, kind):
            section = system[name]
            module = "spawn_learner" if section.get("aggregator") else kind
            places.append((module, name, section.get("slave", section)))
    file = shlex.quote(os.path.abspath(path))
    for module, name, section in places:
        more = f" --module-name {name}" if name else ""
        yield f"at {section['host']} (port {_shown(section['port'])}): ding -m dist -M {module}{more} -c {file}"
    if not all(is_loopback(section["host"]) for _, _, section in places):
        yield "Each of them needs the same secret in DING_TOKEN, or in a file that DING_TOKEN_FILE names."


def _shown(port: Any) -> str:
    return ", ".join(map(str, port)) if isinstance(port, (list, tuple)) else str(port)


def _coordinate(options: Options) -> None:
    from ding.entry.parallel_run import drive

    port = options["coordinator_port"]
    cfg = dist_entry.read_coordinator_config(options["config"], _seed(options), port, options["disable_flask_log"])
    outcome = drive(cfg, None, options["enable_total_log"])
    mean_return = outcome.progress.last_return
    click.echo(
        f"{'Solved' if outcome.stop else 'Over'}: mean return {'-' if mean_return is None else f'{mean_return:.1f}'} "
        f"after {outcome.progress.env_steps} env steps, {outcome.progress.train_iter} iterations and "
        f"{outcome.seconds:.1f} s; results are in {os.path.abspath(cfg.main.exp_name)}."
    )


def _work(options: Options) -> None:
    """Launch a worker, and wait until its coordinator is gone or a signal ends this process."""
    module, path, seed = options["module"], options["config"], _seed(options)
    name, is_quiet = options["module_name"], options["disable_flask_log"]
    kind = module.removeprefix("spawn_")
    port = _one_or_all(options["aggregator_port" if kind == "learner_aggregator" else f"{kind}_port"])
    if isinstance(port, list):
        raise click.UsageError(f"--{kind}-port takes one port here")
    with guard_training(None) if module != "spawn_learner" else contextlib.nullcontext():
        worker: Any = None
        if module == "learner_aggregator":
            host = options["aggregator_host"]
            worker = dist_entry.dist_launch_learner_aggregator(path, seed, host, port, name, is_quiet)
        elif module == "collector":
            worker = dist_entry.dist_launch_collector(path, seed, port, name, is_quiet)
        elif module == "learner":
            worker = dist_entry.dist_launch_learner(path, seed, port, name, is_quiet)
        else:
            dist_entry.dist_launch_spawn_learner(path, seed, port, name, is_quiet)
        if worker is None:  # the ranks that were spawned have ended
            return
        with worker:
            click.echo(f"{worker.name} accepts tasks at port {worker.port}.")
            worker.wait()
            click.echo(f"{worker.name} ends: its coordinator is gone.")


# The options that are passed on to the functions which change the workers of a job.
_ARGUMENTS = {
    "add": ("kubeconfig", "replicas", "coordinator_name", "namespace", "cpus", "gpus", "memory"),
    "delete": ("kubeconfig", "replicas", "coordinator_name", "namespace"),
    "restart": ("kubeconfig", "coordinator_name", "namespace", "restart_pod_name"),
}


def _change(change: str, options: Options) -> None:
    ask = getattr(dist_entry, f"dist_{change}_replicas")
    click.echo(ask(options[change], *(options[name] for name in _ARGUMENTS[change])))


def _seed(options: Options) -> int | None:
    return options["seed"][0] if options["seed"] else None


def _one_or_all(values: Any) -> Any:
    """Return the only value of an option that takes several, or a list of them."""
    if not isinstance(values, tuple):
        return values
    return values[0] if len(values) == 1 else list(values)


_ACTIONS: dict[str, Callable[[Options], None]] = {
    "eval": _evaluate,
    "config": _prepare,
    "coordinator": _coordinate,
    **dict.fromkeys(("learner", "collector", "learner_aggregator", "spawn_learner"), _work),
    **{change: functools.partial(_change, change) for change in _ARGUMENTS},
}


# Training with the command `ding train`.


def train_seeds(
    arguments: Sequence[str],
    settings: Sequence[str],
    options: Mapping[str, Any],
    folders: Mapping[int, str | None],
    jobs: int,
) -> None:
    """Run `ding train` for each seed in a process of its own, at most `jobs` at the same time.

    Their output goes to standard error, each line behind its seed. A training that fails leaves the others alone. A
    signal ends all of them after the round under way, and each saves its state as a single one does; the second ends
    them at once. If this process is killed, they receive SIGTERM, on systems with a parent death signal.

    Args:
        settings: `key=value`.
        options: further options by name.
        folders: that of each seed, None for the one that follows from the arguments.

    Raises:
        ConfigError: trainings have failed; the message names their seeds.
    """
    words = [*arguments, *(f"--set={setting}" for setting in settings), *_flags(options)]
    waiting, failed = list(folders), []
    with guard_training(None), Commands() as running:
        while waiting or running:
            while waiting and len(running) < jobs:
                seed = waiting.pop(0)
                seed_options = [f"--seed={seed}", *_flags({"exp_name": folders[seed]})]
                # In a session of its own, so that Ctrl-C reaches this process alone, which tells it once.
                command = [*_COMMAND, "train", *words, *seed_options]
                running.start(seed, command, functools.partial(_show, seed), start_new_session=True)
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
    how |= {name: limit for name, limit in limits.items() if limit is not None}
    pipeline_named(mode)(configs, seed=seed, **how)


def resume_run(
    folder: str,
    train_iter: int | None = None,
    env_step: int | None = None,
    device: str | None = None,
    strict_config: bool = False,
) -> None:
    """Resume the serial run in `folder` with the config and the limits that are stored there.

    Args:
        train_iter, env_step: other limits than those of the run.
        strict_config: see `serial_pipeline`.

    Raises:
        ConfigError: the run had objects that no file can hold, or is a parallel one.
        FileNotFoundError: the folder contains no run.
        StateError: there is no state to resume from.
    """
    run, saved = RunFolder(folder), StateFolder(os.path.join(folder, FOLDER))
    states = list(saved.states())
    if run.is_parallel:
        raise ConfigError(f"{folder} has a parallel run: start it as before, with its config file and --resume")
    if not states:
        saved.read()  # it names damaged ones
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
    limits = arguments.get("limits", {})
    is_offline = kind_of_pipeline(main, create) == "serial_offline"
    run_pipeline(
        EpochRounds if is_offline else rounds_for(main, create),
        (main, create),
        seed=run.seed or 0,
        max_train_iter=limits.get("max_train_iter", UNLIMITED) if train_iter is None else train_iter,
        max_env_step=limits.get("max_env_step", UNLIMITED) if env_step is None or is_offline else env_step,
        resume=True,
        strict_config=strict_config,
        evaluates_end=arguments.get("evaluates_end", False),
    )


def exp_name_of(path: str, settings: Sequence[str] = ()) -> str:
    """Return the folder that a config file and changes to it name, see `train_config`."""
    main = read_config_directly(path).get("main_config", {})
    for setting in settings:
        change(main, setting)
    return str(main.get("exp_name", "default_experiment"))
