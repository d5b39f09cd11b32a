"""CQL on Pendulum-v1: a SAC expert is trained, its steps are saved, and CQL learns from them only.

Run it with `python -m ding.example.pendulum_cql [--seed N]`. With a data set at hand, give this file's path to
`serial_pipeline_offline`.
"""

import copy
import os
from collections.abc import Sequence

from easydict import EasyDict

from ding.entry.application_entry import collect_demo_data
from ding.entry.serial_entry import serial_pipeline
from ding.entry.serial_entry_offline import run_serial_offline
from ding.entry.serial_run import SerialRun
from ding.example.pendulum_sac import pendulum_sac_config, pendulum_sac_create_config
from ding.example.runner import run

pendulum_cql_config = EasyDict(
    exp_name="pendulum_cql",
    env={
        "type": "gymnasium",
        "env_id": "Pendulum-v1",
        # The policy acts in [-1, 1].
        "act_scale": True,
        "evaluator_env_num": 5,
        "n_evaluator_episode": 10,
        "stop_value": -250,
    },
    policy={
        "cuda": False,
        "model": {
            "obs_shape": 3,
            "action_shape": 1,
            "actor_head_hidden_size": 128,
            "critic_head_hidden_size": 128,
        },
        "learn": {
            "train_epoch": 30,
            "batch_size": 128,
            "learning_rate_q": 0.001,
            "learning_rate_policy": 0.001,
            "num_actions": 4,
        },
        "collect": {"data_type": "npz", "data_path": "pendulum_cql_demos.npz"},
        "eval": {"evaluator": {"eval_freq": 100}},
    },
)
pendulum_cql_create_config = EasyDict(
    env={"type": "gymnasium"},
    env_manager={"type": "base"},
    policy={"type": "cql"},
)
main_config, create_config = pendulum_cql_config, pendulum_cql_create_config
# Steps of the expert.
COUNT = 20_000


def collect_and_train(pair: Sequence[EasyDict], seed: int, max_env_step: int) -> SerialRun:
    """Train the expert for up to `max_env_step` env steps, save `COUNT` of its steps, and train on these."""
    main, create = pair
    expert = copy.deepcopy(pendulum_sac_config)
    expert.exp_name = f"{main.exp_name}_expert"
    serial_pipeline((expert, pendulum_sac_create_config), seed=seed, max_env_step=max_env_step)
    expert.policy.collect.data_type = main.policy.collect.data_type
    path = main.policy.collect.data_path.removesuffix("_demos.npz")
    checkpoint = os.path.join(expert.exp_name, "ckpt", "ckpt_best.pth.tar")
    collect_demo_data((expert, pendulum_sac_create_config), seed, COUNT, path, state_dict_path=checkpoint)
    return run_serial_offline((main, create), seed=seed)


if __name__ == "__main__":
    raise SystemExit(run(main_config, create_config, train=collect_and_train, max_env_step=100_000))
