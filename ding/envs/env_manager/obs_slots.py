"""Observations in shared memory, laid out as an observation space says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ding.utils.shm_buffer import ShmBuffer, ctype_of

# An observation is written while the one before may still be unread: a terminal one, and the first of the next episode.
_SLOTS = 2
# Stands, within what goes through the pipe, for a part that is in shared memory.
_ELSEWHERE = ...

# How an observation came: the number of the slot that holds it, and the parts of it that are not there. With the number
# NOT_SHARED the second item is the observation.
SentObs = tuple[int, Any]
NOT_SHARED = -1


class ObsSlots:
    """Shared memory for the observations of one env, which its process fills and the manager's reads.

    Arrays of a fixed shape and dtype are shared, on any level of dict and tuple spaces. Slots are used in turn, so an
    observation stays as it is until the next but one is written.

    Example:
        >>> from gymnasium.spaces import Box
        >>> slots = ObsSlots.for_space(Box(0, 1, (2,)), copy_on_get=True)
        >>> sent = slots.put(np.array([0.5, 1], np.float32))
        >>> sent, slots.get(sent)
        ((1, None), array([0.5, 1. ], dtype=float32))
        >>> slots.put("anything else")
        (-1, 'anything else')
    """

    def __init__(self, trees: list[Any]) -> None:
        self._trees = trees
        self._next = 0

    @classmethod
    def for_space(cls, space: Any, copy_on_get: bool) -> ObsSlots:
        """Slots for observations of `space`; those of None share nothing."""
        return cls([_buffers(space, copy_on_get) for _ in range(_SLOTS)])

    @property
    def are_shared(self) -> bool:
        """Whether any part of an observation has a fixed shape and dtype."""
        return self._trees[0] is not None

    def put(self, obs: Any) -> SentObs:
        """Write `obs` into the next slot; what is returned is for `get`. An `obs` of another form is not shared."""
        self._next = slot = (self._next + 1) % _SLOTS
        tree = self._trees[slot]
        if type(tree) is ShmBuffer:
            if not tree.fits(obs):
                return NOT_SHARED, obs
            tree.array[...] = obs
            return slot, None
        if tree is None or not _fits(tree, obs):
            return NOT_SHARED, obs
        return slot, _fill(tree, obs)

    def get(self, sent: SentObs) -> Any:
        """The observation that `put` was given, in arrays of its own, or in shared memory without `copy_on_get`."""
        slot, rest = sent
        if slot == NOT_SHARED:
            return rest
        tree = self._trees[slot]
        return tree.get() if type(tree) is ShmBuffer else _gather(tree, rest)


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
    # Without a dimension it is a number, whatever its type.
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
