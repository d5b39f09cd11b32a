"""Losses of value distributions: categorical ones (C51), and quantile functions (QR-DQN, IQN, FQF).

A categorical distribution is a probability for each of `n_atom` values, its atoms, evenly spaced from `v_min` to
`v_max`; see https://arxiv.org/abs/1707.06887. Actions [B, A] of A agents fold the agents into the batch (sample 0's
agents first); reward, done and weight are shared by the agents. Shapes: B batch, N discrete actions, n steps, T
quantile fractions. Every target is detached.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ding.rl_utils.returns import nstep_return, nstep_return_data, weighted_mean


class dist_1step_td_data(NamedTuple):
    dist: Tensor  # [B, N, n_atom] or [B, A, N, n_atom]
    next_dist: Tensor  # as dist
    act: Tensor  # [B] or [B, A] int64
    next_act: Tensor  # as act
    reward: Tensor  # [B]
    done: Tensor  # [B]
    weight: Tensor | float | None  # [B] or [B, 1]


class dist_nstep_td_data(NamedTuple):
    dist: Tensor  # [B, N, n_atom] or [B, A, N, n_atom]
    next_n_dist: Tensor  # as dist, n steps later
    act: Tensor  # [B] or [B, A] int64
    next_n_act: Tensor  # as act
    reward: Tensor  # [n, B]
    done: Tensor  # [B]
    weight: Tensor | float | None  # [B] or [B, 1]


def dist_nstep_td_error(
    data: dist_nstep_td_data,
    gamma: float | Sequence[Any],
    v_min: float,
    v_max: float,
    n_atom: int,
    nstep: int = 1,
    value_gamma: float | Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return `(loss, error [B])`, the cross-entropy between the projected target distribution and `dist` of the action.

    Each atom z of the next distribution moves to clip(n-step return with z as next value, v_min, v_max), and its
    probability is split between the two nearest atoms by their distance. See
    `nstep_return` for the discounts. `loss` is the mean of error * weight. `error` may be a priority: it is at least 0,
    also where a probability is greater than 1 by what a head adds to it.

    Raises:
        AssertionError: a probability of the chosen action is not positive.

    Example:
        >>> dist = torch.full((1, 1, 3), 1 / 3)
        >>> action = torch.tensor([0])
        >>> data = dist_nstep_td_data(dist, dist, action, action, torch.ones(1, 1), torch.ones(1), None)
        >>> loss, error = dist_nstep_td_error(data, 0.9, v_min=-1, v_max=1, n_atom=3)
        >>> error
        tensor([1.0986])
    """
    dist, next_dist, act, next_act, reward, done, weight = data
    agents = 1 if act.dim() == 1 else act.shape[1]
    if isinstance(value_gamma, Tensor) and value_gamma.dim() > 0:
        value_gamma = _repeat(value_gamma, agents)
    if isinstance(gamma, list | tuple):
        gamma = [discount for discount in gamma for _ in range(agents)]
    with torch.no_grad():
        atoms = torch.linspace(v_min, v_max, n_atom, device=dist.device, dtype=dist.dtype)
        next_probability = _of_action(next_dist, next_act)
        rewards = reward if agents == 1 else reward.repeat_interleave(agents, dim=1)
        next_value = atoms.expand_as(next_probability)
        moved = nstep_return(nstep_return_data(rewards, next_value, _repeat(done, agents)), gamma, nstep, value_gamma)
        target = _project(next_probability, (moved.clamp(v_min, v_max) - v_min) / (v_max - v_min) * (n_atom - 1))
    probability = _of_action(dist, act)
    if not bool((probability > 0).all()):
        raise AssertionError(
            "the probabilities in dist must be > 0: the loss takes their logarithm; add a small number"
        )
    error = -(target * probability.log()).sum(-1)
    return weighted_mean(error.view(-1, agents), weight), error.clamp(min=0)


def dist_1step_td_error(data: dist_1step_td_data, gamma: float, v_min: float, v_max: float, n_atom: int) -> Tensor:
    """Return the one-step loss, a scalar; see `dist_nstep_td_error`.

    Raises:
        AssertionError: the reward is not [B], or a probability of the chosen action is not positive.
    """
    if data.reward.dim() != 1:
        raise AssertionError(f"the reward has shape {tuple(data.reward.shape)}; it must be (B,)")
    reward = data.reward.unsqueeze(0)
    one_step = dist_nstep_td_data(data.dist, data.next_dist, data.act, data.next_act, reward, data.done, data.weight)
    return dist_nstep_td_error(one_step, gamma, v_min, v_max, n_atom)[0]


