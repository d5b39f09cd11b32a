"""DQN on CartPole-v1 with a learner and two collectors in separate processes.

Run it with `python -m ding.example.cartpole_dqn_parallel [--seed N]`, or give this file's path to `parallel_pipeline`.
"""

from __future__ import annotations

from collections.abc import Sequence

from easydict import EasyDict

from ding.example.runner import run_on_workers

cartpole_dqn_config = EasyDict(
    exp_name="cartpole_dqn_parallel",
    env={
        "type": "gymnasium",
        "env_id": "CartPole-v1",
        "collector_env_num": 8,
        "collector_episode_num": 2,
        "evaluator_env_num": 5,
        "evaluator_episode_num": 2,
        "n_evaluator_episode": 10,
        "stop_value": 195,
    },
    policy={
        "cuda": False,
        "nstep": 3,
        "discount_factor": 0.97,
        "model": {"obs_shape": 4, "action_shape": 2, "encoder_hidden_size_list": [128, 128], "dueling": False},
        "learn": {"batch_size": 32, "learning_rate": 0.001, "target_update_freq": 100},
        "collect": {"n_sample": 16, "collector": {"collector_num": 2, "update_policy_second": 0.5}},
        "other": {
            "eps": {"type": "exp", "start": 0.95, "end": 0.1, "decay": 10000},
            "replay_buffer": {"replay_buffer_size": 20000},
            "commander": {
                "collector_task_space": 2,
                "learner_task_space": 1,
                "eval_interval": 3,
                "eval_interval_env_step": 2000,
            },
        },
    },
)
cartpole_dqn_create_config = EasyDict(
    env={"type": "gymnasium"},
    env_manager={"type": "base"},
    policy={"type": "dqn"},
    learner={"type": "base"},
    collector={"type": "zergling"},
    commander={"type": "solo"},
    comm_learner={"type": "flask_fs"},
    comm_collector={"type": "flask_fs"},
)
cartpole_dqn_system_config = EasyDict(coordinator={}, communication_mode="auto", learner_gpu_num=1)
main_config, create_config = cartpole_dqn_config, cartpole_dqn_create_config
system_config = cartpole_dqn_system_config


def main(argv: Sequence[str] | None = None) -> int:
    """Train, and return the exit status; see `run`."""
    return run_on_workers(main_config, create_config, system_config, argv)


if __name__ == "__main__":
    raise SystemExit(main())
