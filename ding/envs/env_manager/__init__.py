"""Managers that step many envs through one interface."""

from ding.envs.env_manager.base_env_manager import (
    BaseEnvManager,
    BaseEnvManagerV2,
    EnvNotReadyError,
    EnvState,
    ManagerStateError,
    UnknownEnvError,
    create_env_manager,
    get_env_manager_cls,
)
from ding.envs.env_manager.env_child import EnvDiedError, EnvProcessError
from ding.envs.env_manager.envpool_env_manager import PoolEnvManager
from ding.envs.env_manager.subprocess_env_manager import (
    AsyncSubprocessEnvManager,
    GymVectorEnvManager,
    SubprocessEnvManagerV2,
    SyncSubprocessEnvManager,
    setup_ding_env_manager,
)
from ding.envs.env_manager.vector_env_manager import VectorEnvManager

__all__ = [
    "AsyncSubprocessEnvManager",
    "BaseEnvManager",
    "BaseEnvManagerV2",
    "EnvDiedError",
    "EnvNotReadyError",
    "EnvProcessError",
    "EnvState",
    "GymVectorEnvManager",
    "ManagerStateError",
    "PoolEnvManager",
    "SubprocessEnvManagerV2",
    "SyncSubprocessEnvManager",
    "UnknownEnvError",
    "VectorEnvManager",
    "create_env_manager",
    "get_env_manager_cls",
    "setup_ding_env_manager",
]
