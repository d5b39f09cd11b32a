"""Temporal-difference errors of one and of n steps.

Shapes: B batch, N discrete actions, n steps, A agents. The field order of the data tuples is part of the interface.
Every target is detached. `weight` (importance weights) is [B] or [B, 1], or None; any other shape is a ValueError.
Functions that return `(loss, error)` return the mean of error * weight, and the unweighted error per sample, which is
the squared difference for the default criterion.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ding.rl_utils.distributional import (  # noqa: F401 - the errors of all value functions are found here
    dist_1step_td_data,
    dist_1step_td_error,
    dist_nstep_td_data,
    dist_nstep_td_error,
    evaluate_quantile_at_action,
    fqf_calculate_fraction_loss,
    fqf_nstep_td_data,
    fqf_nstep_td_error,
    iqn_nstep_td_data,
    iqn_nstep_td_error,
    qrdqn_nstep_td_data,
    qrdqn_nstep_td_error,
)
from ding.rl_utils.returns import (
    alive,
    nstep_return,
    nstep_return_data,
    value_inv_transform,
    value_transform,
    view_similar,
    weighted_mean,
)

Criterion = Callable[[Tensor, Tensor], Tensor]

_EXCLUDED = -5e7  # a mask has subtracted 1e8 from what is below
_SQUARED_ERROR: Criterion = partial(F.mse_loss, reduction="none")  # a third less time than the module


class q_1step_td_data(NamedTuple):
    q: Tensor  # [B, N]
    next_q: Tensor  # [B, N]
    act: Tensor  # [B] int64
    next_act: Tensor  # [B] int64
    reward: Tensor  # [B]
    done: Tensor | None  # [B]
    weight: Tensor | None  # [B] or [B, 1]


class q_nstep_td_data(NamedTuple):
    q: Tensor  # [B, N] or [B, A, N]
    next_n_q: Tensor  # as q, n steps later
    action: Tensor  # [B] or [B, A] int64
    next_n_action: Tensor  # as action
    reward: Tensor  # [n, B], [n, B, A] or [n, B, 1]
    done: Tensor  # [B]
    weight: Tensor | None  # [B] or [B, 1]


class m_q_1step_td_data(NamedTuple):
    q: Tensor  # [B, N]
    target_q: Tensor  # [B, N], of the target network, for the same observations
    next_q: Tensor  # [B, N], of the target network, for the next observations
    act: Tensor  # [B] int64
    reward: Tensor  # [B]
    done: Tensor  # [B]
    weight: Tensor | None  # [B] or [B, 1]


class v_1step_td_data(NamedTuple):
    v: Tensor  # [B] or [B, A]
    next_v: Tensor  # as v
    reward: Tensor  # [B]
    done: Tensor | None  # [B]
    weight: Tensor | None  # [B] or [B, 1]


class v_nstep_td_data(NamedTuple):
    v: Tensor  # [B]
    next_n_v: Tensor  # [B]
    reward: Tensor  # [n, B]
    done: Tensor  # [B]
    weight: Tensor | None  # [B] or [B, 1]
    value_gamma: Tensor | None  # [B]


class q_v_1step_td_data(NamedTuple):
    q: Tensor  # [B, N] or [B, A, N]
    v: Tensor  # [B] or [B, A], of the next state
    act: Tensor  # as v, int64
    reward: Tensor  # [B]
    done: Tensor | None  # [B]
    weight: Tensor | None  # [B] or [B, 1]


def _chosen(q: Tensor, action: Tensor) -> Tensor:
    """Return q of the action: [B] of [B, N], or [B, A] of [B, A, N]."""
    index = action.unsqueeze(-1) if action.dim() == q.dim() - 1 else action
    return q.gather(-1, index).squeeze(-1)


def _next_value_target(next_value: Tensor, reward: Tensor, done: Tensor | None, gamma: float) -> Tensor:
    bootstraps = 1.0 if done is None else view_similar(alive(done), next_value)
    return (gamma * bootstraps * next_value + view_similar(reward, next_value)).to(next_value.dtype)


def _nstep_target(
    next_value: Tensor,
    reward: Tensor,
    done: Tensor,
    gamma: float | Sequence[Any],
    nstep: int,
    cum_reward: bool,
    value_gamma: float | Tensor | None,
) -> Tensor:
    if not cum_reward:
        return nstep_return(nstep_return_data(reward, next_value, done), gamma, nstep, value_gamma)
    factor = float(gamma) ** nstep if value_gamma is None else value_gamma  # type: ignore[arg-type]
    if isinstance(factor, Tensor):
        factor = view_similar(factor, next_value)
    return view_similar(reward, next_value) + factor * next_value * view_similar(alive(done), next_value)


def q_1step_td_error(data: q_1step_td_data, gamma: float, criterion: Criterion = _SQUARED_ERROR) -> Tensor:
    """Return the one-step loss of Q-learning, a scalar."""
    q, next_q, act, next_act, reward, done, weight = data
    target = _next_value_target(_chosen(next_q, next_act), reward, done, gamma)
    return weighted_mean(criterion(_chosen(q, act), target.detach()), weight)


def q_nstep_td_error(
    data: q_nstep_td_data,
    gamma: float | Sequence[Any],
    nstep: int = 1,
    cum_reward: bool = False,
    value_gamma: float | Tensor | None = None,
    criterion: Criterion = _SQUARED_ERROR,
) -> tuple[Tensor, Tensor]:
    """Return `(loss, error [B])` of n-step Q-learning.

    With `cum_reward` the reward is [B], already the discounted sum of n steps. See `nstep_return` for the discounts.

    Example:
        >>> import torch
        >>> q = torch.tensor([[1.0, 0.0]])
        >>> action = torch.tensor([0])
        >>> data = q_nstep_td_data(q, q, action, action, torch.ones(1, 1), torch.zeros(1), None)
        >>> loss, error = q_nstep_td_error(data, gamma=0.5)
        >>> loss.item()
        0.25
    """
    next_value = _chosen(data.next_n_q, data.next_n_action)
    target = _nstep_target(next_value, data.reward, data.done, gamma, nstep, cum_reward, value_gamma)
    error = criterion(_chosen(data.q, data.action), target.detach())
    return weighted_mean(error, data.weight), error


def q_nstep_td_error_with_rescale(
    data: q_nstep_td_data,
    gamma: float | Sequence[Any],
    nstep: int = 1,
    value_gamma: float | Tensor | None = None,
    criterion: Criterion = _SQUARED_ERROR,
    trans_fn: Callable[[Tensor], Tensor] = value_transform,
    inv_trans_fn: Callable[[Tensor], Tensor] = value_inv_transform,
) -> tuple[Tensor, Tensor]:
    """Return `(loss, error [B])` for q transformed by h, `trans_fn`: the target is h(n-step return with h^-1(q')).

    Raises:
        AssertionError: the action is not [B].
    """
    q, next_n_q, action, next_n_action, reward, done, weight = data
    if action.dim() != 1:
        raise AssertionError(f"the action has shape {tuple(action.shape)}; it must be (B,)")
    next_value = inv_trans_fn(_chosen(next_n_q, next_n_action))
    target = trans_fn(nstep_return(nstep_return_data(reward, next_value, done), gamma, nstep, value_gamma))
    error = criterion(_chosen(q, action), target.detach())
    return weighted_mean(error, weight), error


def m_q_1step_td_error(
    data: m_q_1step_td_data, gamma: float, tau: float, alpha: float, criterion: Criterion = _SQUARED_ERROR
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return `(loss, error [B], action gap, clip fraction [B])` of Munchausen Q-learning.

    See https://arxiv.org/abs/2007.14430. With pi = softmax(target q / tau), the target is
    r + alpha * clip(tau log pi(a|s), -1, 0) plus the discounted soft next value,
    sum_a' pi(a'|s') (q'(s', a') - tau log pi(a'|s')). The action gap is the mean difference of the two largest values
    of `target_q`, 0 if a single action is legal; the clip fraction is 1 for a sample whose tau log pi is clipped,
    else 0.

    Example:
        >>> import torch
        >>> q = torch.zeros(1, 2)
        >>> data = m_q_1step_td_data(q, q, q, torch.tensor([0]), torch.ones(1), torch.ones(1), None)
        >>> loss, error, gap, clipped = m_q_1step_td_error(data, gamma=0.9, tau=1.0, alpha=0.5)
        >>> round(loss.sqrt().item(), 4)  # 1 + 0.5 log 0.5
        0.6534
    """
    q, target_q, next_q, act, reward, done, weight = data
    with torch.no_grad():
        log_policy = tau * torch.log_softmax(target_q / tau, -1)
        bonus = _chosen(log_policy, act)
        next_log_policy = torch.log_softmax(next_q / tau, -1)
        soft_value = (next_log_policy.exp() * (next_q - tau * next_log_policy)).sum(-1)
        target = _next_value_target(soft_value, reward + alpha * bonus.clamp(-1, 0), done, gamma)
        best = target_q.topk(min(2, target_q.shape[-1]), -1).values
        gap = torch.where(best[..., -1] > _EXCLUDED, best[..., 0] - best[..., -1], 0.0).mean()
        clipped = ((bonus > 0) | (bonus < -1)).to(q.dtype)
    error = criterion(_chosen(q, act), target)
    return weighted_mean(error, weight), error, gap, clipped


def q_nstep_sql_td_error(
    data: q_nstep_td_data,
    gamma: float | Sequence[Any],
    alpha: float,
    nstep: int = 1,
    cum_reward: bool = False,
    value_gamma: float | Tensor | None = None,
    criterion: Criterion = _SQUARED_ERROR,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return `(loss, error [B], soft value [B])` of n-step soft Q-learning, https://arxiv.org/abs/1702.08165.

    The next value is alpha log sum_a exp(q'(a) / alpha); `next_n_action` is not used. See `q_nstep_td_error`.
    """
    soft_value = alpha * torch.logsumexp(data.next_n_q.detach() / alpha, -1)
    target = _nstep_target(soft_value, data.reward, data.done, gamma, nstep, cum_reward, value_gamma)
    error = criterion(_chosen(data.q, data.action), target)
    return weighted_mean(error, data.weight), error, soft_value


def bdq_nstep_td_error(
    data: q_nstep_td_data,
    gamma: float | Sequence[Any],
    nstep: int = 1,
    cum_reward: bool = False,
    value_gamma: float | Tensor | None = None,
    criterion: Criterion = _SQUARED_ERROR,
) -> tuple[Tensor, Tensor]:
    """Return `(loss, error [B])` of the branching network of https://arxiv.org/abs/1711.08946.

    The values are [B, D, N], the actions [B, D] of D branches. All branches share one target: the return with the mean
    over the branches of the next values. The error is the mean over the branches. See `q_nstep_td_error` for the rest.
    """
    next_value = _chosen(data.next_n_q, data.next_n_action).mean(-1)
    target = _nstep_target(next_value, data.reward, data.done, gamma, nstep, cum_reward, value_gamma).detach()
    chosen = _chosen(data.q, data.action)
    error = criterion(chosen, target.unsqueeze(-1).expand_as(chosen)).mean(-1)
    return weighted_mean(error, data.weight), error


def v_1step_td_error(
    data: v_1step_td_data, gamma: float, criterion: Criterion = _SQUARED_ERROR
) -> tuple[Tensor, Tensor]:
    """Return `(loss, error)`, shaped like v, of the one-step value target r + gamma (1 - done) v'."""
    v, next_v, reward, done, weight = data
    error = criterion(v, _next_value_target(next_v, reward, done, gamma).detach())
    return weighted_mean(error, weight), error


def v_nstep_td_error(
    data: v_nstep_td_data,
    gamma: float | Sequence[Any],
    nstep: int = 1,
    criterion: Criterion = _SQUARED_ERROR,
) -> tuple[Tensor, Tensor]:
    """Return `(loss, error [B])` of the n-step value target."""
    v, next_n_v, reward, done, weight, value_gamma = data
    target = nstep_return(nstep_return_data(reward, next_n_v, done), gamma, nstep, value_gamma)
    error = criterion(v, target.detach())
    return weighted_mean(error, weight), error


def q_v_1step_td_error(
    data: q_v_1step_td_data, gamma: float, criterion: Criterion = _SQUARED_ERROR
) -> tuple[Tensor, Tensor]:
    """Return `(loss, error)`, shaped like `act`, of q(s, a) against r + gamma (1 - done) v(s')."""
    q, v, act, reward, done, weight = data
    error = criterion(_chosen(q, act), _next_value_target(v, reward, done, gamma).detach())
    return weighted_mean(error, weight), error


# --- deep Q-learning from demonstrations, https://arxiv.org/abs/1704.03732 ---


class dqfd_nstep_td_data(NamedTuple):
    q: Tensor  # [B, N]
    next_n_q: Tensor  # [B, N], n steps later
    action: Tensor  # [B] int64
    next_n_action: Tensor  # [B] int64
    reward: Tensor  # [n, B]
    done: Tensor  # [B], n steps later
    done_one_step: Tensor  # [B]
    weight: Tensor | None  # [B] or [B, 1]
    new_n_q_one_step: Tensor  # [B, N], one step later
    next_n_action_one_step: Tensor  # [B] int64
    is_expert: Tensor  # [B], 1 for a demonstration, else 0


def dqfd_nstep_td_error(
    data: dqfd_nstep_td_data,
    gamma: float,
    lambda_n_step_td: float,
    lambda_supervised_loss: float,
    margin_function: float,
    lambda_one_step_td: float = 1.0,
    nstep: int = 1,
    value_gamma: float | Tensor | None = None,
    criterion: Callable[[Tensor, Tensor], Tensor] = _SQUARED_ERROR,
) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor, Tensor]]:
    """Return `(loss, error [B], (n-step error, one-step error, margin loss), each [B])`, with errors unweighted.

    The error of a sample is the weighted sum of its n-step and its one-step TD error and, for a demonstration, of the
    margin loss max_a (q(s, a) + m(a)) - q(s, a_E), where m is `margin_function` for all actions but a_E. `loss` is the
    mean of error * weight.

    Example:
        >>> q, action = torch.tensor([[1.0, 0.5]]), torch.tensor([0])
        >>> one, zero = torch.ones(1), torch.zeros(1)
        >>> data = dqfd_nstep_td_data(q, q, action, action, torch.ones(1, 1), one, one, None, q, action, one)
        >>> loss, error, (_, _, margin) = dqfd_nstep_td_error(data, 0.9, 1.0, 1.0, margin_function=0.8)
        >>> round(margin.item(), 4), round(loss.item(), 4)
        (0.3, 0.3)
    """
    q_taken = data.q.gather(-1, data.action.unsqueeze(-1)).squeeze(-1)
    next_n_value = data.next_n_q.gather(-1, data.next_n_action.unsqueeze(-1)).squeeze(-1)
    next_value = data.new_n_q_one_step.gather(-1, data.next_n_action_one_step.unsqueeze(-1)).squeeze(-1)
    target_n = nstep_return(nstep_return_data(data.reward, next_n_value, data.done), gamma, nstep, value_gamma)
    target = nstep_return(nstep_return_data(data.reward[:1], next_value, data.done_one_step), gamma, 1)
    margin = torch.full_like(data.q, margin_function).scatter(-1, data.action.unsqueeze(-1), 0.0)
    supervised = data.is_expert * ((data.q + margin).max(-1).values - q_taken)
    error_n, error_one = criterion(q_taken, target_n.detach()), criterion(q_taken, target.detach())
    error = lambda_n_step_td * error_n + lambda_one_step_td * error_one + lambda_supervised_loss * supervised
    return weighted_mean(error, data.weight), error, (error_n, error_one, supervised)
