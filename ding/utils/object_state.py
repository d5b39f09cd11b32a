"""Saving and restoring the attributes of Python objects as plain values."""

from __future__ import annotations

import ast
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
from typing import Any, ClassVar

import numpy as np
import torch
from easydict import EasyDict
from torch import nn
from torch.optim import Optimizer

from ding.utils.state_loading import load_optimizer_state

# Key that distinguishes the state of an object from a plain dict.
_KIND = "__state__"
_PLAIN = (type(None), bool, int, float, complex, str, bytes)
# Key of the number of an object that is referenced several times.
_NUMBER = "__number__"
# Types without state, or whose state cannot be moved to another process. Configs are not learned.
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
GENERATORS = (np.random.Generator, np.random.RandomState, torch.Generator, random.Random)
_SKIPPED: Any = object()


def attributes_state(obj: Any, skip: Collection[str] = ()) -> dict[str, Any]:
    """Return the state of the attributes of `obj` by name, for `load_attributes_state`.

    Saved are plain values, arrays and tensors (not copied), containers of them, random generators, modules, objects
    with `state_dict` and `load_state_dict`, and recursively the attributes of other objects. Shared objects are saved
    once. Functions, classes, locks, threads, loggers and `EasyDict`s are skipped.

    Args:
        obj: the object.
        skip: names of attributes to skip.
    """
    return _attributes(obj, skip, _Memo(obj))


def load_attributes_state(obj: Any, state: Mapping[str, Any]) -> None:
    """Restore a state of `attributes_state` in `obj`, which must be constructed in the same way.

    Objects, and arrays and tensors of the same shape, are changed in place, so other references see the change.

    Raises:
        ValueError: the state has an object where `obj` has None.
    """
    _load_attributes(obj, state, type(obj).__name__, {0: obj})


