"""SAC on Pendulum."""

main_config = {
    "exp_name": "pendulum_sac",
    "env": {
        "env_id": "Pendulum-v1",
        "act_scale": True,
        "collector_env_num": 10,
        "evaluator_env_num": 5,
        "n_evaluator_episode": 5,
        "stop_value": -250,
    },
    "policy": {
        "cuda": False,
        "priority": False,
        "random_collect_size": 1000,
        "model": {
            "obs_shape": 3,
            "action_shape": 1,
            "twin_critic": True,
            "action_space": "reparameterization",
            "actor_head_hidden_size": 128,
            "critic_head_hidden_size": 128,
        },
        "learn": {
            "update_per_collect": 1,
            "batch_size": 128,
            "learning_rate_q": 0.001,
            "learning_rate_policy": 0.001,
            "learning_rate_alpha": 0.0003,
            "ignore_done": True,
            "target_theta": 0.005,
            "discount_factor": 0.99,
            "auto_alpha": True,
        },
        "collect": {"n_sample": 10, "unroll_len": 1},
        "eval": {"evaluator": {"eval_freq": 100}},
        "other": {"replay_buffer": {"replay_buffer_size": 100000}},
    },
}
create_config = {
    "env": {"type": "gymnasium"},
    "env_manager": {"type": "base"},
    "policy": {"type": "sac"},
    "replay_buffer": {"type": "naive"},
}
budget = 100_000
