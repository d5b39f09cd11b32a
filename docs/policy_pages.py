"""The generated half of the pages of policies, and the table of them.

A page `policies/<name>.md` is written by hand down to the line `MARK`; what follows comes from the class of the policy,
the recipes, and the measurements that `python -m tests.benchmarks.learning --report` draws. Its first paragraph and the
line of its actions are also those of the table in `policies/index.md`.
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ding.entry.recipes import all_recipes
from ding.entry.serial_entry import entry_of
from ding.policy.base_policy import Policy
from ding.policy.settings import COMPATIBLE
from ding.utils.config_helper import Setting, settings_of
from ding.utils.registry_factory import POLICY_REGISTRY
from tests.benchmarks import learning, learning_report
from tests.benchmarks.policy_curves import measured_with, tasks_at_scale

DOCS = pathlib.Path(__file__).resolve().parent
MARK = "<!-- generated: python docs/generate.py writes what follows -->"
# Ways of training that have a page and a learning curve, but no policy of their own: that of which policy they train.
PIPELINES = {"sqil": "sql"}
FIGURES = (
    "| policy | task | stop value | solved | env steps: median / most | budget | iterations | seconds | final return |",
    "|---|---|---|---|---|---|---|---|---|",
)
AT_SCALE = (
    "| policy | library | seeds | env steps | final return | solved | steps to goal | CPU s | wall s | goal |",
    "|---|---|---|---|---|---|---|---|---|---|",
)
Row = Callable[[str, Setting], str]


def policy_names() -> list[str]:
    """Return the names of the policies that have pages, in the order of the families."""
    return [name for family in learning.FAMILIES.values() for name in family if name in PIPELINES or _is_own(name)]


def _is_own(name: str) -> bool:
    return name in POLICY_REGISTRY and POLICY_REGISTRY.get(name).__module__.startswith("ding.policy.")


def pages(table: tuple[str, ...], row: Row, order: Callable[[Mapping[str, Setting]], list[str]]) -> dict[str, str]:
    """Return the pages by their paths in the docs.

    Args:
        table: the head of a table of settings.
        row: makes a row of it.
        order: sorts the paths of settings.
    """
    found = {"policies/index.md": _whole("index", _index())}
    for name in policy_names():
        lines = [*_results(name), *_recipes(name), *_model(name), *_settings(name, table, row, order)]
        found[f"policies/{name}.md"] = _whole(name, lines)
    return found


def by_hand(name: str) -> str:
    """Return what is written by hand on a page.

    Raises:
        ValueError: the page has no line `MARK`.
    """
    text = (DOCS / "policies" / f"{name}.md").read_text(encoding="utf-8")
    if MARK not in text.splitlines():
        raise ValueError(f"policies/{name}.md lacks the line {MARK}")
    return text.partition(MARK)[0]


def _whole(name: str, lines: list[str]) -> str:
    return f"{by_hand(name)}{MARK}\n\n" + "\n".join(lines).rstrip("\n") + "\n"


def summary_of(name: str) -> str:
    """Return the first paragraph of a page."""
    return " ".join(by_hand(name).split("\n\n")[1].split())


def actions_of(name: str) -> str:
    """Return the kinds of actions that a page names.

    Raises:
        ValueError: it names none.
    """
    found = re.search(r"^- \*\*Actions\*\*: (.+?)\.?$", by_hand(name), re.M)
    if found is None:
        raise ValueError(f"policies/{name}.md lacks a line '- **Actions**: ...'")
    return found[1]


def trained_by(name: str) -> str:
    """Return `train`, the entry that trains the policy instead, or `a loop of your own`."""
    if name in PIPELINES:
        return f"serial_pipeline_{name}"
    entry = entry_of(name)
    return "train" if entry in ("serial_pipeline", "serial_pipeline_onpolicy") else entry


def _data_of(name: str) -> str:
    entry = trained_by(name)
    if entry == "serial_pipeline_offline":
        return "a data set"
    if entry.startswith("serial_pipeline_"):
        return "demonstrations" if entry == "serial_pipeline_bc" else "off-policy, with an expert"
    return "on-policy" if POLICY_REGISTRY.get(name).default_config().on_policy else "off-policy"


def _index() -> list[str]:
    lines = []
    for family, members in learning.FAMILIES.items():
        lines += [
            f"## {family}",
            "",
            "| policy | what it is | actions | learns | trained by |",
            "|---|---|---|---|---|",
        ]
        for name in (name for name in members if name in policy_names()):
            entry = trained_by(name)
            by = entry if entry == "a loop of your own" else f"`{entry}`"
            number = len(_recipes_of(name))
            more = f", {number} recipe{'s' * (number > 1)}" if number else ""
            cells = [f"[`{name}`]({name}.md)", summary_of(name), actions_of(name), _data_of(name), by + more]
            lines.append("| " + " | ".join(cells) + " |")
        lines.append("")
    return lines


def _results(name: str) -> list[str]:
    lines = ["## Measured", "", f"![Learning curves of {name}](../learning/policies/{name}.svg)", ""]
    lines += ["Each line is a seed; the dashed line is the stop value. See [Learning](../learning.md).", "", *FIGURES]
    lines += [learning.row(measured, learning.kept(measured)) for measured in measured_with(name)]
    tasks = tasks_at_scale(name)
    if tasks:
        lines += ["", "With the recipe, beside Stable-Baselines3: [Learning at scale](../learning_scale.md).", ""]
        lines += AT_SCALE
        for task, summary in tasks:
            rows = (learning_report.row(task, name, library, summary) for library in summary)
            lines += [line.replace(f"`{name}`", f"`{name}` on {task.env_id}") for line in rows]
    return [*lines, ""]


def _recipes_of(name: str) -> list[Any]:
    return [recipe for recipe in all_recipes() if recipe.policy == name]


def _recipes(name: str) -> list[str]:
    found = _recipes_of(name)
    if trained_by(name) != "train":
        return []
    lines = ["## Recipes", ""]
    if not found:
        return [*lines, "There is no recipe: `train` uses the defaults below for settings that you do not pass.", ""]
    lines += ["`train` uses these recipes for the envs that they list; see [Recipes](../guides/recipes.md).", ""]
    return [*lines, *(f"- `{recipe.name}`: {', '.join(f'`{env}`' for env in recipe.envs)}" for recipe in found), ""]


def _model(name: str) -> list[str]:
    cls = POLICY_REGISTRY.get(PIPELINES.get(name, name))
    kind, _ = cls(cls.default_config(), enable_field=[]).default_model()
    link = f"../reference/config.md#{_anchor(kind, 'Models')}"
    where = "" if name not in PIPELINES else f", for `{PIPELINES[name]}`"
    own = f"[`{cls.__name__}`](../reference/api/policies.md#{cls.__module__}.{cls.__qualname__})"
    return [
        "## Class and model",
        "",
        f"The class is {own}{where}.",
        f"The default model is [`{kind}`]({link}); set its arguments in `policy.model`.",
        "",
    ]


def _anchor(heading: str, chapter: str) -> str:
    """Return the anchor of a heading in the config reference, where another chapter may have the same heading."""
    before = (DOCS / "reference" / "config.md").read_text(encoding="utf-8").partition(f"\n## {chapter}\n")[0]
    number = len(re.findall(rf"^### `{re.escape(heading)}`$", before, re.M))
    return heading + (f"_{number}" if number else "")


def _settings(
    name: str, table: tuple[str, ...], row: Row, order: Callable[[Mapping[str, Setting]], list[str]]
) -> list[str]:
    lines = ["## Settings", ""]
    if name in PIPELINES:
        policy = PIPELINES[name]
        return [*lines, f"It has the settings of the policy that it trains: [`{policy}`]({policy}.md#settings)."]
    settings = dict(_read(name))
    lines += [
        "These are keys of the section `policy`; pass the last part of a key to `train` as a keyword. The [config",
        "reference](../reference/config.md#all-policies) has the keys that all policies share.",
        "",
    ]
    return [*lines, *table, *(row(path, settings[path]) for path in order(settings))]


def _read(name: str) -> Iterator[tuple[str, Setting]]:
    """Yield the settings that a policy reads and that leave a choice, without those that all policies share."""
    cls = POLICY_REGISTRY.get(name)
    shared = {path for path, setting in settings_of(Policy).items() if setting == settings_of(cls).get(path)}
    everything = {**_epsilon(name), **settings_of(cls)}
    for path, setting in everything.items():
        nested = any(other.endswith(f".{path}") for other in everything)  # the same key in a section
        if path in shared or path == "type" or setting.default == {} or setting.doc == COMPATIBLE or nested:
            continue
        if not _is_fixed(setting):
            yield path, setting


def _epsilon(name: str) -> dict[str, Setting]:
    command = settings_of(POLICY_REGISTRY.get(f"{name}_command"))
    return {path: setting for path, setting in command.items() if path.startswith("other.eps.")}


def _is_fixed(setting: Setting) -> bool:
    """Return whether a rule allows one value only."""
    allowed = None if setting.rule is None else setting.rule(object())
    return bool(re.fullmatch(r"one of [^,]+", str(allowed)))
