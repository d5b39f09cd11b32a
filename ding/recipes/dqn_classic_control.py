"""DQN on the other envs of classic control."""

envs = ["Acrobot-v*", "MountainCar-v*"]
env_steps = 100_000
main_config = {
    "exp_name": "dqn_classic_control",
    "env": {"env_id": "Acrobot-v1", "collector_env_num": 1, "evaluator_env_num": 10, "n_evaluator_episode": 10},
    "policy": {
        "nstep": 1,
        "discount_factor": 0.99,
        "random_collect_size": 1000,
        "model": {"dueling": False, "encoder_hidden_size_list": [256], "head_layer_num": 1},
        "learn": {
            "update_per_collect": 4,
            "batch_size": 128,
            "learning_rate": 6.3e-4,
            "target_update_freq": 256,
            "criterion": "huber",
            "grad_clip_type": "clip_norm",
            "grad_clip_value": 10,
        },
        "collect": {"n_sample": 8, "collector": {"fixed_rollout": True}},
        "eval": {"evaluator": {"eval_freq": 2500}},
        "other": {
            "eps": {"type": "linear", "start": 1.0, "end": 0.1, "decay": 12_000},
            "replay_buffer": {"replay_buffer_size": 50_000},
        },
    },
}
create_config = {"env": {"type": "gymnasium"}, "env_manager": {"type": "base"}, "policy": {"type": "dqn"}}
