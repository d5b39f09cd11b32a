"""Temporal-difference errors of one and of n steps.

Shapes: B batch, N discrete actions, n steps, A agents. Field order of the data tuples is part of the interface. Every
target is detached; `weight` (importance weights, [B]) may be None. Error functions that return `(loss, error)` give the
mean of error * weight and the unweighted error per sample, which for the default criterion is the squared difference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ding.rl_utils.value_rescale import value_inv_transform, value_transform

Criterion = Callable[[Tensor, Tensor], Tensor]

_SQUARED_ERROR: Criterion = nn.MSELoss(reduction="none")


class q_1step_td_data(NamedTuple):
    q: Tensor  # [B, N]
    next_q: Tensor  # [B, N]
    act: Tensor  # [B] int64
    next_act: Tensor  # [B] int64
    reward: Tensor  # [B]
    done: Tensor | None  # [B]
    weight: Tensor | None  # [B]


class q_nstep_td_data(NamedTuple):
    q: Tensor  # [B, N] or [B, A, N]
    next_n_q: Tensor  # as q, n steps later
    action: Tensor  # [B] or [B, A] int64
    next_n_action: Tensor  # as action
    reward: Tensor  # [n, B], [n, B, A] or [n, B, 1]
    done: Tensor  # [B]
    weight: Tensor | None  # [B]


class v_1step_td_data(NamedTuple):
    v: Tensor  # [B] or [B, A]
    next_v: Tensor  # as v
    reward: Tensor  # [B]
    done: Tensor | None  # [B]
    weight: Tensor | None  # [B]


class v_nstep_td_data(NamedTuple):
    v: Tensor  # [B]
    next_n_v: Tensor  # [B]
    reward: Tensor  # [n, B]
    done: Tensor  # [B]
    weight: Tensor | None  # [B]
    value_gamma: Tensor | None  # [B]


class q_v_1step_td_data(NamedTuple):
    q: Tensor  # [B, N] or [B, A, N]
    v: Tensor  # [B] or [B, A], of the next state
    act: Tensor  # as v, int64
    reward: Tensor  # [B]
    done: Tensor | None  # [B]
    weight: Tensor | None  # [B]


class nstep_return_data(NamedTuple):
    reward: Tensor  # [n, B, ...]
    next_value: Tensor  # [B, ...]
    done: Tensor  # [B]


def view_similar(x: Tensor, target: Tensor) -> Tensor:
    """`x` with singleton axes appended until it has as many as `target`."""
    missing = target.dim() - x.dim()
    return x.reshape(*x.shape, *([1] * missing)) if missing > 0 else x


def nstep_return(
    data: nstep_return_data,
    gamma: float | Sequence[Any],
    nstep: int,
    value_gamma: float | Tensor | None = None,
) -> Tensor:
    """sum_i gamma^i r_i + value_gamma (1 - done) v', [B, ...]; `value_gamma` is gamma^n where not given.

    A list `gamma` has one discount per sample, and `value_gamma` is then not used. `done` and a `value_gamma` per
    sample get trailing axes to match `next_value`.

    Raises:
        AssertionError: the first axis of the reward is not `nstep`.

    Example:
        >>> data = nstep_return_data(torch.ones(2, 1), torch.ones(1), torch.zeros(1))
        >>> nstep_return(data, 0.5, 2)
        tensor([1.7500])
    """
    reward, next_value, done = data
    if reward.shape[0] != nstep:
        raise AssertionError(f"the reward has shape {tuple(reward.shape)}; its first axis must be nstep = {nstep}")
    factor: float | Tensor
    if isinstance(gamma, list | tuple):
        per_sample = torch.stack([torch.as_tensor(g) for g in gamma]).to(reward)  # [B]
        powers = torch.stack([per_sample**i for i in range(nstep)])  # [n, B]
        discounted, factor = (view_similar(powers, reward) * reward).sum(0), per_sample**nstep
    else:
        discount = float(gamma)  # type: ignore[arg-type]
        discounted = _discounted_sum(reward, discount)
        factor = discount**nstep if value_gamma is None else value_gamma
    if isinstance(factor, Tensor):
        factor = view_similar(factor, next_value)
    return view_similar(discounted, next_value) + factor * next_value * view_similar(_alive(done), next_value)


def _discounted_sum(reward: Tensor, gamma: float) -> Tensor:
    if reward.shape[0] == 1:
        return reward[0]
    discounts = _discounts(gamma, reward.shape[0], reward.dtype, reward.device)
    return (view_similar(discounts, reward) * reward).sum(0)


@lru_cache(maxsize=64)
def _discounts(gamma: float, nstep: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(False):  # the cached tensor outlives the mode of the call that first needs it
        return torch.tensor([gamma**i for i in range(nstep)], dtype=dtype, device=device)


def _alive(done: Tensor) -> Tensor:
    return 1 - (done.float() if done.dtype == torch.bool else done)


def _chosen(q: Tensor, action: Tensor) -> Tensor:
    """q of the action: [B] of [B, N], or [B, A] of [B, A, N]."""
    index = action.unsqueeze(-1) if action.dim() == q.dim() - 1 else action
    return q.gather(-1, index).squeeze(-1)


def _weighted_mean(error: Tensor, weight: Tensor | None) -> Tensor:
    return error.mean() if weight is None else (error * view_similar(weight, error)).mean()


def _next_value_target(next_value: Tensor, reward: Tensor, done: Tensor | None, gamma: float) -> Tensor:
    alive = 1.0 if done is None else view_similar(_alive(done), next_value)
    return gamma * alive * next_value + view_similar(reward, next_value)


def q_1step_td_error(data: q_1step_td_data, gamma: float, criterion: Criterion = _SQUARED_ERROR) -> Tensor:
    """The one-step loss of Q-learning, a scalar."""
    q, next_q, act, next_act, reward, done, weight = data
    target = _next_value_target(_chosen(next_q, next_act), reward, done, gamma)
    return _weighted_mean(criterion(_chosen(q, act), target.detach()), weight)


def q_nstep_td_error(
    data: q_nstep_td_data,
    gamma: float | Sequence[Any],
    nstep: int = 1,
    cum_reward: bool = False,
    value_gamma: float | Tensor | None = None,
    criterion: Criterion = _SQUARED_ERROR,
) -> tuple[Tensor, Tensor]:
    """`(loss, error [B])` of n-step Q-learning.

    With `cum_reward` the reward is [B], already the discounted sum of n steps. See `nstep_return` for the discounts.

    Example:
        >>> q = torch.tensor([[1.0, 0.0]])
        >>> action = torch.tensor([0])
        >>> data = q_nstep_td_data(q, q, action, action, torch.ones(1, 1), torch.zeros(1), None)
        >>> loss, error = q_nstep_td_error(data, gamma=0.5)
        >>> loss.item()
        0.25
    """
    q, next_n_q, action, next_n_action, reward, done, weight = data
    next_value = _chosen(next_n_q, next_n_action)
    if cum_reward:
        factor = float(gamma) ** nstep if value_gamma is None else value_gamma  # type: ignore[arg-type]
        if isinstance(factor, Tensor):
            factor = view_similar(factor, next_value)
        target = view_similar(reward, next_value) + factor * next_value * view_similar(_alive(done), next_value)
    else:
        target = nstep_return(nstep_return_data(reward, next_value, done), gamma, nstep, value_gamma)
    error = criterion(_chosen(q, action), target.detach())
    return _weighted_mean(error, weight), error


def q_nstep_td_error_with_rescale(
    data: q_nstep_td_data,
    gamma: float | Sequence[Any],
    nstep: int = 1,
    value_gamma: float | Tensor | None = None,
    criterion: Criterion = _SQUARED_ERROR,
    trans_fn: Callable[[Tensor], Tensor] = value_transform,
    inv_trans_fn: Callable[[Tensor], Tensor] = value_inv_transform,
) -> tuple[Tensor, Tensor]:
    """`(loss, error [B])` where q lives in the space of `trans_fn`: the target is h(return of h^-1(q')).

    Raises:
        AssertionError: the action is not [B].
    """
    q, next_n_q, action, next_n_action, reward, done, weight = data
    if action.dim() != 1:
        raise AssertionError(f"the action has shape {tuple(action.shape)}; it must be (B,)")
    next_value = inv_trans_fn(_chosen(next_n_q, next_n_action))
    target = trans_fn(nstep_return(nstep_return_data(reward, next_value, done), gamma, nstep, value_gamma))
    error = criterion(_chosen(q, action), target.detach())
    return _weighted_mean(error, weight), error


def v_1step_td_error(
    data: v_1step_td_data, gamma: float, criterion: Criterion = _SQUARED_ERROR
) -> tuple[Tensor, Tensor]:
    """`(loss, error shaped as v)` of the one-step value target r + gamma (1 - done) v'."""
    v, next_v, reward, done, weight = data
    error = criterion(v, _next_value_target(next_v, reward, done, gamma).detach())
    return _weighted_mean(error, weight), error


def v_nstep_td_error(
    data: v_nstep_td_data,
    gamma: float | Sequence[Any],
    nstep: int = 1,
    criterion: Criterion = _SQUARED_ERROR,
) -> tuple[Tensor, Tensor]:
    """`(loss, error [B])` of the n-step value target."""
    v, next_n_v, reward, done, weight, value_gamma = data
    target = nstep_return(nstep_return_data(reward, next_n_v, done), gamma, nstep, value_gamma)
    error = criterion(v, target.detach())
    return _weighted_mean(error, weight), error


def q_v_1step_td_error(
    data: q_v_1step_td_data, gamma: float, criterion: Criterion = _SQUARED_ERROR
) -> tuple[Tensor, Tensor]:
    """`(loss, error shaped as act)` of q(s, a) against r + gamma (1 - done) v(s')."""
    q, v, act, reward, done, weight = data
    error = criterion(_chosen(q, act), _next_value_target(v, reward, done, gamma).detach())
    return _weighted_mean(error, weight), error
