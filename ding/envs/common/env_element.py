"""Parts of an environment with their shapes and values: observations, actions, rewards, and their runners."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple


class EnvElementInfo(NamedTuple):
    """Shape and values of a part of an environment.

    `value` is a dict such as `{'min': 0, 'max': 1, 'dtype': np.float32}`; the processors, if any, convert the
    environment's values to those of an agent and back.
    """

    shape: Any
    value: Any
    to_agent_processor: Any = None
    from_agent_processor: Any = None


class _Initialized(ABC):
    """An object whose constructor calls `_init` with its arguments, which sets the attributes in `_required`."""

    _required: tuple[str, ...]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._init(*args, **kwargs)
        self._check()

    @abstractmethod
    def _init(self, *args: Any, **kwargs: Any) -> None:
        """Set the attributes; called with the arguments of the constructor."""

    def _check(self) -> None:
        if not all(hasattr(self, name) for name in self._required):
            raise AssertionError(f"{type(self).__name__}._init must set {' and '.join(self._required)}")


class EnvElement(_Initialized):
    """A part of an environment: `_init` sets `_shape` and `_value`, and the processors if there are any.

    Raises:
        AssertionError: `_init` has left `_shape` or `_value` unset.

    Example:
        >>> class Speed(EnvElement):
        ...     _name = "Speed"
        ...     def _init(self, limit):
        ...         self._shape, self._value = (1,), {"min": 0, "max": limit}
        ...     def _details(self):
        ...         return f"up to {self._value['max']}"
        >>> speed = Speed(limit=3)
        >>> speed, speed.info.shape
        (Speed: up to 3, (1,))
    """

    _required = ("_shape", "_value")
    _name = "EnvElement"
    _shape: Any
    _value: Any
    _to_agent_processor: Any = None
    _from_agent_processor: Any = None

    @abstractmethod
    def _details(self) -> str:
        """Return the part of the representation after the name."""

    @property
    def info(self) -> EnvElementInfo:
        """The shape, values and processors."""
        return EnvElementInfo(self._shape, self._value, self._to_agent_processor, self._from_agent_processor)

    def __repr__(self) -> str:
        return f"{self._name}: {self._details()}"


class EnvElementRunner(_Initialized):
    """A reader of an `EnvElement`, `_core`, from a running engine; `_init` sets `_core`.

    Raises:
        AssertionError: `_init` has left `_core` unset.
    """

    _required = ("_core",)
    _core: Any

    @abstractmethod
    def get(self, engine: Any) -> Any:
        """Return the value of the element in `engine`."""

    @abstractmethod
    def reset(self, *args: Any, **kwargs: Any) -> None:
        """Begin an episode."""

    @property
    def info(self) -> EnvElementInfo:
        """The shape, values and processors of the element."""
        info: EnvElementInfo = self._core.info
        return info

    def __repr__(self) -> str:
        return repr(self._core)
