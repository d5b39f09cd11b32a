"""The losses of advantage actor-critic (https://arxiv.org/abs/1602.01783)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ding.rl_utils.log_prob import ActionTerms, categorical_terms, gaussian_terms
from ding.rl_utils.returns import weighted_mean


class a2c_data(NamedTuple):
    logit: Any  # [B, N]; for real-valued actions {'mu', 'sigma'}
    action: Tensor  # [B] int64, or [B, A]
    value: Tensor  # [B]
    adv: Tensor  # [B]
    return_: Tensor  # [B]
    weight: Tensor | None  # [B] or [B, 1], None for ones


class a2c_loss(NamedTuple):
    policy_loss: Tensor
    value_loss: Tensor
    entropy_loss: Tensor


def a2c_error(data: a2c_data) -> a2c_loss:
    """Return -mean(log p A w), mean((R - v)^2 w) and the mean entropy for discrete actions.

    Example:
        >>> import torch
        >>> one = torch.ones(1)
        >>> loss = a2c_error(a2c_data(torch.zeros(1, 2), torch.tensor([1]), one, one, 3 * one, None))
        >>> round(loss.policy_loss.item(), 4), loss.value_loss.item()
        (0.6931, 4.0)
    """
    return a2c_terms_error([categorical_terms(data.logit, data.action)], data)


def a2c_error_continuous(data: a2c_data) -> a2c_loss:
    """Return the losses of `a2c_error` for real-valued actions of independent Gaussians."""
    return a2c_terms_error([gaussian_terms(data.logit, data.action)], data)


def a2c_terms_error(terms: Sequence[ActionTerms], data: a2c_data) -> a2c_loss:
    """Return the losses of `a2c_error` for actions whose parts have the given terms: those of the parts are added."""
    return a2c_loss(
        -weighted_mean(torch.stack([term.log_prob for term in terms]).sum(0) * data.adv, data.weight),
        weighted_mean((data.return_ - data.value).square(), data.weight),
        weighted_mean(torch.stack([term.entropy for term in terms]).sum(0), data.weight),
    )
