"""Configs of DQN."""

from easydict import EasyDict

from ding.config.example.DQN import gym_lunarlander_v2
from ding.config.example.sections import env_section

__all__ = ["supported_env_cfg"]

supported_env_cfg = EasyDict(
    {
        "CartPole-v1": {
            "env": env_section("CartPole-v1", 8, 5, stop_value=475),
            "policy": {
                "discount_factor": 0.97,
                "nstep": 3,
                "model": {"obs_shape": 4, "action_shape": 2, "encoder_hidden_size_list": [128, 128]},
                "learn": {"update_per_collect": 10, "batch_size": 64, "learning_rate": 0.001, "target_update_freq": 50},
                "collect": {"n_sample": 64},
                "eval": {"evaluator": {"eval_freq": 200}},
                "other": {
                    "eps": {"type": "exp", "start": 0.95, "end": 0.1, "decay": 3000},
                    "replay_buffer": {"replay_buffer_size": 20000},
                },
            },
        },
        "LunarLander-v2": gym_lunarlander_v2.cfg,
        "LunarLander-v3": gym_lunarlander_v2.cfg,
    }
)
