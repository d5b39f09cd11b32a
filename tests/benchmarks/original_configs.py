"""Env steps to the stop value on DI-engine's own CartPole examples, against those of DI-engine.

    python -m tests.benchmarks.original_configs --policies qrdqn ppo_offpolicy --seeds 0-9
    python -m tests.benchmarks.original_configs --summary       # trains nothing

Prints a JSON line a seed, and a summary a policy: our median, DI-engine's, and their ratio. Each seed trains in a
process of its own with one torch thread. Results are appended to `docs/learning/original_configs.jsonl`, and seeds that
are there are not trained again: delete their lines after a change to a policy. A run that ends without the stop value
counts as longer than any other. The exit status is 0 when every ratio is at most 1.25.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

from easydict import EasyDict

from tests.benchmarks import learning_tasks
from tests.benchmarks.learning_tasks import GONE, changed

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "learning" / "original_configs.jsonl"
# Env steps to the stop value in DI-engine 0.5.3, by policy and seed; None where a run ended without it.
ORIGINAL: dict[str, dict[str, int | None]] = json.loads(RESULTS.with_name("original_di_engine.json").read_text())
GOAL, MAX_ENV_STEP = 1.25, 150_000

_EVERY = "policy.eval.evaluator.eval_freq"
# What the examples set otherwise than our own tasks. All use CartPole with at most 200 steps an episode.
TASKS: dict[str, dict[str, Any]] = {
    "dqn": {"env.n_evaluator_episode": 5, "replay_buffer.type": "deque"},
    "c51": {_EVERY: 40},
    "qrdqn": {"policy.learn.kappa": 1.0, "policy.priority": GONE},
    "iqn": {_EVERY: 40, "policy.learn.kappa": 1.0, "policy.priority": GONE},
    "rainbow": {},
    "mdqn": {_EVERY: 40, "policy.learn.target_update_freq": GONE, "replay_buffer.type": "deque"},
    "sql": {_EVERY: 50, "policy.learn.target_update_freq": GONE, "policy.learn.update_per_collect": GONE},
    "a2c": {"policy.collect.discount_factor": GONE},
    "ppo": {},
    "pg": {},
    "ppo_offpolicy": {"policy.model.action_space": "discrete"},
    "impala": {
        "policy.collect.discount_factor": 0.9,
        "policy.collect.gae_lambda": 0.95,
        "policy.other.replay_buffer.replay_buffer_size": 1000,
    },
    "discrete_sac": {
        "policy.other.eps": {"type": "exp", "start": 0.95, "end": 0.1, "decay": 50000},
        "replay_buffer": GONE,
    },
    "r2d2": {"policy.collect.traj_len_inf": True, "policy.learn.target_update_theta": 0.001},
}

Result = dict[str, Any]


def configs(policy: str) -> tuple[Any, Any]:
    """The pair (main config, create config) of an example."""
    task = learning_tasks.TASKS[policy]
    changes = {"env.env_id": "CartPole-v0", **TASKS[policy]}
    main = changed(task.main_config, {path: v for path, v in changes.items() if path.startswith(("env", "policy"))})
    create = changed(task.create_config, {path: v for path, v in changes.items() if path.startswith("replay_buffer")})
    return EasyDict(main), EasyDict(create)


def run_here(policy: str, seed: int) -> Result:
    """Train in this process, in the current folder."""
    import torch

    import ding.entry

    torch.set_num_threads(1)
    main, create = configs(policy)
    main.exp_name = f"{policy}_seed{seed}"
    pipeline = getattr(ding.entry, learning_tasks.TASKS[policy].pipeline)
    start = time.perf_counter()
    pipeline((main, create), seed=seed, max_env_step=MAX_ENV_STEP)
    seconds = time.perf_counter() - start
    last = json.loads(Path(main.exp_name, "eval.jsonl").read_text().splitlines()[-1])
    return {
        "policy": policy,
        "seed": seed,
        "env_steps": last["env_step"],
        "iterations": last["train_iter"],
        "reached": sum(last["returns"]) / len(last["returns"]) >= main.env.stop_value,
        "seconds": round(seconds, 1),
    }


def run_apart(seed: int, *arguments: str) -> Result:
    """Run `python -m <arguments>`, which trains one seed, in a folder of its own; returns what its last line tells.

    Raises:
        RuntimeError: the process has failed; with its last lines.
    """
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", *arguments, str(seed)]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr[-3000:]}")
    result: Result = json.loads(done.stdout.splitlines()[-1])
    return result


def run_seed(policy: str, seed: int) -> Result:
    """Train in a process and a folder of their own; see `run_apart`."""
    return run_apart(seed, "tests.benchmarks.original_configs", "--policies", policy, "--run-here")


def kept(results: Path) -> list[Result]:
    """The results so far, in the order of the policies and their seeds."""
    lines = results.read_text().splitlines() if results.exists() else []
    order = list(TASKS)
    return sorted(map(json.loads, lines), key=lambda result: (order.index(result["policy"]), result["seed"]))


def measure(policies: list[str], seeds: list[int], jobs: int, results: Path) -> None:
    """Train what `results` lacks, append each result to it, and print those of these policies and seeds."""
    there = {(result["policy"], result["seed"]) for result in kept(results)}
    missing = [(policy, seed) for policy in policies for seed in seeds if (policy, seed) not in there]
    with ThreadPoolExecutor(jobs) as pool, results.open("a") as file:
        for result in pool.map(run_seed, *zip(*missing, strict=True)) if missing else ():
            print(json.dumps(result), flush=True)
            file.write(json.dumps(result) + "\n")
            file.flush()


def steps_of(runs: Iterable[Result]) -> list[float]:
    return [run["env_steps"] if run["reached"] else math.inf for run in runs]


def summary(policy: str, runs: list[Result]) -> dict[str, Any]:
    """Medians of ours and of DI-engine, and their ratio; None where half of the runs missed the stop value."""
    ours = median(steps_of(runs))
    theirs = median(math.inf if steps is None else steps for steps in ORIGINAL[policy].values())
    return {
        "policy": policy,
        "seeds": len(runs),
        "reached": sum(run["reached"] for run in runs),
        "median": None if ours == math.inf else ours,
        "original_seeds": len(ORIGINAL[policy]),
        "original_reached": sum(steps is not None for steps in ORIGINAL[policy].values()),
        "original_median": None if theirs == math.inf else theirs,
        "ratio": None if math.inf in (ours, theirs) else round(ours / theirs, 2),
    }


def summaries(policies: Iterable[str], results: Path) -> list[dict[str, Any]]:
    """A summary for each of the policies that has results."""
    runs = kept(results)
    own = {policy: [run for run in runs if run["policy"] == policy] for policy in policies}
    return [summary(policy, own[policy]) for policy in policies if own[policy]]


def section(results: Path) -> list[str]:
    """The lines of the page of results; none without results."""
    runs = kept(results)
    rows = [_row(policy, [run for run in runs if run["policy"] == policy]) for policy in TASKS]
    if not runs:
        return []
    return [
        "## DI-engine's CartPole examples",
        "",
        "```bash",
        "python -m tests.benchmarks.original_configs",
        "```",
        "",
        "The table has the env steps to the stop value with the settings of DI-engine's own examples: CartPole with at",
        f"most 200 steps in an episode, the stop value 195, and at most {MAX_ENV_STEP:,} env steps. DI-engine 0.5.3",
        "ran on its own env, which treats a time limit as a terminal state. A run that misses the stop value counts as",
        "longer than any other. The ratio is that of the medians. In R2D2's example, the target network moves by a",
        "thousandth in each iteration, so runs that do not solve the task early stay at returns of about 120 for long.",
        "",
        "| policy | reached | env steps: least / median / most | DI-engine: reached | least / median / most | ratio |",
        "|---|---|---|---|---|---|",
        *filter(None, rows),
        "",
    ]


def _row(policy: str, runs: list[Result]) -> str | None:
    if not runs:
        return None
    row = summary(policy, runs)
    theirs = [math.inf if steps is None else steps for steps in ORIGINAL[policy].values()]
    return (
        f"| `{policy}` | {row['reached']} of {row['seeds']} | {_spread(steps_of(runs))} | "
        f"{row['original_reached']} of {row['original_seeds']} | {_spread(theirs)} | {row['ratio'] or 'none'} |"
    )


def _spread(steps: Sequence[float]) -> str:
    """The least, the median and the most; 'missed' for those that are infinite."""
    shown = (min(steps), median(steps), max(steps))
    return " / ".join("missed" if value == math.inf else f"{value:,.0f}" for value in shown)


def as_seeds(text: str) -> list[int]:
    """The seeds of '3' or '0-9'."""
    first, _, last = text.partition("-")
    return list(range(int(first), int(last or first) + 1))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--policies", nargs="+", choices=TASKS, default=list(TASKS), metavar="NAME", help="default: all"
    )
    parser.add_argument("--seeds", type=as_seeds, default=as_seeds("0-9"), help="such as 3 or 0-9, the default")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time (default %(default)s)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the file of results (default %(default)s)")
    parser.add_argument("--summary", action="store_true", help="print the summaries, train nothing")
    parser.add_argument("--run-here", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.run_here is not None:
        print(json.dumps(run_here(args.policies[0], args.run_here)))
        return 0
    if not args.summary:
        measure(args.policies, args.seeds, args.jobs, args.results)
    rows = summaries(args.policies, args.results)
    for row in rows:
        print(json.dumps(row), flush=True)
    return 0 if all(row["ratio"] is not None and row["ratio"] <= GOAL for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
