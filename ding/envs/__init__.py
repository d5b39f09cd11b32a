"""Environments, and the managers that run many of them."""

from ding.envs import env, env_manager, env_wrappers
from ding.utils.import_helper import exports

_PACKAGES = {"env": env, "env_manager": env_manager, "env_wrappers": env_wrappers}

__all__, __getattr__ = exports(__name__, {name: " ".join(package.__all__) for name, package in _PACKAGES.items()})
