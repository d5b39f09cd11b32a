"""The environment interface and the environments that come with the package."""

from ding.envs.env.base_env import (
    BaseEnv,
    BaseEnvInfo,
    BaseEnvTimestep,
    create_model_env,
    get_env_cls,
    get_vec_env_setting,
)
from ding.envs.env.default_wrapper import get_default_wrappers
from ding.envs.env.demo_env import DemoEnv
from ding.envs.env.ding_env_wrapper import DingEnvWrapper
from ding.envs.env.env_implementation_check import (
    check_all,
    check_array_space,
    check_different_memory,
    check_obs_deepcopy,
    check_reset,
    check_space_dtype,
    check_step,
    demonstrate_correct_procedure,
)
from ding.envs.env.gymnasium_env import GymnasiumEnv
from ding.envs.env.pettingzoo_env import PettingZooEnv

__all__ = [
    "BaseEnv",
    "BaseEnvInfo",
    "BaseEnvTimestep",
    "DemoEnv",
    "DingEnvWrapper",
    "GymnasiumEnv",
    "PettingZooEnv",
    "check_all",
    "check_array_space",
    "check_different_memory",
    "check_obs_deepcopy",
    "check_reset",
    "check_space_dtype",
    "check_step",
    "create_model_env",
    "demonstrate_correct_procedure",
    "get_default_wrappers",
    "get_env_cls",
    "get_vec_env_setting",
]
