"""Writes the generated pages (references, policies, benchmarks, recipes, guarantees ...) and the stubs of packages.

    python docs/generate.py            # write the pages from the classes and the stored benchmark results
    python docs/generate.py --check    # list pages that are out of date; the exit status is 1 if there are any
    python docs/generate.py --measure  # run the benchmarks first: twenty minutes on an otherwise idle machine
    python docs/generate.py --measure buffer collect  # run these only

The config reference comes from the table `settings` of each class: defaults, checks and meanings.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import json
import operator
import os
import pathlib
import pkgutil
import platform
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

DOCS = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(DOCS), str(DOCS.parent)]

import differences  # noqa: E402 its folder must be on the path
import guarantees  # noqa: E402 its folder must be on the path
import policy_pages  # noqa: E402 its folder must be on the path
import type_stubs  # noqa: E402 its folder must be on the path

from ding.utils.config_helper import NO_DEFAULT, Setting  # noqa: E402 its folder must be on the path

# Heading, registry, and section of the config.
SECTIONS = (
    ("Policies", "policy", "policy"),
    ("Learner", "learner", "policy.learn.learner"),
    ("Serial collectors", "serial_collector", "policy.collect.collector"),
    ("Parallel collectors", "parallel_collector", "policy.collect.collector"),
    ("Evaluators", "serial_evaluator", "policy.eval.evaluator"),
    ("Replay buffers", "buffer", "policy.other.replay_buffer"),
    ("Envs", "env", "env"),
    ("Env managers", "env_manager", "env.manager"),
    ("Commanders", "commander", "policy.other.commander"),
)
# Heading, place of the settings, and section of the config; of workers those that each kind adds to the common ones.
WORKERS = "ding.worker.transport.comm_worker:WORKER_SETTINGS"
SYSTEM_SECTIONS = (
    ("Whole section", "ding.config.utils:SYSTEM_SETTINGS", ""),
    ("Coordinator", "ding.worker.coordinator.coordinator:Coordinator.settings", "coordinator"),
    (
        "Operator of a cluster",
        "ding.worker.coordinator.operator_server:_OPERATOR_SETTINGS",
        "coordinator.operator_server",
    ),
    ("Workers", WORKERS, "comm_learner` and `comm_collector"),
    ("Workers with a learner", "ding.worker.learner.comm.comm_learner:CommLearner.settings", "comm_learner"),
    ("Workers with a collector", "ding.worker.collector.comm.comm_collector:CommCollector.settings", "comm_collector"),
    ("Learner aggregator", "ding.worker.adapter.learner_aggregator:LearnerAggregator.settings", "learner_aggregator"),
    ("Roles started one by one", "ding.entry.dist_config:_DIST_SETTINGS", "dist"),
    ("Ray", "ding.worker.transport.ray.ray_settings:RAY_SETTINGS", "ray"),
)
COMM = ("comm_learner", "comm_collector")
LEAGUE = (
    ("All leagues", "ding.league.base_league:LEAGUE_SETTINGS"),
    ("`one_vs_one`", "ding.league.base_league:OneVsOneLeague.settings"),
)
TABLE = ("| key | default | allowed | meaning |", "|---|---|---|---|")
# How the meaning of a key ends that is there because other classes have it.
IGNORED = "has no effect here."
PACKAGES = {
    "Entry": ("ding.entry",),
    "Agents": ("ding.bonus",),
    "Config": ("ding.config",),
    "Collectors and evaluators": ("ding.worker.collector",),
    "Learner": ("ding.worker.learner",),
    "Replay buffers": ("ding.worker.replay_buffer", "ding.data"),
    "Parallel training": ("ding.worker.coordinator", "ding.worker.adapter", "ding.interaction"),
    "Leagues": ("ding.league",),
    "Envs": ("ding.envs",),
    "Policies": ("ding.policy",),
    "Models": ("ding.model",),
    "Losses and returns": ("ding.rl_utils",),
    "Utilities": ("ding.utils", "ding.torch_utils"),
}
# Of policies with a command mode, which say nothing that those without do not.
COMMAND_MODE_NOTE = (
    "Each policy has a second class, `...CommandModePolicy`, registered as `<name>_command`, which adds a command "
    "mode. This mode sets how to collect, for instance epsilon. The pipelines use that class by themselves."
)


# What the arguments of many models and wrappers mean, where their docstrings leave it to the name.
COMMON_ARGUMENTS = {
    "action_repeat": "Number of times each action is repeated.",
    "action_space": "Kind of the actions: `discrete`, `continuous`, or another one that the docstring names.",
    "activation": "Activation between the layers.",
    "actor_head_type": "Kind of the actor's head; None for that of `action_space`.",
    "delay_reward_step": "Number of steps whose rewards are added up and given at the last of them.",
    "dueling": "Whether the head splits values into advantages and the value of the state.",
    "impala_cnn_encoder": "Whether images are encoded by the residual network of IMPALA.",
    "init_bias": "Initial bias of the last layer; None for torch's.",
    "mean": "Mean, which is subtracted from observations.",
    "n_frames": "Number of frames that are stacked.",
    "noise": "Whether the head has noisy layers.",
    "noop_max": "Largest number of steps without an action at the beginning of an episode.",
    "num_quantiles": "Number of quantiles.",
    "quantile_embedding_size": "Size of the embedding of quantiles.",
    "scale_ob": "Number by which images are divided, such as 255 for bytes; None for no scaling.",
    "reward_discount": "Discount factor of the returns whose deviation scales the rewards.",
    "size": "Height and width of the frames, in pixels.",
    "skip": "Number of frames for which an action is repeated.",
    "std": "Standard deviation by which observations are divided.",
    "twin_critic": "Whether there are two critics.",
    "action_shape": "Number of actions, or shape of real-valued ones; by default that of the env.",
    "actor_head_hidden_size": "Width of the hidden layers of the actor's head.",
    "actor_head_layer_num": "Number of hidden layers of the actor's head.",
    "critic_head_hidden_size": "Width of the hidden layers of the critic's head.",
    "critic_head_layer_num": "Number of hidden layers of the critic's head.",
    "dropout": "Dropout probability; None for no dropout.",
    "encoder_hidden_size_list": "Widths of the layers of the encoder; the last one is that of the embedding.",
    "head_hidden_size": "Width of the hidden layers of the head; None for that of the embedding.",
    "head_layer_num": "Number of hidden layers of the head.",
    "n_atom": "Number of atoms of the distribution.",
    "norm_type": "Normalization after the layers; None for none.",
    "obs_shape": "Shape of an observation; by default that of the env.",
    "share_encoder": "Whether actor and critic share the encoder.",
    "v_max": "Largest return of the distribution.",
    "v_min": "Smallest return of the distribution.",
}


def import_all() -> None:
    """Import the modules that register classes."""
    for package in ("ding.envs", "ding.policy", "ding.worker", "ding.data", "ding.model"):
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            importlib.import_module(module.name)


def config_reference() -> str:
    """Returns the page with a table for each registered class."""
    from ding.config.topics import MAIN_SETTINGS
    from ding.policy.base_policy import Policy
    from ding.utils.registry_factory import registries

    import_all()
    parts = [
        "# Config reference\n\nThis page lists every key that is read. A key without a default has an effect only if "
        "you set it. A dash in the column\n*allowed* means that the value is not checked. A class that is based on "
        "another one also has the keys of that one.\n",
        "## Pipelines\n\n`compile_config` and the pipelines read these keys of the main config.\n",
        "\n".join([*TABLE, *(_row(path, setting) for path, setting in MAIN_SETTINGS.items()), ""]),
    ]
    for title, registry, where in SECTIONS:
        parts.append(f"## {title}\n\nSection `{where}`.\n")
        classes: dict[type, str] = {Policy: "All policies"} if registry == "policy" else {}
        for alias in sorted(registries[registry]):
            cls = registries[registry].get(alias)
            is_own = cls.__module__.startswith("ding.") and not cls.__module__.startswith("ding.example.")
            if not alias.endswith("_command") and is_own:
                classes.setdefault(cls, f"`{alias}`")
        parts += [_class_table(heading, cls, classes) for cls, heading in classes.items()]
    parts.append("## System section\n\nThe config of parallel training has a third part, `system_config`.\n")
    common = _settings_at(WORKERS)
    for heading, place, section in SYSTEM_SECTIONS:
        own = {path: s for path, s in _settings_at(place).items() if section not in COMM or s != common.get(path)}
        where = f"Section `{section}` of it.\n" if section else "Its keys.\n"
        parts += [
            f"### {heading}\n\n{where}",
            "\n".join([*TABLE, *(_row(path, own[path]) for path in _by_section(own)), ""]),
        ]
    parts.append("## Leagues\n\nSection `policy.other.commander.league` of the commander `one_vs_one`.\n")
    known: Mapping[str, Setting] = {}
    for heading, place in LEAGUE:
        own = {path: s for path, s in _settings_at(place).items() if s != known.get(path)}
        known = _settings_at(place)
        parts += [f"### {heading}\n", "\n".join([*TABLE, *(_row(path, own[path]) for path in _by_section(own)), ""])]
    parts.append(
        "## Models\n\nSection `policy.model`: the arguments of the model. Each policy has a default model; `type` "
        "names another one.\n"
    )
    parts += [_argument_table(alias, registries["model"].get(alias)) for alias in sorted(registries["model"])]
    parts.append(
        '## Env wrappers\n\nEntries of `env.env_wrapper` of `DingEnvWrapper`, as in `dict(type="frame_stack", '
        "kwargs=dict(n_frames=4))`, and of\n`create_env_wrapper`. Envs of type `gymnasium` take the wrappers of "
        "gymnasium in `env.wrappers`.\n"
    )
    wrappers: dict[type, str] = {}
    for alias in sorted(registries["env_wrapper"], key=lambda alias: (not alias.islower(), alias)):
        wrappers.setdefault(registries["env_wrapper"].get(alias), alias)
    parts += [_argument_table(alias, cls) for cls, alias in sorted(wrappers.items(), key=lambda item: item[1])]
    return "\n".join(parts).rstrip("\n") + "\n"


def _settings_at(place: str) -> Mapping[str, Setting]:
    """Returns the settings `module:name`."""
    module, _, name = place.partition(":")
    settings: Mapping[str, Setting] = operator.attrgetter(name)(importlib.import_module(module))
    return settings


def _class_table(heading: str, cls: type, classes: Mapping[type, str]) -> str:
    """Returns the table of the keys in which `cls` differs from its nearest base class among `classes`."""
    settings: Mapping[str, Setting] = getattr(cls, "settings", {})
    summary = (inspect.getdoc(cls) or "").split("\n\n")[0].replace("\n", " ")
    lines = [f"### {heading}\n", f"{cls.__name__}: {summary}\n"]
    base: Any = next((b for b in cls.__mro__[1:] if b in classes), None)
    if base is not None:
        lines.append(f"Based on {base.__name__}.\n")
    known: Mapping[str, Setting] = getattr(base, "settings", {})
    own = [path for path in _by_section(settings) if settings[path] != known.get(path) and path != "type"]
    rows = [_row(path, settings[path]) for path in own if not settings[path].doc.endswith(IGNORED)]
    if rows:
        lines += [*TABLE, *rows, ""]
    if len(rows) < len(own):
        lines.append("It also accepts the keys of the managers with processes, and ignores them.\n")
    return "\n".join(lines)


def _argument_table(alias: str, cls: type) -> str:
    """Returns the table of the arguments of a class that has no table of settings."""
    summary = (inspect.getdoc(cls) or "").split("\n\n")[0].replace("\n", " ")
    lines = [f"### `{alias}`\n", f"{cls.__name__}: {summary}\n"]
    rows = [
        f"| `{name}` | {'' if default is inspect.Parameter.empty else f'`{_shown(default)}`'} | {meaning} |"
        for name, default, meaning in arguments_of(cls)
    ]
    return "\n".join([*lines, *(["| key | default | meaning |", "|---|---|---|", *rows, ""] if rows else [])])


def arguments_of(cls: type) -> list[tuple[str, Any, str]]:
    """Returns name, default and meaning of the arguments of a model or a wrapper, without the env that it wraps."""
    documented: dict[str, str] = {}
    for part in (*reversed(cls.__mro__), cls):
        documented.update(_documented(inspect.getdoc(part) or ""))
    found = []
    for name, parameter in inspect.signature(cls).parameters.items():
        if name == "env" or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        own = documented.get(name, "")
        meaning = COMMON_ARGUMENTS.get(name, own) if own.startswith("As in") else own or COMMON_ARGUMENTS[name]
        found.append((name, parameter.default, meaning))
    return found


def _documented(text: str) -> dict[str, str]:
    """Returns the meanings in the part `Args:` of a docstring, by name, as sentences."""
    part = re.search(r"^Args:\n((?:    .*\n?|\n)+)", text, re.M)
    meanings = {}
    for names, meaning in re.findall(r"^    ([\w, ]+): (.*(?:\n      +.*)*)", part[1] if part else "", re.M):
        sentence = " ".join(meaning.split()).replace("|", "\\|").rstrip(".") + "."
        for name in names.split(", "):
            meanings[name] = sentence[0].upper() + sentence[1:]
    return meanings


def _shown(default: Any) -> str:
    return default.__name__ if isinstance(default, type) else repr(default)


def _by_section(settings: Mapping[str, Setting]) -> list[str]:
    """Returns the paths, those of one section beside each other, and those without a section first."""
    sections = {"": 0}
    for path, setting in settings.items():
        if "." in path or setting.default == {}:
            sections.setdefault(path.split(".")[0], len(sections))
    return sorted(settings, key=lambda path: sections.get(path.split(".")[0], 0))


def _row(path: str, setting: Setting) -> str:
    default = "a function" if callable(setting.default) else f"`{setting.default!r}`"
    text = "" if setting.default is NO_DEFAULT else default
    return f"| `{path}` | {text} | {_allowed(setting.rule)} | {setting.doc} |"


def _allowed(rule: Any) -> str:
    if rule is None:
        return "-"
    allowed = rule(object())
    return "-" if allowed is None else str(allowed).replace("|", "\\|")


def api_pages() -> dict[str, str]:
    """Returns a mkdocstrings page for each group of packages, with their public names."""
    from ding.utils.registry_factory import POLICY_REGISTRY

    found = {cls for alias, cls in POLICY_REGISTRY.items() if alias.endswith("_command")}
    commands = {f"{cls.__module__}.{cls.__qualname__}" for cls in found}
    pages = {}
    for title, packages in PACKAGES.items():
        lines = [f"# {title}", ""]
        for package in packages:
            names = set(_exported(importlib.import_module(package)))
            for name in sorted(names - commands):
                lines += [f"::: {name}", ""]
            if names & commands:
                lines += [*textwrap.wrap(COMMAND_MODE_NOTE, 120, break_on_hyphens=False), ""]
        pages[f"reference/api/{title.lower().replace(' ', '_')}.md"] = "\n".join(lines).rstrip("\n") + "\n"
    return pages


def _exported(package: Any) -> Iterator[str]:
    """Yields the full names of the classes and functions that a package exports; what has two names, once."""
    told = set()
    for name in getattr(package, "__all__", ()):
        value = getattr(package, name)
        if (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__.startswith("ding."):
            path = f"{value.__module__}.{value.__qualname__}"
            if path not in told and _is_written(value):
                yield path
            told.add(path)


def _is_written(value: Any) -> bool:
    """Returns whether the source has a class or function, which is then documented by it: a class may be derived."""
    lines, _ = inspect.findsource(sys.modules[value.__module__])
    return any(re.match(rf"\s*(class|def|async def) {value.__name__}\b", line) for line in lines)


BENCHMARKS = (
    "buffer", "collect", "vector", "serial", "ppo", "sac", "imports", "managers", "interaction", "parallel", "scale",
    "scale_data", "slow_envs", "crowd",
)  # fmt: skip


def measure(names: Sequence[str]) -> None:
    """Run benchmarks and store their output in `docs/benchmarks`.

    Raises:
        RuntimeError: a benchmark has measured nothing.
    """
    folder = DOCS / "benchmarks"
    folder.mkdir(exist_ok=True)
    for name in names:
        command = [sys.executable, "-m", f"tests.benchmarks.{name}"]
        output = subprocess.run(command, cwd=DOCS.parent, stdout=subprocess.PIPE, text=True, check=False).stdout
        lines = [line for line in output.splitlines() if line.startswith("{")]
        if not lines:
            raise RuntimeError(f"{' '.join(command)} has measured nothing; its error is above")
        (folder / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    packages = ("torch", "numpy", "gymnasium", "envpool", "stable-baselines3", "tianshou", "cpprb", "ray")
    versions = {name: importlib.metadata.version(name) for name in packages if _is_installed(name)}
    about = {"processor": _processor(), "cores": os.cpu_count(), "python": platform.python_version(), **versions}
    (folder / "machine.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")


def _is_installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _processor() -> str:
    info = pathlib.Path("/proc/cpuinfo")
    names = [line.partition(": ")[2] for line in info.read_text().splitlines() if line.startswith("model name")]
    return names[0] if names else platform.processor()


def benchmarks_page() -> str:
    """Returns the page of benchmarks, from the results that `measure` stored."""
    folder = DOCS / "benchmarks"
    about = json.loads((folder / "machine.json").read_text(encoding="utf-8"))
    packages = ", ".join(f"{name} {version}" for name, version in about.items() if name not in ("processor", "cores"))
    where = f"Measured on {about['cores']} cores of an {about['processor']}, with {packages}; one thread of torch."
    lines = [
        "# Benchmarks",
        "",
        *textwrap.wrap(where, 120, break_on_hyphens=False),
        "Each figure is compared with a baseline from the same run: another library on the same work, a bare loop that",
        "does nothing but the maths, or a limit. Goals that this machine misses are listed, too.",
        "",
    ]
    for name in BENCHMARKS:
        path = folder / f"{name}.jsonl"
        if not path.is_file():
            continue
        lines += [f"## {name}", "", f"`python -m tests.benchmarks.{name}`", ""]
        lines += ["| what | ours | against | ratio | goal |", "|---|---|---|---|---|"]
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            if "ours" not in row:
                continue
            (against,) = [key for key in row if key not in ("what", "unit", "ours", "ratio", "goal", "met")]
            ours = "not installed" if row["ours"] is None else f"{row['ours']:g} {row['unit']}"
            theirs = "not installed" if row[against] is None else f"{row[against]:g} ({against})"
            ratio = "-" if row["ratio"] is None else f"{row['ratio']:g}"
            lines.append(f"| {row['what']} | {ours} | {theirs} | {ratio} | {row['goal']} |")
        lines.append("")
    notes = (folder / "notes.md").read_text(encoding="utf-8")
    return "\n".join(lines).rstrip("\n") + f"\n\n{notes}"


RECIPES = """# Recipes

