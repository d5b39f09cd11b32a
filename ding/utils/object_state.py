"""The state of Python objects as plain values: what their attributes hold, told and put back."""

from __future__ import annotations

import enum
import itertools
import logging
import random
import threading
import types
import weakref
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from easydict import EasyDict
from torch import nn

# Key by which the state of something that is no plain value is told from a dict.
_KIND = "__state__"
_PLAIN = (type(None), bool, int, float, complex, str, bytes)
# Key of the number of what is told of in several places.
_NUMBER = "__number__"
# What holds no state, or none that could go to another process. Configs are given, not learned.
_STATELESS = (
    type,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.GeneratorType,
    partial,
    property,
    slice,
    range,
    np.dtype,
    np.ufunc,
    torch.device,
    torch.dtype,
    torch.Size,
    weakref.ref,
    weakref.WeakKeyDictionary,
    weakref.WeakValueDictionary,
    logging.Logger,
    threading.Thread,
    threading.Event,
    threading.Condition,
    EasyDict,
)
_GENERATORS = (np.random.Generator, np.random.RandomState, torch.Generator, random.Random)
_SKIPPED: Any = object()


def attributes_state(obj: Any, skip: Collection[str] = ()) -> dict[str, Any]:
    """What the attributes of `obj` hold, by name, for `load_attributes_state`.

    These are plain values, arrays and tensors (the very ones, not copies), containers of them, random generators,
    modules, and objects with `state_dict` and `load_state_dict`; of other objects their attributes in turn. What is
    shared is told once, and shared again when it is put back. Functions, classes, locks, threads, loggers and
    `EasyDict`s are left out.

    Args:
        skip: names to leave out.
    """
    return _attributes(obj, skip, _Seen(obj))


def load_attributes_state(obj: Any, state: Mapping[str, Any]) -> None:
    """Put what `attributes_state` has told into `obj`, which was built alike.

    Objects, arrays and tensors of the same shape are changed in place, so whoever shares them sees it.

    Raises:
        ValueError: the state tells of an object where `obj` has none.
    """
    _load_attributes(obj, state, type(obj).__name__, {0: obj})


def generator_state(rng: Any) -> dict[str, Any]:
    """The state of a random generator of Python, numpy or torch, in plain values and arrays."""
    if isinstance(rng, np.random.Generator):
        state = dict(rng.bit_generator.state)
        inner = state["state"]
        copied = {name: words.copy() if isinstance(words, np.ndarray) else words for name, words in inner.items()}
        return {**state, "state": copied}
    if isinstance(rng, np.random.RandomState):
        legacy: dict[str, Any] = dict(rng.get_state(legacy=False))
        return legacy
    if isinstance(rng, torch.Generator):
        return {"torch": rng.get_state()}
    return {"python": rng.getstate()}


def set_generator_state(rng: Any, state: Mapping[str, Any]) -> None:
    """Put a generator back to a state of `generator_state`."""
    if isinstance(rng, np.random.Generator):
        rng.bit_generator.state = dict(state)
    elif isinstance(rng, np.random.RandomState):
        rng.set_state(dict(state))
    elif isinstance(rng, torch.Generator):
        rng.set_state(state["torch"])
    else:
        rng.setstate(state["python"])


