"""The forward pass of plain fully connected nets, without the cost of entering each of their modules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from ding.model.common.encoder import FCEncoder
from ding.model.common.head import DiscreteHead, DuelingHead, MultiHead

# A linear layer: its own dict of parameters, and the activation that follows it.
Layer = tuple[dict[str, Any], "Callable[[Tensor], Tensor] | None"]

# Activations without parameters or buffers, whose result depends on the input alone.
_ACTIVATIONS = (nn.ReLU, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.Softplus, nn.Identity)


class PlainForward:
    """Runs the linear layers and activations of `encoder`, `projection` and `head` of a model as function calls.

    It holds the parameter dicts of the layers, not the parameters, so a parameter that is assigned anew counts. `fits`
    finds out whether the model still is what `build` saw; where it does not fit, the modules must be called.

    The values are those of the modules, bit for bit: the same functions run in the same order.
    """

    def __init__(self, model: nn.Module, trunk: list[Layer], heads: list[_Head], is_multi: bool) -> None:
        # Most often the head is a branch like the others; then it is run as part of the trunk.
        is_chain = not is_multi and heads[0].state_branch is None
        self._trunk = [*trunk, *heads[0].branch] if is_chain else trunk
        self._heads = [] if is_chain else heads
        self._is_multi = is_multi
        self._root = model._modules
        parts = list(model.modules())
        self._structure = [(part._modules, tuple(part._modules.values())) for part in parts if part._modules]
        # Hooks may change what a module computes; those of the backward pass act where gradients are recorded.
        self._hooks = [hooks for part in parts[1:] for hooks in (part._forward_hooks, part._forward_pre_hooks)]
        self._grad_hooks = [hooks for part in parts[1:] for hooks in (part._backward_hooks, part._backward_pre_hooks)]
        self._first = trunk[0][0]

    @classmethod
    def build(cls, model: nn.Module) -> PlainForward | None:
        """The plain form of `model`, or None where it has parts that this class does not know."""
        parts = dict(model._modules)
        encoder, projection, head = parts.pop("encoder", None), parts.pop("projection", None), parts.pop("head", None)
        if parts or type(encoder) is not FCEncoder or any("forward" in part.__dict__ for part in model.modules()):
            return None
        members = list(head.pred) if type(head) is MultiHead else [head]
        layers = _layers([encoder.init, encoder.act, encoder.main, *([] if projection is None else [projection])])
        heads = [_Head.build(member) for member in members]
        if layers is None or any(member is None for member in heads):
            return None
        return cls(model, layers, [member for member in heads if member is not None], type(head) is MultiHead)

    def fits(self, model: nn.Module) -> bool:
        """Whether `model` has the structure seen by `build`; a copy or replica of the model does not."""
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
            and not (torch.is_grad_enabled() and any(self._grad_hooks))
            and not torch.compiler.is_compiling()
            and not _has_any_global_hook()  # type: ignore[no-untyped-call]
        )

    def __call__(self, x: Tensor) -> dict[str, Any]:
        """The output of the model's head for the observations `x` [*, obs_shape]."""
        x = _run(self._trunk, x)
        if self._is_multi:
            return {"logit": [head(x) for head in self._heads]}
        return {"logit": self._heads[0](x) if self._heads else x}


class _Head:
    """Values of a discrete head, or of a dueling head where there is a second branch."""

    def __init__(self, branch: list[Layer], state_branch: list[Layer] | None) -> None:
        self.branch = branch
        self.state_branch = state_branch

    @classmethod
    def build(cls, head: nn.Module | None) -> _Head | None:
        if type(head) is DiscreteHead:
            branch = _layers([head.Q])
            return None if branch is None else cls(branch, None)
        if type(head) is DuelingHead:
            branch, state_branch = _layers([head.A]), _layers([head.V])
            return None if branch is None or state_branch is None else cls(branch, state_branch)
        return None

    def __call__(self, x: Tensor) -> Tensor:
        values = _run(self.branch, x)
        if self.state_branch is None:
            return values
        return values - values.mean(-1, keepdim=True) + _run(self.state_branch, x)


def _run(layers: list[Layer], x: Tensor) -> Tensor:
    for parameters, activation in layers:
        x = F.linear(x, parameters["weight"], parameters["bias"])
        if activation is not None:
            x = activation(x)
    return x


def _layers(modules: list[nn.Module]) -> list[Layer] | None:
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
