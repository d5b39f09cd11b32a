"""Plain linear layers and activations run as function calls, without the cost of entering each of their modules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

# A linear layer: its own dict of parameters, and the activation that follows it.
Layer = tuple[dict[str, Any], "Callable[[Tensor], Tensor] | None"]

# Activations without parameters or buffers, whose result depends on the input alone.
_ACTIVATIONS = (nn.ReLU, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.Softplus, nn.Identity)


class PlainNet:
    """Knows whether the functions that stand for the modules of `model` may be called in their place.

    It holds the parameter dicts of the layers, not the parameters, so a parameter that is assigned anew counts. `fits`
    finds out whether the model still is what was seen; where it does not fit, the modules must be called.

    Args:
        first: the first layer.
    """

    def __init__(self, model: nn.Module, first: Layer) -> None:
        self._root = model._modules
        parts = list(model.modules())
        self._structure = [(part._modules, tuple(part._modules.values())) for part in parts if part._modules]
        # Hooks may change what a module computes; those of the backward pass act where gradients are recorded.
        self._hooks = [hooks for part in parts[1:] for hooks in (part._forward_hooks, part._forward_pre_hooks)]
        self._grad_hooks = [hooks for part in parts[1:] for hooks in (part._backward_hooks, part._backward_pre_hooks)]
        self._first = first[0]

    def fits(self, model: nn.Module) -> bool:
        """Whether `model` has the structure seen; a copy or replica of the model does not."""
        if model._modules is not self._root:
            return False
        for children, expected in self._structure:  # noqa: SIM110 (a generator doubles the time)
            if tuple(children.values()) != expected:
                return False
        return True

    def may_run(self, x: Tensor) -> bool:
        """Whether `x` [*, obs_shape] can be fed in, and no hook or compiler wants to see the modules called."""
        weight = self._first.get("weight")
        return (
            weight is not None
            and x.dim() > 0
            and x.size(-1) == weight.size(1)
            and x.dtype is weight.dtype
            and not any(self._hooks)
            and not (any(self._grad_hooks) and torch.is_grad_enabled())
            and not torch.compiler.is_compiling()
            and not _has_any_global_hook()  # type: ignore[no-untyped-call]
        )


class PlainModel(nn.Module):
    """A model that has a plain form; `_build_plain` makes it."""

    # Not in __getstate__: made again at the first forward pass of a copy.
    _plain: Any = None
    _may_be_plain = True

    def _build_plain(self) -> Any:
        """The plain form of the modules there are now, or None where some of them are not plain."""
        raise NotImplementedError

    def _plain_forward(self) -> Any:
        """The plain form of the modules there are now, which have not been looked at or have been replaced."""
        if self._plain is not None or self._may_be_plain:
            self._plain = self._build_plain()
            self._may_be_plain = self._plain is not None
        return self._plain

    def _plain_for(self, x: Tensor) -> Any:
        """The plain form, or None where the modules have to be called with `x`."""
        plain = self._plain
        if plain is None or not plain.fits(self):
            plain = self._plain_forward()
        return plain if plain is not None and plain.may_run(x) else None

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key not in ("_plain", "_may_be_plain")}


def has_own_forward(model: nn.Module) -> bool:
    """Whether a part of `model` was given another `forward` than that of its class."""
    return any("forward" in part.__dict__ for part in model.modules())


def run_layers(layers: list[Layer], x: Tensor) -> Tensor:
    """The output of `layers` for [*, width]."""
    for parameters, activation in layers:
        x = F.linear(x, parameters["weight"], parameters["bias"])
        if activation is not None:
            x = activation(x)
    return x


def layers_of(modules: list[nn.Module]) -> list[Layer] | None:
    """The linear layers in `modules`, each with the activation behind it; None where anything else is found."""
    layers: list[Layer] = []
    for leaf in _leaves(modules):
        if type(leaf) is nn.Linear:
            layers.append((leaf._parameters, None))
        elif type(leaf) not in _ACTIVATIONS:
            return None
        elif type(leaf) is not nn.Identity:
            if not layers or layers[-1][1] is not None:
                return None
            # In place: nobody else has the output of a linear layer, and its gradient does not need it.
            layers[-1] = (layers[-1][0], torch.relu_ if type(leaf) is nn.ReLU else leaf.forward)
    return layers


def _leaves(modules: list[nn.Module]) -> Iterator[nn.Module]:
    for module in modules:
        if type(module) is nn.Sequential:
            yield from _leaves(list(module))
        else:
            yield module
