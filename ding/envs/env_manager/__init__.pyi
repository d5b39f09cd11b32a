# Written by docs/generate.py: the exports of the table in __init__.py, for type checkers and editors.

from ding.envs.env_manager.base_env_manager import BaseEnvManager as BaseEnvManager
from ding.envs.env_manager.base_env_manager import BaseEnvManagerV2 as BaseEnvManagerV2
from ding.envs.env_manager.base_env_manager import EnvNotReadyError as EnvNotReadyError
from ding.envs.env_manager.base_env_manager import EnvState as EnvState
from ding.envs.env_manager.base_env_manager import ManagerStateError as ManagerStateError
from ding.envs.env_manager.base_env_manager import UnknownEnvError as UnknownEnvError
from ding.envs.env_manager.base_env_manager import create_env_manager as create_env_manager
from ding.envs.env_manager.base_env_manager import get_env_manager_cls as get_env_manager_cls
from ding.envs.env_manager.env_child import EnvDiedError as EnvDiedError
from ding.envs.env_manager.env_child import EnvProcessError as EnvProcessError
from ding.envs.env_manager.envpool_env_manager import PoolEnvManager as PoolEnvManager
from ding.envs.env_manager.subprocess_env_manager import AsyncSubprocessEnvManager as AsyncSubprocessEnvManager
from ding.envs.env_manager.subprocess_env_manager import GymVectorEnvManager as GymVectorEnvManager
from ding.envs.env_manager.subprocess_env_manager import SubprocessEnvManagerV2 as SubprocessEnvManagerV2
from ding.envs.env_manager.subprocess_env_manager import SyncSubprocessEnvManager as SyncSubprocessEnvManager
from ding.envs.env_manager.subprocess_env_manager import setup_ding_env_manager as setup_ding_env_manager
from ding.envs.env_manager.vector_env_manager import VectorEnvManager as VectorEnvManager
