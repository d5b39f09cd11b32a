"""Losses of fully parameterised quantile functions (FQF), https://arxiv.org/abs/1911.02140.

Shapes: B batch, T quantile fractions, N discrete actions, n steps. Every target is detached.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ding.rl_utils.returns import nstep_return, nstep_return_data, weighted_mean


class fqf_nstep_td_data(NamedTuple):
    q: Tensor  # [B, T, N], at the fractions quantiles_hats
    next_n_q: Tensor  # [B, T', N], n steps later
    action: Tensor  # [B] int64
    next_n_action: Tensor  # [B] int64
    reward: Tensor  # [n, B]
    done: Tensor  # [B]
    quantiles_hats: Tensor  # [B, T], the midpoints between the fractions
    weight: Tensor | float | None  # [B]


def evaluate_quantile_at_action(q_s: Tensor, actions: Tensor) -> Tensor:
    """The quantiles [B, T, 1] of the actions [B], out of all [B, T, N]."""
    return q_s.gather(-1, actions.reshape(-1, 1, 1).expand(-1, q_s.shape[1], 1))


def fqf_nstep_td_error(
    data: fqf_nstep_td_data,
    gamma: float | Sequence[Any],
    nstep: int = 1,
    kappa: float = 1.0,
    value_gamma: float | Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """`(loss, error [B])` of quantile regression towards the n-step returns of the next quantiles.

    error = mean_j sum_i |tau_i - [d_ij < 0]| huber(d_ij) / kappa, where d_ij is target j less quantile i, tau_i the
    fraction of quantile i, and huber is linear beyond 1. `loss` is the mean of error * weight. See `nstep_return` for
    the discounts.
    """
    q, next_n_q, action, next_n_action, reward, done, quantiles_hats, weight = data
    with torch.no_grad():
        next_value = evaluate_quantile_at_action(next_n_q, next_n_action).squeeze(-1)  # [B, T']
        target = nstep_return(nstep_return_data(reward, next_value, done), gamma, nstep, value_gamma)
    targets = target.unsqueeze(1).expand(-1, q.shape[1], -1)  # [B, T, T']
    quantile = evaluate_quantile_at_action(q, action).expand_as(targets)
    huber = F.huber_loss(quantile, targets, reduction="none")
    below = (targets < quantile.detach()).to(huber.dtype)
    asymmetric = (quantiles_hats.detach().unsqueeze(-1) - below).abs() * huber / kappa
    error = asymmetric.sum(1).mean(-1)
    return weighted_mean(error, weight), error


def fqf_calculate_fraction_loss(q_tau_i: Tensor, q_value: Tensor, quantiles: Tensor, actions: Tensor) -> Tensor:
    """The loss whose gradient moves the inner fractions so that the 1-Wasserstein distance shrinks, a scalar.

    Args:
        q_tau_i: [B, T - 1, N], values at the inner fractions; no gradient reaches them.
        q_value: [B, T, N], values at the midpoints, of the network in training; no gradient reaches them.
        quantiles: [B, T + 1], the fractions from 0 to 1.
        actions: [B].

    Raises:
        AssertionError: `q_value` does not require grad: it is not that of the network in training.
    """
    if not q_value.requires_grad:
        raise AssertionError("q_value must require grad: pass the output of the network in training, not a target's")
    with torch.no_grad():
        at_fraction = evaluate_quantile_at_action(q_tau_i, actions).squeeze(-1)  # [B, T - 1]
        midpoint = evaluate_quantile_at_action(q_value, actions).squeeze(-1)  # [B, T]
        below = torch.cat([midpoint[:, :1], at_fraction[:, :-1]], dim=1)
        above = torch.cat([at_fraction[:, 1:], midpoint[:, -1:]], dim=1)
        from_below = at_fraction - midpoint[:, :-1]
        from_above = at_fraction - midpoint[:, 1:]
        # Where the values do not grow with the fractions, the distance changes with the other sign.
        gradient = torch.where(at_fraction > below, from_below, -from_below)
        gradient += torch.where(at_fraction < above, from_above, -from_above)
    return (gradient * quantiles[:, 1:-1]).sum(1).mean()
