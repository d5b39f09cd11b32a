"""What parallel training buys: seconds until DQN solves CartPole-v1 with steps of 5 ms, by ways to train.

    python -m tests.benchmarks.learning_slow                      # all ways, three seeds; a line a run
    python -m tests.benchmarks.learning_slow --ways serial ray    # some of them
    python -m tests.benchmarks.learning_slow --report             # the table of what is kept

Eight envs collect in each way: stepped in turn, or in a process each, which collectors divide among themselves. A run
ends at the first evaluation whose mean return is 195; while it is played, collectors go on. Runs are kept in
`docs/learning/scale/slow.jsonl` and not repeated. Wall clocks mean something on an idle machine only; the load of the
machine is kept with each.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import statistics
import time
from typing import Any

import gymnasium

from tests.benchmarks.learning_scale import RESULTS
from tests.benchmarks.original_configs import run_apart

KEPT = RESULTS / "slow.jsonl"
STEP_S, SEEDS, MAX_ENV_STEP, ENVS = 0.005, 3, 60_000, 8
COLLECTORS = {"parallel, 1 collector": 1, "parallel, 2 collectors": 2, "parallel, 4 collectors": 4, "ray": 2}
WAYS = ("serial", "subprocess", *COLLECTORS)


class Slow(gymnasium.Wrapper):
    """Each step takes so many seconds more, in which the core is free, as with a simulator in another program."""

    def __init__(self, env: Any, seconds: float) -> None:
        super().__init__(env)
        self._seconds = seconds

    def step(self, action: Any) -> Any:
        time.sleep(self._seconds)
        return self.env.step(action)


def configs(way: str, step_s: float = STEP_S) -> tuple[Any, Any, Any]:
    """The three configs of a way to train; the system config counts for the parallel ones."""
    from ding.example.cartpole_dqn_parallel import create_config, main_config, system_config

    main, create, system = map(copy.deepcopy, (main_config, create_config, system_config))
    main.env.wrappers = [("tests.benchmarks.learning_slow:Slow", {"seconds": step_s})]
    main.exp_name = "slow"
    main.policy.learn.update_per_collect = 4
    if way in COLLECTORS:
        number = COLLECTORS[way]
        main.env.collector_env_num = ENVS // number
        main.policy.collect.collector.collector_num = number
        main.policy.other.commander.update(collector_task_space=number, eval_interval=1000, eval_interval_env_step=400)
        create.env_manager.type = "subprocess"
    else:
        create = type(create)({key: create[key] for key in ("env", "env_manager", "policy")})
        create.env_manager.type = "subprocess" if way == "subprocess" else "base"
        main.policy.collect.pop("collector")
        main.policy.other.pop("commander")
        main.policy.eval = {"evaluator": {"eval_freq": 200}}
        for key in ("collector_episode_num", "evaluator_episode_num"):
            main.env.pop(key)
    return main, create, system


def run_here(way: str, seed: int, step_s: float = STEP_S, max_env_step: int = MAX_ENV_STEP) -> dict[str, Any]:
    """Train in this process, in the current folder."""
    import torch

    from ding.entry import parallel_pipeline, serial_pipeline
    from ding.entry.run_folder import RunFolder, read_evaluations

    torch.set_num_threads(1)
    main, create, system = configs(way, step_s)
    load, start = os.getloadavg()[0], time.perf_counter()
    if way in COLLECTORS:
        platform = "ray" if way == "ray" else "local"
        parallel_pipeline((main, create, system), seed=seed, max_env_step=max_env_step, platform=platform)
    else:
        serial_pipeline((main, create), seed=seed, max_env_step=max_env_step)
    seconds, result = time.perf_counter() - start, RunFolder(main.exp_name).result()
    last = read_evaluations(main.exp_name)[-1]
    return {
        "way": way,
        "seed": seed,
        "seconds": round(seconds, 1),
        "solved": bool(result["stop"]),
        "env_steps": last["env_step"] if result["stop"] else result["env_step"],
        "all_env_steps": result["env_step"],
        "load": [round(load, 2), round(os.getloadavg()[0], 2)],
    }


def kept() -> list[dict[str, Any]]:
    """The runs that have ended."""
    return [json.loads(line) for line in KEPT.read_text().splitlines()] if KEPT.exists() else []


def table(runs: list[dict[str, Any]]) -> list[str]:
    """A row for each way that has runs."""
    if not runs:
        return []
    rows = [
        "| way | seeds | solved | env steps: of the weights / in all | seconds: median / most | load at the start |"
    ]
    rows += ["|---|---|---|---|---|---|"]
    for way in WAYS:
        own = [run for run in runs if run["way"] == way]
        if own:
            seconds, steps, total = ([run[key] for run in own] for key in ("seconds", "env_steps", "all_env_steps"))
            solved = f"{sum(run['solved'] for run in own)} of {len(own)}"
            clocks = f"{statistics.median(seconds):.0f} / {max(seconds):.0f}"
            load = max(run["load"][0] for run in own)
            counts = f"{statistics.median(steps):,.0f} / {statistics.median(total):,.0f}"
            rows.append(f"| {way} | {len(own)} | {solved} | {counts} | {clocks} | {load} |")
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--seeds", type=int, default=SEEDS, help="seeds 0 to N - 1 (default %(default)s)")
    parser.add_argument("--report", action="store_true", help="print the table, train nothing")
    parser.add_argument("--run-here", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.run_here:
        print(json.dumps(run_here(args.run_here[0], int(args.run_here[1]))))
        return 0
    if not args.report:
        there = {(run["way"], run["seed"]) for run in kept()}
        for seed in range(args.seeds):
            for way in args.ways:
                if (way, seed) not in there:
                    line = json.dumps(run_apart(seed, "tests.benchmarks.learning_slow", "--run-here", way))
                    print(line, flush=True)
                    RESULTS.mkdir(parents=True, exist_ok=True)
                    with KEPT.open("a") as file:
                        file.write(f"{line}\n")
    print("\n".join(table(kept())))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
