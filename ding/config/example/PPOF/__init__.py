"""Configs of PPO."""

from easydict import EasyDict

from ding.config.example.sections import env_section

__all__ = ["supported_env_cfg"]

supported_env_cfg = EasyDict(
    {
        "CartPole-v1": {
            "env": env_section("CartPole-v1", 8, 5, stop_value=475),
            "policy": {
                "action_space": "discrete",
                "model": {"obs_shape": 4, "action_shape": 2, "encoder_hidden_size_list": [64, 64]},
                "learn": {"epoch_per_collect": 5, "batch_size": 64, "learning_rate": 0.001, "entropy_weight": 0.01},
                "collect": {"n_sample": 512, "discount_factor": 0.99, "gae_lambda": 0.95},
                "eval": {"evaluator": {"eval_freq": 200}},
            },
        },
        "LunarLander-v3": {
            "env": env_section("LunarLander-v3", 4, 4, stop_value=260),
            "policy": {
                "action_space": "discrete",
                "model": {"obs_shape": 8, "action_shape": 4, "share_encoder": False},
                "learn": {"epoch_per_collect": 10, "batch_size": 64, "learning_rate": 3e-4, "entropy_weight": 0.01},
                "collect": {"n_sample": 400, "discount_factor": 0.99, "gae_lambda": 0.95},
            },
        },
        "LunarLanderContinuous-v3": {
            "env": env_section("LunarLanderContinuous-v3", 4, 4, act_scale=True, stop_value=240),
            "policy": {
                "action_space": "continuous",
                "model": {"obs_shape": 8, "action_shape": 2, "share_encoder": False},
                "learn": {"epoch_per_collect": 10, "batch_size": 64, "learning_rate": 3e-4, "entropy_weight": 0.01},
                "collect": {"n_sample": 400, "discount_factor": 0.99, "gae_lambda": 0.95},
            },
        },
        "Pendulum-v1": {
            "env": env_section("Pendulum-v1", 8, 5, act_scale=True, stop_value=-250),
            "policy": {
                "action_space": "continuous",
                "model": {"obs_shape": 3, "action_shape": 1, "share_encoder": False, "activation": "tanh"},
                "learn": {"epoch_per_collect": 10, "batch_size": 64, "learning_rate": 0.001},
                "collect": {"n_sample": 1600, "discount_factor": 0.9, "gae_lambda": 0.95},
                "eval": {"evaluator": {"eval_freq": 1000}},
            },
        },
    }
)
supported_env_cfg["LunarLander-v2"] = supported_env_cfg["LunarLander-v3"]
supported_env_cfg["LunarLanderContinuous-v2"] = supported_env_cfg["LunarLanderContinuous-v3"]
