"""The command `ding`; a mode imports its modules when it runs."""

from __future__ import annotations

import errno
import os
import pickle
import sys
import traceback
from collections.abc import Callable
from typing import Any

import click
from click.core import ParameterSource

from ding.entry.cli_commands import COMMANDS, EXPERT_MODES, SERIAL_MODES

MODES = (*SERIAL_MODES, "serial_offline", "eval", "parallel", "dist")
MODULES = ("config", "coordinator", "learner", "collector", "learner_aggregator", "spawn_learner")
KINDS = ("collector", "learner")

_TRAIN = {"exp_name", "train_iter", "env_step", "resume"}
_LOGS = {"enable_total_log", "disable_flask_log"}
_PLACES = {f"{role}_{end}" for role in ("coordinator", "learner", "collector") for end in ("host", "port")}
_JOB = {"kubeconfig", "coordinator_name", "namespace"}
# The options of each action; the options in `_ALWAYS` apply to all of them.
_ALWAYS = {"mode", "module", "config", "seed", "profile", "platform", "add", "delete", "restart", "traceback"}
_COUNTS: dict[str, set[str]] = {
    **dict.fromkeys(SERIAL_MODES, _TRAIN),
    **dict.fromkeys(EXPERT_MODES, _TRAIN | {"expert_config"}),
    "serial_offline": {"exp_name", "train_iter", "resume"},
    "eval": {"exp_name", "load_path", "replay_path"},
    "parallel": _TRAIN | _LOGS | {"address"},
    "config": _TRAIN - {"resume"} | _PLACES,
    "coordinator": _LOGS | {"coordinator_port"},
    "learner": {"learner_port", "module_name", "disable_flask_log"},
    "spawn_learner": {"learner_port", "module_name", "disable_flask_log"},
    "collector": {"collector_port", "module_name", "disable_flask_log"},
    "learner_aggregator": {"aggregator_host", "aggregator_port", "module_name", "disable_flask_log"},
    "add": _JOB | {"replicas", "cpus", "gpus", "memory"},
    "delete": _JOB | {"replicas"},
    "restart": _JOB | {"restart_pod_name"},
}
_NEEDS = {
    **dict.fromkeys(("add", "delete"), ("coordinator_name", "namespace")),
    "restart": ("coordinator_name", "namespace", "restart_pod_name"),
}


def _count(value: str) -> int:
    """Convert a whole number, which may be written as 1e5."""
    try:
        number = float(value)
    except ValueError:
        number = 0.5
    if not 1 <= number < float("inf") or number != int(number):
        raise click.BadParameter(
            f"{value!r} is not allowed; it must be a whole number of at least 1, such as 20000 or 2e4"
        )
    return int(number)


def _each(text: str, what: str, convert: Callable[[str], Any]) -> tuple[Any, ...]:
    """Convert the parts of a text between commas; `convert` returns something false if a part is not allowed."""
    values = tuple(convert(part.strip()) for part in text.split(","))
    if not all(values):
        raise click.BadParameter(f"{text!r} is not allowed; it must be {what}, or several separated by commas")
    return values


def _ports(text: str) -> tuple[int, ...]:
    return _each(
        text,
        "a number in [1, 65535]",
        lambda port: port.isdecimal() and 1 <= int(port) <= 65535 and int(port),
    )


def _hosts(text: str) -> tuple[str, ...]:
    return _each(text, "a host", str)


def _show_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if not value or ctx.resilient_parsing:
        return
    import ding

    click.echo(f"{ding.__TITLE__}, version {ding.__VERSION__}.\n{ding.__DESCRIPTION__}.")
    ctx.exit()


