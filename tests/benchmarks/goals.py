"""Success rates with and without goals reached in hindsight; `docs/guides/goals.md` shows the table.

`python -m tests.benchmarks.goals --seeds 0 1 2` trains what is missing in `docs/benchmarks/goals.jsonl`, each run with
one thread, and prints the table.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ding import train
from tests.goal_envs import BitFlip, Reach

RESULTS = Path(__file__).parents[2] / "docs" / "benchmarks" / "goals.jsonl"
EPISODES = 100  # of the final evaluation

_BITS = {
    "n_sample": 16,
    "update_per_collect": 4,
    "batch_size": 128,
    "discount_factor": 0.98,
    "config": {
        "policy.model": {
            "obs_shape": {"achieved_goal": 15, "desired_goal": 15},
            "encoder_hidden_size_list": [256],
        },
        "policy.learn": {"target_theta": 0.05, "target_update_freq": None},
        "policy.other.eps": {"end": 0.05},
    },
}
_REACH = {
    "n_sample": 32,
    "update_per_collect": 16,
    "batch_size": 128,
    "discount_factor": 0.95,
    "random_collect_size": 1000,
    "config": {
        "policy.model": {
            "obs_shape": {"observation": 4, "desired_goal": 2},
            "encoder_hidden_size_list": [64, 64],
        },
        "policy.eval.evaluator.eval_freq": 1000,
    },
}
_DETERMINISTIC = {
    **_REACH,
    "config": {**_REACH["config"], "policy.learn.learning_rate_actor": 3e-4, "policy.collect.noise_sigma": 0.2},
}
# The env and the env steps of each task, and the settings of its policies.
TASKS: dict[str, tuple[Any, int, dict[str, dict[str, Any]]]] = {
    "flip 15 bits": (BitFlip, 8_000, {"dqn": _BITS}),
    "reach a point": (Reach, 12_000, {"ddpg": _DETERMINISTIC, "td3": _DETERMINISTIC, "sac": _REACH}),
}


def success_rate(task: str, policy: str, her: bool, seed: int) -> float:
    """Train, and return the share of the episodes of another seed that the best checkpoint solves."""
    env, env_steps, settings = TASKS[task]
    with tempfile.TemporaryDirectory() as folder:
        training = train(
            policy,
            env,
            env_steps=env_steps,
            her=her,
            seed=seed,
            eval_episodes=10,
            folder=f"{folder}/run",
            **settings[policy],
        )
        rate = training.evaluate(EPISODES, seed=seed + 1000).success_rate
    assert rate is not None
    return rate


def results() -> list[dict[str, Any]]:
    """Return the stored results, one for each run."""
    lines = RESULTS.read_text(encoding="utf-8").splitlines() if RESULTS.exists() else []
    return [json.loads(line) for line in lines]


def table(found: list[dict[str, Any]]) -> str:
    """Return the mean success rates as a table in Markdown, with the lowest and the highest of the seeds."""
    lines = ["| task | policy | env steps | without | `her=True` |", "|---|---|---|---|---|"]
    for task, (_, env_steps, policies) in TASKS.items():
        for policy in policies:
            cells = []
            for her in (False, True):
                own = [each for each in found if (each["task"], each["policy"], each["her"]) == (task, policy, her)]
                rates = [each["success_rate"] for each in own]
                cells.append(f"{np.mean(rates):.2f} ({min(rates):.2f} to {max(rates):.2f})" if rates else "-")
            lines.append(f"| {task} | `{policy}` | {env_steps:,} | {cells[0]} | {cells[1]} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--policies", nargs="+", default=["dqn", "ddpg", "td3", "sac"])
    torch.set_num_threads(1)
    chosen = parser.parse_args()
    runs = [
        {"task": task, "policy": policy, "her": her, "seed": seed}
        for seed in chosen.seeds
        for task, (*_, policies) in TASKS.items()
        for her in (True, False)
        for policy in policies
        if policy in chosen.policies
    ]
    for run in runs:
        if not any(run.items() <= each.items() for each in results()):
            rate = success_rate(**run)
            with open(RESULTS, "a", encoding="utf-8") as file:
                file.write(json.dumps({**run, "success_rate": rate}) + "\n")
    print(table(results()))


if __name__ == "__main__":
    main()
