"""BDQ on Pendulum-v1, whose torque is one of 11."""

main_config = {
    "exp_name": "pendulum_bdq",
    "env": {
        "type": "gymnasium",
        "env_id": "Pendulum-v1",
        "act_bins": 11,
        "collector_env_num": 10,
        "evaluator_env_num": 5,
        "n_evaluator_episode": 5,
        "stop_value": -250,
    },
    "policy": {
        "cuda": False,
        "discount_factor": 0.97,
        "nstep": 1,
        "model": {
            "obs_shape": 3,
            "num_branches": 1,
            "action_bins_per_branch": 11,
            "encoder_hidden_size_list": [128, 128, 64],
        },
        "learn": {"update_per_collect": 10, "batch_size": 64, "learning_rate": 0.001, "target_update_freq": 100},
        "collect": {"n_sample": 10, "unroll_len": 1},
        "eval": {"evaluator": {"eval_freq": 1000}},
        "other": {
            "eps": {"type": "exp", "start": 0.95, "end": 0.1, "decay": 10000},
            "replay_buffer": {"replay_buffer_size": 20000},
        },
    },
}
create_config = {
    "env": {"type": "gymnasium"},
    "env_manager": {"type": "base"},
    "policy": {"type": "bdq"},
}
budget = 100_000
