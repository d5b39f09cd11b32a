"""V-trace: off-policy actor-critic losses of sequences (https://arxiv.org/abs/1802.01561)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ding.rl_utils.log_prob import ActionTerms, categorical_terms, gaussian_terms


class vtrace_data(NamedTuple):
    """B sequences of T steps."""

    target_output: Any  # of the current policy: logit [T, B, N], or `{'mu', 'sigma'}` [T, B, A]
    behaviour_output: Any  # the same of the behaviour policy
    action: Tensor  # [T, B] int64, or [T, B, A]
    value: Tensor  # [T + 1, B], of the observations and of the one after the last step; 0 if the episode is over
    reward: Tensor  # [T, B]
    weight: Tensor | None  # [T, B]


class vtrace_loss(NamedTuple):
    policy_loss: Tensor
    value_loss: Tensor
    entropy_loss: Tensor


class VtraceTargets(NamedTuple):
    value: Tensor  # [T, B], v_s of the paper
    advantage: Tensor  # [T, B], of the policy gradient


@torch.no_grad()
def vtrace_targets(
    ratio: Tensor,
    value: Tensor,
    next_value: Tensor,
    reward: Tensor,
    discount: Tensor,
    goes_on: Tensor,
    lambda_: float = 0.95,
    rho_clip_ratio: float = 1.0,
    c_clip_ratio: float = 1.0,
    rho_pg_clip_ratio: float = 1.0,
) -> VtraceTargets:
    """Return the value targets and advantages; all arguments and results are [T, B].

    With delta_t = rho_t (r_t + discount_t V'_t - V_t), v_t = V_t + delta_t + discount_t lambda c_t (v_{t+1} - V_{t+1}),
    where rho and c are the clipped ratio. The advantage is rho_pg_t (r_t + discount_t v_{t+1} - V_t), with V'_t
    instead of v_{t+1} if the trajectory does not continue.

    Args:
        ratio: the current probability of the action divided by that of the behaviour policy.
        value, next_value: v of the observations before and after a step.
        discount: the discount of the next value; 0 if the episode is over.
        goes_on: whether the next step continues the trajectory; False at the last step.
    """
    rho, c, rho_pg = (ratio.clamp(max=limit) for limit in (rho_clip_ratio, c_clip_ratio, rho_pg_clip_ratio))
    delta = rho * (reward + discount * next_value - value)
    factor = discount * lambda_ * c * goes_on
    running = torch.zeros_like(delta[0])
    corrections = []
    for step_delta, step_factor in zip(reversed(delta.unbind(0)), reversed(factor.unbind(0)), strict=True):
        running = step_delta + step_factor * running
        corrections.append(running)
    target = value + torch.stack(corrections[::-1])
    next_target = torch.where(goes_on.bool(), torch.cat([target[1:], next_value[-1:]]), next_value)
    return VtraceTargets(target, rho_pg * (reward + discount * next_target - value))


def vtrace_error_discrete_action(
    data: vtrace_data,
    gamma: float = 0.99,
    lambda_: float = 0.95,
    rho_clip_ratio: float = 1.0,
    c_clip_ratio: float = 1.0,
    rho_pg_clip_ratio: float = 1.0,
) -> vtrace_loss:
    """Return the losses for discrete actions: weighted means over all steps.

    Example:
        >>> logit, action = torch.zeros(2, 1, 2), torch.zeros(2, 1, dtype=torch.int64)
        >>> data = vtrace_data(logit, logit, action, torch.zeros(3, 1), torch.ones(2, 1), None)
        >>> vtrace_error_discrete_action(data, gamma=1.0, lambda_=1.0).value_loss
        tensor(2.5000)
    """
    return _error(categorical_terms, data, gamma, lambda_, rho_clip_ratio, c_clip_ratio, rho_pg_clip_ratio)


def vtrace_error_continuous_action(
    data: vtrace_data,
    gamma: float = 0.99,
    lambda_: float = 0.95,
    rho_clip_ratio: float = 1.0,
    c_clip_ratio: float = 1.0,
    rho_pg_clip_ratio: float = 1.0,
) -> vtrace_loss:
    """Return the losses of `vtrace_error_discrete_action` for actions from independent Gaussians."""
    return _error(gaussian_terms, data, gamma, lambda_, rho_clip_ratio, c_clip_ratio, rho_pg_clip_ratio)


def _error(
    terms_of: Callable[[Any, Tensor], ActionTerms],
    data: vtrace_data,
    gamma: float,
    lambda_: float,
    rho_clip_ratio: float,
    c_clip_ratio: float,
    rho_pg_clip_ratio: float,
) -> vtrace_loss:
    value, next_value, reward = data.value[:-1], data.value[1:].detach(), data.reward
    goes_on = torch.ones_like(reward)
    goes_on[-1] = 0
    terms = terms_of(data.target_output, data.action)
    with torch.no_grad():
        ratio = torch.exp(terms.log_prob - terms_of(data.behaviour_output, data.action).log_prob)
    discount = goes_on.new_full((), gamma)
    targets = vtrace_targets(
        ratio, value, next_value, reward, discount, goes_on, lambda_, rho_clip_ratio, c_clip_ratio, rho_pg_clip_ratio
    )
    return vtrace_losses(terms, value, targets, torch.ones_like(reward) if data.weight is None else data.weight)


def vtrace_losses(terms: ActionTerms, value: Tensor, targets: VtraceTargets, weight: Tensor) -> vtrace_loss:
    """Return the losses of actions, values and targets [T, B]: means over all steps, weighted by `weight` [T, B]."""
    return vtrace_loss(
        -(terms.log_prob * targets.advantage * weight).mean(),
        ((value - targets.value).square() * weight).mean(),
        (terms.entropy * weight).mean(),
    )


_EPS = 1e-8


@torch.no_grad()
def compute_q_retraces(
    q_values: Tensor,
    v_pred: Tensor,
    rewards: Tensor,
    actions: Tensor,
    weights: Tensor,
    ratio: Tensor,
    gamma: float = 0.9,
) -> Tensor:
    """Return the targets of Q by Retrace [T + 1, B, 1]; the last one is its `v_pred`.

    Q_ret_t = r_t + gamma weight_t (min(1, ratio_{t+1}) (Q_ret_{t+1} - Q_{t+1}) + V_{t+1}), as in
    https://arxiv.org/abs/1611.01224 and https://arxiv.org/abs/1606.02647; after the last step the term in brackets is
    V.

    Args:
        q_values: [T + 1, B, N].
        v_pred: [T + 1, B, 1].
        rewards: [T, B].
        actions: [T, B] int64.
        weights: [T, B], 0 if the episode is over.
        ratio: [T, B, N], the current probability of each action divided by that of the behaviour policy. Where it is 0,
            the next value is V, as after the last step.

    Example:
        >>> ones, action = torch.ones(2, 1), torch.zeros(2, 1, dtype=torch.int64)
        >>> zeros = torch.zeros(3, 1, 2)
        >>> compute_q_retraces(zeros, zeros[..., :1], ones, action, ones, torch.ones(2, 1, 2), gamma=0.5).flatten()
        tensor([1.5000, 1.0000, 0.0000])
    """
    chosen = actions.unsqueeze(-1)
    trace = ratio.gather(-1, chosen).clamp(max=1)
    q_chosen = q_values[:-1].gather(-1, chosen)
    discount = (gamma * weights).unsqueeze(-1)
    following = v_pred[-1]
    retraces = [following]
    for step in reversed(range(len(rewards))):
        retraces.append(rewards[step].unsqueeze(-1) + discount[step] * following)
        following = trace[step] * (retraces[-1] - q_chosen[step]) + v_pred[step]
    return torch.stack(retraces[::-1])


def acer_policy_error(
    q_values: Tensor,
    q_retraces: Tensor,
    v_pred: Tensor,
    target_logit: Tensor,
    actions: Tensor,
    ratio: Tensor,
    c_clip_ratio: float = 10.0,
) -> tuple[Tensor, Tensor]:
    """Return the terms that the policy maximizes, `(actor term, bias correction)`, both [T, B, 1].

    They are min(c, ratio) (Q_ret - V) log pi(action), and the sum over all actions of
    max(0, 1 - c / ratio) pi (Q - V) log pi, of which only log pi has a gradient.

    Args:
        q_values: [T, B, N].
        q_retraces: [T, B, 1], of `compute_q_retraces`.
        v_pred: [T, B, 1].
        target_logit: [T, B, N], log-probabilities of the policy.
        actions: [T, B] int64.
        ratio: [T, B, N], the current probabilities divided by those of the behaviour policy.
        c_clip_ratio: c, the truncation of the ratio.
    """
    chosen = actions.unsqueeze(-1)
    with torch.no_grad():
        factor = ratio.gather(-1, chosen).clamp(max=c_clip_ratio) * (q_retraces - v_pred)
        correction = (1 - c_clip_ratio / (ratio + _EPS)).clamp(min=0) * target_logit.exp() * (q_values - v_pred)
    return factor * target_logit.gather(-1, chosen), (correction * target_logit).sum(-1, keepdim=True)


def acer_value_error(q_values: Tensor, q_retraces: Tensor, actions: Tensor) -> Tensor:
    """Return half the squared error [T, B, 1] of Q [T, B, N] at the actions [T, B] against `q_retraces` [T, B, 1]."""
    return 0.5 * (q_retraces.detach() - q_values.gather(-1, actions.unsqueeze(-1))).square()


@torch.no_grad()
def acer_trust_region_update(
    actor_gradients: list[Tensor], target_logit: Tensor, avg_logit: Tensor, trust_region_value: float
) -> list[Tensor]:
    """Return the gradients nearest to the given ones that keep the divergence from the average policy within its limit.

    A step against the gradient g raises KL(average || policy), whose own gradient is k = -exp(avg_logit), by -g.k to
    first order, if each log-probability may change by itself; what exceeds `trust_region_value` is removed from g.

    Args:
        actor_gradients: gradients of the loss with respect to `target_logit`, [T, B, N] each.
    """
    k = -avg_logit.exp()
    norm = k.square().sum(-1, keepdim=True)
    return [
        gradient + ((-gradient * k).sum(-1, keepdim=True) - trust_region_value).clamp(min=0) / norm * k
        for gradient in actor_gradients
    ]
