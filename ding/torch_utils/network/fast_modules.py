"""What methods of `nn.Module` do, in a part of their time, which is a quarter of an update of a small network.

No other place depends on how `nn.Module` stores hooks, parameters and children. Nothing is kept from one call to the
next: a hook, a new weight or another module takes effect at once.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

_CALL, _TRAIN = nn.Module.__call__, nn.Module.train


def pass_through(x: Any, module: nn.Module, *children: str) -> Any:  # noqa: C901 (a call for each layer takes longer)
    """Pass `x` through a module, or through these of its children one after the other, and return the result.

    `nn.Module.__call__` is left out where it would only call `forward`. Linear layers, ReLU and sequences are computed
    here, except their subclasses. A ReLU overwrites the output of the linear layer before it, which nobody else has
    seen. A child that is None is skipped.

    A class whose `forward` does nothing but to pass numbers in floating point through some of its children may name
    these in `passes`, and in `output` the key under which it returns the result; then it is not called, either.

    Example:
        >>> net, x = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)), torch.rand(4, 2)
        >>> torch.equal(pass_through(x, net, "0", "1"), net[1](net[0](x)))
        True
    """
    waiting: list[nn.Module | None] = [module]
    if children:
        waiting = [*map(module._modules.__getitem__, reversed(children))]
    has_global_hook = _has_any_global_hook()  # type: ignore[no-untyped-call]
    calls_all = has_global_hook or torch.compiler.is_compiling() or torch._C._get_tracing_state()
    is_new = False  # whether `x` is the output of a linear layer
    output: str | None = None
    while waiting:
        part = waiting.pop()
        if part is None:
            continue
        kind = type(part)
        if calls_all or kind.__call__ is not _CALL:
            x, is_new = part(x), False
            continue
        state = part.__dict__
        if (
            state["_forward_pre_hooks"]
            or state["_forward_hooks"]
            or state["_backward_pre_hooks"]
            or state["_backward_hooks"]
            or "forward" in state
            or "_compiled_call_impl" in state
        ):
            x, is_new = part(x), False
        elif kind is nn.Linear:
            parameters = state["_parameters"]
            if "weight" not in parameters or "bias" not in parameters:
                # Tensors take their place, as in a replica of `nn.DataParallel`.
                parameters = {"weight": part.weight, "bias": part.bias}
            x, is_new = F.linear(x, parameters["weight"], parameters["bias"]), True
        elif kind is nn.ReLU:
            # The backward pass needs the output, so another ReLU may not overwrite it.
            x, is_new = torch.relu_(x) if is_new or state["inplace"] else torch.relu(x), False
        elif kind is nn.Sequential:
            waiting.extend(reversed(state["_modules"].values()))
        else:
            names: Any = kind.__dict__.get("passes", ())
            key = kind.__dict__.get("output")
            is_open = names and isinstance(x, Tensor) and x.is_floating_point() and (key is None or not waiting)
            if is_open and all(map(state["_modules"].__contains__, names)):
                waiting.extend(map(state["_modules"].__getitem__, reversed(names)))
                output = key or output
            else:
                x, is_new = part.forward(x), False
    return x if output is None else {output: x}


def set_training(module: nn.Module, training: bool) -> None:
    """Do what `module.train(training)` does, in a tenth of its time."""
    waiting: list[nn.Module | None] = [module]
    while waiting:
        part = waiting.pop()
        if part is None:
            continue
        state = part.__dict__
        if type(part).train is not _TRAIN or "train" in state or "training" not in state:
            part.train(training)
        else:
            state["training"] = training
            waiting.extend(state["_modules"].values())


def dtype_of(module: nn.Module) -> torch.dtype:
    """Return the dtype of the first floating-point parameter, float32 if there is none."""
    waiting: list[nn.Module | None] = [module]
    while waiting:
        part = waiting.pop()
        if part is None:
            continue
        for parameter in part._parameters.values():
            if parameter is not None and parameter.is_floating_point():
                return parameter.dtype
        waiting.extend(reversed(part._modules.values()))
    return torch.float32


def weights_of(module: nn.Module) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the parameters and the buffers by name, also under further names of the same tensor."""
    parameters: dict[str, Tensor] = {}
    buffers: dict[str, Tensor] = {}
    waiting: list[tuple[str, nn.Module | None]] = [("", module)]
    while waiting:
        prefix, part = waiting.pop()
        if part is None:
            continue
        for name, parameter in part._parameters.items():
            if parameter is not None:
                parameters[prefix + name] = parameter
        for name, buffer in part._buffers.items():
            if buffer is not None:
                buffers[prefix + name] = buffer
        for name, child in reversed(part._modules.items()):
            waiting.append((f"{prefix}{name}.", child))
    return parameters, buffers
