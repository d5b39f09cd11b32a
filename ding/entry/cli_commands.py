"""The commands of `ding` for registries, configs, run folders and envs."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

import ding
from ding.utils.file_helper import beside
from ding.utils.log_helper import shown

_ROOT = Path(ding.__file__).parent
# What examples register is known only in runs of their configs.
_EXAMPLES = _ROOT / "example"
_DECORATOR = re.compile(r"""@(\w+)\.register\(["']([^"']+)["']""")


def show_registries(names: Sequence[str]) -> None:
    """Print the aliases in the registries `names`, or in all if it is empty, with file and line.

    Raises:
        UsageError: a registry is unknown.
    """
    from tabulate import tabulate

    from ding.utils import registry_factory

    registries = registry_factory.registries
    unknown = [name for name in names if name not in registries]
    if unknown:
        raise click.UsageError(
            f"[ERROR]: not support registry name {', '.join(unknown)}; there are: {', '.join([*registries, 'recipes'])}"
        )
    variables = {id(value): variable for variable, value in vars(registry_factory).items()}
    found = registrations(_ROOT, _EXAMPLES)
    for name in names or registries:
        places = found.get(variables[id(registries[name])], {})
        rows = [(alias, f"{file}#{line}") for alias, (file, line) in sorted(places.items())]
        click.echo(f"Available {name}: {len(rows)}")
        click.echo(tabulate(rows, headers=("alias", "file#line"), tablefmt="simple"))


def show_policies() -> None:
    """Print the policies, each with what it is, the actions it chooses, and the pipeline that trains it."""
    from tabulate import tabulate

    import ding.policy  # noqa: F401  # which registers them
    from ding.entry.serial_entry import entry_of
    from ding.utils.config_helper import is_of_package
    from ding.utils.registry_factory import POLICY_REGISTRY

    rows = []
    for name in sorted(POLICY_REGISTRY):
        cls = POLICY_REGISTRY.get(name)
        if is_of_package(cls) and not name.endswith("_command"):
            sentence = " ".join((cls.__doc__ or "").split("\n\n")[0].split())
            summary = re.sub(r" \(https?://\S+\)", "", sentence).rstrip(".")
            rows.append((name, summary, _actions(cls), entry_of(name)))
    click.echo(f"Available policies: {len(rows)}")
    click.echo(tabulate(rows, headers=("policy", "what it is", "actions", "trained by"), tablefmt="simple"))


def _actions(cls: Any) -> str:
    from ding.utils.config_helper import settings_of

    settings = settings_of(cls)
    rule = settings["action_space"].rule if "action_space" in settings else None
    if rule is not None:
        return ", ".join(kind for kind in ("discrete", "continuous", "hybrid") if rule(kind) is None)
    if "continuous" in settings:
        return "discrete, continuous"
    return "continuous" if cls.has_discrete_actions is False else "discrete"


def show_recipes() -> None:
    """Print the recipes, each with policy, envs, measured results, and file."""
    from tabulate import tabulate

    from ding.entry.recipes import all_recipes

    rows = []
    for recipe in all_recipes():
        measured = "; ".join(f"{env_id}: {outcome}" for env_id, outcome in recipe.measured.items()) or "not measured"
        rows.append((recipe.name, recipe.policy, " ".join(recipe.envs), measured))
    click.echo(f"Available recipes: {len(rows)}, in {_ROOT / 'recipes'}")
    click.echo(tabulate(rows, headers=("recipe", "policy", "envs", "measured"), tablefmt="simple"))


def registrations(root: Path, *left_out: Path) -> dict[str, dict[str, tuple[str, int]]]:
    """Return what the decorators `@SOME_REGISTRY.register("alias")` in the files under `root` register.

    Each policy is there with its command mode, too, as `<alias>_command`.

    Args:
        left_out: folders to leave out.

    Returns:
        A dict `{"SOME_REGISTRY": {alias: (file, line of the decorator)}}`.
    """
    found: dict[str, dict[str, tuple[str, int]]] = {}
    for path in sorted(root.rglob("*.py")):
        if any(folder in path.parents for folder in left_out):
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if match := _DECORATOR.match(line):
                found.setdefault(match[1], {})[match[2]] = str(path), number
    policies = found.get("POLICY_REGISTRY", {})
    for alias, place in [*policies.items()]:
        if not alias.endswith("_command"):  # derived if it has no class of its own
            policies.setdefault(f"{alias}_command", place)
    return found


PIPELINES = ("serial", "serial_onpolicy", "serial_offline", "parallel")
_EXP = click.argument("exp", type=click.Path(exists=True, file_okay=False))
_CHECKPOINT = click.option("--checkpoint", help="Name, iteration or path; by default the best.")
_OUT = click.Path(dir_okay=False)
_DEVICE = click.option("--device", help="cpu, cuda, one GPU as cuda:1, or auto; by default that of the run, or cpu.")
_SEEDS = click.option("-s", "--seed", "seeds", type=click.IntRange(0), multiple=True, help="A seed, or several: 0 1 2.")
_SETTINGS = click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE",
    help="A value, such as policy.learn.batch_size=128; with POLICY ENV also by its name, as in learning_rate=3e-4.",
)  # fmt: skip
_ITERATIONS = click.option("--train-iter", type=click.IntRange(1), help="Iterations after which no new round begins.")
_STEPS = click.option("--env-step", "--env-steps", type=click.IntRange(1), help="The same for env steps.")


class _SeveralSeeds(click.Command):
    """A command that takes `--seed 0 1 2` as `--seed 0 --seed 1 --seed 2`, and each seed once."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words: list[str] = []
        for word in args:
            is_next = word.isdecimal() and len(words) > 1 and words[-2] in ("-s", "--seed")
            words += ["--seed", word] if is_next else [word]
        rest = super().parse_args(ctx, words)
        seeds = ctx.params.get("seeds", ())
        if twice := sorted({seed for seed in seeds if seeds.count(seed) > 1}):
            raise click.UsageError(f"--seed {twice[0]} is given twice; give each seed once")
        return rest


@click.command(cls=_SeveralSeeds)
@click.argument("config", metavar="CONFIG|POLICY")
@click.argument("env", required=False)
@_SEEDS
@click.option("-j", "--jobs", type=click.IntRange(1), default=1, help="How many seeds train at the same time.")
@_SETTINGS
@click.option("--mode", type=click.Choice(PIPELINES), help="The pipeline; by default the one that the config needs.")
@click.option("--exp-name", help="The folder of the run; by default exp_name in the config.")
@_ITERATIONS
@_STEPS
@click.option("--stop-value", type=float, help="With POLICY ENV: the mean return that ends the training.")
@click.option("--num-envs", type=click.IntRange(1), help="With POLICY ENV: envs that collect.")
@click.option("--parallel", type=click.IntRange(1), help="With POLICY ENV: collectors, each in a process of its own.")
@click.option(
    "--normalize", is_flag=False, flag_value="all", type=click.Choice(("all", "obs", "reward")),
    help="With POLICY ENV: normalize observations and rewards by running statistics, or one of them.",
)  # fmt: skip
@click.option("--recipe", help="With POLICY ENV: the name of a recipe, or none; by default the one that fits.")
@_DEVICE
@click.option("--resume", is_flag=True, help="Resume from the newest state in the folder, if any.")
@click.option("--strict-config/--no-strict-config", default=True, help="Whether keys that nothing reads are errors.")
def train(
    config: str, env: str | None, seeds: tuple[int, ...], jobs: int, settings: tuple[str, ...], **options: Any
) -> None:
    """Train with a config file, or a policy on an env.

    CONFIG is a file; POLICY ENV are names, as in `ding train ppo CartPole-v1 --env-steps 100000`. With --resume it may
    be the folder of a run, which goes on with its config and up to its limits: `ding train --resume FOLDER`.
    """
    if env is None:
        for name in ("stop_value", "num_envs", "normalize", "recipe", "parallel"):
            if options.pop(name) is not None:
                raise click.UsageError(f"--{name.replace('_', '-')} needs POLICY ENV; a config has a key for it")
        if os.path.isdir(config):
            _resume(config, {"seed": seeds, "jobs": jobs > 1, "set": settings}, options)
            return
        if not os.path.isfile(config) and options["resume"]:
            raise click.UsageError(f"there is no config file or folder of a run {config!r} to resume")
        if not os.path.isfile(config):
            raise click.UsageError(
                f"there is no config file {config!r}; to train a policy, name its env, too: "
                f"ding train {config} CartPole-v1"
            )
    seeds = seeds or (0,)
    with _folder_of(config) if env is None else contextlib.nullcontext():
        folders = _folders_of(seeds, config, env, settings, options.pop("exp_name"))
        if jobs > 1 and len(seeds) > 1:
            from ding.entry.cli_modes import train_seeds

            train_seeds([config, *([] if env is None else [env])], settings, options, folders, jobs)
            return
        for seed, exp_name in folders.items():
            if env is None:
                from ding.entry.cli_modes import train_config

                train_config(config, seed, settings, exp_name=exp_name, **options)
            else:
                _train_policy(config, env, seed, settings, exp_name, options)


def _resume(folder: str, others: dict[str, Any], options: dict[str, Any]) -> None:
    from ding.entry.cli_modes import resume_run

    if not options.pop("resume"):
        raise click.UsageError(f"{folder!r} is a folder: `ding train --resume {folder}` resumes the run in it")
    for name in ("mode", "exp_name"):
        others[name] = options.pop(name)
    for name, value in others.items():
        if value:
            raise click.UsageError(f"--{name.replace('_', '-')} has no effect on a run that resumes; leave it out")
    resume_run(folder, **options)


def _train_policy(
    policy: str, env: str, seed: int, settings: tuple[str, ...], exp_name: str | None, options: dict[str, Any]
) -> None:
    from ding.entry.training import train
    from ding.utils.config_helper import ConfigError

    config, named_settings = _values_of(settings)
    named = named_settings.pop("exp_name", None)
    options = {name: value for name, value in options.items() if name != "strict_config"}
    mode, recipe, normalize = (options.pop(name) for name in ("mode", "recipe", "normalize"))
    if mode not in (None, "parallel"):
        raise ConfigError(f"--mode {mode} is not allowed with a policy and an env, which decide it; leave it out")
    arguments = {
        "policy": policy,
        "env": env,
        "seed": seed,
        "folder": exp_name or named,
        "env_steps": options.pop("env_step"),
        "iterations": options.pop("train_iter"),
        "parallel": options.pop("parallel") or mode == "parallel",
        "normalize": {None: False, "all": True}.get(normalize, normalize),
        "recipe": recipe != "none" if recipe in (None, "none") else recipe,
        "config": config,
    }
    train(**(arguments | options | named_settings))


def _values_of(settings: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the values of settings by dotted key, and those by name."""
    from ding.config.read import read_setting

    values = dict(map(read_setting, settings))
    if "exp_name" in values:
        values["exp_name"] = str(values["exp_name"])
    return {key: values.pop(key) for key in list(values) if "." in key}, values


def _folders_of(
    seeds: tuple[int, ...], config: str, env: str | None, settings: tuple[str, ...], exp_name: str | None
) -> dict[int, str | None]:
    """Return the folder of each seed, None for that of the config, or of the policy and the env."""
    if len(seeds) > 1 and exp_name is None:
        from ding.entry.cli_modes import exp_name_of

        exp_name = exp_name_of(config, settings) if env is None else _values_of(settings)[1].get("exp_name")
    if len(seeds) == 1 or exp_name is None:
        return dict.fromkeys(seeds, exp_name)
    return {seed: beside(exp_name, f"seed{seed}") for seed in seeds}


@click.command(cls=_SeveralSeeds)
@click.argument("config", metavar="CONFIG|POLICY")
@click.argument("env", required=False)
@click.option("--search", multiple=True, metavar="NAME=RANGE", help="As learning_rate=1e-4:1e-2:log, batch_size=32,64.")
@click.option("-n", "--trials", type=click.IntRange(1), default=20, help="How many trials; 20 by default.")
@_SEEDS
@_SETTINGS
@click.option("--exp-name", help="The folder of the study, which continues if it exists.")
@_ITERATIONS
@_STEPS
@click.option("--prune/--no-prune", default=True, help="Whether bad trials end early, as by default.")
def tune(config: str, env: str | None, search: tuple[str, ...], settings: tuple[str, ...], **options: Any) -> None:
    """Search for the best settings, by Optuna.

    CONFIG is a file, whose search_space is searched, too, by dotted keys; POLICY ENV are names. The study folder gets
    the best config, and each trial's training.
    """
    from ding.entry.checks import UNLIMITED
    from ding.entry.tuning import read_space, tune, tune_config

    (dotted, named), space = _values_of(settings), read_space(search)
    train_iter, env_step, folder = (options.pop(name) for name in ("train_iter", "env_step", "exp_name"))
    how = {**options, "seeds": options["seeds"] or (0,), "folder": folder}
    if env is not None:
        tune(config, env, space, **how, iterations=train_iter, env_steps=env_step, config=dotted, **named)
        return
    if not os.path.isfile(config):
        raise click.UsageError(f"there is no config file {config!r}; to tune a policy, name its env, too")
    with _folder_of(config):
        max_train_iter, max_env_step = train_iter or UNLIMITED, env_step or UNLIMITED
        values = {**named, **dotted}
        tune_config(config, space, **how, settings=values, max_train_iter=max_train_iter, max_env_step=max_env_step)


def _folder_of(config: str) -> contextlib.AbstractContextManager[None]:
    """Let the block find the modules beside a config, as a script finds those beside it."""
    from ding.utils.references import on_path

    return on_path(os.path.dirname(os.path.abspath(config)), first=True)


@click.command(name="eval")
@_EXP
@click.option("-n", "--episodes", type=click.IntRange(1), help="How many episodes; by default as in the training.")
@_CHECKPOINT
@click.option("-s", "--seed", type=click.IntRange(0), help="Of the envs; by default that of the training.")
@_DEVICE
def evaluate(exp: str, episodes: int | None, checkpoint: str | None, seed: int | None, device: str | None) -> None:
    """Evaluate a trained policy, greedily.

    EXP is the folder of the training.
    """
    import numpy as np
    from tabulate import tabulate

    from ding.entry.training import evaluate_run

    result = evaluate_run(exp, episodes, checkpoint, seed, device=device)
    rows = [(i, f"{r:.1f}", length) for i, (r, length) in enumerate(zip(result.returns, result.lengths, strict=True))]
    click.echo(tabulate(rows, headers=("episode", "return", "steps"), tablefmt="simple", disable_numparse=True))
    returns = np.array(result.returns)
    click.echo(
        f"mean return {returns.mean():.1f}, standard deviation {returns.std():.1f}, "
        f"from {returns.min():.1f} to {returns.max():.1f}, over {len(returns)} episodes"
    )
    if result.success_rate is not None:
        click.echo(f"success rate {result.success_rate:.2f}")


@click.command()
@_EXP
@click.option("-o", "--out", type=_OUT, help="The file, .mp4 or .gif; EXP/video.mp4 by default.")
@click.option("-n", "--episodes", type=click.IntRange(1), default=1, help="How many episodes; 1 by default.")
@_CHECKPOINT
@click.option("-s", "--seed", type=click.IntRange(0), help="Of the env; by default that of the training.")
def record(exp: str, out: str | None, episodes: int, checkpoint: str | None, seed: int | None) -> None:
    """Record a video of a trained policy.

    EXP is the folder of the training.
    """
    from ding.entry.run_folder import RunFolder
    from ding.entry.trained import save_videos

    folder = RunFolder(exp)
    path, seed = folder.checkpoint(checkpoint), (folder.seed or 0) if seed is None else seed
    target = out or os.path.join(exp, "video.mp4")
    files, result = save_videos(folder.configs(), target, episodes, seed, load_path=path)
    for file, episode_return in zip(files, result.returns, strict=False):
        click.echo(f"{file}: return {episode_return:.1f}")


@click.command()
@_EXP
@click.option("-o", "--out", type=_OUT, help="The file, .pt or .onnx; EXP/policy.pt by default.")
@_CHECKPOINT
def export(exp: str, out: str | None, checkpoint: str | None) -> None:
    """Export a trained policy to TorchScript or ONNX.

    EXP is the folder of the training. The file takes a batch of observations and returns the greedy actions.
    """
    from ding.entry.training import Training

    click.echo(f"{Training.load(exp).export(out, checkpoint)} is written.")


@click.command()
@click.argument("exp", type=click.Path(exists=True, file_okay=False), nargs=-1, required=True)
@click.option("-o", "--out", type=_OUT, default="curves.png", help="The file: .png, .svg or .pdf.")
@click.option("-x", "--axis", type=click.Choice(["env_step", "train_iter"]), default="env_step", help="The x axis.")
@click.option("--title", help="The title of the plot.")
@click.option("--metric", help="A metric in metrics.jsonl, such as learner/total_loss_avg; by default the returns.")
def plot(exp: tuple[str, ...], out: str, axis: Any, title: str | None, metric: str | None) -> None:
    """Draw learning curves.

    EXP are folders of trainings, or folders that contain them. Trainings that differ only in their seeds make one
    curve: the interquartile mean with a 95 % bootstrap interval.
    """
    from ding.entry.curves import draw, read_curves, table

    curves = read_curves(exp, axis, metric)
    draw(curves, out, axis, title, metric)
    click.echo(table(curves, axis, metric))
    click.echo(f"{out} is written.")


@click.command(name="list")
@click.argument("registry", nargs=-1)
def list_registries(registry: tuple[str, ...]) -> None:
    """List policies, envs, buffers, recipes, ...

    REGISTRY is the name of a registry, such as policy, env or buffer; by default all are listed, with file and line.
    `policy` tells of each policy what it is, which actions it chooses and which pipeline trains it; `recipes` are the
    configs that `ding train POLICY ENV` takes.
    """
    if not registry:
        show_registries(())
    for name in registry:
        show = {"recipes": show_recipes, "policy": show_policies}.get(name)
        if show is None:
            show_registries((name,))
        else:
            show()


@click.command()
@click.argument("config", type=click.Path(exists=True, dir_okay=False))
@click.argument("prefix", default="")
@click.option("--changed", is_flag=True, help="Only values that the config file sets.")
def show(config: str, prefix: str, changed: bool) -> None:
    """Show a compiled config and the origin of its values.

    CONFIG is compiled with all defaults; PREFIX, such as policy.learn, shows a part of it.
    """
    from tabulate import tabulate

    from ding.entry.describe import CREATE, MAIN, origins

    with _folder_of(config):
        values = origins(config)
    rows = [
        (key, shown(value), origin)
        for key, (value, origin) in values.items()
        if (key == prefix or key.startswith(prefix and f"{prefix}.")) and (not changed or origin in (MAIN, CREATE))
    ]
    if not rows:
        raise click.UsageError(f"the config has nothing under {prefix!r}")
    click.echo(tabulate(rows, headers=("key", "value", "from"), tablefmt="plain", disable_numparse=True))


@click.command(name="check-env")
@click.argument("env")
def check_env(env: str) -> None:
    """Check an env against the contract of BaseEnv.

    ENV is the id of a gymnasium env, or module:Class.
    """
    from ding.entry.describe import check_env as run_checks

    problems = 0
    for what, problem in run_checks(env):
        click.echo(f"{'ok  ' if problem is None else 'FAIL'} {what}{'' if problem is None else f': {problem}'}")
        problems += problem is not None
    if problems:
        raise SystemExit(1)


@click.command()
@_EXP
def state(exp: str) -> None:
    """Show the states that a training can resume from.

    EXP is the folder of the training.
    """
    from tabulate import tabulate

    rows, notes = show_states(exp)
    headers = ("state", "saved", "why", "iteration", "env steps", "return", "size", "exact")
    click.echo(tabulate(rows, headers=headers, tablefmt="simple", disable_numparse=True))
    for note in notes:
        click.echo(note)


def show_states(exp: str) -> tuple[list[tuple[str, ...]], list[str]]:
    """Return a row for each state of a run, and notes about the newest state; nothing else in the states is read.

    A row has file, time, reason, iteration, env steps, mean return, size, and whether the state is exact, as texts.

    Raises:
        StateError: there is no readable state.
    """
    from ding.utils.state_folder import FOLDER, StateError, StateFolder

    path = os.path.join(exp, FOLDER)
    states = list(StateFolder(path).states())
    if not states:
        StateFolder(path).read()  # it names damaged ones
        raise StateError(f"there is no state in {path!r}")
    rows: list[tuple[str, ...]] = []
    for saved in states:
        about = saved.about
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(about["time"]))
        mean_return = "-" if about["last_return"] is None else f"{about['last_return']:.1f}"
        counts = str(about["train_iter"]), str(about["env_step"])
        size, exact = f"{saved.size_bytes / 1e6:.1f} MB", "yes" if about["is_exact"] else "no"
        rows.append((os.path.basename(saved.path), when, about["reason"], *counts, mean_return, size, exact))
    newest = states[-1].about
    versions = ", ".join(f"{name} {version}" for name, version in newest["versions"].items())
    return rows, [f"Written with {versions}.", *(f"Not exact: {reason}" for reason in newest["inexact"])]


COMMANDS = (train, tune, evaluate, record, export, plot, list_registries, show, check_env, state)
