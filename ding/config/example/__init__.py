"""Configs for the agents of `ding.bonus`: a package for each algorithm, with `supported_env_cfg` by env id.

The configs of LunarLander v2 are for v3, the only version in gymnasium.
"""

from ding.config.example import DQN, PPOF, TD3

__all__ = ["DQN", "PPOF", "TD3"]
