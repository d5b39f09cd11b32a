"""States of Python objects: the values of the attributes that their classes declare, as plain values and arrays."""

from __future__ import annotations

import copy
import math
import random
from collections import deque
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch

from ding.utils.config_helper import is_of_package
from ding.utils.msgpack_helper import can_pack

# Key that distinguishes the state of an object from a plain dict.
_STATE = "__state__"
_PLAIN = (type(None), bool, int, float, complex, str, bytes)
GENERATORS = (np.random.Generator, np.random.RandomState, torch.Generator, random.Random)


class SavedAttributes:
    """An object whose state is that of the attributes which its class and the bases of its class declare.

    The key of an attribute in the state is its name without a leading underscore. Its value is a plain value, an array
    or a tensor; a random generator; an object with `state_dict` and `load_state_dict`, or with `_saved` in its class;
    or a list, tuple, dict, set or deque of such values. The state is a snapshot, except for what the `state_dict` of an
    object shares with the object, such as that of a module. When it is restored, objects, and arrays and tensors of the
    same shape, are changed in place.

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

    def state_dict(self) -> dict[str, Any]:
        """Return a snapshot of the declared attributes, in plain values and arrays.

        Raises:
            TypeError: an attribute in `_saved` is, say, a function or a lock, which has no state.
        """
        return declared_state(self)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> list[str]:
        """Restore a state of `state_dict`, which may have further entries.

        Returns:
            The reasons why it is not restored exactly, a sentence for each.

        Raises:
            ValueError: the state lacks an attribute, or has an object where there is none.
        """
        return load_declared_state(self, state_dict)


def declared_state(obj: Any) -> dict[str, Any]:
    """Return the state of an object whose class declares `_saved`, see `SavedAttributes`."""
    cls = type(obj)
    state = {_key(name): _save(getattr(obj, name), f"{cls.__name__}.{name}") for name in _declared(cls, "_saved")}
    others = {name: getattr(obj, name) for name in _declared(cls, "_saved_if_plain")}
    return state | {_key(name): copy.deepcopy(value) for name, value in others.items() if can_pack(value)}


def load_declared_state(obj: Any, state: Mapping[str, Any], device: str | torch.device | None = None) -> list[str]:
    """Restore a state of `declared_state`, see `SavedAttributes.load_state_dict`.

    Args:
        device: where tensors go that replace anything but a tensor; None leaves them where they are.
    """
    cls, problems = type(obj), list[str]()
    names = _declared(cls, "_saved")
    if missing := [_key(name) for name in names if _key(name) not in state]:
        raise ValueError(
            f"the state of {cls.__name__} lacks {', '.join(missing)}: it was saved by another version of this "
            "package, or by another class"
        )
    for name in names:
        current = getattr(obj, name)
        value = _restore(current, state[_key(name)], f"{cls.__name__}.{name}", device, problems)
        if value is not current:
            setattr(obj, name, value)
    for name, reason in _declared(cls, "_saved_if_plain").items():
        if _key(name) in state:
            setattr(obj, name, copy.deepcopy(state[_key(name)]))
        else:
            problems.append(reason)
    return problems


def undeclared(obj: Any, known: Mapping[str, Any] = {}) -> list[str]:
    """Return the names of the attributes that a class from outside this package has added to `obj` and does not save.

    Attributes that a class of this package uses are not among them, nor are values of a config. The result is empty if
    a class from outside defines `_saved` or `state_dict`.

    Args:
        known: the values of the config by dotted key.
    """
    foreign = [cls for cls in type(obj).__mro__ if not is_of_package(cls) and cls.__module__ not in ("abc", "builtins")]
    if not foreign or any({"_saved", "state_dict"} & vars(cls).keys() for cls in foreign):
        return []
    functions = (value for cls in type(obj).__mro__ if is_of_package(cls) for value in vars(cls).values())
    codes = (getattr(getattr(value, "fget", value), "__code__", None) for value in functions)
    ours = {name for code in codes if code is not None for name in code.co_names}
    added = ((name, value) for name, value in getattr(obj, "__dict__", {}).items() if name not in ours)
    return [name for name, value in added if not _is_of_config(_key(name), value, known)]


def _is_of_config(name: str, value: Any, known: Mapping[str, Any]) -> bool:
    """Return whether a plain value is in a config: a text or a fraction under any key, others, as counts, by name."""
    if type(value) not in _PLAIN:
        return False
    is_distinctive = type(value) is str or (type(value) is float and not value.is_integer() and math.isfinite(value))
    keys = (
        key.rpartition(".")[2] for key, default in known.items() if type(default) is type(value) and default == value
    )
    return any(is_distinctive or key == name for key in keys)


def _key(name: str) -> str:
    return name.removeprefix("_")


def _declared(cls: type, attribute: str) -> dict[str, Any]:
    """Return what a class and its bases declare, the bases first; names become the keys of a dict."""
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        names = vars(base).get(attribute, ())
        if isinstance(names, str):
            raise TypeError(f"{base.__name__}.{attribute} = {names!r} is not allowed; it must be a tuple of names")
        found.update(names if isinstance(names, Mapping) else dict.fromkeys(names))
    return found


def _save(value: Any, name: str) -> Any:
    """Return a snapshot of a value; `name` is for errors."""
    if type(value) in _PLAIN or isinstance(value, np.generic):
        return value
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, GENERATORS):
        return {_STATE: generator_state(value)}
    if hasattr(type(value), "state_dict"):
        return {_STATE: value.state_dict()}
    if hasattr(type(value), "_saved"):
        return {_STATE: declared_state(value)}
    if isinstance(value, Mapping):
        return {key: _save(item, f"{name}[{key!r}]") for key, item in value.items()}
    if isinstance(value, (list, tuple, deque)):
        items = (_save(item, f"{name}[{index}]") for index, item in enumerate(value))
        return tuple(items) if isinstance(value, tuple) else [*items]
    if isinstance(value, (set, frozenset)):
        return set(value)
    raise TypeError(f"{name} has no state: it is a {type(value).__name__}")


def _restore(current: Any, saved: Any, name: str, device: Any, problems: list[str]) -> Any:
    """Return a value of `_save`, which is `current` itself if that can be changed in place."""
    if isinstance(saved, Mapping) and saved.keys() == {_STATE}:
        _restore_object(current, saved[_STATE], name, device, problems)
        return current
    if isinstance(saved, Mapping):
        before = current if isinstance(current, Mapping) else {}
        return {
            key: _restore(before.get(key), item, f"{name}[{key!r}]", device, problems) for key, item in saved.items()
        }
    if isinstance(saved, (list, tuple)):
        items = [*current] if isinstance(current, (list, tuple, deque)) else []
        items += [None] * (len(saved) - len(items))
        values = [
            _restore(items[index], item, f"{name}[{index}]", device, problems) for index, item in enumerate(saved)
        ]
        return deque(values, current.maxlen) if isinstance(current, deque) else type(saved)(values)
    if isinstance(saved, torch.Tensor):
        return _restore_tensor(current, saved, device)
    if not isinstance(saved, np.ndarray):
        return set(saved) if isinstance(saved, set) else saved
    if not (isinstance(current, np.ndarray) and current.shape == saved.shape and current.dtype == saved.dtype):
        return saved.copy()
    current[...] = saved
    return current


def _restore_object(current: Any, state: Any, name: str, device: Any, problems: list[str]) -> None:
    if isinstance(current, GENERATORS):
        set_generator_state(current, state)
    elif hasattr(type(current), "load_state_dict"):
        reasons = current.load_state_dict(state)
        problems += reasons if isinstance(reasons, list) else ()
    elif hasattr(type(current), "_saved"):
        problems += load_declared_state(current, state, device)
    else:
        raise ValueError(
            f"{name} is {current!r}, but the state has an object; construct it as when the state was saved"
        )


def _restore_tensor(current: Any, saved: torch.Tensor, device: Any) -> torch.Tensor:
    if isinstance(current, torch.Tensor):
        device = current.device
        if current.is_leaf and current.shape == saved.shape and current.dtype == saved.dtype:
            with torch.no_grad():
                return current.copy_(saved)
    return saved.to(device or saved.device, copy=True)


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
