"""The modes of the command `ding`."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import click

from ding.entry.cli_commands import EXPERT_MODES, SERIAL_MODES
from ding.entry.dist_config import DistWorker
from ding.entry.dist_entry import (
    dist_add_replicas,
    dist_delete_replicas,
    dist_launch_collector,
    dist_launch_learner,
    dist_launch_learner_aggregator,
    dist_launch_spawn_learner,
    dist_prepare_config,
    dist_restart_replicas,
    read_coordinator_config,
)
from ding.torch_utils.checkpoint_helper import guard_training
from ding.utils.references import on_path

Options = Mapping[str, Any]


def run(action: str, options: Options) -> None:
    """Run a mode, or for `dist` a module."""
    with contextlib.ExitStack() as stack:
        if options["profile"] is not None:
            from ding.utils.profiler_helper import Profiler

            profiler = Profiler()
            profiler.profile(os.path.abspath(options["profile"]))
            stack.callback(profiler.stop)
        if options["config"] is not None:
            stack.enter_context(on_path(os.path.dirname(os.path.abspath(options["config"])), first=True))
        _ACTIONS[action](options)


# Training in this process, or from it; evaluating.


def _evaluate(options: Options) -> None:
    from ding.config.read import read_config
    from ding.entry.application_entry import eval

    main, create = read_config(os.path.abspath(options["config"]))
    if options["exp_name"] is not None:
        main["exp_name"] = options["exp_name"]
    for seed in options["seed"] or (0,):
        paths = {name: options[name] for name in ("load_path", "replay_path")}
        click.echo(f"seed {seed}: mean return {eval((main, create), seed, **paths):.1f}")


def _train(options: Options) -> None:
    seeds = options["seed"] or (0,)
    path = os.path.abspath(options["config"])
    limits = {"max_train_iter": options["train_iter"], "max_env_step": options["env_step"]}
    limits = {name: limit for name, limit in limits.items() if limit is not None}
    if options["resume"]:
        limits["resume"] = True
    train = functools.partial(_train_once, _pipeline(options), path, limits=limits)
    if len(seeds) == 1:
        train(seeds[0], options["exp_name"])
        return
    root = options["exp_name"] or f"{os.path.splitext(os.path.basename(path))[0]}_result"
    for seed in seeds:
        folder = os.path.join(root, f"seed{seed}")
        os.makedirs(folder, exist_ok=True)
        with _working_in(folder):
            train(seed, None)


def _train_once(how: tuple[Any, ...], path: str, seed: int, exp_name: str | None, limits: dict[str, int]) -> None:
    pipeline, read, logs = how
    configs = read(path)
    if exp_name is not None:
        configs[0]["exp_name"] = exp_name
    pipeline(configs, seed=seed, **limits, **logs)


def _pipeline(options: Options) -> tuple[Callable[..., Any], Callable[[str], Any], dict[str, Any]]:
    """Return the pipeline, the function that reads its configs, and its further options."""
    from ding.config.read import read_config, read_config_with_system

    if options["mode"] == "parallel":
        from ding.entry.parallel_entry import parallel_pipeline

        logs = {name: options[name] for name in ("enable_total_log", "disable_flask_log")}
        place = {"platform": options["platform"], "address": options["address"]}
        has_place = place != {"platform": "local", "address": None}
        return parallel_pipeline, read_config_with_system, {**logs, **(place if has_place else {})}
    if options["mode"] in EXPERT_MODES:
        expert = options["expert_config"] or click.prompt("Config file of the expert")
        pipeline = getattr(importlib.import_module("ding.entry"), _PIPELINES[options["mode"]])
        return functools.partial(pipeline, expert_cfg=read_config(os.path.abspath(expert))), read_config, {}
    return getattr(importlib.import_module("ding.entry"), _PIPELINES[options["mode"]]), read_config, {}


_PIPELINES = {
    "serial": "serial_pipeline",
    "serial_onpolicy": "serial_pipeline_onpolicy",
    "serial_offline": "serial_pipeline_offline",
    "serial_sqil": "serial_pipeline_sqil",
    "serial_dqfd": "serial_pipeline_dqfd",
}


@contextlib.contextmanager
def _working_in(folder: str) -> Iterator[None]:
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


# The roles of a training on several machines.


def _prepare(options: Options) -> None:
    from ding.entry.dist_config import read_dist_config
    from ding.entry.progress import UNLIMITED

    path = dist_prepare_config(
        options["config"],
        _seed(options) or 0,
        options["platform"],
        options["coordinator_host"],
        _one_or_all(options["learner_host"]),
        _one_or_all(options["collector_host"]),
        options["coordinator_port"],
        _one_or_all(options["learner_port"]),
        _one_or_all(options["collector_port"]),
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
    cfg = read_coordinator_config(options["config"], _seed(options), port, options["disable_flask_log"])
    outcome = drive(cfg, None, options["enable_total_log"])
    mean_return = outcome.progress.last_return
    click.echo(
        f"{'Solved' if outcome.stop else 'Over'}: mean return {'-' if mean_return is None else f'{mean_return:.1f}'} "
        f"after {outcome.progress.env_steps} env steps, {outcome.progress.train_iter} iterations and "
        f"{outcome.seconds:.1f} s; results are in {os.path.abspath(cfg.main.exp_name)}."
    )


def _learn(options: Options) -> None:
    port = _only(options, "learner_port")
    _serve(lambda: dist_launch_learner(options["config"], _seed(options), port, *_name_and_log(options)))


def _collect(options: Options) -> None:
    port = _only(options, "collector_port")
    _serve(lambda: dist_launch_collector(options["config"], _seed(options), port, *_name_and_log(options)))


def _aggregate(options: Options) -> None:
    place = options["aggregator_host"], options["aggregator_port"]
    _serve(lambda: dist_launch_learner_aggregator(options["config"], _seed(options), *place, *_name_and_log(options)))


def _serve(launch: Callable[[], DistWorker]) -> None:
    """Launch a worker, and wait until its coordinator is gone or a signal ends this process."""
    with guard_training(None), launch() as worker:
        click.echo(f"{worker.name} accepts tasks at port {worker.port}.")
        worker.wait()
        click.echo(f"{worker.name} ends: its coordinator is gone.")


def _spawn(options: Options) -> None:
    port = _only(options, "learner_port")
    dist_launch_spawn_learner(options["config"], _seed(options), port, *_name_and_log(options))


def _add(options: Options) -> None:
    needs = options["cpus"], options["gpus"], options["memory"]
    job = options["coordinator_name"], options["namespace"]
    click.echo(dist_add_replicas(options["add"], options["kubeconfig"], options["replicas"], *job, *needs))


def _delete(options: Options) -> None:
    job = options["coordinator_name"], options["namespace"]
    click.echo(dist_delete_replicas(options["delete"], options["kubeconfig"], options["replicas"], *job))


def _restart(options: Options) -> None:
    job = options["coordinator_name"], options["namespace"]
    click.echo(dist_restart_replicas(options["restart"], options["kubeconfig"], *job, options["restart_pod_name"]))


def _seed(options: Options) -> int | None:
    return options["seed"][0] if options["seed"] else None


def _name_and_log(options: Options) -> tuple[str | None, bool]:
    return options["module_name"], options["disable_flask_log"]


def _one_or_all(values: tuple[Any, ...] | None) -> Any:
    if values is None:
        return None
    return values[0] if len(values) == 1 else list(values)


def _only(options: Options, name: str) -> int | None:
    ports = options[name]
    if ports is not None and len(ports) > 1:
        raise click.UsageError(f"--{name.replace('_', '-')} takes one port here")
    return None if ports is None else int(ports[0])


_ACTIONS: dict[str, Callable[[Options], None]] = {
    **dict.fromkeys((*SERIAL_MODES, "serial_offline", "parallel"), _train),
    "eval": _evaluate,
    "config": _prepare,
    "coordinator": _coordinate,
    "learner": _learn,
    "collector": _collect,
    "learner_aggregator": _aggregate,
    "spawn_learner": _spawn,
    "add": _add,
    "delete": _delete,
    "restart": _restart,
}
