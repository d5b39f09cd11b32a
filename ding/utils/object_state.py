"""States of Python objects: the values of their attributes, as plain values and arrays.

Classes of this package declare the attributes that are their state, see `SavedAttributes`. `attributes_state` finds the
attributes instead, also those of the objects in them: it serves policies, hooks of learners and serial commanders,
which users write without a state of their own.
"""

from __future__ import annotations

import ast
import copy
import enum
import itertools
import random
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from pathlib import PurePath
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer

from ding.utils.module_state import load_optimizer_state
from ding.utils.msgpack_helper import can_pack

# Key that distinguishes the state of an object from a plain dict.
_KIND = "__state__"
_PLAIN = (type(None), bool, int, float, complex, str, bytes)
# Key of the number of an object that is referenced several times.
_NUMBER = "__number__"
_CONTAINERS: dict[str, type] = {cls.__name__: cls for cls in (dict, list, tuple, deque, set, frozenset, bytearray)}
# Modules whose objects have no state, such as functions and dtypes, or none that another process could take over, such
# as locks. Configs are not learned.
_STATELESS = frozenset(
    ("builtins", "easydict", "functools", "logging", "numpy", "threading", "_thread", "torch", "weakref")
)
GENERATORS = (np.random.Generator, np.random.RandomState, torch.Generator, random.Random)
_SKIPPED: Any = object()


