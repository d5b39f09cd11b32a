"""Linear layers with learned, factorised Gaussian noise on their weights."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn


class NoiseLinearLayer(nn.Module):
    """A linear layer whose weights are mu + sigma * eps, with eps factorised Gaussian noise.

    See "Noisy Networks for Exploration", https://arxiv.org/abs/1706.10295. The noise is used only while `enable_noise`
    is true (it is false at first, also in training mode), and stays the same until `reset_noise`.

    Example:
        >>> layer = NoiseLinearLayer(4, 2)
        >>> layer.enable_noise = True
        >>> layer.reset_noise()
        >>> layer(torch.ones(3, 4)).shape
        torch.Size([3, 2])
    """

    weight_eps: torch.Tensor
    bias_eps: torch.Tensor

    def __init__(self, in_channels: int, out_channels: int, sigma0: float = 0.4) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.sigma0 = sigma0
        self.enable_noise = False
        self.weight_mu = nn.Parameter(torch.empty(out_channels, in_channels))
        self.weight_sigma = nn.Parameter(torch.empty(out_channels, in_channels))
        self.bias_mu = nn.Parameter(torch.empty(out_channels))
        self.bias_sigma = nn.Parameter(torch.empty(out_channels))
        self.register_buffer("weight_eps", torch.empty(out_channels, in_channels))
        self.register_buffer("bias_eps", torch.empty(out_channels))
        self.reset_parameters()
        self.reset_noise()

    def reset_parameters(self) -> None:
        """Draw mu uniformly from +-1/sqrt(in); set sigma to sigma0/sqrt(in) (weight) and sigma0/sqrt(out) (bias)."""
        bound = 1 / math.sqrt(self.in_channels)
        nn.init.uniform_(self.weight_mu, -bound, bound)
        nn.init.uniform_(self.bias_mu, -bound, bound)
        nn.init.constant_(self.weight_sigma, self.sigma0 / math.sqrt(self.in_channels))
        nn.init.constant_(self.bias_sigma, self.sigma0 / math.sqrt(self.out_channels))

    def reset_noise(self) -> None:
        """Draw new noise from torch's global generator."""
        noise_in = self._scaled_noise(self.in_channels)
        noise_out = self._scaled_noise(self.out_channels)
        self.weight_eps.copy_(torch.outer(noise_out, noise_in))
        self.bias_eps.copy_(noise_out)

    def _scaled_noise(self, size: int) -> torch.Tensor:
        x = torch.randn(size, device=self.weight_mu.device)
        return x.sign() * x.abs().sqrt()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.enable_noise:
            return F.linear(x, self.weight_mu, self.bias_mu)
        weight = self.weight_mu + self.weight_sigma * self.weight_eps
        bias = self.bias_mu + self.bias_sigma * self.bias_eps
        return F.linear(x, weight, bias)

    def extra_repr(self) -> str:
        return f"in_channels={self.in_channels}, out_channels={self.out_channels}, sigma0={self.sigma0}"
