"""Support of gymnasium, and of gym (0.25), its predecessor.

gymnasium is imported where it is used. gym is looked up among the modules that are loaded already; it is imported only
to make an env that gymnasium does not know.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any


def library_of(cls: type) -> Any:
    """Return the module gymnasium or gym that has envs of the class `cls`; None if neither has."""
    for name in ("gymnasium", "gym"):
        library: Any = sys.modules.get(name)
        if isinstance(getattr(library, "Env", None), type) and issubclass(cls, library.Env):
            return library
    return None


def is_gymnasium_env(env: Any) -> bool:
    """Return whether `env` is an env of gymnasium, wrapped or not."""
    return getattr(library_of(type(env)), "__name__", None) == "gymnasium"


def is_gym_env(env: Any) -> bool:
    """Return whether `env` is an env of the old gym, wrapped or not."""
    return getattr(library_of(type(env)), "__name__", None) == "gym"


def spaces_like(space: Any) -> Any:
    """Return the module `spaces` of the library that `space` is from: gymnasium's unless it is a space of gym."""
    if any(cls.__module__.partition(".")[0] == "gym" for cls in type(space).__mro__):
        return sys.modules["gym"].spaces
    from gymnasium import spaces

    return spaces


def layers(env: Any) -> Iterator[Any]:
    """Yield `env` and the envs that it wraps (by the attribute `env`), the outermost first."""
    while env is not None:
        yield env
        env = getattr(env, "env", None)  # not through __dict__: an object that made one is slower from then on


def takes_seed(env: Any) -> bool:
    """Return whether `reset(seed=...)` reaches the innermost layer of `env`."""
    return all(_has_keyword(layer.reset, "seed") for layer in layers(env))


def gym_that_knows(env_id: str) -> Any:
    """Return the module gym if it is installed and has an env `env_id`, else None."""
    if sys.modules.get("gym") is None and importlib.util.find_spec("gym") is None:
        return None
    import gym

    try:
        gym.spec(env_id)
    except (gym.error.Error, ImportError):
        return None
    return gym


def make_gym_env(gym: Any, env_id: Any, **kwargs: Any) -> Any:
    """Return an env of gym by its id or spec, whose `step` returns four values."""
    with warnings.catch_warnings():
        # It warns of the interface that wrappers written for gym expect.
        warnings.filterwarnings("ignore", message=".*old step API")
        return gym.make(env_id, **kwargs)


def _has_keyword(function: Callable[..., Any], name: str) -> bool:
    parameters = inspect.signature(function).parameters
    return name in parameters or any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
