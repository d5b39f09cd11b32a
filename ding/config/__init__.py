"""Reading, compiling and saving experiment configurations.

`DQN`, `PPOF` and `TD3` are packages of example configs, imported on first use.
"""

from typing import TYPE_CHECKING

from ding.config.config import compile_config, compile_config_parallel
from ding.config.read import (
    Config,
    read_config,
    read_config_directly,
    read_config_with_system,
    read_config_yaml,
)
from ding.config.save import (
    save_config,
    save_config_formatted,
    save_config_py,
    save_config_yaml,
    save_project_state,
)
from ding.config.utils import parallel_transform, parallel_transform_slurm
from ding.utils.import_helper import lazy_names

if TYPE_CHECKING:
    from ding.config.example import DQN as DQN
    from ding.config.example import PPOF as PPOF
    from ding.config.example import TD3 as TD3

__all__ = [
    "Config",
    "compile_config",
    "compile_config_parallel",
    "parallel_transform",
    "parallel_transform_slurm",
    "read_config",
    "read_config_directly",
    "read_config_with_system",
    "read_config_yaml",
    "save_config",
    "save_config_formatted",
    "save_config_py",
    "save_config_yaml",
    "save_project_state",
]

__getattr__ = lazy_names(__name__, dict.fromkeys(("DQN", "PPOF", "TD3"), "ding.config.example"))
