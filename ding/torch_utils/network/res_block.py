"""Residual blocks."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ding.torch_utils.network.activation import Activation, as_activation
from ding.torch_utils.network.nn_module import conv2d_block, fc_block


class ResBlock(nn.Module):
    """2-d convolutional residual block; input and output are [B, C, H, W].

    - 'basic': two 3x3 convolutions.
    - 'bottleneck': 1x1, 3x3 and 1x1 convolutions, all `out_channels` wide.
    - 'downsample': 3x3 with stride 2, then 3x3; the shortcut is a bare 3x3 convolution with stride 2.

    The activation follows the inner convolutions and the sum. Only 'downsample' may change the number of channels.

    Raises:
        AssertionError: `res_type` is unknown.

    Example:
        >>> ResBlock(8)(torch.rand(2, 8, 5, 5)).shape
        torch.Size([2, 8, 5, 5])
    """

    def __init__(
        self,
        in_channels: int,
        activation: Activation = nn.ReLU,
        norm_type: str | None = "BN",
        res_type: str = "basic",
        bias: bool = True,
        out_channels: int | None = None,
    ) -> None:
        super().__init__()
        if res_type not in ("basic", "bottleneck", "downsample"):
            raise AssertionError(f"res_type {res_type!r} is unknown; allowed: basic, bottleneck, downsample")
        width = in_channels if out_channels is None else out_channels
        self.res_type = res_type
        self.act = as_activation(activation)
        inner: dict[str, Any] = {"activation": self.act, "norm_type": norm_type, "bias": bias}
        outer: dict[str, Any] = {"activation": None, "norm_type": norm_type, "bias": bias}
        if res_type == "bottleneck":
            self.conv1 = conv2d_block(in_channels, width, 1, 1, 0, **inner)
            self.conv2 = conv2d_block(width, width, 3, 1, 1, **inner)
            self.conv3 = conv2d_block(width, width, 1, 1, 0, **outer)
            return
        stride = 2 if res_type == "downsample" else 1
        self.conv1 = conv2d_block(in_channels, width, 3, stride, 1, **inner)
        self.conv2 = conv2d_block(width, width, 3, 1, 1, **outer)
        if res_type == "downsample":
            self.conv3 = conv2d_block(in_channels, width, 3, 2, 1, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        identity = x
        x = self.conv2(self.conv1(x))
        if self.res_type == "bottleneck":
            x = self.conv3(x)
        elif self.res_type == "downsample":
            identity = self.conv3(identity)
        x = x + identity
        return x if self.act is None else self.act(x)


class ResFCBlock(nn.Module):
    """Residual block of two linear layers; input and output are [B, in_channels].

    Example:
        >>> ResFCBlock(8, norm_type="LN")(torch.rand(2, 8)).shape
        torch.Size([2, 8])
    """

    def __init__(
        self,
        in_channels: int,
        activation: Activation = nn.ReLU,
        norm_type: str | None = "BN",
        dropout: float | None = None,
    ) -> None:
        super().__init__()
        self.act = as_activation(activation)
        self.dropout = None if dropout is None else nn.Dropout(dropout)
        self.fc1 = fc_block(in_channels, in_channels, activation=self.act, norm_type=norm_type)
        self.fc2 = fc_block(in_channels, in_channels, activation=None, norm_type=norm_type)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.fc2(self.fc1(x)) + x
        if self.act is not None:
            x = self.act(x)
        return x if self.dropout is None else self.dropout(x)
