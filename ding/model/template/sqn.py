"""The model of soft Q-learning with two Q networks."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ding.model.template.q_learning import DQN
from ding.utils.registry_factory import MODEL_REGISTRY


@MODEL_REGISTRY.register("sqn")
class SQN(nn.Module):
    """Two `DQN`s with the same arguments; the output is `{'q_value': (q0, q1), 'logit': [B, N]}`.

    `logit` is the smaller of the two values of each action.

    Example:
        >>> output = SQN(obs_shape=4, action_shape=2)(torch.rand(3, 4))
        >>> [q.shape for q in output["q_value"]], output["logit"].shape
        ([torch.Size([3, 2]), torch.Size([3, 2])], torch.Size([3, 2]))
    """

    __signature__ = inspect.signature(DQN)  # by which unknown keys of a config are found

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self.q0 = DQN(*args, **kwargs)
        self.q1 = DQN(*args, **kwargs)

    def forward(self, data: Tensor | Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of observations [B, *obs_shape]; an `action_mask` in a dict `data` is passed on."""
        outputs = self.q0(data), self.q1(data)
        q_value = outputs[0]["logit"], outputs[1]["logit"]
        return {**outputs[0], "q_value": q_value, "logit": torch.min(*q_value)}
