"""Managers that step many envs behind one interface."""

from ding.envs.env_manager.base_env_manager import BaseEnvManager, create_env_manager, get_env_manager_cls
from ding.envs.env_manager.env_state import EnvState

__all__ = ["BaseEnvManager", "EnvState", "create_env_manager", "get_env_manager_cls"]
