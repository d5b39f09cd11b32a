"""Activations by name."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

# What layers accept as their `activation`: a module, a module class (instantiated once per network), a name, or None.
Activation = nn.Module | type[nn.Module] | str | None


class Square(nn.Module):
    """Element-wise x * x."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * x


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


def build_activation(activation: str, inplace: bool | None = None) -> nn.Module:
    """A new activation module called `activation`; `inplace` is understood by 'relu' only.

    Raises:
        KeyError: the name is unknown.
        AssertionError: `inplace` is given for another activation than 'relu'.

    Example:
        >>> build_activation("relu", inplace=True)
        ReLU(inplace=True)
    """
    if activation not in _ACTIVATIONS:
        raise KeyError(f"unknown activation {activation!r}; known: {', '.join(_ACTIVATIONS)}")
    if inplace is None:
        return _ACTIVATIONS[activation]()
    if activation != "relu":
        raise AssertionError(f"inplace={inplace} is only understood by 'relu', not by {activation!r}")
    return nn.ReLU(inplace=inplace)


def as_activation(activation: Activation) -> nn.Module | None:
    """The module for `activation`; a module is returned as it is, so one instance may sit in several places."""
    if isinstance(activation, str):
        return build_activation(activation)
    return activation() if isinstance(activation, type) else activation
