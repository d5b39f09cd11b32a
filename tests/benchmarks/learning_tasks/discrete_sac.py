"""SAC with discrete actions on CartPole."""

main_config = {
    "exp_name": "cartpole_sac",
    "env": {
        "env_id": "CartPole-v1",
        "collector_env_num": 8,
        "evaluator_env_num": 5,
        "n_evaluator_episode": 5,
        "stop_value": 195,
    },
    "policy": {
        "cuda": False,
        "random_collect_size": 0,
        "multi_agent": False,
        "model": {
            "obs_shape": 4,
            "action_shape": 2,
            "twin_critic": True,
            "actor_head_hidden_size": 64,
            "critic_head_hidden_size": 64,
        },
        "learn": {
            "update_per_collect": 2,
            "batch_size": 64,
            "learning_rate_q": 5e-3,
            "learning_rate_policy": 5e-3,
            "learning_rate_alpha": 3e-4,
            "ignore_done": False,
            "target_theta": 0.01,
            "discount_factor": 0.99,
            "alpha": 0.2,
            "auto_alpha": False,
        },
        "collect": {"env_num": 8, "n_sample": 256, "unroll_len": 1},
        "eval": {"env_num": 5, "evaluator": {"eval_freq": 50}},
        "other": {
            "eps": {"type": "linear", "start": 1.0, "end": 0.1, "decay": 10000},
            "replay_buffer": {"replay_buffer_size": 100000},
        },
    },
}
create_config = {
    "env": {"type": "gymnasium"},
    "env_manager": {"type": "base"},
    "policy": {"type": "discrete_sac"},
    "replay_buffer": {"type": "naive"},
}
budget = 200_000
