"""The role every replay buffer of the worker layer fills."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from easydict import EasyDict

from ding.utils.config_helper import default_config_of


class IBuffer(ABC):
    """A bounded store of training data between collector and learner.

    A subclass sets `config` to its default configuration.
    """

    config: dict[str, Any] = {}

    @classmethod
    def default_config(cls) -> EasyDict:
        """A fresh copy of the default configuration, with `cfg_type` = `<ClassName>Dict`."""
        return default_config_of(cls)

    @abstractmethod
    def push(self, data: list[Any] | Any, cur_collector_envstep: int) -> None:
        """Store one item, or each item of a list.

        Args:
            data: an item, or a list of items.
            cur_collector_envstep: env steps collected so far, for the logs; -1 when unknown.
        """
        raise NotImplementedError

    @abstractmethod
    def update(self, info: dict[str, list[Any]]) -> None:
        """Take in what the learner found out about sampled items, such as new priorities."""
        raise NotImplementedError

    @abstractmethod
    def sample(self, batch_size: int, cur_learner_iter: int) -> list[Any] | None:
        """Draw `batch_size` items; None when the buffer cannot serve them now."""
        raise NotImplementedError

    @abstractmethod
    def clear(self) -> None:
        """Drop all items."""
        raise NotImplementedError

    @abstractmethod
    def count(self) -> int:
        """How many items can be sampled."""
        raise NotImplementedError

    @abstractmethod
    def save_data(self, file_name: str) -> None:
        """Write the items to a file; parent folders are created."""
        raise NotImplementedError

    @abstractmethod
    def load_data(self, file_name: str) -> None:
        """Read back a file that `save_data` wrote."""
        raise NotImplementedError

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Everything needed to rebuild the buffer, in plain containers and arrays."""
        raise NotImplementedError

    @abstractmethod
    def load_state_dict(self, _state_dict: dict[str, Any]) -> None:
        """Rebuild the buffer from what `state_dict` returned."""
        raise NotImplementedError
