"""The interface of replay buffers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from ding.utils.config_helper import Configurable


class IBuffer(Configurable, ABC):
    """A bounded store of training data between a collector and a learner.

    A subclass sets `settings`, or `config` to its default configuration.
    """

    @abstractmethod
    def push(self, data: list[Any] | Any, cur_collector_envstep: int) -> int:
        """Store one item, or each item of a list.

        Args:
            data: An item, or a list of items.
            cur_collector_envstep: Env steps collected so far, for the logs; -1 if unknown.

        Returns:
            The number of items taken. A buffer may refuse some or all. None, of buffers of others, counts as all.
        """
        raise NotImplementedError

    @abstractmethod
    def update(self, info: dict[str, list[Any]]) -> None:
        """Update sampled items with results of the learner, such as new priorities."""
        raise NotImplementedError

    @abstractmethod
    def sample(self, batch_size: int, cur_learner_iter: int) -> list[Any] | None:
        """Sample `batch_size` items. Returns None if this is currently not possible."""
        raise NotImplementedError

    @abstractmethod
    def clear(self) -> None:
        """Remove all items."""
        raise NotImplementedError

    @abstractmethod
    def count(self) -> int:
        """Returns the number of items that can be sampled."""
        raise NotImplementedError

    @abstractmethod
    def save_data(self, file_name: str) -> None:
        """Write the items to a file. Creates parent folders."""
        raise NotImplementedError

    @abstractmethod
    def load_data(self, file_name: str) -> None:
        """Load the items of a file that `save_data` wrote."""
        raise NotImplementedError

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Returns the full state of the buffer, in plain containers and arrays."""
        raise NotImplementedError

    @abstractmethod
    def load_state_dict(self, _state_dict: dict[str, Any]) -> None:
        """Restore a state that `state_dict` returned."""
        raise NotImplementedError
