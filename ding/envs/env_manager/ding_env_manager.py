"""An env manager made from one wrapped env."""

from __future__ import annotations

from functools import partial
from typing import Any

from ding.envs.env_manager.base_env_manager import BaseEnvManager, BaseEnvManagerV2
from ding.envs.env_manager.subprocess_env_manager import SubprocessEnvManagerV2


def setup_ding_env_manager(
    env: Any, env_num: int, context: str | None = None, debug: bool = False, caller: str = "collector"
) -> BaseEnvManager:
    """A V2 manager over `env_num` envs that `env.clone(caller)` makes.

    Args:
        context: how the processes of the envs start; None for the default.
        debug: keep the envs in this process.
        caller: `collector` or `evaluator`.
    """
    manager_cls: Any = BaseEnvManagerV2 if debug else SubprocessEnvManagerV2
    cfg = manager_cls.default_config()
    if context is not None:
        cfg.context = context
    manager: BaseEnvManager = manager_cls([partial(env.clone, caller)] * env_num, cfg)
    return manager
