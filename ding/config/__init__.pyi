# Written by docs/generate.py: the exports of the table in __init__.py, for type checkers and editors.

from typing import Any

from ding.config.config import compile_config as compile_config
from ding.config.config import compile_config_parallel as compile_config_parallel
from ding.config.read import Config as Config
from ding.config.read import read_config as read_config
from ding.config.read import read_config_directly as read_config_directly
from ding.config.read import read_config_with_system as read_config_with_system
from ding.config.read import read_config_yaml as read_config_yaml
from ding.config.save import save_config as save_config
from ding.config.save import save_config_formatted as save_config_formatted
from ding.config.save import save_config_py as save_config_py
from ding.config.save import save_config_yaml as save_config_yaml
from ding.config.save import save_project_state as save_project_state
from ding.config.utils import parallel_transform as parallel_transform
from ding.config.utils import parallel_transform_slurm as parallel_transform_slurm

DQN: Any
PPOF: Any
TD3: Any
