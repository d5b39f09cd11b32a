"""PPO on the locomotion envs of MuJoCo, with 16 envs."""

envs = ["HalfCheetah-v*", "Hopper-v*", "Walker2d-v*", "Ant-v*", "Swimmer-v*", "Humanoid-v*"]
env_steps = 1_000_000
main_config = {
    "exp_name": "ppo_mujoco",
    "env": {
        "env_id": "HalfCheetah-v5",
        "act_scale": True,
        "collector_env_num": 16,
        "evaluator_env_num": 5,
        "n_evaluator_episode": 5,
    },
    "policy": {
        "action_space": "continuous",
        "recompute_adv": False,
        "model": {
            "share_encoder": False,
            "encoder_hidden_size_list": [64],
            "actor_head_hidden_size": 64,
            "critic_head_hidden_size": 64,
            "activation": "tanh",
        },
        "learn": {
            "epoch_per_collect": 10,
            "batch_size": 64,
            "learning_rate": 3e-4,
            "eps": 1e-5,
            "entropy_weight": 0.0,
            "value_weight": 1.0,
            "value_norm": False,
            "value_clip": False,
            "init_gains": [1.4142135623730951, 0.01, 1.0],
        },
        "collect": {
            "n_sample": 2048,
            "discount_factor": 0.99,
            "gae_lambda": 0.95,
            "collector": {"fixed_rollout": True},
        },
        "eval": {"evaluator": {"eval_freq": 8000}},
    },
}
create_config = {"env": {"type": "gymnasium"}, "env_manager": {"type": "base"}, "policy": {"type": "ppo"}}
