"""Managers that step many envs through one interface."""

from ding.utils.import_helper import exports

__all__, __getattr__ = exports(
    __name__,
    {
        "base_env_manager": (
            "BaseEnvManager BaseEnvManagerV2 EnvNotReadyError EnvState ManagerStateError UnknownEnvError "
            "create_env_manager get_env_manager_cls"
        ),
        "env_child": "EnvDiedError EnvProcessError",
        "envpool_env_manager": "PoolEnvManager",
        "subprocess_env_manager": (
            "AsyncSubprocessEnvManager GymVectorEnvManager SubprocessEnvManagerV2 SyncSubprocessEnvManager "
            "setup_ding_env_manager"
        ),
        "vector_env_manager": "VectorEnvManager",
    },
)
