"""Writes the generated pages: the config and API reference, the benchmarks, and the recipes.

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
import os
import pathlib
import pkgutil
import platform
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

DOCS = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent))

from ding.utils.config_helper import NO_DEFAULT, Setting  # noqa: E402 its folder must be on the path

# Heading, registry, and section of the config.
SECTIONS = (
    ("Policies", "policy", "policy"),
    ("Learner", "learner", "policy.learn.learner"),
    ("Serial collectors", "serial_collector", "policy.collect.collector"),
    ("Parallel collectors", "parallel_collector", "policy.collect.collector"),
    ("Evaluators", "serial_evaluator", "policy.eval.evaluator"),
    ("Replay buffers", "buffer", "policy.other.replay_buffer"),
    ("Env managers", "env_manager", "env.manager"),
    ("Commanders", "commander", "policy.other.commander"),
)
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


def config_reference() -> str:
    """Returns the page with a table for each registered class."""
    from ding.policy.base_policy import Policy
    from ding.utils.registry_factory import registries

    for package in ("ding.envs", "ding.policy", "ding.worker", "ding.data"):
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            importlib.import_module(module.name)
    parts = [
        "# Config reference\n\nEvery key that a class reads. One without a default has an effect only if it is set. A "
        "dash in the column\n*allowed* means that the value is not checked. A class that is based on another one also "
        "has the keys of that one.\n"
    ]
    for title, registry, where in SECTIONS:
        parts.append(f"## {title}\n\nSection `{where}`.\n")
        classes: dict[type, str] = {Policy: "All policies"} if registry == "policy" else {}
        for alias in sorted(registries[registry]):
            cls = registries[registry].get(alias)
            if not alias.endswith("_command") and cls.__module__.startswith("ding."):
                classes.setdefault(cls, f"`{alias}`")
        parts += [_class_table(heading, cls, classes) for cls, heading in classes.items()]
    return "\n".join(parts).rstrip("\n") + "\n"


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
    rows = [_row(path, settings[path]) for path in own]
    if rows:
        lines += ["| key | default | allowed | meaning |", "|---|---|---|---|", *rows, ""]
    return "\n".join(lines)


def _by_section(settings: Mapping[str, Setting]) -> list[str]:
    """Returns the paths, those of one section beside each other, and those without a section first."""
    sections = {"": 0}
    for path, setting in settings.items():
        if "." in path or setting.default == {}:
            sections.setdefault(path.split(".")[0], len(sections))
    return sorted(settings, key=lambda path: sections.get(path.split(".")[0], 0))


def _row(path: str, setting: Setting) -> str:
    default = "" if setting.default is NO_DEFAULT else f"`{setting.default!r}`"
    text = "a function" if callable(setting.default) else default
    return f"| `{path}` | {text} | {_allowed(setting.rule)} | {setting.doc} |"


def _allowed(rule: Any) -> str:
    if rule is None:
        return "-"
    allowed = rule(object())
    return "-" if allowed is None else str(allowed).replace("|", "\\|")


def api_pages() -> dict[str, str]:
    """Returns a mkdocstrings page for each group of packages, with their public names."""
    pages = {}
    for title, packages in PACKAGES.items():
        lines = [f"# {title}", ""]
        for package in packages:
            for name in sorted(_exported(importlib.import_module(package))):
                lines += [f"::: {name}", ""]
        pages[f"reference/api/{title.lower().replace(' ', '_')}.md"] = "\n".join(lines).rstrip("\n") + "\n"
    return pages


def _exported(package: Any) -> Iterator[str]:
    """Yields the full names of the classes and functions that a package exports; what has two names, once."""
    told = set()
    for name in getattr(package, "__all__", ()):
        value = getattr(package, name)
        if (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__.startswith("ding."):
            path = f"{value.__module__}.{value.__qualname__}"
            if path not in told:
                yield path
            told.add(path)


BENCHMARKS = (
    "buffer", "collect", "vector", "serial", "ppo", "sac", "imports", "managers", "parallel", "scale", "scale_data",
    "crowd",
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
        "Each figure is compared with a baseline of the same run: another library on the same work, a bare loop that",
        "only does the maths, or a limit. Goals that this machine misses are listed like the others.",
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

Tuned configs for a policy on a family of envs. `train` takes the one that fits best, and says so in one line:

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

- What the caller says comes first: `train("ppo", "CartPole-v1", learning_rate=1e-3, num_envs=4, ...)` changes these
  values and keeps the rest of the recipe. With another number of envs, on-policy recipes keep the steps of each env.
- `recipe=False` (`--recipe none`) leaves it out: what nobody says has the defaults of the policy.
- `recipe="dqn_cartpole"` (`--recipe dqn_cartpole`) takes this one, also for an env that it does not name.
- An env that has no id, such as a class of your own, takes none unless you name one.
- The recipe whose pattern spells out most of the env's id fits best.

A recipe is a config file in the folder `ding/recipes/` of the package, for `ding train` like any other: copy it, change
it, and run `ding train my_config.py`.

## What they reach

Greedy evaluation at the end of the budget, as [measured](../learning_scale.md) in the same harness as Stable-Baselines3
with equal hyper-parameters. Many more env steps, or another env of the family, may need other values.

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


def draw_first_picture() -> None:
    """Draw `images/curve.svg`, the learning curve of DQN, from the results of `tests.benchmarks.learning`."""
    import matplotlib

    from ding.entry.curves import draw, summarize

    kept = (DOCS / "learning" / "dqn.jsonl").read_text(encoding="utf-8").splitlines()
    results = [json.loads(line) for line in kept]
    runs = [([x for x, _, _ in result["curve"]], [y for _, _, y in result["curve"]]) for result in results]
    os.environ["SOURCE_DATE_EPOCH"] = "0"  # with the salt: equal results, equal bytes
    with matplotlib.rc_context({"svg.hashsalt": "curve"}):
        draw([summarize("DQN on CartPole-v1", runs)], DOCS / "images" / "curve.svg")


def pages() -> dict[str, str]:
    """Returns all generated pages by their path in the docs."""
    return {
        "reference/config.md": config_reference(),
        "benchmarks.md": benchmarks_page(),
        "guides/recipes.md": recipes_page(),
        **api_pages(),
    }


def main() -> int:
    if "--measure" in sys.argv:
        measure(sys.argv[sys.argv.index("--measure") + 1 :] or BENCHMARKS)
    if "--check" not in sys.argv and _is_installed("matplotlib"):
        draw_first_picture()
    elif "--check" not in sys.argv:
        sys.stdout.write("images/curve.svg is not drawn: run `pip install matplotlib` first\n")
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
