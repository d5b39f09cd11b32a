"""n-step returns, squashed values, and what all TD errors share: the weighted mean of errors, flags and axes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor


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
    return view_similar(discounted, next_value) + factor * next_value * view_similar(alive(done), next_value)


def _discounted_sum(reward: Tensor, gamma: float) -> Tensor:
    if reward.shape[0] == 1:
        return reward[0]
    discounts = _discounts(gamma, reward.shape[0], reward.dtype, reward.device)
    return (view_similar(discounts, reward) * reward).sum(0)


@lru_cache(maxsize=64)
def _discounts(gamma: float, nstep: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(False):  # the cached tensor outlives the mode of the call that first needs it
        return torch.tensor([gamma**i for i in range(nstep)], dtype=dtype, device=device)


def alive(done: Tensor) -> Tensor:
    """1 - done, also of boolean flags."""
    return 1 - (done.float() if done.dtype == torch.bool else done)


def weighted_mean(error: Tensor, weight: Tensor | float | None) -> Tensor:
    """The mean of error [B, ...] * weight: one weight for each sample, [B] or [B, 1], or a number for all.

    Raises:
        ValueError: the weight has another shape.
    """
    if weight is None:
        return error.mean()
    if isinstance(weight, Tensor):
        batch = error.shape[0]
        if weight.shape not in ((batch,), (batch, 1)):
            raise ValueError(
                f"weight has shape {tuple(weight.shape)}; it must be (B,) or (B, 1), with B = {batch} samples"
            )
        weight = weight.reshape(batch, *([1] * (error.dim() - 1)))
    return (error * weight).mean()


def value_transform(x: Tensor, eps: float = 1e-2) -> Tensor:
    """h(x) = sign(x)(sqrt(|x| + 1) - 1) + eps x, of "Observe and Look Further" (https://arxiv.org/abs/1805.11593)."""
    return torch.sign(x) * (torch.sqrt(torch.abs(x) + 1) - 1) + eps * x


def value_inv_transform(x: Tensor, eps: float = 1e-2) -> Tensor:
    """The inverse of `value_transform` with the same `eps`."""
    root = (torch.sqrt(1 + 4 * eps * (torch.abs(x) + 1 + eps)) - 1) / (2 * eps)
    return torch.sign(x) * (root**2 - 1)


def symlog(x: Tensor) -> Tensor:
    """sign(x) log(|x| + 1), of DreamerV3 (https://arxiv.org/abs/2301.04104)."""
    return torch.sign(x) * torch.log1p(torch.abs(x))


def inv_symlog(x: Tensor) -> Tensor:
    """The inverse of `symlog`."""
    return torch.sign(x) * torch.expm1(torch.abs(x))
