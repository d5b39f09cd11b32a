"""Reading, writing and compiling configurations, under the module path that scripts import them from."""

from ding.config.compile import compile_config
from ding.config.experiment import save_project_state
from ding.config.parallel import compile_config_parallel
from ding.config.read import Config, read_config, read_config_directly, read_config_with_system, read_config_yaml
from ding.config.save import save_config, save_config_py, save_config_yaml

__all__ = [
    "Config",
    "compile_config",
    "compile_config_parallel",
    "read_config",
    "read_config_directly",
    "read_config_with_system",
    "read_config_yaml",
    "save_config",
    "save_config_py",
    "save_config_yaml",
    "save_project_state",
]
