"""Whether, and how fast, each policy learns its task: env steps and seconds to the stop value, seed by seed.

    python -m tests.benchmarks.learning --policy dqn sac --seeds 5   # trains, prints a JSON line a seed and a policy
    python -m tests.benchmarks.learning --report                     # writes docs/learning.md and its plots

Each seed trains in a process of its own with one torch thread. Results are kept in `docs/learning/<policy>.jsonl`, a
line a seed with its learning curve; `--report` needs nothing else (and matplotlib: extra `plot`). The exit status is 0
when every seed has reached its stop value within the budget.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.benchmarks import learning_report, learning_scale, original_configs
from tests.benchmarks.learning_tasks import TASKS

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "learning"
PAGE = ROOT / "docs" / "learning.md"
FAMILIES = {
    "Value-based": ("dqn", "c51", "qrdqn", "iqn", "fqf", "rainbow", "mdqn", "sql", "sqn", "bdq", "r2d2", "r2d2_memory"),
    "Actor-critic": ("a2c", "pg", "ppo", "ppo_pg", "ppo_offpolicy", "impala", "acer", "ppg_offpolicy"),
    "Continuous actions": ("ddpg", "td3", "d4pg", "sac", "discrete_sac", "pdqn"),
    "Demonstrations and offline data": ("bc", "dqfd", "sqil", "discrete_cql", "cql", "td3_bc", "iql"),
}


def run_here(name: str, seed: int) -> dict[str, Any]:
    """Train in this process, in the current folder."""
    import torch

    import ding.entry

    torch.set_num_threads(1)
    task = TASKS[name]
    main_config, create_config = task.configs()
    main_config.exp_name = f"{name}_seed{seed}"
    start = time.perf_counter()
    if task.train is not None:
        task.train(main_config, create_config, seed)
    else:
        pipeline = getattr(ding.entry, task.pipeline)
        pipeline((main_config, create_config), seed=seed, max_env_step=task.budget)
    seconds = time.perf_counter() - start
    lines = [json.loads(line) for line in Path(main_config.exp_name, "eval.jsonl").read_text().splitlines()]
    curve = [[line["env_step"], line["train_iter"], round(mean(line["returns"]), 2)] for line in lines]
    return {
        "policy": name,
        "seed": seed,
        "solved": curve[-1][2] >= main_config.env.stop_value,
        "env_steps": curve[-1][0],
        "iterations": curve[-1][1],
        "seconds": round(seconds, 1),
        "final_return": curve[-1][2],
        "curve": curve,
    }


def run_seed(name: str, seed: int) -> dict[str, Any]:
    """Train in a process and a folder of their own; see `original_configs.run_apart`."""
    return original_configs.run_apart(seed, "tests.benchmarks.learning", "--policy", name, "--only-seed")


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def interquartile_mean(values: list[float]) -> float:
    """The mean of the middle half, fractions of values included (https://arxiv.org/abs/2108.13264)."""
    ordered, quarter = sorted(values), len(values) / 4
    weights = [min(i + 1, len(values) - quarter) - max(i, quarter) for i in range(len(ordered))]
    weights = [max(weight, 0.0) for weight in weights]
    return sum(weight * value for weight, value in zip(weights, ordered, strict=True)) / sum(weights)


def summary(name: str, results: list[dict[str, Any]]) -> dict[str, Any]:
    """One row of the table."""
    steps = sorted(result["env_steps"] for result in results)
    return {
        "policy": name,
        "seeds": len(results),
        "solved": sum(result["solved"] for result in results),
        "median_env_steps": steps[len(steps) // 2],
        "most_env_steps": steps[-1],
        "budget": TASKS[name].budget,
        "median_seconds": sorted(result["seconds"] for result in results)[len(results) // 2],
        "final_return_iqm": round(interquartile_mean([result["final_return"] for result in results]), 1),
    }


def measure(policies: list[str], seeds: int, jobs: int) -> int:
    """Train, keep the results, and print them."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    missed = 0
    with ThreadPoolExecutor(jobs) as pool:
        runs = {name: [pool.submit(run_seed, name, seed) for seed in range(seeds)] for name in policies}
        for name, futures in runs.items():
            results = [future.result() for future in futures]
            for result in results:
                print(json.dumps({key: value for key, value in result.items() if key != "curve"}), flush=True)
            row = summary(name, results)
            missed += row["solved"] < seeds or row["most_env_steps"] > row["budget"] * 1.1
            print(json.dumps(row), flush=True)
            lines = "".join(json.dumps(result) + "\n" for result in results)
            (RESULTS / f"{name}.jsonl").write_text(lines)
    return 1 if missed else 0


def report() -> int:
    """Write the page and the plots from the results that are kept."""
    for family, kept in families():
        _plot(kept, _image(family))
    PAGE.write_text(page())
    learning_report.write()
    from tests.benchmarks import policy_curves

    policy_curves.write()
    return 0


def page() -> str:
    """The page, from the results that are kept."""
    parts = [
        "# Learning",
        "",
        "This page shows how each policy learns. `tests/benchmarks/learning.py` measured it with one torch thread in",
        "each run, several runs at a time, on 2 cores of an AMD EPYC; the settings are in",
        "`tests/benchmarks/learning_tasks.py`. A run ends at the first evaluation that reaches the stop value, and its",
        "env steps count until then. Policies that learn from a data set take no env steps; their budget is the size",
        "of the data set. The final return is the interquartile mean over seeds of the last evaluation. Each line of",
        "a plot is a seed; the dashed line is the stop value.",
        "",
    ]
    for family, kept in families():
        parts += [f"## {family}", "", "```bash"]
        parts += [f"python -m tests.benchmarks.learning --seeds 5 --policy {' '.join(kept)}", "```", ""]
        parts += [f"![Learning curves: {family}](learning/{_image(family).name})", ""]
        parts += ["| policy | task | stop value | solved | env steps: median / most | budget | iterations | seconds | "]
        parts[-1] += "final return |"
        parts += ["|---|---|---|---|---|---|---|---|---|"]
        parts += [row(name, results) for name, results in kept.items()] + [""]
    return "\n".join(parts + original_configs.section(original_configs.RESULTS))


def families() -> Iterator[tuple[str, dict[str, list[dict[str, Any]]]]]:
    """Each family with the results of its members that have any."""
    for family, members in FAMILIES.items():
        results = {name: kept(name) for name in members if (RESULTS / f"{name}.jsonl").exists()}
        if results:
            yield family, results


def _image(family: str) -> Path:
    return RESULTS / f"{family.split()[0].lower()}.svg"


def kept(name: str) -> list[dict[str, Any]]:
    """The results of a policy, by seed."""
    return [json.loads(line) for line in (RESULTS / f"{name}.jsonl").read_text().splitlines()]


def label_of(name: str) -> str:
    """The name of a policy's task."""
    return str(TASKS[name].main_config["env"]["env_id"])


def row(name: str, results: list[dict[str, Any]]) -> str:
    """The line of the table."""
    about, env = summary(name, results), TASKS[name].main_config["env"]
    iterations = sorted(result["iterations"] for result in results)[len(results) // 2]
    steps = f"{about['median_env_steps']:,} / {about['most_env_steps']:,}" if about["most_env_steps"] else "none"
    solved = f"{about['solved']} of {about['seeds']}"
    return (
        f"| `{name}` | {label_of(name)} | {env['stop_value']} | {solved} | {steps} | {about['budget']:,} | "
        f"{iterations:,} | {about['median_seconds']} | {about['final_return_iqm']} |"
    )


def _plot(kept: dict[str, list[dict[str, Any]]], image: Path) -> None:
    try:
        import matplotlib
    except ImportError as e:
        raise SystemExit('the plots need matplotlib: pip install -c constraints.txt -e ".[plot]"') from e
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "learning"
    from matplotlib import pyplot

    columns = min(4, len(kept))
    rows = -(-len(kept) // columns)
    figure, axes = pyplot.subplots(rows, columns, figsize=(3.2 * columns, 2.4 * rows), squeeze=False)
    for axis in axes.flat[len(kept) :]:
        axis.set_visible(False)
    for axis, (name, results) in zip(axes.flat, kept.items(), strict=False):
        draw_runs(axis, name, results)
        axis.set_title(name, fontsize=9)
    figure.tight_layout()
    figure.savefig(image, metadata={"Date": None})
    pyplot.close(figure)


def draw_runs(axis: Any, name: str, results: list[dict[str, Any]]) -> None:
    """Draw the curves of the seeds, and the stop value."""
    offline = all(result["env_steps"] == results[0]["curve"][0][0] for result in results)
    for result in results:
        axis.plot([at[1 if offline else 0] for at in result["curve"]], [at[2] for at in result["curve"]], lw=1)
    axis.axhline(TASKS[name].main_config["env"]["stop_value"], color="grey", lw=0.7, ls="--")
    axis.set_xlabel("iterations" if offline else "env steps", fontsize=7)
    axis.tick_params(labelsize=7)
    axis.locator_params(axis="x", nbins=4)


def main() -> int:
    if "--scale" in sys.argv[1:]:
        return learning_scale.main([word for word in sys.argv[1:] if word != "--scale"])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", nargs="+", choices=TASKS, default=list(TASKS), metavar="NAME", help="default: all")
    parser.add_argument("--seeds", type=int, default=5, help="seeds 0 to N - 1 (default %(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time (default %(default)s)")
    parser.add_argument("--report", action="store_true", help="write the page and its plots, train nothing")
    parser.add_argument("--only-seed", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.only_seed is not None:
        print(json.dumps(run_here(args.policy[0], args.only_seed)))
        return 0
    return report() if args.report else measure(args.policy, args.seeds, args.jobs)


if __name__ == "__main__":
    raise SystemExit(main())
