"""Reading, compiling and saving experiment configurations.

`DQN`, `PPOF` and `TD3` are packages of example configs, imported on first use.
"""

from ding.utils.import_helper import exports

__all__, __getattr__ = exports(
    __name__,
    {
        "config": "compile_config compile_config_parallel",
        "read": "Config read_config read_config_directly read_config_with_system read_config_yaml",
        "save": "save_config save_config_formatted save_config_py save_config_yaml save_project_state",
        "utils": "parallel_transform parallel_transform_slurm",
    },
    {"example": "DQN PPOF TD3"},
)
