"""The class of registries, and the registries of the package with their names on the command line."""

from __future__ import annotations

import os
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, KeysView
from typing import Any, TypeVar, overload

from ding.utils.config_helper import nearest

_TRACE = os.environ.get("DIENGINEREGTRACE", "OFF").upper() == "ON"


T = TypeVar("T")


class Registry(dict[str, Any]):
    """A dict of classes or functions by their registered names.

    Example:
        >>> registry = Registry()
        >>> @registry.register("twice")
        ... def twice(x):
        ...     return 2 * x
        >>> registry.build("twice", 4)
        8

    Attributes:
        derive: a function that returns the class or function of a name that is not registered, or None. It may be set.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.derive: Callable[[str], Any] | None = None
        self._origin: dict[str, tuple[str, int]] = {}

    @overload
    def register(
        self, module_name: str | None = None, module: None = None, force_overwrite: bool = False
    ) -> Callable[[T], T]: ...

    @overload
    def register(self, module_name: str, module: Any, force_overwrite: bool = False) -> None: ...

    def register(
        self, module_name: str | None = None, module: Any = None, force_overwrite: bool = False
    ) -> Callable[[Any], Any] | None:
        """Register `module` as `module_name`, or return a decorator that does. The default name is `__name__`.

        Raises:
            AssertionError: the name is taken and `force_overwrite` is false, or `module` is given without a name.
        """
        if module is not None:
            if module_name is None:
                raise AssertionError("module_name = None is not allowed with module=...; pass the name to register")
            self._add(module_name, module, force_overwrite)
            return None

        def decorate(target: Any) -> Any:
            self._add(target.__name__ if module_name is None else module_name, target, force_overwrite)
            return target

        return decorate

    def _add(self, name: str, target: Any, force_overwrite: bool) -> None:
        if name in self and not force_overwrite:
            raise AssertionError(f"{name!r} is taken by {self[name]}; pass force_overwrite=True to replace it")
        if _TRACE:
            frame = sys._getframe(2)  # inspect.stack() reads the source of every frame: seconds for all registrations
            self._origin[name] = (frame.f_code.co_filename, frame.f_lineno)
        self[name] = target

    def get(self, module_name: str) -> Any:  # type: ignore[override]
        """Return the entry `module_name`.

        Raises:
            KeyError: the name is not registered. The message names the most similar one, if any.
        """
        if module_name in self:
            return self[module_name]
        derived = self.derive(module_name) if self.derive is not None and isinstance(module_name, str) else None
        if derived is None:
            # `x_command` is `x` with a command mode: naming it as well says nothing.
            names = sorted(name for name in self if name.removesuffix("_command") == name or name[:-8] not in self)
            text = module_name.lower().removesuffix("_command") if isinstance(module_name, str) else ""
            similar = nearest(text, names, 0.65)
            hint = "" if similar is None else f" did you mean {similar!r}?"
            raise KeyError(f"unknown type {module_name!r};{hint} registered: {', '.join(names) or 'nothing'}")
        return derived

    def build(self, obj_type: str, *obj_args: Any, **obj_kwargs: Any) -> Any:
        """Call the entry `obj_type` with the given arguments; its exceptions propagate unchanged."""
        return self.get(obj_type)(*obj_args, **obj_kwargs)

    def query(self) -> KeysView[str]:
        """Return the registered names."""
        return self.keys()

    def query_details(self, aliases: Iterable[str] | None = None) -> OrderedDict[str, tuple[str, int]]:
        """Return `{name: (file, line)}` of each registration.

        Raises:
            AssertionError: `DIENGINEREGTRACE=ON` was not set when `ding` was imported.
        """
        if not _TRACE:
            raise AssertionError("registrations are not traced; set DIENGINEREGTRACE=ON before ding is imported")
        names = self.keys() if aliases is None else aliases
        return OrderedDict((name, self._origin[name]) for name in names)


POLICY_REGISTRY = Registry()
ENV_REGISTRY = Registry()
ENV_WRAPPER_REGISTRY = Registry()
LEARNER_REGISTRY = Registry()
COMM_LEARNER_REGISTRY = Registry()
SERIAL_COLLECTOR_REGISTRY = Registry()
PARALLEL_COLLECTOR_REGISTRY = Registry()
COMM_COLLECTOR_REGISTRY = Registry()
TRANSPORT_REGISTRY = Registry()
BUFFER_REGISTRY = Registry()
COMMANDER_REGISTRY = Registry()
LEAGUE_REGISTRY = Registry()
PLAYER_REGISTRY = Registry()
MODEL_REGISTRY = Registry()
ENV_MANAGER_REGISTRY = Registry()
REWARD_MODEL_REGISTRY = Registry()
DATASET_REGISTRY = Registry()
SERIAL_EVALUATOR_REGISTRY = Registry()
MQ_REGISTRY = Registry()
WORLD_MODEL_REGISTRY = Registry()
STOCHASTIC_OPTIMIZER_REGISTRY = Registry()

registries = {
    "policy": POLICY_REGISTRY,
    "env": ENV_REGISTRY,
    "env_wrapper": ENV_WRAPPER_REGISTRY,
    "model": MODEL_REGISTRY,
    "reward_model": REWARD_MODEL_REGISTRY,
    "learner": LEARNER_REGISTRY,
    "serial_collector": SERIAL_COLLECTOR_REGISTRY,
    "parallel_collector": PARALLEL_COLLECTOR_REGISTRY,
    "env_manager": ENV_MANAGER_REGISTRY,
    "comm_learner": COMM_LEARNER_REGISTRY,
    "comm_collector": COMM_COLLECTOR_REGISTRY,
    "transport": TRANSPORT_REGISTRY,
    "commander": COMMANDER_REGISTRY,
    "league": LEAGUE_REGISTRY,
    "player": PLAYER_REGISTRY,
    "buffer": BUFFER_REGISTRY,
    "dataset": DATASET_REGISTRY,
    "serial_evaluator": SERIAL_EVALUATOR_REGISTRY,
    "message_queue": MQ_REGISTRY,
    "world_model": WORLD_MODEL_REGISTRY,
    "stochastic_optimizer": STOCHASTIC_OPTIMIZER_REGISTRY,
}
