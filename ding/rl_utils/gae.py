"""Generalized advantage estimation."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class gae_data(NamedTuple):
    """One trajectory, or B side by side; `value` and `next_value` may have one more (agent) axis than the rest."""

    value: Tensor  # [T], [T, B] or [T, B, A]
    next_value: Tensor  # as value
    reward: Tensor  # [T] or [T, B]
    done: Tensor | None  # as reward; 1 where next_value must not count
    traj_flag: Tensor | None  # as reward; 1 at the last step of a trajectory piece, None means done


def gae(data: gae_data, gamma: float = 0.99, lambda_: float = 0.97) -> Tensor:
    """Advantages, shaped like `value`, of https://arxiv.org/abs/1506.02438.

    A_t = delta_t + gamma lambda (1 - traj_flag_t) A_{t+1}, with delta_t = r_t + gamma (1 - done_t) v'_t - v_t.

    `next_value` is multiplied by 1 - done in place.
    """
    value, next_value, reward, done, traj_flag = data
    done = torch.zeros_like(reward) if done is None else done.to(reward.dtype)
    traj_flag = done if traj_flag is None else traj_flag.to(reward.dtype)
    if value.dim() == reward.dim() + 1:
        reward, done, traj_flag = reward.unsqueeze(-1), done.unsqueeze(-1), traj_flag.unsqueeze(-1)
    next_value *= 1 - done
    delta = reward + gamma * next_value - value
    factor = gamma * lambda_ * (1 - traj_flag)
    if delta.requires_grad:
        return _scan_tensors(delta, factor)
    if delta.numel() == factor.numel() == delta.shape[0]:
        return _scan_floats(delta.flatten(), factor.flatten()).view(delta.shape)
    scanned = _scan_tensors(delta.detach().cpu(), factor.cpu())
    return scanned.to(delta.device)


def _scan_floats(delta: Tensor, factor: Tensor) -> Tensor:
    """The recursion over one trajectory in plain floats: a tensor operation per step costs 20 times as much."""
    advantages = delta.tolist()
    running = 0.0
    for t, keep in zip(range(len(advantages) - 1, -1, -1), reversed(factor.tolist()), strict=True):
        running = advantages[t] + keep * running
        advantages[t] = running
    return torch.tensor(advantages, dtype=delta.dtype, device=delta.device)


def _scan_tensors(delta: Tensor, factor: Tensor) -> Tensor:
    running = torch.zeros_like(delta[0])
    advantages = []
    for step_delta, step_factor in zip(reversed(delta.unbind(0)), reversed(factor.unbind(0)), strict=True):
        running = step_delta + step_factor * running
        advantages.append(running)
    return torch.stack(advantages[::-1])
