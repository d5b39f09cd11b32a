"""How the parameters of an actor-critic network start."""

from __future__ import annotations

import math
from itertools import chain
from typing import Any

import torch
from torch import nn

from ding.model.common.head import ReparameterizationHead

_LOG_SIGMA = -0.5
_MU_SCALE = 0.01


@torch.no_grad()
def initialise_actor_critic(model: nn.Module, is_gaussian: bool) -> None:
    """Linear layers orthogonal with zero bias, as in https://arxiv.org/abs/2006.05990.

    With `is_gaussian` those of `model.actor` and `model.critic` have the gain sqrt(2), and the last layer of the policy
    is scaled by 0.01: actions start around zero, with a deviation of exp(-0.5) where it is a parameter.
    """
    for layer in model.modules():
        _make_orthogonal(layer, 1.0)
    if not is_gaussian:
        return
    actor_critic: Any = [getattr(model, name) for name in ("actor", "critic") if hasattr(model, name)]
    seen: set[int] = set()
    for layer in chain.from_iterable(part.modules() for part in actor_critic):
        if id(layer) not in seen:  # actor and critic may share layers
            seen.add(id(layer))
            _make_orthogonal(layer, math.sqrt(2))
    for head in model.modules():
        if isinstance(head, ReparameterizationHead):
            head.mu.weight.mul_(_MU_SCALE)
            if hasattr(head, "log_sigma_param"):
                head.log_sigma_param.fill_(_LOG_SIGMA)


def _make_orthogonal(layer: nn.Module, gain: float) -> None:
    if isinstance(layer, nn.Linear):
        nn.init.orthogonal_(layer.weight, gain)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