class SavedAttributes:
    """An object whose state is that of the attributes which its class and the bases of its class declare.

    The key of an attribute in the state is its name without a leading underscore. Values are saved and restored as by
    `attributes_state`, but arrays and tensors are copied: the state is a snapshot, except for what the `state_dict` of
    an object shares with the object, such as that of a module.

    Attributes:
        _saved: the names of the attributes.
        _saved_if_plain: by the names of further attributes, the reason to report when one of them is not restored,
            because it held values that are not plain (see `pack`) when the state was saved.

    Example:
        >>> class Counter(SavedAttributes):
        ...     _saved = ("_count",)
        ...     def __init__(self):
        ...         self._count, self.name = 0, "counter"
        >>> class Recorder(Counter):
        ...     _saved = ("mean",)
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.mean = 0.5
        >>> Recorder().state_dict()
        {'count': 0, 'mean': 0.5}
    """

    __slots__ = ()
    _saved: ClassVar[tuple[str, ...]] = ()
    _saved_if_plain: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        keys = [_key(name) for attribute in ("_saved", "_saved_if_plain") for name in _declared(cls, attribute)]
        if twice := {key for key in keys if keys.count(key) > 1}:
            raise TypeError(f"{cls.__name__} saves two attributes as {', '.join(sorted(twice))}; rename one of them")

    def state_dict(self) -> dict[str, Any]:
        """Return a snapshot of the declared attributes, in plain values and arrays.

        Raises:
            TypeError: an attribute in `_saved` is, say, a function or a lock, which has no state.
        """
        cls, memo = type(self), _Memo(self, is_copied=True)
        saved = {name: _save(getattr(self, name), memo) for name in _declared(cls, "_saved")}
        for name, node in saved.items():
            if node is _SKIPPED:
                raise TypeError(f"{cls.__name__}.{name} has no state: {type(getattr(self, name)).__name__}")
        others = {name: getattr(self, name) for name in _declared(cls, "_saved_if_plain")}
        plain = {name: copy.deepcopy(value) for name, value in others.items() if can_pack(value)}
        return {_key(name): node for name, node in (saved | plain).items()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> list[str]:
        """Restore a state of `state_dict`, which may have further entries.

        Returns:
            The reasons why it is not restored exactly, a sentence for each.

        Raises:
            ValueError: the state lacks an attribute, or has an object where there is None.
        """
        cls = type(self)
        names, if_plain = _declared(cls, "_saved"), _declared(cls, "_saved_if_plain")
        if missing := [_key(name) for name in names if _key(name) not in state_dict]:
            raise ValueError(
                f"the state of {cls.__name__} lacks {', '.join(missing)}: it was saved by another version of this "
                "package, or by another class"
            )
        problems = load_attributes_state(self, {name: state_dict[_key(name)] for name in names})
        for name, reason in if_plain.items():
            if _key(name) in state_dict:
                setattr(self, name, copy.deepcopy(state_dict[_key(name)]))
            else:
                problems.append(reason)
        return problems


def _key(name: str) -> str:
    return name.removeprefix("_")


def _declared(cls: type, attribute: str) -> dict[str, Any]:
    """Return what a class and its bases declare, the bases first; names become the keys of a dict."""
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        own = vars(base).get(attribute, ())
        if not isinstance(own, (tuple, list, Mapping)):
            raise TypeError(f"{base.__name__}.{attribute} = {own!r} is not allowed; it must be a tuple of names")
        found.update(own if isinstance(own, Mapping) else dict.fromkeys(own))
    return found


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


def load_attributes_state(obj: Any, state: Mapping[str, Any], device: str | torch.device | None = None) -> list[str]:
    """Restore a state of `attributes_state` in `obj`, which must be constructed in the same way.

    Objects, and arrays and tensors of the same shape, are changed in place, so other references see the change; others,
    such as paths and frozen dataclasses, are replaced by copies.

    Args:
        device: where tensors go that replace anything but a tensor; None leaves them where they are.

    Returns:
        The reasons why objects with `load_state_dict` are not restored exactly, where they return any.

    Raises:
        ValueError: the state has an object where `obj` has None.
    """
    restorer = _Restorer(obj, device)
    restorer.load(obj, state, type(obj).__name__)
    return restorer.problems


def generator_state(rng: Any) -> dict[str, Any]:
    """Return the state of a random generator of Python, numpy or torch, in plain values and arrays."""
    if isinstance(rng, np.random.Generator):
        return dict(rng.bit_generator.state)
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
    """Return the states of the global generators of Python, numpy and torch, and of all GPUs where CUDA is in use."""
    numpy_state: Any = np.random.get_state(legacy=False)
    state = {"python": random.getstate(), "numpy": dict(numpy_state), "torch": torch.get_rng_state()}
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # never in a process forked from one that uses it
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

    def __init__(self, root: Any = None, is_copied: bool = False) -> None:
        self.is_copied = is_copied
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


def _is_stateless(cls: type) -> bool:
    for base in cls.__mro__[:-1]:
        if base in _CONTAINERS.values():
            return False
        if base.__module__ in _STATELESS:
            return True
    return False


def _save(value: Any, memo: _Memo) -> Any:
    if type(value) in _PLAIN or isinstance(value, np.generic):
        return value
    if isinstance(value, torch.Tensor):
        return value.detach().clone() if memo.is_copied else value
    if isinstance(value, np.ndarray):
        is_plain = not (value.dtype.hasobject or value.dtype.names)
        return (value.copy() if memo.is_copied else value) if is_plain else _SKIPPED
    if isinstance(value, enum.Enum):
        # A combination of flags is no member.
        is_flag = isinstance(value, enum.Flag)
        return {_KIND: "flag", "value": value.value} if is_flag else {_KIND: "enum", "name": value.name}
    if isinstance(value, itertools.count):  # ids of users' code; nothing but its text tells where it is
        return {_KIND: "count", "arguments": ast.literal_eval(f"[{repr(value)[len('count(') : -1]}]")}
    if _is_stateless(type(value)):
        return _SKIPPED
    if isinstance(value, (tuple, frozenset)):
        return _save_container(value, memo)
    if id(value) in memo.nodes:
        return memo.reference(value)
    node = memo.nodes[id(value)] = {}
    saved = _save_object(value, memo)
    if saved is not _SKIPPED:
        node.update(saved)
        return node
    memo.nodes[id(value)] = _SKIPPED
    return saved


def _has_own_state(value: Any) -> bool:
    return hasattr(type(value), "state_dict") and hasattr(type(value), "load_state_dict")


def _save_object(value: Any, memo: _Memo) -> Any:
    if isinstance(value, GENERATORS):
        return {_KIND: "generator", "state": generator_state(value)}
    if isinstance(value, nn.Module):
        return _save_module(value)
    if _has_own_state(value):
        return {_KIND: "own", "state": value.state_dict()}
    if isinstance(value, (Mapping, *_CONTAINERS.values())):
        return _save_container(value, memo)
    saved = _attributes(value, (), memo)
    return {_KIND: "object", "state": saved} if saved else _SKIPPED


def _save_module(module: nn.Module) -> dict[str, Any]:
    state = module.state_dict()
    others = {name: buffer for name, buffer in module.named_buffers() if name not in state}
    # Plain attributes and generators of all submodules, such as `training`.
    plain = [
        {
            name: generator_state(value) if isinstance(value, GENERATORS) else value
            for name, value in vars(part).items()
            if type(value) in _PLAIN or isinstance(value, GENERATORS)
        }
        for part in module.modules()
    ]
    return {_KIND: "module", "state": dict(state), "buffers": others, "attributes": plain}


def _save_container(value: Any, memo: _Memo) -> Any:
    if isinstance(value, Mapping):
        items = {key: item for key, item in value.items() if type(key) in _PLAIN or type(key) is tuple}
        saved = {key: _save(item, memo) for key, item in items.items()}
        kept = {key: node for key, node in saved.items() if node is not _SKIPPED}
        return _SKIPPED if value and not kept else {_KIND: "dict", "items": list(kept.items())}
    kind = next(name for name, cls in _CONTAINERS.items() if isinstance(value, cls))
    if isinstance(value, bytearray):
        return {_KIND: kind, "items": bytes(value)}
    if isinstance(value, (set, frozenset)):  # saved as a set: its order differs between processes
        is_plain = all(type(item) in _PLAIN or type(item) is tuple for item in value)
        return {_KIND: kind, "items": set(value)} if is_plain else _SKIPPED
    nodes = [_save(item, memo) for item in value]
    if nodes and all(node is _SKIPPED for node in nodes):
        return _SKIPPED
    nodes = [{_KIND: "kept"} if node is _SKIPPED else node for node in nodes]
    return {_KIND: kind, "items": nodes, **({"maxlen": value.maxlen} if kind == "deque" else {})}


# ---- restoring


class _Restorer:
    """What restores the values of one state.

    Attributes:
        problems: what the objects with `load_state_dict` have returned.
    """

    def __init__(self, root: Any, device: Any) -> None:
        self.problems: list[str] = []
        self._device = device
        self._restored: dict[int, Any] = {0: root}  # objects that are referenced several times, by their number

    def load(self, obj: Any, state: Mapping[str, Any], where: str) -> None:
        """Restore attributes; `where` is the path of the object, for errors."""
        for name, node in state.items():
            current = getattr(obj, name, None)
            value = self._restore(current, node, f"{where}.{name}")
            if value is not current or name not in getattr(obj, "__dict__", {}):
                object.__setattr__(obj, name, value) if not isinstance(obj, nn.Module) else setattr(obj, name, value)

    def _restore(self, current: Any, node: Any, where: str) -> Any:
        """Return the restored value, which is `current` itself if it can be changed in place."""
        if not (isinstance(node, dict) and _KIND in node):
            return _restore_value(current, node, self._device)
        kind, number = node[_KIND], node.get(_NUMBER)
        if kind == "same":
            return self._restored.get(node[_NUMBER], None if current is _SKIPPED else current)
        if kind == "count":
            return itertools.count(*node["arguments"])
        if kind in _CONTAINERS:
            return self._restore_container(current, node, where)
        if current is _SKIPPED or (current is None and kind != "kept"):
            what = "None" if current is None else "missing"
            raise ValueError(
                f"{where} is {what}, but the state has an object; construct it as when the state was saved"
            )
        if kind in ("enum", "flag"):
            return type(current)[node["name"]] if kind == "enum" else type(current)(node["value"])
        if kind == "object" and _is_immutable(current):  # others may refer to it, too
            current = copy.copy(current)
        if number is not None:
            self._restored[number] = current
        return self._restore_object(current, node, where)

    def _restore_object(self, current: Any, node: Mapping[str, Any], where: str) -> Any:
        match node[_KIND]:
            case "generator":
                set_generator_state(current, node["state"])
            case "module":
                _restore_module(current, node)
            case "own" if isinstance(current, Optimizer):
                load_optimizer_state(current, node["state"])
            case "own":
                told = current.load_state_dict(node["state"])
                self.problems += told if isinstance(told, list) else ()
            case "object":
                self.load(current, node["state"], where)
        return current

    def _restore_container(self, current: Any, node: Mapping[str, Any], where: str) -> Any:
        kind, items = node[_KIND], node["items"]
        target = current
        if not isinstance(current, Mapping if kind == "dict" else _CONTAINERS[kind]):
            target = deque(maxlen=node["maxlen"]) if kind == "deque" else _CONTAINERS[kind]()
        if _NUMBER in node:
            self._restored[node[_NUMBER]] = target
        if kind == "frozenset":
            return frozenset(items)
        if kind in ("set", "bytearray"):
            target.clear()
            target.update(items) if kind == "set" else target.extend(items)
            return target
        if kind == "dict":
            saved = {key: self._restore(target.get(key), item, f"{where}[{key!r}]") for key, item in items}
            if not isinstance(target, dict):
                return saved
            for key in [key for key in target if key not in saved and _save(target[key], _Memo()) is not _SKIPPED]:
                del target[key]
            target.update(saved)
            return target
        before = [*target] + [_SKIPPED] * (len(items) - len(target))
        values = [
            self._restore(old, item, f"{where}[{i}]") for i, (old, item) in enumerate(zip(before, items, strict=False))
        ]
        if kind == "tuple":
            return type(target)(*values) if hasattr(target, "_fields") else tuple(values)
        target.clear()
        target.extend(values)
        return target


def _is_immutable(value: Any) -> bool:
    parameters = getattr(type(value), "__dataclass_params__", None)
    return isinstance(value, PurePath) or (parameters is not None and parameters.frozen)


def _restore_value(current: Any, value: Any, device: Any) -> Any:
    if isinstance(value, torch.Tensor):
        if isinstance(current, torch.Tensor) and current.shape == value.shape and current.dtype == value.dtype:
            with torch.no_grad():
                return current.copy_(value) if current.is_leaf else value.to(current.device, copy=True)
        return value.to(current.device if isinstance(current, torch.Tensor) else device or value.device, copy=True)
    is_same_kind = isinstance(value, np.ndarray) and isinstance(current, np.ndarray)
    if is_same_kind and current.shape == value.shape and current.dtype == value.dtype and current.flags.writeable:
        current[...] = value
        return current
    return value.copy() if isinstance(value, np.ndarray) else value


def _restore_module(module: nn.Module, node: Mapping[str, Any]) -> None:
    module.load_state_dict(node["state"], strict=True)
    buffers = dict(module.named_buffers())
    for name, value in node["buffers"].items():
        buffers[name].copy_(value)
    for part, plain in zip(module.modules(), node["attributes"], strict=True):
        for name, value in plain.items():
            if isinstance(vars(part).get(name), GENERATORS):
                set_generator_state(vars(part)[name], value)
            else:
                vars(part)[name] = value
