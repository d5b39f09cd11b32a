"""Soft Q networks on CartPole-v1."""

main_config = {
    "exp_name": "cartpole_sqn",
    "env": {
        "type": "gymnasium",
        "env_id": "CartPole-v1",
        "collector_env_num": 8,
        "evaluator_env_num": 5,
        "n_evaluator_episode": 5,
        "stop_value": 195,
    },
    "policy": {
        "cuda": False,
        "model": {"obs_shape": 4, "action_shape": 2, "encoder_hidden_size_list": [64, 64]},
        "learn": {
            "update_per_collect": 4,
            "batch_size": 64,
            "learning_rate_q": 0.001,
            "learning_rate_alpha": 0.001,
            "alpha": 0.2,
            "target_entropy": 0.2,
        },
        "collect": {"n_sample": 16, "unroll_len": 1},
        "eval": {"evaluator": {"eval_freq": 100}},
        "other": {
            "eps": {"type": "exp", "start": 1.0, "end": 0.8, "decay": 2000},
            "replay_buffer": {"replay_buffer_size": 100000},
        },
    },
}
create_config = {
    "env": {"type": "gymnasium"},
    "env_manager": {"type": "base"},
    "policy": {"type": "sqn"},
}
budget = 100_000
