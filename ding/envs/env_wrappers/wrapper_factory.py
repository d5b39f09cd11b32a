"""Wrappers by name, class or function, applied to an env."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any

from ding.envs.common.gym_compat import is_gymnasium_env, library_of
from ding.envs.env_wrappers.base_wrapper import GymToGymnasiumWrapper, as_gymnasium
from ding.utils.import_helper import import_module
from ding.utils.registry_factory import ENV_WRAPPER_REGISTRY


def create_env_wrapper(env: Any, env_wrapper_cfg: Mapping[str, Any]) -> Any:
    """Return `env` in the wrapper registered as `env_wrapper_cfg.type`, made with `env_wrapper_cfg.kwargs`.

    `env_wrapper_cfg.import_names` are imported first. The config is not changed.

    Raises:
        KeyError: there is no `type`, or no wrapper is registered under it.

    Example:
        >>> import gymnasium
        >>> env = create_env_wrapper(gymnasium.make("CartPole-v1"), {"type": "frame_stack", "kwargs": {"n_frames": 2}})
        >>> env.reset().shape
        (2, 4)
    """
    return apply_env_wrappers(env, [env_wrapper_cfg])


def apply_env_wrappers(env: Any, entries: Iterable[Any]) -> Any:
    """Return `env` in the wrappers `entries`, the first of them innermost.

    An entry is a config as `create_env_wrapper` takes it, a registered name, or a class or function that takes an env
    and returns one. Classes of gymnasium, and partials of them, get a gymnasium env; all others get an env whose
    `reset()` returns the observation and whose `step` returns four values.

    Raises:
        KeyError: no wrapper is registered under a name.
    """
    for entry in entries:
        make, kwargs = entry, {}
        if isinstance(entry, str):
            make = ENV_WRAPPER_REGISTRY.get(entry)
        elif isinstance(entry, Mapping):
            import_module(entry.get("import_names", []))
            make, kwargs = ENV_WRAPPER_REGISTRY.get(entry["type"]), entry.get("kwargs", {})
        cls = make.func if isinstance(make, functools.partial) else make
        library = library_of(cls) if isinstance(cls, type) else None
        if library is not None and library.__name__ == "gymnasium":
            env = as_gymnasium(env)
        elif is_gymnasium_env(env):
            env = GymToGymnasiumWrapper(env)
        env = make(env, **kwargs)
    return env


def update_shape(obs_shape: Any, act_shape: Any, rew_shape: Any, wrapper_names: Iterable[str]) -> tuple[Any, Any, Any]:
    """Return the shapes after wrappers that define a static `new_shape(obs_shape, act_shape, rew_shape)`.

    No wrapper of this package does. `wrapper_names` are names of classes, or their registered names.
    """
    by_name: dict[str, Any] = {cls.__name__: cls for cls in ENV_WRAPPER_REGISTRY.values() if isinstance(cls, type)}
    by_name.update(ENV_WRAPPER_REGISTRY)
    shapes = obs_shape, act_shape, rew_shape
    for name in wrapper_names:
        if hasattr(by_name.get(name), "new_shape"):
            shapes = by_name[name].new_shape(*shapes)
    return shapes
