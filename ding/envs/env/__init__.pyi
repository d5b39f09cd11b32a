# Written by docs/generate.py: the exports of the table in __init__.py, for type checkers and editors.

from ding.envs.env.base_env import BaseEnv as BaseEnv
from ding.envs.env.base_env import BaseEnvInfo as BaseEnvInfo
from ding.envs.env.base_env import BaseEnvTimestep as BaseEnvTimestep
from ding.envs.env.base_env import EnvOutputError as EnvOutputError
from ding.envs.env.base_env import create_model_env as create_model_env
from ding.envs.env.base_env import get_env_cls as get_env_cls
from ding.envs.env.base_env import get_vec_env_setting as get_vec_env_setting
from ding.envs.env.demo_env import DemoEnv as DemoEnv
from ding.envs.env.ding_env_wrapper import DingEnvWrapper as DingEnvWrapper
from ding.envs.env.ding_env_wrapper import get_default_wrappers as get_default_wrappers
from ding.envs.env.env_implementation_check import check_all as check_all
from ding.envs.env.env_implementation_check import check_array_space as check_array_space
from ding.envs.env.env_implementation_check import check_different_memory as check_different_memory
from ding.envs.env.env_implementation_check import check_obs_deepcopy as check_obs_deepcopy
from ding.envs.env.env_implementation_check import check_reset as check_reset
from ding.envs.env.env_implementation_check import check_space_dtype as check_space_dtype
from ding.envs.env.env_implementation_check import check_step as check_step
from ding.envs.env.env_implementation_check import demonstrate_correct_procedure as demonstrate_correct_procedure
from ding.envs.env.gymnasium_env import GymnasiumEnv as GymnasiumEnv
from ding.envs.env.pettingzoo_env import PettingZooEnv as PettingZooEnv
