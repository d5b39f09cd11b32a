"""Experts for the tasks that learn from demonstrations: policies that have solved another task."""

from typing import Any

import numpy as np

from ding.entry import collect_demo_data, serial_pipeline
from tests.benchmarks.learning_tasks import TASKS


def train_expert(name: str, seed: int) -> tuple[Any, Any, str]:
    """Train the policy of the task `name` in the folder `expert`; returns its configs and its best checkpoint."""
    main, create = TASKS[name].configs()
    main.exp_name = "expert"
    serial_pipeline((main, create), seed=seed, max_env_step=TASKS[name].budget)
    return main, create, "expert/ckpt/ckpt_best.pth.tar"


def cartpole_steps(name: str, seed: int, number: int) -> str:
    """Save `number` steps of an expert; returns the path of the file."""
    main, create, state = train_expert(name, seed)
    main.policy.update(nstep=1)
    main.policy.collect.data_type = "npz"
    collect_demo_data((main, create), seed, number, "expert", state_dict_path=state)
    return "expert_demos.npz"


def pendulum_steps(seed: int, number: int) -> str:
    """Save `number` steps, of which a fifth are of an untrained policy, the others of a good SAC; returns the path."""
    main, create = TASKS["sac"].configs()
    main.exp_name, main.env.stop_value = "expert", -140
    main.policy.learn.update_per_collect = 5
    serial_pipeline((main, create), seed=seed, max_env_step=15_000)
    main.policy.collect.data_type = "npz"
    few = number // 5
    for name, count, own_seed in (("ckpt_best", number - few, seed), ("iteration_0", few, seed + 1)):
        state = f"expert/ckpt/{name}.pth.tar"
        collect_demo_data((main, create), own_seed, count, name, state_dict_path=state)
    with np.load("ckpt_best_demos.npz") as good, np.load("iteration_0_demos.npz") as bad:
        np.savez("mixed_demos.npz", **{key: np.concatenate([good[key], bad[key]]) for key in good.files})
    return "mixed_demos.npz"
