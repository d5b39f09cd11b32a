"""A small experiment for trying the roles of parallel training: DQN on CartPole, with the naive commander."""

from __future__ import annotations

from easydict import EasyDict

parallel_test_main_config = EasyDict(
    exp_name="parallel_test",
    env={
        "type": "gymnasium",
        "env_id": "CartPole-v1",
        "collector_env_num": 8,
        "collector_episode_num": 2,
        "evaluator_env_num": 5,
        "evaluator_episode_num": 1,
        "stop_value": 195,
    },
    policy={
        "cuda": False,
        "model": {"obs_shape": 4, "action_shape": 2, "encoder_hidden_size_list": [128, 128, 64], "dueling": True},
        "nstep": 3,
        "discount_factor": 0.97,
        "learn": {
            "batch_size": 32,
            "learning_rate": 0.001,
            "learner": {"learner_num": 1, "send_policy_freq": 1},
        },
        "collect": {"n_sample": 16, "collector": {"collector_num": 2, "update_policy_second": 3}},
        "other": {
            "eps": {"type": "exp", "start": 0.95, "end": 0.1, "decay": 100000},
            "replay_buffer": {"replay_buffer_size": 100000, "enable_track_used_data": False},
            "commander": {"collector_task_space": 2, "learner_task_space": 1, "eval_interval": 5},
        },
    },
)
parallel_test_create_config = EasyDict(
    env={"type": "gymnasium"},
    env_manager={"type": "subprocess"},
    policy={"type": "dqn_command"},
    learner={"type": "base"},
    collector={"type": "zergling"},
    commander={"type": "naive"},
    comm_learner={"type": "flask_fs"},
    comm_collector={"type": "flask_fs"},
)
parallel_test_system_config = EasyDict(
    coordinator={},
    path_data=".",
    path_policy=".",
    communication_mode="auto",
    learner_gpu_num=1,
)
