"""Invertible squashings of values and rewards."""

from __future__ import annotations

import torch
from torch import Tensor


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
