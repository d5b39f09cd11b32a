"""The gate that replaces a residual connection in gated transformers."""

from __future__ import annotations

import torch
from torch import nn


class GRUGatingUnit(nn.Module):
    """Lets an update `y` into `x` through the gates of a GRU.

    r = sigmoid(Wr y + Ur x), z = sigmoid(Wz y + Uz x - bg), h = tanh(Wg y + Ug (r x)); the result is (1 - z) x + z h.
    See "Stabilizing Transformers for Reinforcement Learning", https://arxiv.org/abs/1910.06764.

    Args:
        input_dim: width of `x` and `y`, [*shape, input_dim] each.
        bg: initial value of the parameter `bg`; the larger it is, the less of `y` comes in at first.
        bias_init: another name of `bg`.

    Example:
        >>> GRUGatingUnit(4)(torch.zeros(2, 4), torch.zeros(2, 4))
        tensor([[0., 0., 0., 0.],
                [0., 0., 0., 0.]], grad_fn=<AddBackward0>)
    """

    def __init__(self, input_dim: int, bg: float = 2.0, bias_init: float | None = None) -> None:
        super().__init__()
        self.Wr = nn.Linear(input_dim, input_dim, bias=False)
        self.Ur = nn.Linear(input_dim, input_dim, bias=False)
        self.Wz = nn.Linear(input_dim, input_dim, bias=False)
        self.Uz = nn.Linear(input_dim, input_dim, bias=False)
        self.Wg = nn.Linear(input_dim, input_dim, bias=False)
        self.Ug = nn.Linear(input_dim, input_dim, bias=False)
        self.bg = nn.Parameter(torch.full((input_dim,), float(bg if bias_init is None else bias_init)))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """The gated sum; all three are [*shape, input_dim]."""
        r = torch.sigmoid(self.Wr(y) + self.Ur(x))
        z = torch.sigmoid(self.Wz(y) + self.Uz(x) - self.bg)
        h = torch.tanh(self.Wg(y) + self.Ug(r * x))
        return (1 - z) * x + z * h