def _repeat(per_sample: Tensor, agents: int) -> Tensor:
    """Repeat [B] or [B, 1] for each agent, to [B * agents]."""
    flat = per_sample.reshape(-1)
    return flat if agents == 1 else flat.repeat_interleave(agents)


def _of_action(dist: Tensor, action: Tensor) -> Tensor:
    """Return the distribution [B, n_atom] of each action; agents are folded into B."""
    flat = dist.reshape(-1, *dist.shape[-2:])
    chosen = action.reshape(-1, 1, 1).expand(-1, 1, flat.shape[-1])
    # A negative action is an error, as elsewhere, and not counted from the end.
    return flat.gather(1, chosen).squeeze(1)


def _project(probability: Tensor, position: Tensor) -> Tensor:
    """Split each probability [B, n] between the two atoms next to its `position` (in units of atoms), [B, n]."""
    last = probability.shape[-1] - 1
    lower = position.floor().clamp(0, last)
    upper_share = probability * (position - lower)
    target = torch.zeros_like(probability)
    target.scatter_add_(-1, lower.long(), probability - upper_share)
    return target.scatter_add_(-1, (lower.long() + 1).clamp(max=last), upper_share)


# --- quantile functions ---


class qrdqn_nstep_td_data(NamedTuple):
    q: Tensor  # [B, N, T], at the fractions tau
    next_n_q: Tensor  # [B, N, T'], n steps later
    action: Tensor  # [B] int64
    next_n_action: Tensor  # [B] int64
    reward: Tensor  # [n, B]
    done: Tensor  # [B]
    tau: Tensor  # [B, T, 1]
    weight: Tensor | float | None  # [B] or [B, 1]


class iqn_nstep_td_data(NamedTuple):
    q: Tensor  # [T, B, N], at the fractions replay_quantiles
    next_n_q: Tensor  # [T', B, N], n steps later
    action: Tensor  # [B] int64
    next_n_action: Tensor  # [B] int64
    reward: Tensor  # [n, B]
    done: Tensor  # [B]
    replay_quantiles: Tensor  # [T * B, 1] or [T, B, 1]
    weight: Tensor | float | None  # [B] or [B, 1]


class fqf_nstep_td_data(NamedTuple):
    q: Tensor  # [B, T, N], at the fractions quantiles_hats
    next_n_q: Tensor  # [B, T', N], n steps later
    action: Tensor  # [B] int64
    next_n_action: Tensor  # [B] int64
    reward: Tensor  # [n, B]
    done: Tensor  # [B]
    quantiles_hats: Tensor  # [B, T], the midpoints between the fractions
    weight: Tensor | float | None  # [B] or [B, 1]


def evaluate_quantile_at_action(q_s: Tensor, actions: Tensor) -> Tensor:
    """Return the quantiles [B, T, 1] of the actions [B], out of all [B, T, N]."""
    return q_s.gather(-1, actions.reshape(-1, 1, 1).expand(-1, q_s.shape[1], 1))


def _quantile_regression(
    quantile: Tensor,
    fraction: Tensor,
    next_value: Tensor,
    data: qrdqn_nstep_td_data | iqn_nstep_td_data | fqf_nstep_td_data,
    gamma: float | Sequence[Any],
    nstep: int,
    value_gamma: float | Tensor | None,
    threshold: float,
    kappa: float,
) -> tuple[Tensor, Tensor]:
    """Return `(loss, error [B])` of `quantile` [B, T] at `fraction` [B, T] against returns that end in `next_value`.

    error = mean_j sum_i |tau_i - [d_ij < 0]| huber(d_ij) / kappa, where d_ij is target j of T' minus quantile i, and
    huber is linear beyond `threshold`.
    """
    with torch.no_grad():
        target = nstep_return(nstep_return_data(data.reward, next_value, data.done), gamma, nstep, value_gamma)
    targets = target.unsqueeze(1).expand(-1, quantile.shape[1], -1)  # [B, T, T']
    quantiles = quantile.unsqueeze(-1).expand_as(targets)
    huber = F.huber_loss(quantiles, targets, reduction="none", delta=threshold)
    below = (targets < quantiles.detach()).to(huber.dtype)
    asymmetric = (fraction.detach().unsqueeze(-1) - below).abs() * huber / kappa
    error = asymmetric.sum(1).mean(-1)
    return weighted_mean(error, data.weight), error