A recipe is a config for a policy on a family of envs, measured on some of them. `train` uses the one that fits best,
and says so in one line:

```python
from ding import train

training = train("ppo", "CartPole-v1", env_steps=20_000, seed=0)
print(training.recipe)  # ppo_classic_control
print(training.config[0].policy.collect)
```

```bash
ding list recipes
ding train ppo CartPole-v1 --env-steps 20000 --exp-name from_recipe
```

- **Change some values**: pass them, as in `train("ppo", "CartPole-v1", learning_rate=1e-3, num_envs=4, ...)`; the rest
  of the recipe stays. If you change the number of envs, on-policy recipes keep the steps of each env.
- **Use none**: pass `recipe=False` (`--recipe none`) for the defaults of the policy.
- **Name one**: pass `recipe="dqn_box2d"` (`--recipe dqn_box2d`) to use this one, even for an env that it does not list.
  An env without an id, such as your own class, has no recipe unless you name one.

If several recipes match, `train` uses the one whose pattern spells out most of the env's id. Recipes are config files
in the folder `ding/recipes/` of the package: copy one, change it, and run `ding train my_config.py`.

## Returns

The table lists the returns of greedy evaluations at the end of the budget. They were [measured](../learning_scale.md)
in the same harness as Stable-Baselines3, with equal hyper-parameters (for DQN, with those of RL Zoo). Wherever both
were measured, a recipe ends inside or above the interval of Stable-Baselines3, or reaches the goal as early. On MinAtar
and Pong, no other library was measured. If you train for far more env steps, or on another env of the family, other
values may be better.

