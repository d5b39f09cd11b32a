"""Compares two objects by all that they hold, without asking them: to find state that an object does not tell."""

import logging
import random
import threading
import types
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from easydict import EasyDict

from ding.utils.msgpack_helper import pack, unpack

# What can hold nothing that goes on, or belongs to the process.
_FOREIGN = (
    type,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    partial,
    logging.Logger,
    threading.Thread,
    EasyDict,
    type(threading.Lock()),
    type(threading.RLock()),
)


def through_bytes(state: Any) -> Any:
    """`state` as it comes back from a file."""
    return unpack(pack(state))


def differences(one: Any, other: Any, skip: Collection[str] = ()) -> list[str]:
    """The paths of all attributes, items and array contents in which the two differ; those whose name, or
    key, is in `skip` are not looked at.
    """
    return list(_differences(one, other, "", skip, set()))


def assert_same(one: Any, other: Any) -> None:
    """The two differ in nothing, types and bits included."""
    assert differences(one, other) == []


def _differences(one: Any, other: Any, path: str, skip: Collection[str], seen: set[int]) -> Iterator[str]:
    if type(one) is not type(other):
        yield f"{path}: {type(one).__name__} and {type(other).__name__}"
    elif isinstance(one, _LEAVES) and not (isinstance(one, np.ndarray) and one.dtype.hasobject):
        if not _are_same(one, other):
            yield f"{path}: {one!r} and {other!r}"
    elif not isinstance(one, _FOREIGN) and id(one) not in seen:
        seen.add(id(one))
        yield from _parts(one, other, path, skip, seen)


_LEAVES = (
    *(torch.Tensor, np.ndarray, np.random.Generator, np.random.RandomState, torch.Generator, random.Random),
    *(type(None), bool, int, float, complex, str, bytes, np.generic),
)


def _are_same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return one.shape == other.shape and one.dtype == other.dtype and _equal(one.detach(), other.detach())
    if isinstance(one, np.ndarray):
        return one.shape == other.shape and one.dtype == other.dtype and one.tobytes() == other.tobytes()
    if isinstance(one, (np.random.Generator, np.random.RandomState)):
        return str(one.__getstate__()) == str(other.__getstate__())
    if isinstance(one, random.Random):
        return one.getstate() == other.getstate()  # type: ignore[no-any-return]
    if isinstance(one, torch.Generator):
        return torch.equal(one.get_state(), other.get_state())
    return bool(one == other or (one != one and other != other))


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether all bits are the same."""
    left, right = (tensor.cpu().contiguous().reshape(-1).view(torch.uint8) for tensor in (one, other))
    return torch.equal(left, right)


def _parts(one: Any, other: Any, path: str, skip: Collection[str], seen: set[int]) -> Iterator[str]:
    if isinstance(one, Mapping):
        if _are_of_objects(one) or _are_of_objects(other):
            others: Mapping[Any, Any] = dict(zip(one, other.values(), strict=False))
        else:
            others = other
        if set(one) != set(others) or len(one) != len(other):
            yield f"{path}: the keys {list(one)} and {list(other)}"
        items = [(f"{path}[{key!r}]", one[key], others[key]) for key in one if key in others and key not in skip]
    elif isinstance(one, (list, tuple, deque)):
        if len(one) != len(other):
            yield f"{path}: the lengths {len(one)} and {len(other)}"
        items = [(f"{path}[{i}]", left, right) for i, (left, right) in enumerate(zip(one, other, strict=False))]
    elif isinstance(one, (set, frozenset)):
        if one != other:
            yield f"{path}: {one!r} and {other!r}"
        items = []
    else:
        mine, its = (
            {name: value for name, value in _attributes(obj).items() if name not in skip} for obj in (one, other)
        )
        if mine.keys() != its.keys():
            yield f"{path}: the attributes {sorted(mine.keys() ^ its.keys())}"
        items = [(f"{path}.{name}", mine[name], its[name]) for name in mine if name in its]
    for where, left, right in items:
        yield from _differences(left, right, where, skip, seen)


def _are_of_objects(mapping: Mapping[Any, Any]) -> bool:
    """Whether the keys are objects, or their ids, which differ from one process to the next."""
    return any(not isinstance(key, (str, int, tuple)) or (isinstance(key, int) and key > 1 << 32) for key in mapping)


def _attributes(obj: Any) -> dict[str, Any]:
    found = dict(getattr(obj, "__dict__", {}))
    for cls in type(obj).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(obj, name):
                found[name] = getattr(obj, name)
    return found