def qrdqn_nstep_td_error(
    data: qrdqn_nstep_td_data, gamma: float | Sequence[Any], nstep: int = 1, value_gamma: float | Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return `(loss, error [B])` of quantile regression at fixed fractions, https://arxiv.org/abs/1710.10044.

    The error is that of `fqf_nstep_td_error` with kappa 1. `loss` is the mean of error * weight.
    """
    q = _of_action(data.q, data.action)
    next_value = _of_action(data.next_n_q, data.next_n_action)
    return _quantile_regression(q, data.tau.squeeze(-1), next_value, data, gamma, nstep, value_gamma, 1.0, 1.0)


def iqn_nstep_td_error(
    data: iqn_nstep_td_data,
    gamma: float | Sequence[Any],
    nstep: int = 1,
    kappa: float = 1.0,
    value_gamma: float | Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return `(loss, error [B])` of quantile regression at random fractions, https://arxiv.org/abs/1806.06923.

    The error is that of `fqf_nstep_td_error`, except that huber is linear beyond `kappa`. `loss` is the mean of
    error * weight.
    """
    q = evaluate_quantile_at_action(data.q.transpose(0, 1), data.action).squeeze(-1)
    next_value = evaluate_quantile_at_action(data.next_n_q.transpose(0, 1), data.next_n_action).squeeze(-1)
    fraction = data.replay_quantiles.view(q.shape[1], -1).T
    return _quantile_regression(q, fraction, next_value, data, gamma, nstep, value_gamma, kappa, kappa)


def fqf_nstep_td_error(
    data: fqf_nstep_td_data,
    gamma: float | Sequence[Any],
    nstep: int = 1,
    kappa: float = 1.0,
    value_gamma: float | Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return `(loss, error [B])` of quantile regression at learned fractions, https://arxiv.org/abs/1911.02140.

    error = mean_j sum_i |tau_i - [d_ij < 0]| huber(d_ij) / kappa, where d_ij is target j minus quantile i, tau_i the
    fraction of quantile i, and huber is linear beyond 1. `loss` is the mean of error * weight. See `nstep_return` for
    the discounts.
    """
    q = evaluate_quantile_at_action(data.q, data.action).squeeze(-1)
    next_value = evaluate_quantile_at_action(data.next_n_q, data.next_n_action).squeeze(-1)
    return _quantile_regression(q, data.quantiles_hats, next_value, data, gamma, nstep, value_gamma, 1.0, kappa)


def fqf_calculate_fraction_loss(q_tau_i: Tensor, q_value: Tensor, quantiles: Tensor, actions: Tensor) -> Tensor:
    """Return the scalar loss whose gradient moves the inner fractions to reduce the 1-Wasserstein distance.

    Args:
        q_tau_i: [B, T - 1, N], values at the inner fractions; they get no gradient.
        q_value: [B, T, N], values of the trained network at the midpoints; they get no gradient.
        quantiles: [B, T + 1], the fractions from 0 to 1.
        actions: [B].

    Raises:
        AssertionError: `q_value` does not require grad, so it is not from the trained network.
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
        # If the values decrease with the fractions, the sign of the gradient flips.
        gradient = torch.where(at_fraction > below, from_below, -from_below)
        gradient += torch.where(at_fraction < above, from_above, -from_above)
    return (gradient * quantiles[:, 1:-1]).sum(1).mean()


# --- risk distortions of the fractions at which a quantile network acts, https://arxiv.org/abs/1806.06923 ---


def uniform(x: Tensor) -> Tensor:
    """Return the fractions unchanged, which is neutral to risk."""
    return x


def cpw(x: Tensor, eta: float = 0.71) -> Tensor:
    """Return the weighting of cumulative prospect theory, which overweights both ends."""
    return x**eta / (x**eta + (1 - x) ** eta) ** (1 / eta)


def CVaR(x: Tensor, eta: float = 0.71) -> Tensor:
    """Return the fractions of the conditional value at risk: the lowest share `eta`."""
    return x * eta


def Pow(x: Tensor, eta: float = 0.0) -> Tensor:
    """Return a power of the fractions: risk-averse for a negative `eta`, risk-seeking for a positive one.

    Example:
        >>> import torch
        >>> Pow(torch.tensor([0.5]), 1.0), Pow(torch.tensor([0.5]), -1.0)
        (tensor([0.7071]), tensor([0.2929]))
    """
    exponent = 1 / (1 + abs(eta))
    return x**exponent if eta >= 0 else 1 - (1 - x) ** exponent


beta_function_map: dict[str, Callable[[Tensor], Tensor]] = {
    "uniform": uniform,
    "CPW": cpw,
    "CVaR": CVaR,
    "Pow": Pow,
}
