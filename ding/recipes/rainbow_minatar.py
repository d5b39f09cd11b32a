"""Rainbow on MinAtar, with an update for every four frames and three-step returns."""

envs = ["MinAtar/*"]
env_steps = 1_000_000
main_config = {
    "exp_name": "rainbow_minatar",
    "env": {
        "env_id": "MinAtar/Breakout-v1",
        "wrappers": ["ding.envs.env.gymnasium_spaces:channels_first"],
        "max_episode_steps": 10_000,
        "collector_env_num": 8,
        "evaluator_env_num": 10,
        "n_evaluator_episode": 10,
    },
    "policy": {
        "nstep": 3,
        "discount_factor": 0.99,
        "random_collect_size": 5000,
        "model": {"encoder_hidden_size_list": [16, 128], "v_min": 0, "v_max": 40, "n_atom": 51},
        "learn": {
            "update_per_collect": 16,
            "batch_size": 32,
            "learning_rate": 2.5e-4,
            "target_update_freq": 2000,
        },
        "collect": {"n_sample": 64, "collector": {"fixed_rollout": True}},
        "eval": {"evaluator": {"eval_freq": 12_500}},
        "other": {
            "eps": {"type": "linear", "start": 0.05, "end": 0.0, "decay": 10_000},
            "replay_buffer": {"replay_buffer_size": 100_000},
        },
    },
}
create_config = {"env": {"type": "gymnasium"}, "env_manager": {"type": "base"}, "policy": {"type": "rainbow"}}
