"""Parts of an environment that are read from its engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from ding.envs.common.env_element import EnvElementInfo, require_attributes


class EnvElementRunner(ABC):
    """A reader of an `EnvElement`, `_core`, from a running engine; `_init` sets `_core`.

    Raises:
        AssertionError: `_init` has left `_core` unset.
    """

    _core: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._init(*args, **kwargs)
        self._check()

    @abstractmethod
    def _init(self, *args: Any, **kwargs: Any) -> None:
        """Set `_core`; called with the arguments of the constructor."""

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

    def _check(self) -> None:
        require_attributes(self, "_init", "_core")

    def __repr__(self) -> str:
        return repr(self._core)
