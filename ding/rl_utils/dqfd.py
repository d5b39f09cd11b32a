"""The loss of deep Q-learning from demonstrations, https://arxiv.org/abs/1704.03732."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ding.rl_utils.returns import nstep_return, nstep_return_data, weighted_mean

_SQUARED_ERROR = nn.MSELoss(reduction="none")


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
