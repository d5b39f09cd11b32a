"""Environments, and the managers that run many of them."""

from ding.envs.env import (
    BaseEnv,
    BaseEnvTimestep,
    GymnasiumEnv,
    create_model_env,
    get_env_cls,
    get_vec_env_setting,
)
from ding.envs.env_manager import BaseEnvManager, EnvState, create_env_manager, get_env_manager_cls

__all__ = [
    "BaseEnv",
    "BaseEnvManager",
    "BaseEnvTimestep",
    "EnvState",
    "GymnasiumEnv",
    "create_env_manager",
    "create_model_env",
    "get_env_cls",
    "get_env_manager_cls",
    "get_vec_env_setting",
]
