"""The modes of the command `ding`."""

from __future__ import annotations

import contextlib
import functools
import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import click

from ding.config.read import read_config
from ding.entry import dist_entry
from ding.entry.cli_commands import EXPERT_MODES, SERIAL_MODES
from ding.entry.training_command import train_config
from ding.torch_utils.checkpoint_helper import guard_training
from ding.utils.references import on_path

Options = Mapping[str, Any]


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
        _ACTIONS[action](options)


# Training in this process, or from it; evaluating.


def _evaluate(options: Options) -> None:
    from ding.entry.application_entry import eval

    main, create = read_config(os.path.abspath(options["config"]))
    if options["exp_name"] is not None:
        main["exp_name"] = options["exp_name"]
    for seed in options["seed"] or (0,):
        paths = {name: options[name] for name in ("load_path", "replay_path")}
        click.echo(f"seed {seed}: mean return {eval((main, create), seed, **paths):.1f}")


def _train(options: Options) -> None:
    seeds, path, how = options["seed"] or (0,), os.path.abspath(options["config"]), _more(options)
    root = options["exp_name"] or f"{os.path.splitext(os.path.basename(path))[0]}_result"
    for seed in seeds:
        is_alone = len(seeds) == 1
        with contextlib.nullcontext() if is_alone else _working_in(os.path.join(root, f"seed{seed}")):
            train_config(path, seed, exp_name=options["exp_name"] if is_alone else None, **how)


def _more(options: Options) -> dict[str, Any]:
    """Return the further arguments of `train_config`."""
    how = {name: options[name] for name in ("mode", "train_iter", "env_step")}
    if options["resume"]:
        how["resume"] = True
    if options["mode"] == "parallel":
        names = ["enable_total_log", "disable_flask_log"]
        if (options["platform"], options["address"]) != ("local", None):
            names += ["platform", "address"]
        how |= {name: options[name] for name in names}
    if options["mode"] in EXPERT_MODES:
        how["expert_cfg"] = read_config(
            os.path.abspath(options["expert_config"] or click.prompt("Config file of the expert"))
        )
    return how


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
    from ding.entry.checks import UNLIMITED
    from ding.entry.dist_config import read_dist_config

    roles = ("coordinator", "learner", "collector")
    places = [_one_or_all(options[f"{role}_{end}"]) for end in ("host", "port") for role in roles]
    path = dist_entry.dist_prepare_config(
        *(options["config"], _seed(options) or 0, options["platform"], *places),
        exp_name=options["exp_name"],
        max_train_iter=options["train_iter"] or UNLIMITED,
        max_env_step=options["env_step"] or UNLIMITED,
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
    module = options["module"]
    if module == "learner_aggregator":
        place: tuple[Any, ...] = options["aggregator_host"], options["aggregator_port"]
    else:
        name = f"{module.removeprefix('spawn_')}_port"
        place = (_one_or_all(options[name]),)
        if isinstance(place[0], list):
            raise click.UsageError(f"--{name.replace('_', '-')} takes one port here")
    launch = getattr(dist_entry, f"dist_launch_{module}")
    name_and_log = options["module_name"], options["disable_flask_log"]
    with guard_training(None) if module != "spawn_learner" else contextlib.nullcontext():
        worker = launch(options["config"], _seed(options), *place, *name_and_log)
        if worker is None:  # ranks that were spawned have ended
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
    **dict.fromkeys((*SERIAL_MODES, "serial_offline", "parallel"), _train),
    "eval": _evaluate,
    "config": _prepare,
    "coordinator": _coordinate,
    **dict.fromkeys(("learner", "collector", "learner_aggregator", "spawn_learner"), _work),
    **{change: functools.partial(_change, change) for change in _ARGUMENTS},
}