"""


def recipes_page() -> str:
    """Returns the page of recipes, with what was measured."""
    from ding.entry.recipes import all_recipes

    rows = []
    for recipe in all_recipes():
        envs = ", ".join(f"`{pattern}`" for pattern in recipe.envs)
        measured = "; ".join(f"{env_id}: {outcome}" for env_id, outcome in recipe.measured.items()) or "not measured"
        rows.append(f"| `{recipe.name}` | `{recipe.policy}` | {envs} | {measured} |")
    return RECIPES + "\n".join(["| recipe | policy | envs | measured |", "|---|---|---|---|", *rows]) + "\n"


def command_reference() -> str:
    """Returns the page with the arguments and options of each command."""
    from ding.entry.cli import cli

    parts = [
        "# Commands\n\nThis page lists the arguments and options of every command, as `ding COMMAND --help` does. You "
        "can repeat an option\nin *italics*, or give it several values.\n"
    ]
    for name, command in sorted(cli.commands.items()):
        help_text = inspect.cleandoc(command.help or "")
        arguments = [p for p in command.params if isinstance(p, click.Argument)]
        usage = " ".join(str(p.metavar or p.name).upper() for p in arguments)
        parts.append(f"## `ding {name} {usage}`".rstrip() + f"\n\n{help_text}\n")
        parts += _option_table(command)
    parts.append(
        "## `ding -m MODE`\n\nThese are the options of DI-engine, without a command. Here and for all commands, the "
        "exit status is 0 on success,\n1 after an error, 2 for wrong options, and 130 after Ctrl-C or SIGTERM.\n"
    )
    parts += _option_table(cli)
    return "\n".join(parts).rstrip("\n") + "\n"


def _option_table(command: click.Command) -> list[str]:
    options = [p for p in command.params if isinstance(p, click.Option) and not p.hidden and p.name != "help"]
    rows = [f"| {_option_names(p)} | {_values(p)} | {_text(p.help or '')} |" for p in options]
    return ["\n".join(["| option | value | meaning |", "|---|---|---|", *rows, ""])] if rows else []


def _text(text: str) -> str:
    return " ".join(text.split()).replace("<", "&lt;").replace("|", "\\|")


def _option_names(option: click.Option) -> str:
    names = " ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    return f"*{names}*" if option.multiple or option.nargs != 1 else names


def _values(option: click.Option) -> str:
    kind = option.type
    if option.is_flag:
        return "on by default" if option.default is True else ""
    if isinstance(kind, click.Choice):
        return ", ".join(f"`{choice}`" for choice in kind.choices)
    if isinstance(kind, click.IntRange | click.FloatRange):
        number = "an integer" if isinstance(kind, click.IntRange) else "a number"
        return f"{number} from {kind.min} {'on' if kind.max is None else f'to {kind.max}'}"
    return str(option.metavar or kind.name).replace("|", "\\|")


def pages() -> dict[str, str]:
    """Returns all generated pages by their path in the docs."""
    return {
        "reference/config.md": config_reference(),
        "reference/commands.md": command_reference(),
        **policy_pages.pages(TABLE, _row, _by_section),
        "differences.md": differences.page(),
        "guarantees.md": guarantees.page(),
        "benchmarks.md": benchmarks_page(),
        "guides/recipes.md": recipes_page(),
        **api_pages(),
        **type_stubs.stubs(),
    }


def main() -> int:
    if "--measure" in sys.argv:
        measure(sys.argv[sys.argv.index("--measure") + 1 :] or BENCHMARKS)
    stale = []
    for name, text in pages().items():
        path = DOCS / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
            if "--check" not in sys.argv:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
    for name in stale:
        sys.stdout.write(f"{name} {'is out of date' if '--check' in sys.argv else 'is written'}\n")
    return int("--check" in sys.argv and bool(stale))


if __name__ == "__main__":
    raise SystemExit(main())
