"""Retrace: Q value targets for off-policy sequences (https://arxiv.org/abs/1606.02647)."""

from __future__ import annotations

import torch
from torch import Tensor


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
    """Return the targets of Q [T + 1, B, 1]; the last one is its `v_pred`.

    Q_ret_t = r_t + gamma weight_t (min(1, ratio_{t+1}) (Q_ret_{t+1} - Q_{t+1}) + V_{t+1}), as in
    https://arxiv.org/abs/1611.01224; after the last step the term in brackets is V.

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
