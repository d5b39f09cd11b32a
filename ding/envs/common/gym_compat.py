"""Support of gymnasium, and of gym (0.25), its predecessor.

gymnasium is imported where it is used. gym is looked up among the modules that are loaded already; it is imported only
to make an env that gymnasium does not know.
"""

from __future__ import annotations

import importlib.util
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np

from ding.utils.action_mask import action_mask_of, masks_by_choice
from ding.utils.data.nested import is_container, is_mapping, parts_of


def library_of(cls: type) -> Any:
    """Return the module gymnasium or gym that has envs of the class `cls`; None if neither has."""
    for name in ("gymnasium", "gym"):
        library: Any = sys.modules.get(name)
        if isinstance(getattr(library, "Env", None), type) and issubclass(cls, library.Env):
            return library
    return None


def is_gymnasium_env(env: Any) -> bool:
    """Return whether `env` is an env of gymnasium, wrapped or not."""
    library = library_of(type(env))
    return library is not None and library is sys.modules.get("gymnasium")


_KINDS = frozenset(("Box", "Dict", "Discrete", "MultiBinary", "MultiDiscrete", "Tuple"))


@cache
def _origin(cls: type) -> tuple[str, str]:
    """Return the library and the kind of a class of spaces, as ("gym", "Box"); empty texts for any other class."""
    for base in cls.__mro__:
        library = base.__module__.partition(".")[0]
        if library in ("gymnasium", "gym") and base.__name__ in _KINDS:
            return library, base.__name__
    return "", ""


def space_kind(space: Any) -> str:
    """Return the name of the class of gymnasium or gym that `space` is of: "Box", "Discrete" ...; "" for any other."""
    return _origin(space.__class__)[1]


def gymnasium_space(space: Any) -> Any:
    """Return the space of gymnasium that is equal to a space of gym; any other object is returned itself."""
    library, kind = _origin(space.__class__)
    if library != "gym":
        return space
    from gymnasium import spaces

    match kind:
        case "Box":
            return spaces.Box(space.low, space.high, dtype=space.dtype.type)
        case "Discrete":
            return spaces.Discrete(int(space.n), start=int(space.start))
        case "MultiDiscrete":
            return spaces.MultiDiscrete(space.nvec, dtype=space.dtype.type)
        case "MultiBinary":
            return spaces.MultiBinary(space.n)
        case "Dict":
            return spaces.Dict({key: gymnasium_space(member) for key, member in space.spaces.items()})
        case _:
            return spaces.Tuple([gymnasium_space(member) for member in space.spaces])


_ATTRIBUTES = {"MultiDiscrete": ("nvec",), "Discrete": ("n",), "Box": ("low", "high")}


def duck_kind(space: Any) -> str:
    """Return the `space_kind`, or which of three kinds a space of another package has the attributes of."""
    kinds = (kind for kind, names in _ATTRIBUTES.items() if all(hasattr(space, name) for name in names))
    return space_kind(space) or next(kinds, "")


def members_of(space: Any) -> Mapping[Any, Any]:
    """Return the spaces by key or place in a dict or sequence of spaces, or in a space that has `spaces`; else {}."""
    return dict(parts_of(getattr(space, "spaces", space)))


def has_members(space: Any) -> bool:
    """Return whether `members_of` says of what `space` consists."""
    return is_container(getattr(space, "spaces", space))


def entries_of(space: Any) -> Mapping[str, Any] | None:
    """Return the spaces by key in a dict space, None for any other space."""
    members = getattr(space, "spaces", None)  # tuple spaces have a sequence of this name
    return members if is_mapping(members) else None


def map_space(function: Callable[[Any], Any], space: Any) -> Any:
    """Return `space` with `function` of each space in it that is no Dict or Tuple; itself if nothing changes.

    A Dict gets its entries in the order of one that is made of a dict, sorted where keys can be, whatever the order in
    which they were given.
    """
    kind, members = space_kind(space), members_of(space)
    if kind not in ("Dict", "Tuple"):
        return function(space)
    changed = {key: map_space(function, member) for key, member in members.items()}
    from gymnasium import spaces

    made = spaces.Dict(changed) if kind == "Dict" else spaces.Tuple(list(changed.values()))
    is_same = all(changed[key] is member for key, member in members.items())
    return space if is_same and [*members_of(made)] == [*members] else made


def bounds_of(space: Any) -> tuple[Any, Any] | None:
    """Return the lowest and the highest members of a space of numbers, None for any other space."""
    match space_kind(space):
        case "Box":
            return space.low, space.high
        case "Discrete":
            return int(space.start), int(space.start) + int(space.n) - 1
        case "MultiDiscrete":
            start = getattr(space, "start", 0)  # that of gym has none
            return start, start + space.nvec - 1
        case "MultiBinary":
            return 0, 1
    return None


def first_choice(space: Any) -> Any:
    """Return what stands for choice 0 of a Discrete or MultiDiscrete: its `start`; 0 for any other space."""
    return bounds_of(space)[0] if space_kind(space) in ("Discrete", "MultiDiscrete") else 0  # type: ignore[index]


def sample_legal(space: Any, obs: Any) -> Any:
    """Return a sample of an action space; of choices, a legal one if `obs` has an action mask.

    Raises:
        ValueError: the mask does not fit the space, or leaves no legal action.
    """
    mask, kind = action_mask_of(obs), space_kind(space)
    if mask is None or kind not in ("Discrete", "MultiDiscrete"):
        return space.sample()
    counts = np.ravel(space.n if kind == "Discrete" else space.nvec).tolist()
    masks = [np.asarray(np.asarray(part) != 0, np.int8) for part in masks_by_choice(mask, counts)]
    if not all(part.any() for part in masks):
        raise ValueError("action_mask leaves no legal action; the env must allow at least one")
    if kind == "Discrete":
        return space.sample(masks[0])
    return space.sample(tuple(masks))


def layers(env: Any) -> Iterator[Any]:
    """Yield `env` and the envs that it wraps (by the attribute `env`), the outermost first."""
    while env is not None:
        yield env
        env = getattr(env, "env", None)  # not through __dict__: an object that made one is slower from then on


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
