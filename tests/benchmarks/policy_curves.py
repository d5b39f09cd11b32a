"""The learning curves of each policy, a small plot for its page: `docs/learning/policies/<policy>.svg`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.benchmarks import learning, learning_report
from tests.benchmarks.learning_scale import TASKS, Task

FOLDER = learning.RESULTS / "policies"
_SIZE = 2.6, 1.9  # of a plot, in inches
# What the files do without: 25 KB are enough for all of them.
_COMPACT = {
    "font.sans-serif": ["DejaVu Sans"],
    "path.simplify_threshold": 0.6,
    "svg.fonttype": "none",
    "svg.hashsalt": "policies",
}


# The most tasks at scale of a policy that are drawn, the largest ones: `learning_scale.md` has all.
_MOST = 2


def measured_with(name: str) -> list[str]:
    """Return the tasks of `docs/learning/` that train a policy, by their names."""
    return [
        task for _, kept in learning.families() for task in kept if task == name or task.startswith(f"{name}_memory")
    ]


def tasks_at_scale(name: str) -> list[tuple[Task, Mapping[str, Any]]]:
    """Return the tasks of `docs/learning/scale/` on which a policy was measured, with their statistics."""
    summaries = learning_report.kept()
    return [(task, summaries[f"{task.name}/{name}"]) for task in TASKS if f"{task.name}/{name}" in summaries]


def write() -> None:
    """Draw the curves of all policies."""
    FOLDER.mkdir(exist_ok=True)
    for _, kept in learning.families():
        for name in kept:
            if measured_with(name)[:1] == [name] and not name.endswith("_memory"):
                _draw(name, FOLDER / f"{name}.svg")


def _draw(name: str, path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    tasks, at_scale = measured_with(name), tasks_at_scale(name)[-_MOST:]
    columns = len(tasks) + len(at_scale)
    with matplotlib.rc_context(_COMPACT):
        figure, axes = pyplot.subplots(1, columns, figsize=(_SIZE[0] * columns, _SIZE[1]), squeeze=False)
        for axis, task in zip(axes.flat, tasks, strict=False):
            learning.draw_runs(axis, task, learning.kept(task))
            axis.set_title(learning.label_of(task), fontsize=9)
        for axis, (task, summary) in zip(axes.flat[len(tasks) :], at_scale, strict=True):
            learning_report.draw_summary(axis, task, summary, every=3 * len(at_scale))
            axis.set_title(f"{task.env_id}, with the recipe", fontsize=9)
        for axis in axes.flat:
            axis.spines[["top", "right"]].set_visible(False)
            axis.tick_params(labelsize=7)
        figure.tight_layout()
        figure.savefig(path, metadata={"Date": None})
        pyplot.close(figure)
    path.write_text(_rounded(path.read_text(encoding="utf-8")), encoding="utf-8")


def _rounded(svg: str) -> str:
    """Return a plot whose coordinates have one digit after the point."""
    return re.sub(r"(?<=[\s\"])-?\d+\.\d{2,}(?=[\s\"])", lambda found: f"{float(found[0]):.1f}".removesuffix(".0"), svg)
