"""n-step returns, value transforms, and helpers of TD errors: end flags, axes, the weighted mean of errors.

The columns of a fragment are arrays or tensors [T, ...], one row per step. An end flag (`done`, `terminated`,
`truncated`) is a column [T] or [T, 1] of bools or numbers, or a list. A flag is unknown in rows whose entry is NaN
(or None in a list); None instead of a column means that it is unknown everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Flags = Tensor | NDArray[Any] | Sequence[Any]
Column = TypeVar("Column", Tensor, NDArray[Any])


class nstep_return_data(NamedTuple):
    reward: Tensor  # [n, B, ...]
    next_value: Tensor  # [B, ...]
    done: Tensor  # [B]


def view_similar(x: Column, target: Tensor | NDArray[Any]) -> Column:
    """Return `x`, a tensor or an array, with trailing singleton axes up to the number of axes of `target`."""
    missing = target.ndim - x.ndim
    return x.reshape(*x.shape, *([1] * missing)) if missing > 0 else x


def nstep_return(
    data: nstep_return_data,
    gamma: float | Sequence[Any],
    nstep: int,
    value_gamma: float | Tensor | None = None,
) -> Tensor:
    """Return sum_i gamma^i r_i + value_gamma (1 - done) v', with the shape [B, ...] and dtype of v'.

    `value_gamma` is gamma^n by default. A list `gamma` has one discount per sample, and `value_gamma` is then not used.
    `done` and a `value_gamma` per sample get trailing axes to match `next_value`.

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
        discounted = reward[0]
        if nstep > 1:
            discounts = _discounts(discount, nstep, reward.dtype, reward.device)
            discounted = (discounts.view(-1, *[1] * (reward.dim() - 1)) * reward).sum(0)
        factor = discount**nstep if value_gamma is None else value_gamma
    goes_on = alive(done)
    if next_value.dim() > 1:
        discounted, goes_on = view_similar(discounted, next_value), view_similar(goes_on, next_value)
        factor = view_similar(factor, next_value) if isinstance(factor, Tensor) else factor
    return (discounted + factor * next_value * goes_on).to(next_value.dtype)


