"""The command `ding`; a mode imports its modules when it runs."""

from __future__ import annotations

import os
import pickle
import sys
import traceback
from typing import Any

import click

import ding
from ding.entry.cli_commands import COMMANDS

MODES = ("serial", "serial_onpolicy", "serial_sqil", "serial_dqfd", "serial_offline", "eval", "parallel", "dist")
MODULES = ("config", "coordinator", "learner", "collector", "learner_aggregator", "spawn_learner")
KINDS = ("collector", "learner")

# Options that are required to change the workers of a job.
_NEEDS = {
    **dict.fromkeys(("add", "delete"), ("coordinator_name", "namespace")),
    "restart": ("coordinator_name", "namespace", "restart_pod_name"),
}


def _count(value: str) -> int:
    """Convert a whole number, which may be written as 1e5."""
    number = float(value)
    if not (number >= 1 and number.is_integer()):
        raise ValueError
    return int(number)


def _ports(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def _hosts(text: str) -> tuple[str, ...]:
    return tuple(map(str.strip, text.split(",")))


def _show_registries(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> None:
    if not value or ctx.resilient_parsing:
        return
    from ding.entry.cli_commands import show_registries

    show_registries(value)
    ctx.exit()


class _Ding(click.Group):
    """The group of commands, which find modules of the current folder, and print errors about the input in one line.

    Other errors, and all errors with `--traceback`, print the traceback.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands in the order in which they are listed."""
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        from ding.utils.references import on_path

        try:
            with on_path(os.getcwd()):
                return super().invoke(ctx)
        except KeyboardInterrupt:  # also during an import before the run, or of a command that trains nothing
            raise SystemExit(130) from None
        except Exception as e:  # of any code of users; only those about the input are shortened
            from ding.utils.config_helper import ConfigError

            if ctx.params.get("traceback") or not _is_about_input(e):
                raise
            text = str(e.args[0] if isinstance(e, KeyError) else e)
            if not isinstance(e, ConfigError):  # which has a line for each key; those of torch are broken anywhere
                text = " ".join(map(str.strip, text.splitlines()))
            raise click.ClickException(text) from e


def _is_about_input(error: Exception) -> bool:
    """Return whether the error is about the user's input or disk, and not about code such as an env or a policy."""
    from ding.utils.config_helper import ConfigError

    envs = sys.modules.get("ding.envs.env.base_env")  # it loads torch, but without it no env has returned anything
    kinds = (ConfigError,) if envs is None else (ConfigError, envs.EnvOutputError)
    if isinstance(error, kinds) or isinstance(error.__cause__, kinds):
        return True
    # The module that raised it, or that called the standard library, which did.
    calls = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    others = (name for name in reversed(calls) if name.partition(".")[0] not in sys.stdlib_module_names)
    module = next(others, "")
    if isinstance(error, RuntimeError):  # of weights that do not fit, and of kubectl
        return module in ("ding.entry.experiment", "ding.entry.dist_entry")
    is_ours = isinstance(error, _INPUT_ERRORS) and module.startswith("ding.")
    return is_ours or type(error).__module__ == "gymnasium.error"  # of an id, or of a package that the env needs


_INPUT_ERRORS = (OSError, ImportError, KeyError, ValueError, FloatingPointError, pickle.UnpicklingError)


_FILE = click.Path(exists=True, dir_okay=False)


@click.group(
    cls=_Ding,
    commands=list(COMMANDS),
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
@click.version_option(
    ding.__VERSION__, "-v", "--version", message=f"{ding.__TITLE__}, version %(version)s.\n{ding.__DESCRIPTION__}."
)
@click.option(
    "-q", "--query-registry", multiple=True, expose_value=False, is_eager=True, callback=_show_registries,
    help="List a registry.",
)  # fmt: skip
@click.option("-m", "--mode", type=click.Choice(MODES), help="What to do.")
@click.option("-c", "--config", type=_FILE, help="Config file; for roles of -m dist what -M config has written.")
@click.option("-s", "--seed", type=click.IntRange(0), multiple=True, help="Seed, 0 by default; several train in turn.")
@click.option("--exp-name", help="Instead of exp_name in the config; with several seeds, the folder for all.")
@click.option("--train-iter", type=_count, metavar="NUMBER", help="Iterations after which no new round begins.")
@click.option("--env-step", type=_count, metavar="NUMBER", help="Env steps after which no new round begins.")
@click.option("--resume", is_flag=True, help="Resume from the newest state in the folder, if any.")
@click.option("--expert-config", type=_FILE, help="For serial_sqil and serial_dqfd; prompted for if missing.")
@click.option("--load-path", type=_FILE, help="For eval: the checkpoint.")
@click.option("--replay-path", type=click.Path(file_okay=False), help="For eval: a folder for videos.")
@click.option("--profile", type=click.Path(file_okay=False), help="Folder for a profile of this process.")
@click.option("--enable-total-log", type=bool, default=False, help="Whether the coordinator writes its log.")
@click.option("--disable-flask-log", type=bool, default=True, help="Whether Flask servers log errors only.")
@click.option("-P", "--platform", type=click.Choice(["local", "k8s", "ray"]), default="local", help="Where to run.")
@click.option("--address", help="For -m parallel -P ray: the cluster to join; by default a new one is started.")
@click.option("-M", "--module", type=click.Choice(MODULES), help="For -m dist: the role, or 'config'.")
@click.option("--module-name", help="The name of the worker, such as learner0.")
@click.option("-cdh", "--coordinator-host", help="For -M config: where the coordinator listens.")
@click.option("-cdp", "--coordinator-port", type=click.IntRange(1, 65535), help="Port of the coordinator.")
@click.option("-lh", "--learner-host", type=_hosts, metavar="HOST[,...]", help="For -M config: where learners listen.")
@click.option("-lp", "--learner-port", type=_ports, metavar="PORT[,...]", help="Port of learners.")
@click.option("-clh", "--collector-host", type=_hosts, metavar="HOST[,...]", help="Where collectors listen.")
@click.option("-clp", "--collector-port", type=_ports, metavar="PORT[,...]", help="Port of collectors.")
@click.option("-agh", "--aggregator-host", help="Where the aggregator listens.")
@click.option("-agp", "--aggregator-port", type=click.IntRange(1, 65535), help="Port of the aggregator.")
@click.option("--add", type=click.Choice(KINDS), help="On Kubernetes: add workers.")
@click.option("--delete", type=click.Choice(KINDS), help="On Kubernetes: remove workers.")
@click.option("--restart", type=click.Choice(KINDS), help="On Kubernetes: restart a worker.")
@click.option("--kubeconfig", type=_FILE, help="For kubectl.")
@click.option("-cdn", "--coordinator-name", help="The pod of the coordinator.")
@click.option("-ns", "--namespace", help="The namespace of the job.")
@click.option("-rs", "--replicas", type=click.IntRange(1), default=1, help="How many workers; 1 by default.")
@click.option("-rpn", "--restart-pod-name", help="The pod to restart.")
@click.option("--cpus", type=click.IntRange(0), default=0, help="CPUs of each added worker.")
@click.option("--gpus", type=click.IntRange(0), default=0, help="GPUs of each added worker.")
@click.option("--memory", help="Memory of each added worker, such as 4Gi.")
@click.option("--traceback", is_flag=True, help="Print the traceback of errors about configs and files, too.")
@click.pass_context
def cli(ctx: click.Context, /, **options: Any) -> None:
    """Train policies by reinforcement learning, evaluate them and plot their learning curves.

    `ding COMMAND --help` tells the arguments and options of a command.

    Exit status: 0 on success, 1 after an error, 2 for wrong options, 130 after Ctrl-C or SIGTERM.
    """
    if ctx.invoked_subcommand is not None:
        return
    mode = options["mode"]
    if mode is None:
        raise click.UsageError(f"Please indicate at least one argument: -m with one of {', '.join(MODES)}.")
    action = str(mode)
    if mode == "dist":
        changes = [change for change in ("add", "delete", "restart") if options[change]]
        actions = [*([options["module"]] if options["module"] else []), *changes]
        if len(actions) != 1:
            raise click.UsageError(
                f"-m dist needs -M with one of {', '.join(MODULES)}, or --add, --delete or --restart"
            )
        if len(options["seed"]) > 1:
            raise click.UsageError("-m dist takes one seed")
        action = actions[0]
    if options["config"] is None and action not in (*_NEEDS, "learner_aggregator"):
        raise click.UsageError(f"give a config file with -c for -m {mode}")
    for name in _NEEDS.get(action, ()):
        if not options[name]:
            raise click.UsageError(f"give --{name.replace('_', '-')} with --{action}")
    from ding.entry.cli_modes import run

    run(action, options)


if __name__ == "__main__":
    cli(prog_name="ding")
