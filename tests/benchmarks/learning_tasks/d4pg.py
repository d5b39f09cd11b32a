"""D4PG on Pendulum."""

main_config = {
    "exp_name": "pendulum_d4pg",
    "env": {
        "env_id": "Pendulum-v1",
        "act_scale": True,
        "collector_env_num": 8,
        "evaluator_env_num": 5,
        "n_evaluator_episode": 5,
        "stop_value": -250,
    },
    "policy": {
        "cuda": False,
        "priority": True,
        "priority_IS_weight": True,
        "nstep": 3,
        "random_collect_size": 800,
        "model": {
            "obs_shape": 3,
            "action_shape": 1,
            "action_space": "regression",
            "v_min": -100,
            "v_max": 100,
            "n_atom": 51,
        },
        "learn": {
            "update_per_collect": 2,
            "batch_size": 128,
            "learning_rate_actor": 0.001,
            "learning_rate_critic": 0.001,
            "ignore_done": True,
            "actor_update_freq": 1,
            "noise": False,
        },
        "collect": {"n_sample": 48, "noise_sigma": 0.1},
        "eval": {"evaluator": {"eval_freq": 100}},
        "other": {"replay_buffer": {"replay_buffer_size": 20000}},
    },
}
create_config = {
    "env": {"type": "gymnasium"},
    "env_manager": {"type": "base"},
    "policy": {"type": "d4pg"},
    "replay_buffer": {"type": "advanced"},
}
budget = 200_000
