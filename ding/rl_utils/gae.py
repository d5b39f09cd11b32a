"""Generalized advantage estimation."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ding.rl_utils.returns import Flags, bootstrap_mask, view_similar


class gae_data(NamedTuple):
    """One trajectory, or B parallel ones; `value` and `next_value` may have one more (agent) axis than the rest."""

    value: Tensor  # [T], [T, B] or [T, B, A]
    next_value: Tensor  # as value
    reward: Tensor  # [T] or [T, B]
    done: Tensor | None  # as reward; 1 if next_value must not be used
    traj_flag: Tensor | None  # as reward; 1 at the last step of a trajectory fragment, None means done


def gae(data: gae_data, gamma: float = 0.99, lambda_: float = 0.97) -> Tensor:
    """Return generalized advantages, shaped like `value` (https://arxiv.org/abs/1506.02438).

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
        return _scan_with_gradient(delta, factor)
    advantages = _scan(delta.double().numpy(force=True), factor.double().numpy(force=True))
    return torch.from_numpy(advantages).to(delta)


def _scan(delta: NDArray[Any], factor: NDArray[Any]) -> NDArray[Any]:
    """Return A_t = delta_t + factor_t A_{t+1} along the first axis; where the factor is 0, A_{t+1} may be NaN.

    It takes log2(T) rounds, each of which doubles the number of following steps included. `delta` is overwritten.
    """
    ahead = 1
    while ahead < len(delta):
        within = len(delta) - ahead
        goes_on = factor[:within] != 0
        if not goes_on.any():  # all trajectories are shorter
            break
        # Adding a product with 0 would turn -0 into 0, and pass NaN on to the trajectory before.
        following = np.zeros_like(delta[:within])
        np.multiply(factor[:within], delta[ahead:], out=following, where=goes_on)
        np.add(delta[:within], following, out=delta[:within], where=goes_on)
        factor = factor[:-ahead] * factor[ahead:]
        ahead *= 2
    return delta


def _scan_with_gradient(delta: Tensor, factor: Tensor) -> Tensor:
    running = torch.zeros_like(delta[0])
    advantages = []
    for step_delta, step_factor in zip(reversed(delta.unbind(0)), reversed(factor.unbind(0)), strict=True):
        running = step_delta + step_factor * running
        advantages.append(running)
    return torch.stack(advantages[::-1])


def gae_columns(
    value: Any,
    reward: Any,
    gamma: float,
    gae_lambda: float,
    last_value: Any = None,
    done: Flags | None = None,
    terminated: Flags | None = None,
    truncated: Flags | None = None,
    lengths: NDArray[np.int64] | None = None,
) -> Any:
    """Return the advantages of a fragment, shaped like `value`, as an array or a tensor, like the arguments.

    `last_value` is the value of the observation after the last row. Without it, the flags of the last row decide: if
    the episode is over, the value is zero; otherwise (see `bootstrap_mask`) the last row is dropped and its value used,
    and the result is one row shorter.

    Args:
        value: [T], [T, 1], or [T, A] of A agents.
        reward: [T], [T, 1], or [T, A].
        last_value: the next value, of the form of a row of `value`.
        done, terminated, truncated: columns whose last row is used, only without `last_value`.
        lengths: the lengths [P] of several fragments, one after the other; `last_value` then has a row for each.

    Raises:
        ValueError: neither `last_value` nor `done` is given, or `lengths` is given without `last_value`.

    Example:
        >>> gae_columns(torch.zeros(3), torch.ones(3), 0.5, 1.0, done=[False, False, True]).tolist()
        [1.75, 1.5, 1.0]
    """
    if not isinstance(value, Tensor):
        last_value = None if last_value is None else torch.tensor(last_value)
        columns = torch.tensor(value), torch.tensor(reward), gamma, gae_lambda, last_value
        return gae_columns(*columns, done, terminated, truncated, lengths).numpy()
    if last_value is None:
        if done is None or lengths is not None:
            raise ValueError("gae_columns needs last_value, or the flag done of the last row of a single fragment")
        flags = [None if flag is None else flag[-1:] for flag in (terminated, truncated)]
        if bootstrap_mask(done[-1:], *flags).item():
            value, reward, last_value = value[:-1], reward[:-1], value[-1]
        else:
            last_value = torch.zeros_like(value[-1])
    if len(value) == 0:
        return value.clone()
    lengths = np.array([len(value)]) if lengths is None else lengths
    last_rows = torch.from_numpy((lengths.cumsum() - 1)[lengths > 0])
    last_value = torch.as_tensor(last_value, dtype=value.dtype, device=value.device)
    next_value = value.roll(-1, 0)
    next_value[last_rows] = last_value.reshape(len(lengths), *value.shape[1:])[torch.from_numpy(lengths > 0)]
    if reward.shape[1:] == (1,):
        reward = reward.squeeze(1)
    is_last = torch.zeros(len(reward), dtype=torch.bool, device=reward.device)
    is_last[last_rows] = True
    data = gae_data(value, next_value, reward, None, view_similar(is_last, reward))
    return gae(data, gamma, gae_lambda)