def global_generators_state() -> dict[str, Any]:
    """The states of the global generators of Python, numpy and torch, on all GPUs that were used, too."""
    numpy_state: Any = np.random.get_state(legacy=False)
    state = {"python": random.getstate(), "numpy": dict(numpy_state), "torch": torch.get_rng_state()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def load_global_generators_state(state: Mapping[str, Any]) -> None:
    """Put the global generators back to a state of `global_generators_state`."""
    random.setstate(state["python"])
    np.random.set_state(dict(state["numpy"]))
    torch.set_rng_state(state["torch"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"][: torch.cuda.device_count()])


# ---- telling


class _Seen:
    """What is told already; what is told once more gets a number, by which the rest refers to it."""

    def __init__(self, root: Any = None) -> None:
        self.nodes: dict[int, Any] = {id(root): {_NUMBER: 0}}  # by the id of what they tell of, which is kept alive
        self._count = 0

    def again(self, value: Any) -> Any:
        node = self.nodes[id(value)]
        if node is _SKIPPED:
            return _SKIPPED
        if _NUMBER not in node:
            self._count += 1
            node[_NUMBER] = self._count
        return {_KIND: "same", _NUMBER: node[_NUMBER]}


def _attributes(obj: Any, skip: Collection[str], seen: _Seen) -> dict[str, Any]:
    told = {name: _tell(value, seen) for name, value in _variables(obj) if name not in skip}
    return {name: node for name, node in told.items() if node is not _SKIPPED}


def _variables(obj: Any) -> Iterable[tuple[str, Any]]:
    yield from vars(obj).items() if hasattr(obj, "__dict__") else ()
    for cls in type(obj).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(obj, name):
                yield name, getattr(obj, name)


def _tell(value: Any, seen: _Seen) -> Any:
    if type(value) in _PLAIN or isinstance(value, (np.generic, torch.Tensor)):
        return value
    if isinstance(value, np.ndarray):
        return _SKIPPED if value.dtype.hasobject or value.dtype.names else value
    if isinstance(value, enum.Enum):
        return {_KIND: "enum", "name": value.name}
    if isinstance(value, itertools.count):
        return {_KIND: "count", "arguments": list(value.__reduce__()[1])}
    if isinstance(value, _STATELESS) or callable(value) and not hasattr(value, "__dict__"):
        return _SKIPPED
    if isinstance(value, (tuple, frozenset)):
        return _tell_container(value, seen)
    if id(value) in seen.nodes:
        return seen.again(value)
    node = seen.nodes[id(value)] = {}
    told = _tell_object(value, seen)
    if isinstance(told, dict):
        node.update(told)
        return node
    seen.nodes[id(value)] = _SKIPPED
    return told


def _tell_object(value: Any, seen: _Seen) -> Any:
    if isinstance(value, _GENERATORS):
        return {_KIND: "generator", "state": generator_state(value)}
    if isinstance(value, nn.Module):
        return _tell_module(value)
    if hasattr(type(value), "state_dict") and hasattr(type(value), "load_state_dict"):
        return {_KIND: "own", "state": value.state_dict()}
    if isinstance(value, (Mapping, list, set, deque)):
        return _tell_container(value, seen)
    if isinstance(value, bytearray):
        return {_KIND: "bytearray", "content": bytes(value)}
    told = _attributes(value, (), seen)
    return {_KIND: "object", "state": told} if told else _SKIPPED


def _tell_module(module: nn.Module) -> dict[str, Any]:
    state = module.state_dict()
    others = {name: buffer for name, buffer in module.named_buffers() if name not in state}
    # Switches and counters, such as `training`, that are ordinary attributes of the parts.
    plain = [{name: v for name, v in vars(part).items() if type(v) in _PLAIN} for part in module.modules()]
    return {_KIND: "module", "state": dict(state), "buffers": others, "attributes": plain}


def _tell_container(value: Any, seen: _Seen) -> Any:
    if isinstance(value, Mapping):
        told: Any = {key: _tell(item, seen) for key, item in value.items() if type(key) in _PLAIN or type(key) is tuple}
        kept = {key: node for key, node in told.items() if node is not _SKIPPED}
        return _SKIPPED if value and not kept else {_KIND: "dict", "items": list(kept.items())}
    if isinstance(value, (set, frozenset)):  # told as a set: its order is none, and differs between processes
        if not all(type(item) in _PLAIN or type(item) is tuple for item in value):
            return _SKIPPED
        return {_KIND: "set", "items": set(value), "is_frozen": isinstance(value, frozenset)}
    nodes = [_tell(item, seen) for item in value]
    if nodes and all(node is _SKIPPED for node in nodes):
        return _SKIPPED
    if any(node is _SKIPPED for node in nodes):
        kept_items = [[index, node] for index, node in enumerate(nodes) if node is not _SKIPPED]
        return {_KIND: "some", "items": kept_items}
    kind = "tuple" if isinstance(value, tuple) else "list" if isinstance(value, list) else "deque"
    return {_KIND: kind, "items": nodes, **({"maxlen": value.maxlen} if kind == "deque" else {})}


# ---- putting back


def _load_attributes(obj: Any, state: Mapping[str, Any], where: str, placed: dict[int, Any]) -> None:
    for name, node in state.items():
        current = getattr(obj, name, None)
        value = _put(current, node, f"{where}.{name}", placed)
        if value is not current or name not in getattr(obj, "__dict__", {}):
            object.__setattr__(obj, name, value) if not isinstance(obj, nn.Module) else setattr(obj, name, value)


def _put(current: Any, node: Any, where: str, placed: dict[int, Any]) -> Any:
    """What stands in the place of `current`: itself, changed, where that can be.

    Args:
        placed: what stands in several places, by its number.
    """
    if not (isinstance(node, dict) and _KIND in node):
        return _put_value(current, node)
    kind, number = node[_KIND], node.get(_NUMBER)
    if kind == "same":
        return placed.get(node[_NUMBER], current)
    if kind == "count":
        return itertools.count(*node["arguments"])
    if kind in _CONTAINERS:
        return _put_container(current, node, where, placed)
    if kind == "bytearray" and not isinstance(current, bytearray):
        current = bytearray()
    if current is None:
        raise ValueError(f"{where} is None, but the state tells of an object there; it must be built as it was then")
    if number is not None:
        placed[number] = current
    return type(current)[node["name"]] if kind == "enum" else _put_object(current, node, where, placed)


def _put_object(current: Any, node: Mapping[str, Any], where: str, placed: dict[int, Any]) -> Any:
    match node[_KIND]:
        case "generator":
            set_generator_state(current, node["state"])
        case "module":
            _put_module(current, node)
        case "bytearray":
            current[:] = node["content"]
        case "own":
            current.load_state_dict(node["state"])
        case "object":
            _load_attributes(current, node["state"], where, placed)
        case "some":
            for index, item in node["items"]:
                if index >= len(current):
                    raise ValueError(
                        f"{where} has {len(current)} items, but the state tells of more; see its item {index}"
                    )
                put = _put(current[index], item, f"{where}[{index}]", placed)
                if put is not current[index]:
                    current[index] = put
    return current


def _put_value(current: Any, value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        if isinstance(current, torch.Tensor) and current.shape == value.shape and current.dtype == value.dtype:
            with torch.no_grad():
                return current.copy_(value) if current.is_leaf else value.to(current.device)
        return value
    is_same_kind = isinstance(value, np.ndarray) and isinstance(current, np.ndarray)
    if is_same_kind and current.shape == value.shape and current.dtype == value.dtype and current.flags.writeable:
        current[...] = value
        return current
    return value


def _put_module(module: nn.Module, node: Mapping[str, Any]) -> None:
    module.load_state_dict(node["state"], strict=True)
    buffers = dict(module.named_buffers())
    for name, value in node["buffers"].items():
        buffers[name].copy_(value)
    for part, plain in zip(module.modules(), node["attributes"], strict=True):
        vars(part).update(plain)


_CONTAINERS: dict[str, type] = {"dict": dict, "list": list, "tuple": tuple, "deque": deque, "set": set}


def _put_container(current: Any, node: Mapping[str, Any], where: str, placed: dict[int, Any]) -> Any:
    kind, items = node[_KIND], node["items"]
    target = current
    if not isinstance(current, Mapping if kind == "dict" else _CONTAINERS[kind]):
        target = deque(maxlen=node["maxlen"]) if kind == "deque" else _CONTAINERS[kind]()
    if _NUMBER in node:
        placed[node[_NUMBER]] = target
    if kind == "set":
        if node["is_frozen"]:
            return frozenset(items)
        target.clear()
        target.update(items)
        return target
    if kind == "dict":
        told = {key: _put(target.get(key), item, f"{where}[{key!r}]", placed) for key, item in items}
        if not isinstance(target, dict):
            return told
        for key in [key for key in target if key not in told and not _is_stateless(target[key])]:
            del target[key]
        target.update(told)
        return target
    before = list(target) + [None] * (len(items) - len(target))
    values = [
        _put(old, item, f"{where}[{i}]", placed) for i, (old, item) in enumerate(zip(before, items, strict=False))
    ]
    if kind == "tuple":
        return type(target)(*values) if hasattr(target, "_fields") else tuple(values)
    target.clear()
    target.extend(values)
    return target


def _is_stateless(value: Any) -> bool:
    return _tell(value, _Seen()) is _SKIPPED
