"""The learning curves of runs: grouped by config, aggregated over seeds, and drawn."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ding.entry.run_folder import Path, RunFolder
from ding.utils.config_helper import ConfigError
from ding.utils.file_helper import atomic_write
from ding.utils.import_helper import optional_module
from ding.utils.state_folder import plain_tree

Axis = Literal["env_step", "train_iter"]
AXES: dict[str, str] = {"env_step": "env steps", "train_iter": "training iterations"}
# Keys that may differ between the runs of a group.
_OWN_KEYS = {"seed", "exp_name"}
_RESAMPLES = 2000
_CONFIDENCE = 0.95
_GRID = 200
_ROW_INCHES = 0.2  # height of an entry of the legend


@dataclass(frozen=True, slots=True)
class Curve:
    """The values of runs that differ only in their seeds.

    Attributes:
        label: the name of the group of runs.
        runs: for each run, the x axis [n] and the values [n], such as the mean returns of its evaluations.
        x: the x axis of the statistics, [points].
        iqm: the interquartile mean of the runs, [points]; the mean if there are fewer than four runs.
        low, high: the 95 % bootstrap interval of `iqm`, [points]; equal to `iqm` for a single run.
        best: the largest interquartile mean at any point of a run; `x` has only some of very many.
    """

    label: str
    runs: tuple[tuple[np.ndarray, np.ndarray], ...]
    x: np.ndarray
    iqm: np.ndarray
    low: np.ndarray
    high: np.ndarray
    best: float


def interquartile_mean(values: np.ndarray) -> np.ndarray:
    """Return the mean of the middle half of `values` [runs, ...] over the first axis (arXiv:2108.13264).

    A quarter of the runs, rounded down, is left out at each end.

    Example:
        >>> interquartile_mean(np.array([0.0, 1.0, 3.0, 100.0])).item()
        2.0
    """
    cut = len(values) // 4
    ordered = np.sort(values, axis=0)
    mean: np.ndarray = ordered[cut : len(values) - cut].mean(axis=0)
    return mean


def bootstrap_interval(values: np.ndarray, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return the 95 % bootstrap interval over runs of the interquartile mean of `values` [runs, points]."""
    if len(values) == 1:
        return values[0], values[0]
    rng = np.random.default_rng(seed)
    draws = rng.integers(len(values), size=(_RESAMPLES, len(values)))
    means = np.stack([interquartile_mean(values[draw]) for draw in draws])
    tail = (1 - _CONFIDENCE) / 2
    low, high = np.quantile(means, [tail, 1 - tail], axis=0)
    return low, high


def read_curves(paths: Sequence[Path], axis: Axis = "env_step", metric: str | None = None) -> list[Curve]:
    """Return the learning curves in these folders, one for all runs whose configs differ only in seed and name.

    Args:
        paths: run folders, or folders that contain them at any depth.
        axis: the x axis.
        metric: the metric in `metrics.jsonl` to read, as `<worker>/<name>`; None for the mean returns in `eval.jsonl`.

    Raises:
        FileNotFoundError: a path contains no run, or no run has evaluations.
        ConfigError: no run has the metric.
    """
    groups: dict[str, list[RunFolder]] = {}
    found = _run_folders(paths)
    if metric is not None and not any(folder.metric(metric) for folder in found):
        names = sorted({name for folder in found for name in folder.metric_names()})
        raise ConfigError(f"no run has the metric {metric!r}; recorded are {', '.join(names) or 'none'}")
    for folder in found:
        if folder.evaluations() if metric is None else folder.metric(metric):
            leaves = plain_tree(folder.compiled)
            groups.setdefault(repr(sorted((k, repr(v)) for k, v in leaves.items() if k not in _OWN_KEYS)), []).append(
                folder
            )
    if not groups:
        raise FileNotFoundError(
            f"no evaluation has been recorded in {', '.join(repr(os.fspath(path)) for path in paths)}"
        )
    labels = _labels(list(groups.values()))
    return [_curve(label, folders, axis, metric) for label, folders in zip(labels, groups.values(), strict=True)]


def _run_folders(paths: Sequence[Path]) -> list[RunFolder]:
    found: dict[str, RunFolder] = {}
    for path in paths:
        try:
            found[os.path.abspath(path)] = RunFolder(path)
        except FileNotFoundError:
            inner = [root for root, _, files in os.walk(path) if "total_config.py" in files]
            if not inner:
                raise
            found.update((os.path.abspath(root), RunFolder(root)) for root in sorted(inner))
    return list(found.values())


