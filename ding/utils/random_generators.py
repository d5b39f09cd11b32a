"""Random generators that an object holds in its attributes, and in those of objects a few levels below.

Only `__dict__`, slots and items are read: a property such as `np_random` of gymnasium would make a generator.
"""

from __future__ import annotations

import enum
import logging
import random
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from types import MemberDescriptorType
from typing import Any, NamedTuple

import numpy as np
import torch

from ding.utils.object_state import GENERATORS, generator_state, set_generator_state

_logger = logging.getLogger("ding")
# Levels below the object, or below an env inside it: an object with `reset` and `step` counts as the first level again.
_LEVELS = 6
# Maximum numbers of objects to search, and of items of a container; larger ones are data.
_MOST_OBJECTS = 1000
_MOST_ITEMS = 256
_BIT_GENERATORS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")
# Key of the state of a seed sequence in that of a generator, and its count of children.
_SOURCE, _SPAWNED = "seed_sequence", "n_children_spawned"
_CONTAINERS = (dict, list, tuple, deque)
# Instances of classes of these packages hold no generators of an env, and lead to the rest of the process.
_FOREIGN = frozenset(
    [
        *("_io", "_thread", "asyncio", "builtins", "concurrent", "ctypes", "functools", "inspect", "io", "logging"),
        *("matplotlib", "multiprocessing", "numpy", "pathlib", "pygame", "queue", "re", "socket", "subprocess"),
        *("tensorboardX", "threading", "torch", "weakref"),
    ]
)
_PLAIN = frozenset({type(None), bool, int, float, complex, str, bytes, np.ndarray, type, np.float32, np.float64})


class _Kind(enum.Enum):
    """Ways to search objects of a class."""

    SKIPPED = enum.auto()
    GENERATOR = enum.auto()
    CONTAINER = enum.auto()
    OBJECT = enum.auto()
    ENV = enum.auto()


class _Place(NamedTuple):
    """An attribute or item of an object.

    Attributes:
        owner: the object.
        is_item: whether it is an item.
        key: the name of the attribute, or the key of the item.
    """

    owner: Any
    is_item: bool
    key: Any

    def get(self) -> Any:
        """Return the value, or None if there is none."""
        wanted = (self.is_item, self.key)
        return next((value for is_item, key, value in _parts(self.owner) if (is_item, key) == wanted), None)

    def put(self, value: Any) -> None:
        """Replace the value, unless it is that of a tuple or of something else that cannot be written."""
        if self.is_item:
            if not issubclass(type(self.owner), tuple):
                self.owner[self.key] = value
            return
        cls: Any = type(self.owner)
        slot = next((slot for slot in _layout(cls)[1] if slot.__name__ == self.key), None)
        if slot is None:
            _dict_of(self.owner)[self.key] = value
        else:
            slot.__set__(self.owner, value)


def held_generators_state(obj: Any) -> list[dict[str, Any]]:
    """Return the states of the generators that `obj` holds, in plain values, for `load_held_generators_state`.

    The global generators of numpy, torch and Python are not included. The entry of a generator with several owners has
    several paths.
    """
    found: dict[int, dict[str, Any]] = {}
    for path, generator in _search(obj):
        if id(generator) not in found:
            found[id(generator)] = {"state": _state_of(generator), "paths": []}
        found[id(generator)]["paths"].append(path)
    return [entry for entry in found.values() if entry["state"] is not None]


def load_held_generators_state(obj: Any, states: Sequence[Mapping[str, Any]]) -> None:
    """Set the generators that `obj` holds to `states`.

    A generator that is of another kind, is missing, or has other owners than before, is replaced by a new one.
    """
    taken: set[int] = set()
    for entry in states:
        places = [place for path in entry["paths"] if (place := _resolve(obj, path)) is not None]
        fitting = (place.get() for place in places)
        generator = next((g for g in fitting if id(g) not in taken and _fits(g, entry["state"])), None)
        if generator is None:
            generator = _new_generator(entry["state"])
        if type(generator) is not np.random.SeedSequence:  # which is made as it was
            set_generator_state(generator, entry["state"])
        taken.add(id(generator))
        for place in places:
            if place.get() is not generator:
                place.put(generator)


def _search(obj: Any) -> Iterator[tuple[list[list[Any]], Any]]:
    """Yield `(path, generator)` of each place with a generator, the nearest first.

    A path is a list of `[whether it is an item, name or key]`.
    """
    ignored = _global_generators()
    queue: list[tuple[Any, int, list[list[Any]]]] = [(obj, 0, [])]
    seen = {id(obj)}
    for owner, level, path in queue:  # which grows
        for is_item, key, value in _parts(owner):
            cls: Any = type(value)
            if cls in _PLAIN or (kind := _kind_of_class(cls)) is _Kind.SKIPPED:
                continue
            if kind is _Kind.GENERATOR:
                if id(value) not in ignored:
                    yield [*path, [is_item, key]], value
            elif id(value) not in seen and len(seen) < _MOST_OBJECTS:
                below = 0 if kind is _Kind.ENV else level + 1
                if below < _LEVELS:
                    seen.add(id(value))
                    queue.append((value, below, [*path, [is_item, key]]))


def _kind_of(obj: Any) -> _Kind:
    cls: Any = type(obj)
    return _kind_of_class(cls)


