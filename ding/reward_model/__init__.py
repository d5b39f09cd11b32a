"""Reward models, which learn rewards."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import Any, ClassVar

from easydict import EasyDict

from ding.utils.config_helper import default_config_of

__all__ = ["BaseRewardModel"]


class BaseRewardModel(ABC):
    """A model that learns rewards and sets them in training samples.

    A subclass sets `config` to its default configuration, implements the abstract methods, and is registered with
    `REWARD_MODEL_REGISTRY`. Its constructor takes `(cfg, device, tb_logger)`.

    Example:
        >>> class Bonus(BaseRewardModel):
        ...     config = {"type": "bonus", "weight": 0.5}
        ...     def __init__(self, cfg, device, tb_logger):
        ...         self.cfg, self.seen = cfg, []
        ...     def estimate(self, data):
        ...         data = self.reward_deepcopy(data)
        ...         for sample in data:
        ...             sample["reward"] += self.cfg.weight
        ...         return data
        ...     def train(self): ...
        ...     def collect_data(self, data):
        ...         self.seen += data
        ...     def clear_data(self):
        ...         self.seen.clear()
        >>> samples = [{"reward": 1.0}]
        >>> Bonus(Bonus.default_config(), "cpu", None).estimate(samples), samples
        ([{'reward': 1.5}], [{'reward': 1.0}])
    """

    config: ClassVar[dict[str, Any]] = {}

    @classmethod
    def default_config(cls) -> EasyDict:
        """Return a copy of `config`, with `cfg_type` = `<ClassName>Dict`."""
        return default_config_of(cls)

    @abstractmethod
    def __init__(self, cfg: EasyDict, device: str, tb_logger: Any) -> None: ...

    @abstractmethod
    def estimate(self, data: list[dict[str, Any]]) -> Any:
        """Return the training samples `data` with the rewards of this model."""

    @abstractmethod
    def train(self, *args: Any, **kwargs: Any) -> Any:
        """Train on the collected data."""

    @abstractmethod
    def collect_data(self, data: Any) -> None:
        """Add samples to train on."""

    @abstractmethod
    def clear_data(self, *args: Any, **kwargs: Any) -> None:
        """Remove all collected data."""

    def load_expert_data(self, data: Any) -> None:  # noqa: B027 only imitation models override it
        """Add demonstrations; by default do nothing."""

    def reward_deepcopy(self, train_data: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the samples with copied rewards, which may be modified in place; other values are shared."""
        return [
            {key: copy.deepcopy(value) if key == "reward" else value for key, value in sample.items()}
            for sample in train_data
        ]
