"""The page, plots and figures of the runs that `tests.benchmarks.learning_scale` keeps.

Statistics are computed by rliable (https://arxiv.org/abs/2108.13264) and kept in `summary.json`, from which the page
is written; so a test can compare the page without that package.
"""

from __future__ import annotations

import json
import statistics
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tests.benchmarks import learning_slow
from tests.benchmarks.learning_scale import OURS, PEER, RESULTS, ROOT, TASKS, Result, Task, results

PAGE = ROOT / "docs" / "learning_scale.md"
SUMMARY = RESULTS / "summary.json"
NOTES = RESULTS / "notes.md"
LABELS = {OURS: "ours", PEER: "Stable-Baselines3"}
_POINTS, _RESAMPLES = 60, 2000
_LAST = 0.1  # the share of the budget whose evaluations are the final return

_SLOW = (
    "DQN trains on CartPole-v1 until a return of 195; each step takes 5 ms more than usual. Eight envs collect in",
    "all runs; collectors have theirs in processes, too. The run on Ray has two collectors, and its time includes",
    "Ray's start. The table has the env steps of the weights that solved the task, and those at the end of their",
    "evaluation, because collectors continue meanwhile. The runs of a seed followed each other on two cores, so",
    "compare their times only with each other.",
    "",
    "`python -m tests.benchmarks.learning_slow`",
    "",
)

Group = dict[str, list[Result]]


def groups() -> dict[tuple[str, str], Group]:
    """The runs by (task, policy), and by library."""
    found: dict[tuple[str, str], Group] = {}
    for result in results():
        libraries = found.setdefault((result.unit.task.name, result.unit.policy), {})
        libraries.setdefault(result.unit.library, []).append(result)
    for libraries in found.values():
        for runs in libraries.values():
            runs.sort(key=lambda run: run.unit.seed)
    return found


def final_return(result: Result) -> float:
    """The mean of the evaluations in the last tenth of the budget; the last one of a run that has ended before it.

    At the end of the budget only the peer evaluates: that does not count, so that both have learned equally long.
    """
    budget = result.unit.budget
    last = [value for steps, value in result.curve if (1 - _LAST) * budget <= steps < budget]
    return statistics.fmean(last or [result.curve[-1][1]])


def interquartile(scores: np.ndarray) -> dict[str, list[float]]:
    """The interquartile mean of scores [runs, points] at each point, with its 95 % stratified bootstrap interval."""
    from rliable import library, metrics

    columns = scores[:, :, None].transpose(0, 2, 1)  # [runs, 1 task, points]

    def aggregate(values: np.ndarray) -> np.ndarray:
        return np.array([metrics.aggregate_iqm(values[..., point]) for point in range(values.shape[-1])])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # rliable calls its package for bootstraps by an old name
        means, intervals = library.get_interval_estimates(
            {"runs": columns}, aggregate, reps=_RESAMPLES, random_state=np.random.RandomState(0)
        )
    low, high = intervals["runs"] if len(scores) > 1 else (means["runs"], means["runs"])
    return {
        name: [round(float(value), 2) for value in values]
        for name, values in (("iqm", means["runs"]), ("low", low), ("high", high))
    }


def summarize(libraries: Group) -> dict[str, Any]:
    """What is told of one policy on one task, by library; for those that have runs."""
    summary: dict[str, Any] = {}
    for library, runs in libraries.items():
        task, budget = runs[0].unit.task, runs[0].unit.budget
        x = np.linspace(0, budget, _POINTS)
        curves = np.stack([np.interp(x, *zip(*run.curve, strict=True)) for run in runs])
        final = interquartile(np.array([[final_return(run)] for run in runs]))
        reached = [] if task.goal is None else [run.steps_to(task.goal) for run in runs]
        quiet = [run.about["seconds"] for run in runs if run.about["quiet"]]
        summary[library] = {
            "seeds": len(runs),
            "final": {name: values[0] for name, values in final.items()},
            "solved": sum(steps is not None for steps in reached),
            "steps_to_goal": _median_steps(reached),
            "cpu_seconds": round(statistics.median(run.about["cpu_seconds"] for run in runs)),
            "seconds": round(statistics.median(quiet)) if quiet else None,
            "curve": {"env_steps": [round(float(at)) for at in x], **interquartile(curves)},
        }
    return summary