def _labels(groups: list[list[RunFolder]]) -> list[str]:
    """Return for each group the common part of the names of its folders, numbered if it is not unique."""
    names = []
    for group in groups:
        common = os.path.commonprefix([os.path.normpath(folder.path) for folder in group])
        common = common if len(group) == 1 else common.rstrip("0123456789").rstrip("_-/.").removesuffix("seed")
        names.append(common.rstrip("_-/.") or "run")
    return [
        name if names.count(name) == 1 else f"{name} ({names[: i + 1].count(name)})" for i, name in enumerate(names)
    ]


def _curve(label: str, folders: list[RunFolder], axis: Axis, metric: str | None) -> Curve:
    runs = []
    for folder in folders:
        if metric is None:
            points = [(record, np.mean(record["returns"])) for record in folder.evaluations() if record["returns"]]
        else:
            points = folder.metric(metric)
        records = [(record[axis], value) for record, value in points if record.get(axis) is not None]
        x, y = (np.array(column, np.float64) for column in (zip(*records, strict=True) if records else ((), ())))
        runs.append((x, y))
    return summarize(label, [run for run in runs if len(run[0])])


def summarize(label: str, runs: Sequence[tuple[Any, Any]]) -> Curve:
    """Return the curve of several runs, given as x axis [n] and values [n].

    After its end, a run keeps its last value: the best runs end first, when they are solved.
    """
    arrays = [(np.asarray(x, np.float64), np.asarray(y, np.float64)) for x, y in runs]
    sorted_arrays = tuple((x[order], y[order]) for x, y in arrays for order in [np.argsort(x, kind="stable")])
    points = np.unique(np.concatenate([x for x, _ in sorted_arrays]))
    best = float(interquartile_mean(np.stack([np.interp(points, x, y) for x, y in sorted_arrays])).max())
    if len(points) > _GRID:
        points = np.linspace(points[0], points[-1], _GRID)
    values = np.stack([np.interp(points, x, y) for x, y in sorted_arrays])
    low, high = bootstrap_interval(values)
    return Curve(label, sorted_arrays, points, interquartile_mean(values), low, high, best)


def draw(
    curves: Sequence[Curve],
    path: Path,
    axis: Axis = "env_step",
    title: str | None = None,
    metric: str | None = None,
) -> None:
    """Draw the curves to `path`: `.png`, `.svg` or `.pdf`.

    `metric` is the label of the y axis; None stands for the mean return.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: the suffix is not supported.
    """
    suffix = os.path.splitext(os.fspath(path))[1].lower()
    if suffix not in (".png", ".svg", ".pdf"):
        raise ValueError(f"{os.fspath(path)!r} has the suffix {suffix!r}; it must be .png, .svg or .pdf")
    figures = optional_module("matplotlib.figure", "drawing curves", "matplotlib", "plot")
    figure = figures.Figure(figsize=(7, 4.2 + _ROW_INCHES * len(curves)), layout="constrained")
    axes: Any = figure.subplots()
    for curve in curves:
        seeds = f" ({len(curve.runs)} seeds)" if len(curve.runs) > 1 else ""
        (line,) = axes.plot(curve.x, curve.iqm, label=f"{curve.label}{seeds}", linewidth=1.8)
        axes.fill_between(curve.x, curve.low, curve.high, color=line.get_color(), alpha=0.2, linewidth=0)
    axes.set_xlabel(AXES[axis])
    axes.set_ylabel(metric or "mean return of an evaluation")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(frameon=False, loc="outside lower center")  # where it hides no curve, however long its names are
    if title:
        axes.set_title(title)
    with atomic_write(os.fspath(path), "wb") as f:
        figure.savefig(f, format=suffix[1:], dpi=150)


def table(curves: Sequence[Curve], axis: Axis = "env_step", metric: str | None = None) -> str:
    """Return a text table of the last and the best value of each group."""
    from tabulate import tabulate

    values = ("last return", "95 % interval", "best return") if metric is None else ("last", "95 % interval", "highest")
    form = ".1f" if metric is None else ".4g"
    rows = []
    for curve in curves:
        interval = f"{curve.low[-1]:{form}} to {curve.high[-1]:{form}}"
        counts = curve.label, len(curve.runs), int(curve.x[-1])
        rows.append((*counts, f"{curve.iqm[-1]:{form}}", interval, f"{curve.best:{form}}"))
    headers = ("runs", "seeds", AXES[axis], *values)
    return tabulate(rows, headers=headers, tablefmt="simple", disable_numparse=True)