def _show_registries(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> None:
    if not value or ctx.resilient_parsing:
        return
    from ding.entry.cli_commands import show_registries

    show_registries(value)
    ctx.exit()


# The sections of options in the help.
_SECTIONS = ("Options", "Options of DI-engine, without a command", "Options of DI-engine for Kubernetes, -m dist")


def _section_of(name: str | None) -> str:
    if name in ("version", "registry", "traceback"):
        return _SECTIONS[0]
    is_for_kubernetes = name in ("add", "delete", "restart") or name in _COUNTS["add"] | _COUNTS["restart"]
    return _SECTIONS[2 if is_for_kubernetes else 1]


class _Ding(click.Group):
    """The group of commands, which find modules of the current folder, and print errors about the input in one line.

    Other errors, and all errors with `--traceback`, print the traceback.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands in the order in which they are listed."""
        return list(self.commands)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands first, then the options by their sections."""
        self.format_commands(ctx, formatter)
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                heading = _SECTIONS[0] if "--help" in parameter.opts else _section_of(parameter.name)
                sections.setdefault(heading, []).append(record)
        for heading in _SECTIONS:
            with formatter.section(heading):
                formatter.write_dl(sections[heading])

    def invoke(self, ctx: click.Context) -> Any:
        from ding.utils.config_helper import on_command_line
        from ding.utils.references import on_path

        try:
            with on_path(os.getcwd()), on_command_line():
                return super().invoke(ctx)
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
    from ding.utils import import_helper
    from ding.utils.config_helper import ConfigError

    envs = sys.modules.get("ding.envs.env.base_env")  # it loads torch, but without it no env has returned anything
    kinds = (ConfigError,) if envs is None else (ConfigError, envs.EnvOutputError)
    if isinstance(error, (*kinds, import_helper.MissingPackageError)) or isinstance(error.__cause__, kinds):
        return True
    if isinstance(error, OSError) and error.errno in _DISK_ERRORS:
        return _own_module(error).startswith("ding.")
    if isinstance(error, FloatingPointError):  # NaN or an infinity, whose place the message names
        return _modules(error)[-1].startswith("ding.")
    if isinstance(error, (RuntimeError, pickle.UnpicklingError)):
        return _modules(error)[-1] in _FILE_AND_SERVICE_MODULES
    if not isinstance(error, (OSError, ImportError, KeyError, ValueError)):
        # Gymnasium's errors have a base of their own; an env with a missing package raises one as well.
        return type(error).__name__ in _ENV_ERRORS and type(error).__module__ == "gymnasium.error"
    if isinstance(error, ModuleNotFoundError) and _modules(error)[-1] == import_helper.__name__:
        return True  # an entry of import_names that does not exist; errors inside a module are about its code
    return _modules(error)[-1] in _INPUT_MODULES


def _modules(error: Exception) -> list[str]:
    """Return the modules of the calls that led to the error, of which the last raised it."""
    return ["", *(frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__))]


def _own_module(error: Exception) -> str:
    """Return the module that raised the error, or the module that called the standard library, which raised it."""
    others = (name for name in reversed(_modules(error)) if name.partition(".")[0] not in sys.stdlib_module_names)
    return next(others, "")


# The disk is full, a file or folder may not be written, or a file is where a folder has to be.
_DISK_ERRORS = frozenset(
    getattr(errno, name) for name in ("EACCES", "EDQUOT", "ENOSPC", "ENOTDIR", "EPERM", "EROFS") if hasattr(errno, name)
)
# Errors about the id of an env, or about packages that the env needs; the base class is about a malformed id.
_ENV_ERRORS = (
    "DependencyNotInstalled",
    "DeprecatedEnv",
    "Error",
    "NameNotFound",
    "NamespaceNotFound",
    "VersionNotFound",
)
# Modules that check the user's input; their messages need no traceback.
_INPUT_MODULES = (
    "ding.entry.training_command",
    "ding.config.read",
    "ding.config.config",
    "ding.entry.application_entry",
    "ding.entry.cli_commands",
    "ding.entry.curves",
    "ding.entry.run_folder",
    "ding.entry.run_state",
    "ding.entry.trained",
    "ding.entry.tuning",
    "ding.envs.env.gymnasium_env",
    "ding.interaction.server.access",
    "ding.utils.module_state",
    "ding.utils.references",
    "ding.utils.registry_factory",
    "ding.utils.state_folder",
    "ding.worker.coordinator.parallel_run_state",
)
# Modules that read checkpoints, or ask kubectl and the operator; the same holds for their errors of these two kinds.
_FILE_AND_SERVICE_MODULES = ("ding.entry.application_entry", "ding.entry.dist_entry", "ding.utils.file_helper")


@click.group(
    cls=_Ding,
    commands=list(COMMANDS),
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
@click.option(
    "-v", "--version", is_flag=True, callback=_show_version, expose_value=False, is_eager=True,
    help="Show the version and exit.",
)  # fmt: skip
@click.option(
    "-q", "--query-registry", "registry", multiple=True, callback=_show_registries, expose_value=False, is_eager=True,
    help="List what a registry holds, such as policy or env, with file and line, and exit.",
)  # fmt: skip
@click.option("-m", "--mode", type=click.Choice(MODES), help="What to do.")
@click.option(
    "-c", "--config", type=click.Path(exists=True, dir_okay=False),
    help="Config file; for -m dist other than -M config, the file that -M config has written.",
)  # fmt: skip
@click.option(
    "-s", "--seed", type=click.IntRange(0), multiple=True,
    help="Seed, 0 by default. Several seeds train one after the other in <config>_result/seed<seed>.",
)  # fmt: skip
@click.option("--exp-name", help="Instead of exp_name in the config; with several seeds, the folder for all.")
@click.option(
    "--train-iter",
    type=_count,
    metavar="NUMBER",
    help="Training iterations after which no new round begins; no limit by default.",
)
@click.option(
    "--env-step", type=_count, metavar="NUMBER", help="Env steps after which no new round begins; no limit by default."
)
@click.option("--resume", is_flag=True, help="Resume from the newest state in the folder, if any.")
@click.option(
    "--expert-config", type=click.Path(exists=True, dir_okay=False),
    help="For serial_sqil and serial_dqfd: config file of the expert; prompted for if missing.",
)  # fmt: skip
@click.option("--load-path", type=click.Path(exists=True, dir_okay=False), help="For eval: the checkpoint.")
@click.option("--replay-path", type=click.Path(file_okay=False), help="For eval: a folder for videos.")
@click.option("--profile", type=click.Path(file_okay=False), help="Folder for a profile of this process.")
@click.option("--enable-total-log", type=bool, default=False, help="Whether the coordinator writes its log.")
@click.option("--disable-flask-log", type=bool, default=True, help="Whether Flask servers log errors only.")
@click.option(
    "-P", "--platform", type=click.Choice(["local", "k8s", "ray"]), default="local",
    help="For -M config: how to find the machines; for -m parallel: local or ray. 'local' by default.",
)  # fmt: skip
@click.option("--address", help="For -m parallel -P ray: the cluster to join; by default a new one is started.")
@click.option("-M", "--module", type=click.Choice(MODULES), help="For -m dist: the role, or 'config'.")
@click.option("--module-name", help="The name of the worker, such as learner0.")
@click.option("-cdh", "--coordinator-host", help="For -M config: where the coordinator listens.")
@click.option("-cdp", "--coordinator-port", type=click.IntRange(1, 65535), help="Port of the coordinator.")
@click.option("-lh", "--learner-host", type=_hosts, metavar="HOST[,...]", help="For -M config: where learners listen.")
@click.option("-lp", "--learner-port", type=_ports, metavar="PORT[,...]", help="Port of learners.")
@click.option(
    "-clh", "--collector-host", type=_hosts, metavar="HOST[,...]", help="For -M config: where collectors listen."
)
@click.option("-clp", "--collector-port", type=_ports, metavar="PORT[,...]", help="Port of collectors.")
@click.option("-agh", "--aggregator-host", help="Where the aggregator listens.")
@click.option("-agp", "--aggregator-port", type=click.IntRange(1, 65535), help="Port of the aggregator.")
@click.option("--add", type=click.Choice(KINDS), help="On Kubernetes: add workers.")
@click.option("--delete", type=click.Choice(KINDS), help="On Kubernetes: remove workers.")
@click.option("--restart", type=click.Choice(KINDS), help="On Kubernetes: restart a worker.")
@click.option("--kubeconfig", type=click.Path(exists=True, dir_okay=False), help="For kubectl.")
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
        _refuse_options(ctx, options)
        return
    action = _action(options)
    for name in options:
        given = ctx.get_parameter_source(name) == ParameterSource.COMMANDLINE
        if given and name not in _ALWAYS | _COUNTS[action]:
            raise click.UsageError(f"--{name.replace('_', '-')} has no effect {_where(action)}")
    if options["config"] is None and _COUNTS[action].isdisjoint(_JOB) and action != "learner_aggregator":
        raise click.UsageError(f"give a config file with -c {_where(action)}")
    for name in _NEEDS.get(action, ()):
        if not options[name]:
            raise click.UsageError(f"give --{name.replace('_', '-')} {_where(action)}")
    from ding.entry.cli_modes import run

    try:
        run(action, options)
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def _refuse_options(ctx: click.Context, options: dict[str, Any]) -> None:
    for name in options:
        if name != "traceback" and ctx.get_parameter_source(name) == ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name.replace('_', '-')} has no effect on the command {ctx.invoked_subcommand}")


def _action(options: dict[str, Any]) -> str:
    """Return the action, which is a mode or, for `dist`, a module or a change of replicas."""
    mode, module = options["mode"], options["module"]
    changes = [change for change in ("add", "delete", "restart") if options[change]]
    if mode is None:
        raise click.UsageError(f"Please indicate at least one argument: -m with one of {', '.join(MODES)}.")
    if mode != "dist":
        if module or changes:
            raise click.UsageError(f"--{'module' if module else changes[0]} has no effect without -m dist")
        return str(mode)
    actions = [*([module] if module else []), *changes]
    if len(actions) != 1:
        raise click.UsageError(f"-m dist needs -M with one of {', '.join(MODULES)}, or --add, --delete or --restart")
    if len(options["seed"]) > 1:
        raise click.UsageError("-m dist takes one seed")
    return str(actions[0])


def _where(action: str) -> str:
    if action in MODES:
        return f"with -m {action}"
    return f"with -m dist -M {action}" if action in MODULES else f"with -m dist --{action}"


if __name__ == "__main__":
    cli(prog_name="ding")
