"""What methods of `nn.Module` do, in a part of their time, which is a quarter of an update of a small network.

No other place depends on how `nn.Module` stores hooks, parameters and children.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

_CALL, _TRAIN = nn.Module.__call__, nn.Module.train
_linear = F.linear


# What a step of a plan does: `(_LINEAR, weight, bias)`, `(_LINEAR_RELU, weight, bias)` or `(_OTHER, function, is_new)`,
# whether the result of the function is a tensor that nobody else has, not even its backward pass.
_LINEAR, _LINEAR_RELU, _OTHER = range(3)
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


class _Local(threading.local):
    plans: dict[Any, Any] | None = None  # within `fixed_modules`, what was found out about modules


_local = _Local()


@contextmanager
def fixed_modules() -> Iterator[None]:
    """Look at the layers of modules once within the block.

    In the calling thread, nobody may replace layers or parameters there, or register hooks; new numbers in parameters
    take effect at once.
    """
    before = _local.plans
    _local.plans = {}
    try:
        yield
    finally:
        _local.plans = before


def pass_through(x: Any, module: nn.Module, *children: str) -> Any:  # noqa: C901 (a call for each layer takes longer)
    """Pass `x` through a module, or through these of its children one after the other, and return the result.

    `nn.Module.__call__` is left out where it would only call `forward`. Linear layers, ReLU and sequences are computed
    here, except their subclasses. A ReLU overwrites the output of the linear layer or convolution before it, which
    nobody else has seen. A child that is None is skipped. Outside of `fixed_modules`, nothing is kept from one call to
    the next: a hook, a new weight or another module takes effect at once.

    A class whose `forward` does nothing but to pass numbers in floating point through some of its children may name
    these in `passes`, and in `output` the key under which it returns the result; then it is not called, either.

    Example:
        >>> net, x = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)), torch.rand(4, 2)
        >>> torch.equal(pass_through(x, net, "0", "1"), net[1](net[0](x)))
        True
    """
    calls_all: Any = torch.compiler.is_compiling()
    is_float = isinstance(x, Tensor) and x.is_floating_point()
    plans, key = None if calls_all else _local.plans, (module, is_float, children)
    plan = None if plans is None else plans.get(key)
    if plan is None:
        layers: list[Any] = []
        output: str | None = None
        calls_all = calls_all or _has_any_global_hook() or torch._C._get_tracing_state()  # type: ignore[no-untyped-call]
        waiting: list[nn.Module | None] = [module]
        if children:
            waiting = [*map(module._modules.__getitem__, reversed(children))]
        while waiting:
            part = waiting.pop()
            if part is None:
                continue
            kind, state = type(part), part.__dict__
            if (
                calls_all
                or kind.__call__ is not _CALL
                or state["_forward_pre_hooks"]
                or state["_forward_hooks"]
                or state["_backward_pre_hooks"]
                or state["_backward_hooks"]
                or "forward" in state
                or "_compiled_call_impl" in state
            ):
                layers.append((_OTHER, part, False))
            elif kind is nn.Linear:
                parameters = state["_parameters"]
                if "weight" not in parameters or "bias" not in parameters:
                    # Tensors take their place, as in a replica of `nn.DataParallel`.
                    parameters = {"weight": part.weight, "bias": part.bias}
                layers.append((_LINEAR, parameters["weight"], parameters["bias"]))
            elif kind is nn.ReLU:
                if layers and layers[-1][0] == _LINEAR:
                    # The backward pass needs the output, so another ReLU may not overwrite it.
                    layers[-1] = (_LINEAR_RELU, *layers[-1][1:])
                else:
                    overwrites = state["inplace"] or (layers and layers[-1][0] == _OTHER and layers[-1][2])
                    layers.append((_OTHER, torch.relu_ if overwrites else torch.relu, False))
            elif kind is nn.Sequential:
                waiting.extend(reversed(state["_modules"].values()))
            else:
                names: Any = kind.__dict__.get("passes", ())
                name = kind.__dict__.get("output")
                takes_float = is_float if not layers else layers[-1][0] != _OTHER
                is_open = names and takes_float and (name is None or not waiting)
                if is_open and all(map(state["_modules"].__contains__, names)):
                    waiting.extend(map(state["_modules"].__getitem__, reversed(names)))
                    output = name or output
                else:
                    layers.append((_OTHER, part.forward, kind in _CONVOLUTIONS))
        plan = layers, output
        if plans is not None:
            plans[key] = plan
    layers, output = plan
    for step, part, bias in layers:
        if step == _OTHER:
            x = part(x)
        else:
            x = _linear(x, part, bias)
            if step == _LINEAR_RELU:
                x = torch.relu_(x)
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
    plans = _local.plans
    if plans is not None and module in plans:
        return plans[module]  # type: ignore[no-any-return]
    waiting: list[nn.Module | None] = [module]
    while waiting:
        part = waiting.pop()
        if part is None:
            continue
        for parameter in part._parameters.values():
            if parameter is not None and parameter.is_floating_point():
                if plans is not None:
                    plans[module] = parameter.dtype
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
