"""How data of envs travel: arrays between processes, observations in shared memory, stacked batches of V2 managers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from ding.utils.dict_helper import make_key_as_identifier, remove_illegal_item
from ding.utils.shm_buffer import ShmBuffer, ctype_of

# An observation is written while the one before may still be unread: a terminal one, and the first of the next episode.
_BUFFERS = 2
# Stands, within what goes through the pipe, for a part that is in shared memory.
_ELSEWHERE = ...

# How an observation goes through the pipe: the number of the buffer that holds it, and the parts that are not there.
# With the number NOT_SHARED the second item is the observation.
ObsMessage = tuple[int, Any]
NOT_SHARED = -1


class SharedObs:
    """Shared memory for the observations of one env, written by its process and read by the manager's.

    Arrays of a fixed shape and dtype are shared, on any level of dict and tuple spaces. Two buffers are used in turn,
    so an observation is valid until the next but one is written.

    Example:
        >>> from gymnasium.spaces import Box
        >>> shared = SharedObs.for_space(Box(0, 1, (2,)), copy_on_get=True)
        >>> message = shared.write(np.array([0.5, 1], np.float32))
        >>> message, shared.read(message)
        ((1, Ellipsis), array([0.5, 1. ], dtype=float32))
        >>> shared.write("anything else")
        (-1, 'anything else')
    """

    def __init__(self, trees: list[Any]) -> None:
        self._trees = trees
        self._next = 0

    @classmethod
    def for_space(cls, space: Any, copy_on_get: bool) -> SharedObs:
        """Buffers for observations of `space`; nothing is shared for None."""
        return cls([_buffers(space, copy_on_get) for _ in range(_BUFFERS)])

    @property
    def is_used(self) -> bool:
        """Whether any part of an observation has a fixed shape and dtype."""
        return self._trees[0] is not None

    def write(self, obs: Any) -> ObsMessage:
        """Write `obs`; return the message for `read`. An `obs` of another form than the space is not shared."""
        self._next = index = (self._next + 1) % _BUFFERS
        tree = self._trees[index]
        if tree is None or not _fits(tree, obs):
            return NOT_SHARED, obs
        return index, _fill(tree, obs)

    def read(self, message: ObsMessage) -> Any:
        """The observation that `write` was given, in arrays of its own, or in shared memory without `copy_on_get`."""
        index, rest = message
        return rest if index == NOT_SHARED else _gather(self._trees[index], rest)


def _buffers(space: Any, copy_on_get: bool) -> Any:
    """A ShmBuffer for an array of fixed shape, dicts and tuples of them as in the space, None for anything else."""
    parts = getattr(space, "spaces", None)
    if isinstance(parts, Mapping):
        tree: Any = {key: _buffers(part, copy_on_get) for key, part in parts.items()}
        return tree if any(part is not None for part in tree.values()) else None
    if isinstance(parts, (tuple, list)):
        tree = tuple(_buffers(part, copy_on_get) for part in parts)
        return tree if any(part is not None for part in tree) else None
    shape, dtype = getattr(space, "shape", None), getattr(space, "dtype", None)
    # Without a dimension it is a number.
    if not isinstance(shape, tuple) or not shape or dtype is None or ctype_of(np.dtype(dtype)) is None:
        return None
    return ShmBuffer(dtype, shape, copy_on_get)


def _fits(tree: Any, obs: Any) -> bool:
    if isinstance(tree, ShmBuffer):
        return tree.fits(obs)
    if isinstance(tree, dict):
        return type(obs) is dict and obs.keys() == tree.keys() and all(_fits(tree[key], obs[key]) for key in tree)
    if isinstance(tree, tuple):
        return type(obs) is tuple and len(obs) == len(tree) and all(map(_fits, tree, obs))
    return True


def _fill(tree: Any, obs: Any) -> Any:
    if isinstance(tree, ShmBuffer):
        tree.array[...] = obs
        return _ELSEWHERE
    if isinstance(tree, dict):
        return {key: _fill(tree[key], part) for key, part in obs.items()}
    if isinstance(tree, tuple):
        return tuple(map(_fill, tree, obs))
    return obs


def _gather(tree: Any, rest: Any) -> Any:
    if rest is _ELSEWHERE:
        return tree.get()
    if isinstance(tree, dict):
        return {key: _gather(tree[key], part) for key, part in rest.items()}
    if isinstance(tree, tuple):
        return tuple(map(_gather, tree, rest))
    return rest


def pack_array(value: Any) -> tuple[Any, ...]:
    """An array of numbers as (dtype, shape, bytes), which is pickled in 2 us instead of 13 us; else `(value,)`."""
    if type(value) is np.ndarray and value.dtype.kind in "biuf":
        return value.dtype.str, value.shape, bytearray(value.tobytes())
    return (value,)


def unpack_array(packed: tuple[Any, ...]) -> Any:
    """What `pack_array` was given; an array is a new one, in C order."""
    if len(packed) == 1:
        return packed[0]
    dtype, shape, data = packed
    return np.frombuffer(data, dtype).reshape(shape)


class Tree(dict[str, Any]):
    """A dict of arrays, nested in further ones, whose keys are attributes as well.

    Example:
        >>> tree = Tree(obs=Tree(image=np.zeros(2)), done=np.array(True))
        >>> tree.obs.image.shape, tree["done"].item()
        ((2,), True)
    """

    def __getattr__(self, key: str) -> Any:
        try:
            return self[key]
        except KeyError:
            raise AttributeError(f"this tree has no {key!r}, only {sorted(self)}") from None


class StackedFormat:
    """Put before a manager class, it stacks what comes from the envs and splits what goes to them.

    A tree is a `treetensor.numpy` array where DI-treetensor is installed, else a `Tree`.
    """

    _served: list[int] | None = None  # whose observations were read last, in order

    @property
    def ready_obs(self) -> Any:
        """The observations of the envs that wait for an action, stacked: [E, *obs_shape], or a tree of such arrays.

        Raises:
            IndexError: no env waits for an action.
        """
        obs = super().ready_obs  # type: ignore[misc]
        self._served = list(obs)
        if not obs:
            raise IndexError(
                "no env waits for an action: the manager is closed, or its envs have played their episodes"
            )
        return _stack(list(obs.values()))

    def reset(self, reset_param: Mapping[int, dict[str, Any] | None] | None = None) -> None:
        """Begin a new episode in all envs, or in those of `reset_param`; see `BaseEnvManager.reset`."""
        self._served = None
        super().reset(reset_param)  # type: ignore[misc]

    def step(self, actions: Any) -> Any:
        """Act in the envs whose observations `ready_obs` showed last; return a list with a tree for each.

        Args:
            actions: one for each of these envs, in order: in a list, or stacked along the first axis of an array, a
                tensor or a dict of them. `{env_id: action}` is for the envs that it names.

        Returns:
            Trees of `obs`, `reward`, `done`, `info` and `env_id`, in the order of the actions. In `info`, keys are made
            identifiers, and strings left out.

        Raises:
            ValueError: there are more or fewer actions than envs.
        """
        served = super().ready_obs_id if self._served is None else self._served  # type: ignore[misc]
        chosen = self._by_env(actions, served)
        timesteps = super().step(chosen)  # type: ignore[misc]
        self._served = None
        return [_as_tree(env_id, timestep) for env_id, timestep in timesteps.items()]

    def _by_env(self, actions: Any, env_ids: list[int]) -> dict[int, Any]:
        if isinstance(actions, Mapping) and all(isinstance(key, (int, np.integer)) for key in actions):
            return {int(env_id): action for env_id, action in actions.items()}
        rows = _rows(actions)
        if len(rows) != len(env_ids):
            raise ValueError(f"{len(rows)} actions were given for the {len(env_ids)} envs {env_ids}")
        return dict(zip(env_ids, rows, strict=True))


def _rows(actions: Any) -> list[Any]:
    if hasattr(actions, "json"):  # a tree of treetensor
        actions = actions.json()
    if isinstance(actions, Mapping):
        columns = {key: _rows(value) for key, value in actions.items()}
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    if not isinstance(actions, Iterable):
        raise ValueError(f"actions = {actions!r} are not one for each env")
    return list(actions)


def _stack(items: list[Any]) -> Any:
    first = items[0]
    if isinstance(first, Mapping):
        return _tree({key: _stack([item[key] for item in items]) for key in first})
    return np.array(items)


def _as_tree(env_id: int, timestep: Any) -> Any:
    info = timestep.info
    return _tree(
        {
            "obs": timestep.obs,
            "reward": timestep.reward,
            "done": timestep.done,
            "info": _legible(info) if isinstance(info, Mapping) else info,
            "env_id": env_id,
        }
    )


def _legible(info: Mapping[Any, Any]) -> dict[str, Any]:
    """The info without strings, under keys that can be attributes."""
    return {
        _identifier(str(key)): _legible(value) if isinstance(value, (dict, Mapping)) else value
        for key, value in remove_illegal_item(info).items()
    }


@lru_cache(maxsize=1024)
def _identifier(key: str) -> str:
    return next(iter(make_key_as_identifier({key: None})))


def _tree(data: dict[str, Any]) -> Any:
    trees = _treetensor()
    return _nested(data, Tree) if trees is None else trees.array(_nested(data, dict))


def _nested(data: Mapping[str, Any], make: Callable[[dict[str, Any]], Any]) -> Any:
    """Every leaf an array; the check for an array comes first because most are one."""
    return make(
        {
            key: value
            if type(value) is np.ndarray
            else _nested(value, make)
            if isinstance(value, (dict, Mapping))
            else np.asarray(value)
            for key, value in data.items()
        }
    )


@lru_cache(maxsize=1)
def _treetensor() -> Any:
    try:
        import treetensor.numpy
    except ImportError:
        return None
    return treetensor.numpy