def _median_steps(reached: Sequence[int | None]) -> int | None:
    """The median, where a run that never gets there counts as longer than any other; None if that is the median."""
    ordered = sorted(reached, key=lambda steps: float("inf") if steps is None else steps)
    return ordered[(len(ordered) - 1) // 2] if ordered else None


def verdict(task: Task, summary: Mapping[str, Any]) -> str:
    """Whether the goal of the task is met, in words."""
    ours, peer = summary.get(OURS), summary.get(PEER)
    if ours is None:
        return "not run"
    reasons = []
    if task.goal is not None and ours["solved"] < ours["seeds"]:
        reasons.append(f"{ours['seeds'] - ours['solved']} of {ours['seeds']} seeds do not solve it")
    if not task.peers:
        return "-" if task.goal is None else "missed: " + ", ".join(reasons) if reasons else "met"
    if peer is None:
        return "; ".join([*(["missed: " + ", ".join(reasons)] if reasons else []), "no peer"])
    if task.goal is None or task.is_compared_by_return:
        if ours["final"]["iqm"] < peer["final"]["low"]:
            reasons.append("return below the peer's interval")
    elif ours["solved"] and _more(ours["steps_to_goal"], peer["steps_to_goal"]):
        reasons.append("more env steps than the peer")
    seeds = min(ours["seeds"], peer["seeds"])
    partial = "" if seeds == task.seeds else f" ({seeds} of {task.seeds} seeds so far)"
    return ("missed: " + ", ".join(reasons) if reasons else "met") + partial


def _more(ours: int | None, peer: int | None) -> bool:
    return ours is None or (peer is not None and ours > peer)


def write() -> None:
    """Compute the statistics, draw the plots, and write the page and the figures of the recipes."""
    summaries = {f"{task}/{policy}": summarize(libraries) for (task, policy), libraries in groups().items()}
    SUMMARY.write_text(json.dumps(summaries) + "\n")
    for task in TASKS:
        of_task = {policy: summaries.get(f"{task.name}/{policy}") for policy in task.budgets}
        if any(of_task.values()):
            _plot(task, {policy: summary for policy, summary in of_task.items() if summary})
    PAGE.write_text(page())
    from ding.entry.recipes import MEASURED

    MEASURED.write_text(json.dumps(measured(summaries), indent=1) + "\n")


def kept() -> dict[str, Any]:
    """The statistics of the runs, by `<task>/<policy>`."""
    summaries: dict[str, Any] = json.loads(SUMMARY.read_text())
    return summaries


def measured(summaries: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """What the recipes reach, in words, by recipe and env."""
    from ding.entry.recipes import find_recipe

    outcomes: dict[str, dict[str, str]] = {}
    for task in TASKS:
        for policy, budget in task.budgets.items():
            ours = summaries.get(f"{task.name}/{policy}", {}).get(OURS)
            recipe = find_recipe(policy, task.env_id)
            if ours is not None and recipe is not None:
                steps = ours["steps_to_goal"] if task.ends_at_goal else budget
                words = f"{ours['final']['iqm']:.0f} after {steps:,} env steps, {_seeds(ours['seeds'])}"
                outcomes.setdefault(recipe.name, {})[task.env_id] = words
    return dict(sorted(outcomes.items()))


def _seeds(number: int) -> str:
    return "1 seed" if number == 1 else f"{number} seeds"


def page() -> str:
    """The page, from the statistics that are kept."""
    summaries = kept()
    parts = [
        "# Learning at scale",
        "",
        "This page compares the [recipes](guides/recipes.md) with Stable-Baselines3 on well-known tasks, with the",
        "same seeds, evaluation episodes and hyper-parameters; `tests/benchmarks/learning_peer.py` translates the",
        "recipes. The hyper-parameters of DQN differ: there they are those of RL Zoo, and here those of a search on",
        "other seeds. Two of ours (half an update per step on LunarLander, the learning rates on CartPole) were",
        "chosen after first runs of these seeds.",
        "",
        "Each run is a process with one torch thread. The final return is the mean of the evaluations in the last",
        "tenth of the budget, except for the one at its end, which only Stable-Baselines3 makes. Figures and curves",
        "are interquartile means over seeds with 95 % stratified bootstrap intervals, by",
        "[rliable](https://arxiv.org/abs/2108.13264). Steps to the goal are env steps until the first evaluation that",
        "reaches it, as the median over seeds. CPU time is the user and system time of a run with its evaluations.",
        "The table has wall times only for runs on a quiet machine.",
        "",
        "```bash",
        'pip install -c constraints.txt -e ".[learning]"',
        "python -m tests.benchmarks.learning --scale --jobs 2   # the runs that are missing",
        "python -m tests.benchmarks.learning --report           # this page",
        "```",
        "",
    ]
    for task in TASKS:
        parts += _section(task, summaries)
    parts += [
        "## An env of 5 ms a step",
        "",
        *_SLOW,
        *(learning_slow.table(learning_slow.kept()) or ["Not run yet."]),
        "",
    ]
    if NOTES.exists():
        parts += [NOTES.read_text().rstrip("\n"), ""]
    return "\n".join(parts)


def _section(task: Task, summaries: Mapping[str, Any]) -> list[str]:
    rows = [
        row(task, policy, library, summaries.get(f"{task.name}/{policy}", {}))
        for policy in task.budgets
        for library in (OURS, PEER)
        if library == OURS or policy in task.peers
    ]
    lines = [f"## {task.env_id}", "", f"Goal: {task.words}.", ""]
    if (RESULTS / f"{task.name}.svg").exists():
        lines += [f"![Learning curves of {task.env_id}](learning/scale/{task.name}.svg)", ""]
    lines += [
        "| policy | library | seeds | env steps | final return | solved | steps to goal | CPU s | wall s | goal |"
    ]
    return [*lines, "|---|---|---|---|---|---|---|---|---|---|", *rows, ""]


def row(task: Task, policy: str, library: str, summary: Mapping[str, Any]) -> str:
    """The line of the table."""
    about, budget = summary.get(library), f"{task.budgets[policy]:,}"
    outcome = verdict(task, summary) if library == OURS else ""
    cells = [f"`{policy}`", LABELS[library]]
    if about is None:
        return "| " + " | ".join([*cells, "0", budget, *["-"] * 5, outcome]) + " |"
    final, steps = about["final"], about["steps_to_goal"]
    interval = "" if about["seeds"] == 1 else f" [{final['low']:.1f}, {final['high']:.1f}]"
    has_goal = task.goal is not None
    cells += [str(about["seeds"]), budget, f"{final['iqm']:.1f}{interval}"]
    cells += [f"{about['solved']} of {about['seeds']}" if has_goal else "-"]
    cells += ["-" if not has_goal else "never" if steps is None else f"{steps:,}"]
    cells += [str(about["cpu_seconds"]), "-" if about["seconds"] is None else str(about["seconds"]), outcome]
    return "| " + " | ".join(cells) + " |"


def _plot(task: Task, summaries: Mapping[str, Any]) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "learning"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(summaries), figsize=(3.6 * len(summaries), 2.8), squeeze=False)
    for axis, (policy, summary) in zip(axes.flat, summaries.items(), strict=True):
        draw_summary(axis, task, summary)
        axis.set_title(f"{policy} on {task.env_id}", fontsize=9)
    figure.tight_layout()
    figure.savefig(RESULTS / f"{task.name}.svg", metadata={"Date": None})
    pyplot.close(figure)


def draw_summary(axis: Any, task: Task, summary: Mapping[str, Any], every: int = 1) -> None:
    """Draw the curves of both libraries with their intervals, and the goal; of the points only each `every`-th."""
    for library, color in ((OURS, "C0"), (PEER, "C1")):
        if library in summary:
            curve = {name: values[::-every][::-1] for name, values in summary[library]["curve"].items()}
            number = summary[library]["seeds"]
            label = f"{LABELS[library]} ({_seeds(number)})"
            axis.plot(curve["env_steps"], curve["iqm"], color=color, lw=1.4, label=label)
            axis.fill_between(curve["env_steps"], curve["low"], curve["high"], color=color, alpha=0.2, lw=0)
    if task.goal is not None:
        axis.axhline(task.goal, color="grey", lw=0.7, ls="--")
    axis.set_xlabel("env steps", fontsize=7)
    axis.tick_params(labelsize=7)
    axis.locator_params(axis="x", nbins=4)
    axis.legend(fontsize=7, frameon=False)
