"""PPO on Atari, as EnvPool makes it: images of 42 x 42, which two CPU cores can learn from."""

envs = ["Pong-v5"]
env_steps = 5_000_000
main_config = {
    "exp_name": "ppo_atari",
    "env": {
        "env_id": "Pong-v5",
        "collector_env_num": 16,
        "evaluator_env_num": 10,
        "n_evaluator_episode": 10,
        "manager": {"reward_clip": True, "kwargs": {"img_height": 42, "img_width": 42, "num_threads": 1}},
    },
    "policy": {
        "recompute_adv": False,
        "model": {
            "encoder_hidden_size_list": [32, 64, 64, 256],
            "actor_head_hidden_size": 256,
            "critic_head_hidden_size": 256,
        },
        "learn": {
            "epoch_per_collect": 4,
            "batch_size": 256,
            "learning_rate": 5e-4,
            "eps": 1e-5,
            "entropy_weight": 0.01,
            "value_weight": 0.5,
            "value_norm": False,
            "value_clip": False,
            "init_gains": [1.4142135623730951, 0.01, 1.0],
            "clip_ratio": 0.1,
            "grad_clip_type": "clip_norm",
            "grad_clip_value": 0.5,
        },
        "collect": {
            "n_sample": 2048,
            "discount_factor": 0.99,
            "gae_lambda": 0.95,
            "collector": {"fixed_rollout": True},
        },
        "eval": {"evaluator": {"eval_freq": 1600}},
    },
}
create_config = {"env": {"type": "gymnasium"}, "env_manager": {"type": "env_pool"}, "policy": {"type": "ppo"}}
