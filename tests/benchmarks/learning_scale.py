"""Tasks that the field knows, by our recipes and by Stable-Baselines3 with the same hyper-parameters, or RL Zoo's.

    python -m tests.benchmarks.learning --scale                                # all runs that are missing, one by one
    python -m tests.benchmarks.learning --scale --only 'CartPole*' --jobs 2    # some of them, two at a time
    python -m tests.benchmarks.learning --scale --list                         # what is there and what is missing
    python -m tests.benchmarks.learning --report                               # the pages and plots of what is there

A run is a task, a policy, a library and a seed: a process of its own with one torch thread. It is kept as
`docs/learning/scale/<task>-<policy>-<library>-<seed>.jsonl`: a line an evaluation, and a last line about the run.
Runs that have this line are not repeated; delete the file for that. The hyper-parameters are those of the recipe
that `train` finds, `learning_peer.py` translates them; the peer's DQN has those of RL Zoo. Evaluations of both
libraries play the same episodes, greedily.

Process CPU time (user and system) can be compared on a busy machine; wall clock counts only where `quiet` is true: no
other process was waiting for a core at the start and at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "learning" / "scale"
OURS, PEER = "ours", "sb3"


@dataclass(frozen=True)
class Task:
    """An env, with the policies that train on it.

    Attributes:
        budgets: env steps by policy.
        every: env steps between two evaluations, by policy.
        seeds: of both libraries.
        words: the goal in words.
        goal: the mean return that solves it; None where the peer is the measure.
        is_compared_by_return: whether the peer's final return, not its env steps to the goal, is the measure.
        episodes: of an evaluation.
        peers: the policies that the peer has.
        ends_at_goal: whether a run ends at the first evaluation that reaches the goal.
        more_seeds: further seeds of ours, by policy.
    """

    env_id: str
    budgets: dict[str, int]
    every: dict[str, int]
    seeds: int
    words: str
    goal: float | None = None
    is_compared_by_return: bool = False
    episodes: int = 10
    peers: tuple[str, ...] = ("dqn", "ppo", "a2c", "sac", "td3")
    ends_at_goal: bool = False
    more_seeds: dict[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.env_id.replace("/", "_")


CONTROL = {"dqn": 100_000, "ppo": 200_000, "a2c": 200_000}
CONTROL_EVERY = {"dqn": 4_000, "ppo": 8_000, "a2c": 8_000}
LANDER = {"dqn": 300_000, "ppo": 1_000_000}
LOCOMOTION = {"sac": 100_000, "td3": 100_000, "ppo": 1_000_000}
LOCOMOTION_EVERY = {"sac": 5_000, "td3": 5_000, "ppo": 40_000}
MINATAR = {"dqn": 1_000_000, "rainbow": 1_000_000}
MINATAR_EVERY = {"dqn": 50_000, "rainbow": 50_000}
NO_PEER = "none: Stable-Baselines3 has no network for images of 10 x 10, and no figure at this budget was at hand"
IN_INTERVAL = "a final return within or above the interval of Stable-Baselines3"
TASKS = (
    Task("CartPole-v1", CONTROL, CONTROL_EVERY, 5, "475, by no more env steps than Stable-Baselines3", 475),
    Task("Acrobot-v1", CONTROL, CONTROL_EVERY, 5, "-100, by no more env steps than Stable-Baselines3", -100),
    Task(
        "LunarLander-v3", LANDER, {"dqn": 15_000, "ppo": 48_000}, 3, f"200, and {IN_INTERVAL}", 200,
        is_compared_by_return=True, more_seeds={"dqn": 2},
    ),
    Task("Hopper-v5", LOCOMOTION, LOCOMOTION_EVERY, 3, IN_INTERVAL, episodes=5),
    Task("HalfCheetah-v5", LOCOMOTION, LOCOMOTION_EVERY, 3, IN_INTERVAL, episodes=5),
    Task("MinAtar/Breakout-v1", MINATAR, MINATAR_EVERY, 3, NO_PEER, peers=()),
    Task("Pong-v5", {"ppo": 5_000_000}, {"ppo": 100_000}, 1, "18, on two CPU cores", 18, peers=(), ends_at_goal=True),
)  # fmt: skip


@dataclass(frozen=True)
class Unit:
    """One run."""

    task: Task
    policy: str
    library: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.task.name}-{self.policy}-{self.library}-{self.seed}"

    @property
    def path(self) -> Path:
        return RESULTS / f"{self.name}.jsonl"

    @property
    def budget(self) -> int:
        return self.task.budgets[self.policy]

    def result(self) -> Result | None:
        """What is kept of the run, or None if it has not ended."""
        if not self.path.exists():
            return None
        *evaluations, last = map(json.loads, self.path.read_text().splitlines())
        return Result(self, evaluations, last) if "cpu_seconds" in last else None


@dataclass(frozen=True)
class Result:
    """A run that has ended."""

    unit: Unit
    evaluations: list[dict[str, Any]]
    about: dict[str, Any]

    @property
    def curve(self) -> list[tuple[int, float]]:
        """(env steps, mean return) of each evaluation."""
        return [(line["env_steps"], sum(line["returns"]) / len(line["returns"])) for line in self.evaluations]

    def steps_to(self, goal: float) -> int | None:
        """The env steps until the first evaluation that reaches `goal`."""
        return next((steps for steps, value in self.curve if value >= goal), None)


def units() -> list[Unit]:
    """All runs, the first seeds of cheap tasks first."""
    found = [
        Unit(task, policy, library, seed)
        for task in TASKS
        for policy in task.budgets
        for library in (OURS, PEER)
        if library == OURS or policy in task.peers
        for seed in range(task.seeds + (task.more_seeds.get(policy, 0) if library == OURS else 0))
    ]
    return sorted(found, key=_priority)


# A rough price of a run, for the order: minutes on one core.
_MINUTES = {
    "CartPole-v1": 1,
    "Acrobot-v1": 1,
    "LunarLander-v3": 5,
    "Hopper-v5": 12,
    "HalfCheetah-v5": 12,
    "MinAtar_Breakout-v1": 10,
    "Pong-v5": 60,
}


def _priority(unit: Unit) -> tuple[Any, ...]:
    price = _MINUTES.get(unit.task.name, 30) + (20 if unit.policy == "ppo" and unit.budget >= 1_000_000 else 0)
    return price * (1 + unit.seed), unit.seed


# --- one run, in this process ---


def configs(unit: Unit) -> tuple[Any, Any]:
    """The recipe of a run: its evaluations play an episode in each env, and nothing ends it early."""
    from ding.entry.recipes import find_recipe

    recipe = find_recipe(unit.policy, unit.task.env_id)
    assert recipe is not None, unit
    main, create = recipe.configs
    main.env.update(env_id=unit.task.env_id, n_evaluator_episode=unit.task.episodes)
    main.env.update(evaluator_env_num=unit.task.episodes)
    if unit.task.ends_at_goal:
        main.env.stop_value = unit.task.goal
    main.exp_name = unit.name
    return main, create


def iterations_between_evaluations(main: Any, create: Any, env_steps: int) -> int:
    """The `eval_freq` that evaluates every so many env steps."""
    from ding.config.config import resolve_class

    learn = {**resolve_class("policy", create.policy).default_config().learn, **main.policy.learn}
    n_sample = main.policy.collect.n_sample
    if "epoch_per_collect" in learn:
        updates = learn["epoch_per_collect"] * -(-n_sample // learn["batch_size"])
    elif create.policy.type == "a2c":
        updates = 1
    else:
        updates = learn["update_per_collect"]
    return max(1, round(env_steps * updates / n_sample))


def run_here(unit: Unit) -> None:
    """Train in this process and the current folder; keep what was measured."""
    import torch

    torch.set_num_threads(1)
    main, create = configs(unit)
    every, lines = unit.task.every[unit.policy], []
    load, start, cpu = os.getloadavg()[0], time.perf_counter(), _cpu_seconds()
    if unit.library == OURS:
        from ding.entry.experiment import run_pipeline
        from ding.entry.serial_entry import rounds_for

        freq = iterations_between_evaluations(main, create, every)
        main.policy.eval = {"evaluator": {"eval_freq": freq}}
        how = {"seed": unit.seed, "max_env_step": unit.budget, "strict_config": True}
        run_pipeline(rounds_for(main, create), (main, create), **how)
        kept = map(json.loads, Path(main.exp_name, "eval.jsonl").read_text().splitlines())
        lines = [{"env_steps": line["env_step"], "returns": line["returns"]} for line in kept]
    else:
        from ding.entry.experiment import Experiment
        from tests.benchmarks.learning_peer import train_peer

        main = Experiment.from_config((main, create)).main
        take = partial(_take, lines)
        train_peer(main, create, unit.seed, unit.budget, every, take)
    about = {
        "task": unit.task.name,
        "policy": unit.policy,
        "library": unit.library,
        "seed": unit.seed,
        "budget": unit.budget,
        "seconds": round(time.perf_counter() - start, 1),
        "cpu_seconds": round(_cpu_seconds() - cpu, 1),
        "load": [round(load, 2), round(os.getloadavg()[0], 2)],
        "quiet": max(load, os.getloadavg()[0] - 1) <= 0.5,
        "versions": _versions(unit.library),
    }
    text = "".join(json.dumps(line) + "\n" for line in [*map(_rounded, lines), about])
    RESULTS.mkdir(parents=True, exist_ok=True)
    part = unit.path.with_suffix(".part")
    part.write_text(text)
    part.rename(unit.path)


def _take(lines: list[dict[str, Any]], env_steps: int, returns: list[float]) -> None:
    lines.append({"env_steps": env_steps, "returns": returns})


def _rounded(line: dict[str, Any]) -> dict[str, Any]:
    return {**line, "returns": [round(value, 2) for value in line["returns"]]}


def _cpu_seconds() -> float:
    """User and system time of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _versions(library: str) -> dict[str, str]:
    import importlib.metadata

    names = ("torch", "numpy", "gymnasium", *(("stable_baselines3",) if library == PEER else ()))
    return {name: importlib.metadata.version(name) for name in names}


