"""Configs of TD3."""

from easydict import EasyDict

from ding.config.example.TD3 import gym_bipedalwalker_v3, gym_lunarlandercontinuous_v2, gym_pendulum_v1

__all__ = ["supported_env_cfg"]

supported_env_cfg = EasyDict(
    {
        "BipedalWalker-v3": gym_bipedalwalker_v3.cfg,
        "LunarLanderContinuous-v2": gym_lunarlandercontinuous_v2.cfg,
        "LunarLanderContinuous-v3": gym_lunarlandercontinuous_v2.cfg,
        "Pendulum-v1": gym_pendulum_v1.cfg,
    }
)
