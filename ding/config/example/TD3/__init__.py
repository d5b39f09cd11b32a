"""Configs of TD3. A fall of the walker costs 10 instead of 100, by `rew_clip`."""

from easydict import EasyDict

from ding.config.example.sections import env_section

__all__ = ["supported_env_cfg"]

_WIDTHS = {"actor_head_hidden_size": 400, "critic_head_hidden_size": 400}
supported_env_cfg = EasyDict(
    {
        "BipedalWalker-v3": {
            "env": env_section("BipedalWalker-v3", 8, 5, act_scale=True, rew_clip=True),
            "policy": {
                "random_collect_size": 10000,
                "model": {
                    "obs_shape": 24,
                    "action_shape": 4,
                    "twin_critic": True,
                    "action_space": "regression",
                    "actor_head_hidden_size": 400,
                    "critic_head_hidden_size": 400,
                },
                "learn": {
                    "update_per_collect": 64,
                    "batch_size": 256,
                    "learning_rate_actor": 3e-4,
                    "learning_rate_critic": 3e-4,
                },
                "collect": {"n_sample": 64},
                "other": {"replay_buffer": {"replay_buffer_size": 300000}},
            },
        },
        "LunarLanderContinuous-v3": {
            "env": env_section("LunarLanderContinuous-v3", 4, 8, act_scale=True, stop_value=240),
            "policy": {
                "random_collect_size": 10000,
                "model": {"obs_shape": 8, "action_shape": 2, "action_space": "regression"},
                "learn": {
                    "update_per_collect": 256,
                    "batch_size": 256,
                    "learning_rate_actor": 3e-4,
                    "learning_rate_critic": 0.001,
                    "noise_sigma": 0.1,
                },
                "collect": {"n_sample": 256, "noise_sigma": 0.1},
                "eval": {"evaluator": {"eval_freq": 1000}},
                "other": {"replay_buffer": {"replay_buffer_size": 100000}},
            },
        },
        "Pendulum-v1": {
            "env": env_section("Pendulum-v1", 8, 5, act_scale=True, stop_value=-250),
            "policy": {
                "random_collect_size": 800,
                "model": {"obs_shape": 3, "action_shape": 1, "twin_critic": True, "action_space": "regression"},
                "learn": {
                    "update_per_collect": 2,
                    "batch_size": 128,
                    "learning_rate_actor": 0.001,
                    "learning_rate_critic": 0.001,
                    "ignore_done": True,
                    "noise_sigma": 0.1,
                },
                "collect": {"n_sample": 48, "noise_sigma": 0.1},
                "eval": {"evaluator": {"eval_freq": 100}},
                "other": {"replay_buffer": {"replay_buffer_size": 20000}},
            },
        },
    }
)
supported_env_cfg["LunarLanderContinuous-v2"] = supported_env_cfg["LunarLanderContinuous-v3"]
