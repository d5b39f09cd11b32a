"""The environment interface and the environments that come with the package."""

from ding.envs.env.base_env import BaseEnv, BaseEnvTimestep, create_model_env, get_env_cls, get_vec_env_setting
from ding.envs.env.gymnasium_env import GymnasiumEnv

__all__ = [
    "BaseEnv",
    "BaseEnvTimestep",
    "GymnasiumEnv",
    "create_model_env",
    "get_env_cls",
    "get_vec_env_setting",
]
