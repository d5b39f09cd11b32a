"""Configs for the agents of `ding.bonus`: a package for each algorithm, with `supported_env_cfg` by env id.

The names of the modules are those of DI-engine. Each has `cfg`, the main config; gymnasium has LunarLander as v3 only,
so the configs of v2 are for that.
"""

from ding.config.example import DQN, PPOF, TD3

__all__ = ["DQN", "PPOF", "TD3"]
