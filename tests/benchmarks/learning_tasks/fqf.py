"""FQF on CartPole-v1."""

main_config = {
    "exp_name": "cartpole_fqf",
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
        "priority": True,
        "discount_factor": 0.97,
        "nstep": 1,
        "model": {
            "obs_shape": 4,
            "action_shape": 2,
            "encoder_hidden_size_list": [128, 128, 64],
            "num_quantiles": 32,
            "quantile_embedding_size": 64,
        },
        "learn": {
            "update_per_collect": 3,
            "batch_size": 64,
            "learning_rate_fraction": 0.0001,
            "learning_rate_quantile": 0.0001,
            "target_update_freq": 100,
        },
        "collect": {"n_sample": 80, "unroll_len": 1},
        "eval": {"evaluator": {"eval_freq": 100}},
        "other": {
            "eps": {"type": "exp", "start": 0.95, "end": 0.1, "decay": 10000},
            "replay_buffer": {"replay_buffer_size": 20000},
        },
    },
}
create_config = {
    "env": {"type": "gymnasium"},
    "env_manager": {"type": "base"},
    "policy": {"type": "fqf"},
}
budget = 150_000
