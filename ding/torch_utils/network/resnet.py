"""Residual blocks, and residual networks that classify images (https://arxiv.org/abs/1512.03385)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import nn

from ding.torch_utils.network.nn_module import Activation, Dropout, as_activation, conv2d_block, fc_block


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
        block = partial(conv2d_block, norm_type=norm_type, bias=bias)
        if res_type == "bottleneck":
            self.conv1 = block(in_channels, width, 1, 1, 0, activation=self.act)
            self.conv2 = block(width, width, 3, 1, 1, activation=self.act)
            self.conv3 = block(width, width, 1, 1, 0, activation=None)
            return
        stride = 2 if res_type == "downsample" else 1
        self.conv1 = block(in_channels, width, 3, stride, 1, activation=self.act)
        self.conv2 = block(width, width, 3, 1, 1, activation=None)
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
        self.dropout = None if dropout is None else Dropout(dropout)
        self.fc1 = fc_block(in_channels, in_channels, activation=self.act, norm_type=norm_type)
        self.fc2 = fc_block(in_channels, in_channels, activation=None, norm_type=norm_type)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.fc2(self.fc1(x)) + x
        if self.act is not None:
            x = self.act(x)
        return x if self.dropout is None else self.dropout(x)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with batch norm, and a shortcut: [B, in_channels, H, W] to [B, channels, H/s, W/s].

    If the resolution or the number of channels changes, the shortcut is a 1x1 convolution with batch norm.
    """

    def __init__(self, in_channels: int, channels: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, channels, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.act = nn.ReLU(inplace=True)
        self.downsample: nn.Module | None = None
        if stride != 1 or in_channels != channels:
            self.downsample = nn.Sequential(
                nn.Conv2d(in_channels, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        x = self.act(self.bn1(self.conv1(x)))
        x = self.bn2(self.conv2(x))
        out: torch.Tensor = self.act(x + shortcut)
        return out


class ResNet(nn.Module):
    """A stem that quarters the resolution, stages of blocks, a mean over pixels, a linear layer.

    The first stage has 64 channels and keeps the resolution, each further one doubles the channels and halves it.
    Convolutions are initialized He-normal by the fan-out, the last norm of each block with zero, so that each block
    starts as its shortcut.

    Args:
        block: the class of the blocks, called with (in_channels, channels, stride); it has a last norm `bn2`.
        layers: the number of blocks in each stage.
        num_classes: the width of the output.
        in_chans: the number of channels of the image.

    Example:
        >>> ResNet(BasicBlock, [1, 1, 1, 1], num_classes=10)(torch.rand(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self, block: type[BasicBlock], layers: Sequence[int], num_classes: int = 1000, in_chans: int = 3
    ) -> None:
        super().__init__()
        self.num_classes = num_classes
        width = 64
        self.conv1 = nn.Conv2d(in_chans, width, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.act1 = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        for stage, depth in enumerate(layers):
            channels, stride = 64 * 2**stage, 1 if stage == 0 else 2
            blocks = [block(width, channels, stride), *(block(channels, channels) for _ in range(depth - 1))]
            self.add_module(f"layer{stage + 1}", nn.Sequential(*blocks))
            width = channels
        self._stages = [f"layer{stage + 1}" for stage in range(len(layers))]
        self.fc = nn.Linear(width, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, BasicBlock):
                nn.init.zeros_(module.bn2.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logits [B, num_classes] of images [B, in_chans, H, W]."""
        x = self.maxpool(self.act1(self.bn1(self.conv1(x))))
        for stage in self._stages:
            x = getattr(self, stage)(x)
        logits: torch.Tensor = self.fc(x.mean((2, 3)))
        return logits


def resnet18() -> ResNet:
    """Return the ResNet-18 for ImageNet: RGB images, 1000 classes, 11 689 512 parameters."""
    return ResNet(BasicBlock, [2, 2, 2, 2])
