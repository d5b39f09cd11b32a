"""Activations by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

# What layers accept as their `activation`: a module, a module class (instantiated once per network), a name, or None.
Activation = nn.Module | type[nn.Module] | str | None


class Square(nn.Module):
    """The activation x * x, element-wise."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * x


class GLU(nn.Module):
    """A linear layer gated by a context: layer2(x * sigmoid(layer1(context))).

    See "Language Modeling with Gated Convolutional Networks", https://arxiv.org/abs/1612.08083.

    Args:
        input_dim: the width of `x`, [*, input_dim].
        output_dim: the width of the result.
        context_dim: the width of the context, [*, context_dim].
        input_type: 'fc', or 'conv2d' for images [B, width, H, W] and 1x1 convolutions.

    Raises:
        ValueError: `input_type` is unknown.

    Example:
        >>> GLU(4, 3, context_dim=2)(torch.rand(5, 4), torch.rand(5, 2)).shape
        torch.Size([5, 3])
    """

    def __init__(self, input_dim: int, output_dim: int, context_dim: int, input_type: str = "fc") -> None:
        super().__init__()
        self.layer1: nn.Module
        self.layer2: nn.Module
        if input_type == "fc":
            self.layer1, self.layer2 = nn.Linear(context_dim, input_dim), nn.Linear(input_dim, output_dim)
        elif input_type == "conv2d":
            self.layer1 = nn.Conv2d(context_dim, input_dim, 1)
            self.layer2 = nn.Conv2d(input_dim, output_dim, 1)
        else:
            raise ValueError(f"input_type {input_type!r} is unknown; allowed: 'fc' and 'conv2d'")

    def forward(self, x: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer2(x * torch.sigmoid(self.layer1(context)))
        return out


_ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "leaky_relu": nn.LeakyReLU,
    "prelu": nn.PReLU,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "swish": nn.SiLU,
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "softplus": nn.Softplus,
    "square": Square,
    "identity": nn.Identity,
}


def build_activation(activation: str, inplace: bool | None = None) -> Any:
    """Return a new activation module called `activation`; only 'relu' supports `inplace`.

    For 'glu' the class `GLU` is returned, not a module, since it needs widths.

    Raises:
        KeyError: the name is unknown.
        AssertionError: `inplace` is given for another activation than 'relu'.

    Example:
        >>> build_activation("relu", inplace=True)
        ReLU(inplace=True)
    """
    if activation == "glu" and inplace is None:
        return GLU
    if activation not in _ACTIVATIONS and activation != "glu":
        raise KeyError(f"unknown activation {activation!r}; known: {', '.join(_ACTIVATIONS)}")
    if inplace is None:
        return _ACTIVATIONS[activation]()
    if activation != "relu":
        raise AssertionError(f"inplace={inplace} is only understood by 'relu', not by {activation!r}")
    return nn.ReLU(inplace=inplace)


def as_activation(activation: Activation) -> nn.Module | None:
    """Return the module for `activation`; a module is returned as it is, so one instance may be used in several places.

    Raises:
        KeyError: the name is unknown.
        ValueError: the activation is 'glu', which needs a context that a layer does not have.
    """
    if activation == "glu" or activation is GLU:
        raise ValueError("activation 'glu' needs a context and cannot follow a layer; use build_activation('glu')")
    if isinstance(activation, str):
        module: nn.Module = build_activation(activation)
        return module
    return activation() if isinstance(activation, type) else activation
