"""The losses of ACER for discrete actions (https://arxiv.org/abs/1611.01224), and its targets of Q, by Retrace.

Shapes: T steps, B sequences, N actions. `target_logit` and `avg_logit` are log-probabilities.
"""

from __future__ import annotations

import torch
from torch import Tensor

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
