"""Experts for the tasks that learn from demonstrations: policies that have solved another task."""

from __future__ import annotations

import copy
from typing import Any

from easydict import EasyDict

from ding.entry import collect_demo_data, serial_pipeline
from tests.benchmarks.learning import task_of


def train_expert(name: str, seed: int) -> tuple[Any, Any, str]:
    """Train the policy of the task `name` in the folder `expert`; returns its configs and its best checkpoint."""
    task = task_of(name)
    main, create = EasyDict(copy.deepcopy(task.main_config)), EasyDict(copy.deepcopy(task.create_config))
    main.exp_name = "expert"
    serial_pipeline((main, create), seed=seed, max_env_step=task.budget)
    return main, create, "expert/ckpt/ckpt_best.pth.tar"


def demonstrate(name: str, seed: int, number: int, data_type: str = "npz") -> str:
    """Save `number` transitions, of one step each, of an expert; returns the path of the file."""
    main, create, state = train_expert(name, seed)
    main.policy.nstep = 1
    main.policy.collect.data_type = data_type
    collect_demo_data((main, create), seed, number, "demonstrations.pkl", state_dict_path=state)
    return {"naive": "demonstrations.pkl"}.get(data_type, f"demonstrations_demos.{data_type}")
