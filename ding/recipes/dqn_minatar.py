"""DQN on MinAtar, with an update for every four frames."""

envs = ["MinAtar/*"]
env_steps = 1_000_000
main_config = {
    "exp_name": "dqn_minatar",
    "env": {
        "env_id": "MinAtar/Breakout-v1",
        "wrappers": ["ding.envs.env.gymnasium_spaces:channels_first"],
        "max_episode_steps": 10_000,
        "collector_env_num": 8,
        "evaluator_env_num": 10,
        "n_evaluator_episode": 10,
    },
    "policy": {
        "nstep": 1,
        "discount_factor": 0.99,
        "random_collect_size": 5000,
        "model": {"dueling": False, "encoder_hidden_size_list": [16, 128], "head_layer_num": 1},
        "learn": {
            "update_per_collect": 2,
            "batch_size": 32,
            "learning_rate": 2.5e-4,
            "target_update_freq": 250,
            "criterion": "huber",
            "grad_clip_type": "clip_norm",
            "grad_clip_value": 10,
        },
        "collect": {"n_sample": 8, "collector": {"fixed_rollout": True}},
        "eval": {"evaluator": {"eval_freq": 12_500}},
        "other": {
            "eps": {"type": "linear", "start": 1.0, "end": 0.1, "decay": 100_000},
            "replay_buffer": {"replay_buffer_size": 100_000},
        },
    },
}
create_config = {"env": {"type": "gymnasium"}, "env_manager": {"type": "base"}, "policy": {"type": "dqn"}}
