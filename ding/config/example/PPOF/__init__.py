"""Configs of PPO."""

from easydict import EasyDict

from ding.config.example.PPOF import (
    gym_cartpole_v1,
    gym_lunarlander_v2,
    gym_lunarlandercontinuous_v2,
    gym_pendulum_v1,
)

__all__ = ["supported_env_cfg"]

supported_env_cfg = EasyDict(
    {
        "CartPole-v1": gym_cartpole_v1.cfg,
        "LunarLander-v2": gym_lunarlander_v2.cfg,
        "LunarLander-v3": gym_lunarlander_v2.cfg,
        "LunarLanderContinuous-v2": gym_lunarlandercontinuous_v2.cfg,
        "LunarLanderContinuous-v3": gym_lunarlandercontinuous_v2.cfg,
        "Pendulum-v1": gym_pendulum_v1.cfg,
    }
)