@lru_cache(maxsize=1024)
def _kind_of_class(cls: type) -> _Kind:
    # Classes are checked, not objects, because `isinstance` and `hasattr` may run code of the object.
    if issubclass(cls, (*GENERATORS, np.random.SeedSequence)):
        return _Kind.SKIPPED if issubclass(cls, random.SystemRandom) else _Kind.GENERATOR
    if issubclass(cls, _CONTAINERS):
        return _Kind.CONTAINER
    if issubclass(cls, (type, enum.Enum, BaseException, torch.nn.Module, np.generic, np.ndarray)):
        return _Kind.SKIPPED
    if str(getattr(cls, "__module__", "")).partition(".")[0] in _FOREIGN:
        return _Kind.SKIPPED
    names = {name for base in cls.__mro__ for name in vars(base)}
    return _Kind.ENV if {"reset", "step"} <= names else _Kind.OBJECT


def _parts(obj: Any) -> list[tuple[bool, Any, Any]]:
    """Return the items and attributes of an object, as `(whether it is an item, key or name, value)`."""
    cls: Any = type(obj)
    base, slots = _layout(cls)
    parts = [] if base is None else [(True, key, value) for key, value in _items(obj, base)]
    if cls in _CONTAINERS:
        return parts
    parts += [(False, name, value) for name, value in _dict_of(obj).items()]
    for slot in slots:
        try:
            parts.append((False, slot.__name__, slot.__get__(obj, cls)))
        except AttributeError:  # it has no value
            continue
    return parts


def _items(obj: Any, base: Any) -> list[tuple[Any, Any]]:
    """Return the items of an instance of the container `base`, or none if there are too many."""
    if base.__len__(obj) > _MOST_ITEMS:  # not len(obj), which could run code of a subclass
        return []
    if base is not dict:
        return list(enumerate(base.__iter__(obj)))
    return [item for item in list(dict.items(obj)) if type(item[0]) in (str, int)]


@lru_cache(maxsize=1024)
def _layout(cls: type) -> tuple[Any, tuple[MemberDescriptorType, ...]]:
    """Return the type of container that a class is, if any, and its slots."""
    found = (slot for base in cls.__mro__ for slot in vars(base).values())
    slots = tuple(slot for slot in found if isinstance(slot, MemberDescriptorType))
    return next((base for base in _CONTAINERS if issubclass(cls, base)), None), slots


def _dict_of(obj: Any) -> dict[str, Any]:
    try:
        own = object.__getattribute__(obj, "__dict__")
    except Exception:  # there is none, or it is a property of a class that fails
        return {}
    return own if type(own) is dict else {}


def _resolve(obj: Any, path: Sequence[Sequence[Any]]) -> _Place | None:
    """Return the place at the end of a path if it leads to a generator, None or a missing attribute; otherwise None."""
    for is_item, key in path[:-1]:
        obj = _Place(obj, is_item, key).get()
    if _kind_of(obj) in (_Kind.SKIPPED, _Kind.GENERATOR):
        return None
    place = _Place(obj, *path[-1])
    value = place.get()
    is_free = value is None and not (place.is_item and issubclass(type(obj), (list, tuple, deque)))
    return place if is_free or _kind_of(value) is _Kind.GENERATOR else None


def _source_state(sequence: Any) -> dict[str, Any] | None:
    """Return the state of a `SeedSequence`, from which generators are spawned, or None for anything else."""
    if type(sequence) is not np.random.SeedSequence:
        return None
    return {name: getattr(sequence, name) for name in ("entropy", "spawn_key", "pool_size", _SPAWNED)}


def _fits(value: Any, state: Mapping[str, Any]) -> bool:
    if _kind_of(value) is not _Kind.GENERATOR or id(value) in _global_generators():
        return False
    own = _state_of(value)
    if own is None or own.keys() != state.keys() or own.get("bit_generator") != state.get("bit_generator"):
        return False
    # Generators without children may have other sources; `repr`, because the entropy may be an array.
    sources = own.get(_SOURCE), state.get(_SOURCE)
    return repr(sources[0]) == repr(sources[1]) or not any(source and source[_SPAWNED] for source in sources)


def _new_generator(state: Mapping[str, Any]) -> Any:
    source = np.random.SeedSequence(**state[_SOURCE]) if state.get(_SOURCE) else None
    if state.keys() == {_SOURCE}:
        return source
    if "python" in state:
        return random.Random()
    if "torch" in state:
        return torch.Generator()
    bits = getattr(np.random, state["bit_generator"])(source)
    return np.random.RandomState(bits) if "has_gauss" in state else np.random.Generator(bits)


def _global_generators() -> tuple[int, ...]:
    """Return the ids of the generators behind `numpy.random`, `random` and `torch`."""
    numpy_functions: Any = (np.random.normal, random.random)
    return (*(id(function.__self__) for function in numpy_functions), id(torch.default_generator))


def _state_of(generator: Any) -> dict[str, Any] | None:
    """Return the state of a generator, or None if its kind is unknown."""
    if issubclass(type(generator), random.Random) and type(generator).getstate is not random.Random.getstate:
        return None
    if type(generator) is np.random.SeedSequence:
        return {_SOURCE: _source_state(generator)}
    try:
        state = generator_state(generator)
        if issubclass(type(generator), np.random.Generator):
            state[_SOURCE] = _source_state(generator.bit_generator.seed_seq)
    except Exception as e:  # of a subclass, or a generator on a device that is not there
        _logger.debug("the state of a %s is not saved: %r", type(generator).__name__, e)
        return None
    return None if state.get("bit_generator", "PCG64") not in _BIT_GENERATORS else state
