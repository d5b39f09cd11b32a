"""The base of reward models."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import Any, ClassVar

from easydict import EasyDict

from ding.utils.config_helper import default_config_of


class BaseRewardModel(ABC):
    """Learns rewards, and gives them to train samples.

    A subclass defines the class attribute `config`, the defaults of its settings, and the four abstract methods; it is
    registered with `REWARD_MODEL_REGISTRY`. Its constructor takes `(cfg, device, tb_logger)`.

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
        """A fresh copy of `config`, with `cfg_type` = `<ClassName>Dict`."""
        return default_config_of(cls)

    @abstractmethod
    def __init__(self, cfg: EasyDict, device: str, tb_logger: Any) -> None: ...

    @abstractmethod
    def estimate(self, data: list[dict[str, Any]]) -> Any:
        """The train samples `data` with the rewards of this model."""

    @abstractmethod
    def train(self, *args: Any, **kwargs: Any) -> Any:
        """Learn from what was collected."""

    @abstractmethod
    def collect_data(self, data: Any) -> None:
        """Take in samples to learn from."""

    @abstractmethod
    def clear_data(self, *args: Any, **kwargs: Any) -> None:
        """Forget the samples that were taken in."""

    def load_expert_data(self, data: Any) -> None:  # noqa: B027 only models that imitate have a use for it
        """Take in demonstrations; nothing by default."""

    def reward_deepcopy(self, train_data: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The samples, with rewards that may be changed in place: all else is shared with `train_data`."""
        return [
            {key: copy.deepcopy(value) if key == "reward" else value for key, value in sample.items()}
            for sample in train_data
        ]
