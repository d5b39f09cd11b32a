"""PPO on LunarLander."""

envs = ["LunarLander-v*"]
env_steps = 1_000_000
main_config = {
    "exp_name": "ppo_box2d",
    "env": {"env_id": "LunarLander-v3", "collector_env_num": 16, "evaluator_env_num": 10, "n_evaluator_episode": 10},
    "policy": {
        "recompute_adv": False,
        "model": {
            "share_encoder": False,
            "encoder_hidden_size_list": [64],
            "actor_head_hidden_size": 64,
            "critic_head_hidden_size": 64,
            "activation": "tanh",
        },
        "learn": {
            "epoch_per_collect": 4,
            "batch_size": 64,
            "learning_rate": 3e-4,
            "eps": 1e-5,
            "entropy_weight": 0.01,
            "value_weight": 1.0,
            "value_norm": False,
            "value_clip": False,
            "init_gains": [1.4142135623730951, 0.01, 1.0],
        },
        "collect": {
            "n_sample": 16_384,
            "discount_factor": 0.999,
            "gae_lambda": 0.98,
            "collector": {"fixed_rollout": True},
        },
        "eval": {"evaluator": {"eval_freq": 2048}},
    },
}
create_config = {"env": {"type": "gymnasium"}, "env_manager": {"type": "base"}, "policy": {"type": "ppo"}}