@lru_cache(maxsize=64)
def _discounts(gamma: float, nstep: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(False):  # the cached tensor outlives the mode of the current call
        return torch.tensor([gamma**i for i in range(nstep)], dtype=dtype, device=device)


def bootstrap_mask(done: Flags, terminated: Flags | None = None, truncated: Flags | None = None) -> Any:
    """Return for each row whether to bootstrap from the next value.

    A row with a known `terminated` bootstraps unless it is set. Any other row bootstraps if it is truncated or not
    done. The result is a bool tensor on the device of `done` if that is a tensor, else an array, [T]; flags [T, A] of A
    agents give [T, A].

    Example:
        >>> bootstrap_mask([False, True, True, True], [None, None, None, False], [None, True, None, None]).tolist()
        [True, True, False, True]
    """
    is_done, _ = _flag(done)
    mask = ~is_done
    if truncated is not None:
        is_truncated, _ = _flag(truncated)
        mask = view_similar(mask, is_truncated) | view_similar(is_truncated, mask)
    if terminated is not None:
        is_terminated, is_known = _flag(terminated)
        mask, is_terminated = view_similar(mask, is_terminated), view_similar(is_terminated, mask)
        mask = np.where(view_similar(is_known, mask), ~is_terminated, mask)
    return torch.from_numpy(np.asarray(mask)).to(done.device) if isinstance(done, Tensor) else mask


def _flag(column: Any) -> tuple[Any, Any]:
    """Return for each row whether the flag is set, and whether it is known, as bool arrays."""
    if isinstance(column, Tensor):
        column = column.numpy(force=True)
    elif isinstance(column, list | tuple) or column.dtype.kind == "O":
        try:
            column = np.array(column, dtype=np.float32)  # None becomes NaN
        except (TypeError, ValueError):  # None among tensors or arrays
            column = np.array([np.nan if entry is None else float(np.asarray(entry).all()) for entry in column])
    if column.shape[1:] == (1,):
        column = column[:, 0]
    if column.dtype == bool:
        return column, np.True_
    is_known = column == column  # NaN is not equal to itself
    return (column != 0) & is_known, is_known


def ends_of_rows(length: int, lengths: NDArray[np.int64], flags: Iterable[Flags]) -> NDArray[np.int64]:
    """Return for each row the first row from it where all of a flag are set, or the last row of its fragment, [T]."""
    is_end = np.zeros(length, dtype=bool)
    is_end[(lengths.cumsum() - 1)[lengths > 0]] = True
    for flag in flags:
        is_set, _ = _flag(flag)
        is_end |= is_set if is_set.ndim == 1 else is_set.reshape(length, -1).all(1)
    ends = np.where(is_end, np.arange(length), length - 1)
    return np.minimum.accumulate(ends[::-1])[::-1]


def alive(done: Tensor) -> Tensor:
    """Return 1 - done, also for boolean flags."""
    return 1 - (done.float() if done.dtype == torch.bool else done)


def weighted_mean(error: Tensor, weight: Tensor | NDArray[Any] | Sequence[float] | float | None) -> Tensor:
    """Return the mean of error [B, ...] * weight: one weight per sample, [B] or [B, 1], or a single number.

    Raises:
        ValueError: the weight has a different shape.
    """
    if weight is None:
        return error.mean()
    if isinstance(weight, np.ndarray | Sequence):
        weight = torch.as_tensor(weight, dtype=error.dtype, device=error.device)
    if isinstance(weight, Tensor):
        batch = error.shape[0]
        if weight.shape not in ((batch,), (batch, 1)):
            raise ValueError(
                f"weight has shape {tuple(weight.shape)}; it must be (B,) or (B, 1), with B = {batch} samples"
            )
        weight = weight.reshape(batch, *([1] * (error.dim() - 1)))
    return (error * weight).mean()


def value_transform(x: Tensor, eps: float = 1e-2) -> Tensor:
    """Return sign(x)(sqrt(|x| + 1) - 1) + eps x, of "Observe and Look Further" (https://arxiv.org/abs/1805.11593)."""
    return torch.sign(x) * (torch.sqrt(torch.abs(x) + 1) - 1) + eps * x


def value_inv_transform(x: Tensor, eps: float = 1e-2) -> Tensor:
    """Return the inverse of `value_transform` with the same `eps`."""
    root = (torch.sqrt(1 + 4 * eps * (torch.abs(x) + 1 + eps)) - 1) / (2 * eps)
    return torch.sign(x) * (root**2 - 1)


def symlog(x: Tensor) -> Tensor:
    """Return sign(x) log(|x| + 1), of DreamerV3 (https://arxiv.org/abs/2301.04104)."""
    return torch.sign(x) * torch.log1p(torch.abs(x))


def inv_symlog(x: Tensor) -> Tensor:
    """Return the inverse of `symlog`."""
    return torch.sign(x) * torch.expm1(torch.abs(x))


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
        running, following = torch.zeros_like(delta[0]), []
        for step_delta, step_factor in zip(reversed(delta.unbind(0)), reversed(factor.unbind(0)), strict=True):
            running = step_delta + step_factor * running
            following.append(running)
        return torch.stack(following[::-1])
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
        value, reward = torch.tensor(value), torch.tensor(reward)
        last_value = None if last_value is None else torch.tensor(last_value)
        adv = gae_columns(value, reward, gamma, gae_lambda, last_value, done, terminated, truncated, lengths)
        return adv.numpy()
    if last_value is None:
        if done is None or lengths is not None:
            raise ValueError("gae_columns needs last_value, or the flag done of the last row of a single fragment")
        terminated, truncated = (None if flag is None else flag[-1:] for flag in (terminated, truncated))
        if bootstrap_mask(done[-1:], terminated, truncated).item():
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
