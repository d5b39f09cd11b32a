"""Configs of DQN."""

from easydict import EasyDict

from ding.config.example.DQN import gym_cartpole_v1, gym_lunarlander_v2

__all__ = ["supported_env_cfg"]

supported_env_cfg = EasyDict(
    {
        "CartPole-v1": gym_cartpole_v1.cfg,
        "LunarLander-v2": gym_lunarlander_v2.cfg,
        "LunarLander-v3": gym_lunarlander_v2.cfg,
    }
)