class SavedAttributes:
    """An object whose state is that of the attributes named in `_saved`.

    Example:
        >>> class Counter(SavedAttributes):
        ...     _saved = ("count",)
        ...     def __init__(self):
        ...         self.count, self.name = 0, "counter"
        >>> Counter().state_dict()
        {'count': 0}
    """

    _saved: ClassVar[tuple[str, ...]] = ()

    def state_dict(self) -> dict[str, Any]:
        """Return the saved attributes by name; see `attributes_state`."""
        return attributes_state(self, vars(self).keys() - set(self._saved))

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore a `state_dict`, which may have further entries.

        Raises:
            KeyError: an attribute is missing.
        """
        load_attributes_state(self, {name: state_dict[name] for name in self._saved})


def generator_state(rng: Any) -> dict[str, Any]:
    """Return the state of a random generator of Python, numpy or torch, in plain values and arrays."""
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
    """Set a generator to a state of `generator_state`."""
    if isinstance(rng, np.random.Generator):
        rng.bit_generator.state = dict(state)
    elif isinstance(rng, np.random.RandomState):
        rng.set_state(dict(state))
    elif isinstance(rng, torch.Generator):
        rng.set_state(state["torch"])
    else:
        rng.setstate(state["python"])


def global_generators_state() -> dict[str, Any]:
    """Return the states of the global generators of Python, numpy and torch, including all GPUs."""
    numpy_state: Any = np.random.get_state(legacy=False)
    state = {"python": random.getstate(), "numpy": dict(numpy_state), "torch": torch.get_rng_state()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def load_global_generators_state(state: Mapping[str, Any]) -> None:
    """Set the global generators to a state of `global_generators_state`."""
    random.setstate(state["python"])
    np.random.set_state(dict(state["numpy"]))
    torch.set_rng_state(state["torch"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"][: torch.cuda.device_count()])


# ---- saving


class _Memo:
    """The nodes of saved objects; a node that is referenced again gets a number."""

    def __init__(self, root: Any = None) -> None:
        self.nodes: dict[int, Any] = {id(root): {_NUMBER: 0}}  # by the id of the object, which the caller keeps alive
        self._count = 0

    def reference(self, value: Any) -> Any:
        node = self.nodes[id(value)]
        if node is _SKIPPED:
            return _SKIPPED
        if _NUMBER not in node:
            self._count += 1
            node[_NUMBER] = self._count
        return {_KIND: "same", _NUMBER: node[_NUMBER]}


def _attributes(obj: Any, skip: Collection[str], memo: _Memo) -> dict[str, Any]:
    saved = {name: _save(value, memo) for name, value in _variables(obj) if name not in skip}
    return {name: node for name, node in saved.items() if node is not _SKIPPED}


def _variables(obj: Any) -> Iterable[tuple[str, Any]]:
    yield from vars(obj).items() if hasattr(obj, "__dict__") else ()
    for cls in type(obj).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(obj, name):
                yield name, getattr(obj, name)


def _save(value: Any, memo: _Memo) -> Any:
    if type(value) in _PLAIN or isinstance(value, (np.generic, torch.Tensor)):
        return value
    if isinstance(value, np.ndarray):
        return _SKIPPED if value.dtype.hasobject or value.dtype.names else value
    if isinstance(value, enum.Enum):
        return {_KIND: "enum", "name": value.name}
    if isinstance(value, itertools.count):
        return {_KIND: "count", "arguments": ast.literal_eval(f"[{repr(value)[len('count(') : -1]}]")}
    if isinstance(value, _STATELESS) or callable(value) and not hasattr(value, "__dict__"):
        return _SKIPPED
    if isinstance(value, (tuple, frozenset)):
        return _save_container(value, memo)
    if id(value) in memo.nodes:
        return memo.reference(value)
    node = memo.nodes[id(value)] = {}
    saved = _save_object(value, memo)
    if isinstance(saved, dict):
        node.update(saved)
        return node
    memo.nodes[id(value)] = _SKIPPED
    return saved


def _save_object(value: Any, memo: _Memo) -> Any:
    if isinstance(value, GENERATORS):
        return {_KIND: "generator", "state": generator_state(value)}
    if isinstance(value, nn.Module):
        return _save_module(value)
    if hasattr(type(value), "state_dict") and hasattr(type(value), "load_state_dict"):
        return {_KIND: "own", "state": value.state_dict()}
    if isinstance(value, (Mapping, list, set, deque)):
        return _save_container(value, memo)
    if isinstance(value, bytearray):
        return {_KIND: "bytearray", "content": bytes(value)}
    saved = _attributes(value, (), memo)
    return {_KIND: "object", "state": saved} if saved else _SKIPPED


def _save_module(module: nn.Module) -> dict[str, Any]:
    state = module.state_dict()
    others = {name: buffer for name, buffer in module.named_buffers() if name not in state}
    # Plain attributes of all submodules, such as `training`.
    plain = [{name: v for name, v in vars(part).items() if type(v) in _PLAIN} for part in module.modules()]
    return {_KIND: "module", "state": dict(state), "buffers": others, "attributes": plain}


def _save_container(value: Any, memo: _Memo) -> Any:
    if isinstance(value, Mapping):
        items = {key: item for key, item in value.items() if type(key) in _PLAIN or type(key) is tuple}
        saved = {key: _save(item, memo) for key, item in items.items()}
        kept = {key: node for key, node in saved.items() if node is not _SKIPPED}
        return _SKIPPED if value and not kept else {_KIND: "dict", "items": list(kept.items())}
    if isinstance(value, (set, frozenset)):  # saved as a set: its order differs between processes
        if not all(type(item) in _PLAIN or type(item) is tuple for item in value):
            return _SKIPPED
        return {_KIND: "set", "items": set(value), "is_frozen": isinstance(value, frozenset)}
    nodes = [_save(item, memo) for item in value]
    if nodes and all(node is _SKIPPED for node in nodes):
        return _SKIPPED
    if any(node is _SKIPPED for node in nodes):
        kept_items = [[index, node] for index, node in enumerate(nodes) if node is not _SKIPPED]
        return {_KIND: "some", "items": kept_items}
    kind = "tuple" if isinstance(value, tuple) else "list" if isinstance(value, list) else "deque"
    return {_KIND: kind, "items": nodes, **({"maxlen": value.maxlen} if kind == "deque" else {})}


# ---- restoring


def _load_attributes(obj: Any, state: Mapping[str, Any], where: str, restored: dict[int, Any]) -> None:
    for name, node in state.items():
        current = getattr(obj, name, None)
        value = _restore(current, node, f"{where}.{name}", restored)
        if value is not current or name not in getattr(obj, "__dict__", {}):
            object.__setattr__(obj, name, value) if not isinstance(obj, nn.Module) else setattr(obj, name, value)


def _restore(current: Any, node: Any, where: str, restored: dict[int, Any]) -> Any:
    """Return the restored value, which is `current` itself if it can be changed in place.

    Args:
        current: the current value.
        node: its saved state.
        where: path of the attribute, for errors.
        restored: restored objects that are referenced several times, by their number.
    """
    if not (isinstance(node, dict) and _KIND in node):
        return _restore_value(current, node)
    kind, number = node[_KIND], node.get(_NUMBER)
    if kind == "same":
        return restored.get(node[_NUMBER], current)
    if kind == "count":
        return itertools.count(*node["arguments"])
    if kind in _CONTAINERS:
        return _restore_container(current, node, where, restored)
    if kind == "bytearray" and not isinstance(current, bytearray):
        current = bytearray()
    if current is None:
        raise ValueError(f"{where} is None, but the state has an object; construct it as when the state was saved")
    if number is not None:
        restored[number] = current
    return type(current)[node["name"]] if kind == "enum" else _restore_object(current, node, where, restored)


def _restore_object(current: Any, node: Mapping[str, Any], where: str, restored: dict[int, Any]) -> Any:
    match node[_KIND]:
        case "generator":
            set_generator_state(current, node["state"])
        case "module":
            _restore_module(current, node)
        case "bytearray":
            current[:] = node["content"]
        case "own":
            load = partial(load_optimizer_state, current) if isinstance(current, Optimizer) else current.load_state_dict
            load(node["state"])
        case "object":
            _load_attributes(current, node["state"], where, restored)
        case "some":
            for index, item in node["items"]:
                if index >= len(current):
                    raise ValueError(
                        f"{where} has {len(current)} items, but the state has an item {index}; construct it as when "
                        "the state was saved"
                    )
                put = _restore(current[index], item, f"{where}[{index}]", restored)
                if put is not current[index]:
                    current[index] = put
    return current


def _restore_value(current: Any, value: Any) -> Any:
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


def _restore_module(module: nn.Module, node: Mapping[str, Any]) -> None:
    module.load_state_dict(node["state"], strict=True)
    buffers = dict(module.named_buffers())
    for name, value in node["buffers"].items():
        buffers[name].copy_(value)
    for part, plain in zip(module.modules(), node["attributes"], strict=True):
        vars(part).update(plain)


_CONTAINERS: dict[str, type] = {"dict": dict, "list": list, "tuple": tuple, "deque": deque, "set": set}


def _restore_container(current: Any, node: Mapping[str, Any], where: str, restored: dict[int, Any]) -> Any:
    kind, items = node[_KIND], node["items"]
    target = current
    if not isinstance(current, Mapping if kind == "dict" else _CONTAINERS[kind]):
        target = deque(maxlen=node["maxlen"]) if kind == "deque" else _CONTAINERS[kind]()
    if _NUMBER in node:
        restored[node[_NUMBER]] = target
    if kind == "set":
        if node["is_frozen"]:
            return frozenset(items)
        target.clear()
        target.update(items)
        return target
    if kind == "dict":
        saved = {key: _restore(target.get(key), item, f"{where}[{key!r}]", restored) for key, item in items}
        if not isinstance(target, dict):
            return saved
        for key in [key for key in target if key not in saved and not _is_stateless(target[key])]:
            del target[key]
        target.update(saved)
        return target
    before = list(target) + [None] * (len(items) - len(target))
    values = [
        _restore(old, item, f"{where}[{i}]", restored) for i, (old, item) in enumerate(zip(before, items, strict=False))
    ]
    if kind == "tuple":
        return type(target)(*values) if hasattr(target, "_fields") else tuple(values)
    target.clear()
    target.extend(values)
    return target


def _is_stateless(value: Any) -> bool:
    return _save(value, _Memo()) is _SKIPPED
