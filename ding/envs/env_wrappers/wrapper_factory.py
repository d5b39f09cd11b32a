"""Wrappers by name, class or function, applied to an env."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ding.envs.common.gym_compat import is_gym_env, library_of
from ding.envs.env_wrappers.base_wrapper import EnvWrapper
from ding.utils.import_helper import import_module
from ding.utils.log_helper import shown
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
    make, kwargs = _read(env_wrapper_cfg)
    return _apply(env, make, kwargs)


def apply_env_wrappers(env: Any, entries: Iterable[Any]) -> Any:
    """Return `env` in the wrappers `entries`, the first of them innermost.

    An entry is a config as `create_env_wrapper` takes it, a registered name, or a class or function that takes an env
    and returns one. Wrappers of gymnasium get an env with its interface, all others one whose `reset()` returns the
    observation and whose `step` returns four values.

    Raises:
        KeyError: no wrapper is registered under a name.
        TypeError: an entry is something else, or its result is not an env.
    """
    for entry in entries:
        make, kwargs = _read(entry)
        env = _apply(env, make, kwargs)
    return env


def update_shape(obs_shape: Any, act_shape: Any, rew_shape: Any, wrapper_names: Iterable[str]) -> tuple[Any, Any, Any]:
    """Return the shapes after wrappers that define a static `new_shape(obs_shape, act_shape, rew_shape)`.

    No wrapper of this package does. `wrapper_names` are names of classes, or their registered names.
    """
    by_class_name = {cls.__name__: cls for cls in ENV_WRAPPER_REGISTRY.values() if isinstance(cls, type)}
    shapes = obs_shape, act_shape, rew_shape
    for name in wrapper_names:
        wrapper: Any = ENV_WRAPPER_REGISTRY[name] if name in ENV_WRAPPER_REGISTRY else by_class_name.get(name)
        if hasattr(wrapper, "new_shape"):
            shapes = wrapper.new_shape(*shapes)
    return shapes


def _read(entry: Any) -> tuple[Callable[..., Any], dict[str, Any]]:
    if isinstance(entry, str):
        return ENV_WRAPPER_REGISTRY.get(entry), {}
    if isinstance(entry, Mapping):
        import_module(entry.get("import_names", []))
        return ENV_WRAPPER_REGISTRY.get(entry["type"]), dict(entry.get("kwargs", {}))
    if not callable(entry):
        raise TypeError(
            f"env_wrapper has {entry!r}; each entry must be a dict(type=..., kwargs=...), a registered name, or a "
            "class or function that takes an env"
        )
    return entry, {}


def _apply(env: Any, make: Callable[..., Any], kwargs: dict[str, Any]) -> Any:
    function = make.func if isinstance(make, functools.partial) else make
    cls = function if isinstance(function, type) else object
    own, wanted = library_of(type(env)), library_of(cls)
    # A library's wrappers get its envs unchanged; so do functions written for gym, which may inspect them.
    if issubclass(cls, EnvWrapper) or (own is not None and own is wanted) or (is_gym_env(env) and wanted is None):
        return _checked(make(env, **kwargs), make)
    from ding.envs.env_wrappers.gym_and_gymnasium import BilingualEnv

    view = BilingualEnv(env)
    return view.settle(_checked(make(view, **kwargs), make))


def _checked(env: Any, make: Callable[..., Any]) -> Any:
    if callable(getattr(env, "step", None)) and callable(getattr(env, "reset", None)):
        return env
    raise TypeError(f"the env wrapper {make!r} returned {shown(env)}, which is not an env: it lacks reset() or step()")