# --- many runs ---


def run_apart(unit: Unit) -> str:
    """Train in a process and a folder of its own; return what to print."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.benchmarks.learning", "--scale", "--run-here", unit.name]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    result = unit.result()
    if result is None:
        return f"{unit.name}: exit status {done.returncode}\n{done.stderr[-3000:]}"
    steps, value = result.curve[-1]
    return f"{unit.name}: {value:.1f} after {steps} env steps, {result.about['cpu_seconds']} s of CPU"


def run(chosen: list[Unit], jobs: int, max_seconds: float) -> int:
    """Run those that are missing, in order; none begins after `max_seconds`."""
    end = time.monotonic() + max_seconds
    missing = [unit for unit in chosen if unit.result() is None]

    def one(unit: Unit) -> bool:
        if time.monotonic() > end:
            return False
        print(run_apart(unit), flush=True)
        return unit.result() is not None

    with ThreadPoolExecutor(jobs) as pool:
        return 0 if all(list(pool.map(one, missing))) else 1


def results() -> Iterator[Result]:
    """All runs that have ended."""
    for unit in units():
        result = unit.result()
        if result is not None:
            yield result


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=["*"], metavar="PATTERN", help="names of runs; default: all")
    parser.add_argument("--library", nargs="+", choices=(OURS, PEER), default=[OURS, PEER])
    parser.add_argument("--seeds", type=int, default=99, help="seeds below this one")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time (default %(default)s)")
    parser.add_argument("--max-seconds", type=float, default=float("inf"), help="no run begins after that many")
    parser.add_argument("--list", action="store_true", help="print the runs and whether they are there")
    parser.add_argument("--run-here", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.run_here is not None:
        run_here(next(unit for unit in units() if unit.name == args.run_here))
        return 0
    chosen = [
        unit
        for unit in units()
        if unit.library in args.library
        and unit.seed < args.seeds
        and any(fnmatchcase(unit.name, pattern) for pattern in args.only)
    ]
    if args.list:
        for unit in chosen:
            print("missing" if unit.result() is None else "there  ", unit.name)
        return 0
    return run(chosen, args.jobs, args.max_seconds)
