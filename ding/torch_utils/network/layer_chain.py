"""Children of a module called one after the other, without the calls that only hand tensors on.

This is the one place that looks at private attributes of `nn.Module`: its hooks, children and parameters.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Identity, Linear, Module, ReLU, Sequential
from torch.nn.modules.module import _has_any_global_hook

_INLINED = (Linear, ReLU, Identity, Sequential)


def _methods() -> tuple[Any, ...]:
    """What runs when one of the inlined modules is called."""
    return (
        Linear.forward, ReLU.forward, Identity.forward, Sequential.forward,
        Linear.__call__, ReLU.__call__, Identity.__call__, Sequential.__call__,
    )  # fmt: skip


_METHODS = _methods()


class LayerChain:
    """The children `names` of a module, one after the other, as their calls would compute it.

    A call of a module costs 2 us before it does anything: an MLP of four layers, batch 8, takes 48 us in nested
    sequentials and 33 us here. Linear, ReLU and identity layers and the sequentials around them are computed without a
    call, as long as none of them has hooks, a `forward` of its own or another class; this is checked at each call. All
    others are called.

    A copy and an unpickled one look at the module anew.

    Example:
        >>> class Net(torch.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.body = Sequential(Linear(2, 4), ReLU())
        ...         self.last = Linear(4, 1)
        ...         self._chain = LayerChain("body", "last")
        ...
        ...     def forward(self, x):
        ...         return self._chain(self, x)
        >>> net, x = Net(), torch.rand(3, 2)
        >>> torch.equal(net(x), net.last(net.body(x)))
        True
    """

    def __init__(self, *names: str) -> None:
        self._names = names
        self._owner: Any = None  # the children of the module that was looked at

    def __reduce__(self) -> tuple[Any, ...]:
        return LayerChain, self._names

    def __call__(self, owner: Module, x: Tensor) -> Any:
        """Compute the chain of `owner`'s children."""
        if torch.compiler.is_compiling() or self._must_call_all(owner):
            for name in self._names:
                x = getattr(owner, name)(x)
            return x
        for module, state in self._steps:
            if state is None:
                x = module(x)
            elif type(module) is ReLU:
                x = torch.relu_(x) if state["inplace"] else torch.relu(x)
            elif "weight" in state and "bias" in state:
                x = F.linear(x, state["weight"], state["bias"])
            else:  # a weight is computed from other parameters
                x = module(x)
        return x

    def _must_call_all(self, owner: Module) -> bool:
        """Whether something is to happen in a call of an inlined module besides its computation."""
        if owner._modules is not self._owner or self._children != self._expected or self._types != self._own_types():
            self._look_at(owner)
        if any(self._hooks) or _has_any_global_hook() or _methods() != _METHODS:  # type: ignore[no-untyped-call]
            return True
        return bool([own for own in self._dicts if "forward" in own or "_compiled_call_impl" in own])

    def _own_types(self) -> list[type]:
        return list(map(type, self._inlined))

    def _look_at(self, owner: Module) -> None:
        """List the steps, and what they depend on."""
        self._owner = owner._modules
        self._inlined: list[Module] = []
        self._steps: list[tuple[Module, dict[str, Any] | None]] = []
        for name in self._names:
            self._add(owner._modules[name])
        self._types = self._own_types()
        self._children = [self._owner, *(part._modules for part in self._inlined)]
        self._expected = [dict(children) for children in self._children]
        self._dicts = [part.__dict__ for part in self._inlined]
        self._hooks = [
            hooks
            for part in self._inlined
            for hooks in (
                part._forward_hooks, part._forward_pre_hooks, part._backward_hooks, part._backward_pre_hooks,
            )
        ]  # fmt: skip

    def _add(self, module: Any) -> None:
        kind = type(module)
        if kind not in _INLINED:
            self._steps.append((module, None))
            return
        self._inlined.append(module)
        if kind is Sequential:
            for layer in module._modules.values():
                self._add(layer)
        elif kind is not Identity:
            self._steps.append((module, module._parameters if kind is Linear else module.__dict__))
