"""States of modules and optimizers, which are loaded if they fit."""

from __future__ import annotations

import copy
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor, nn

# Entries of optimizers that have the shape of their parameter.
_SHAPED = frozenset(
    ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "exp_inf", "square_avg", "grad_avg", "momentum_buffer", "acc_delta")
) | {"sum", "prev"}
# Options that choose the implementation of a step. They depend on the machine, and are not part of a state.
_IMPLEMENTATION = ("fused", "foreach", "capturable", "differentiable")

Names = Mapping[int, str]


def parameter_names(module: nn.Module) -> dict[int, str]:
    """Return the names of the parameters of `module` by their ids."""
    return {id(parameter): name for name, parameter in module.named_parameters()}


def parts_state(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state of each part, for `load_parts`."""
    return {
        key: part.detach().clone() if isinstance(part, Tensor) else part.state_dict() for key, part in parts.items()
    }


def with_target(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return `state`, with the weights of `model` as `target_model` if it has none."""
    return {**({"target_model": state["model"]} if "model" in state else {}), **state}


def load_parts(
    parts: Mapping[str, Any], state: Mapping[str, Any], optional: Collection[str] = (), names: Names | None = None
) -> None:
    """Load `state[key]` into each part, after a check of the keys, the optimizers and the tensors.

    Args:
        parts: modules, optimizers, tensors, and other objects with `state_dict` and `load_state_dict`.
        optional: keys that `state` may lack; such a part stays unchanged.
        names: the names of the optimizers' parameters by their ids, for errors.

    Raises:
        ValueError: a key is missing, or the state of an optimizer or a tensor does not fit.
        RuntimeError: the state of a module does not fit.

    Example:
        >>> net = nn.Linear(2, 1)
        >>> parts = {"model": net, "optimizer": torch.optim.Adam(net.parameters())}
        >>> load_parts(parts, parts_state(parts))
    """
    check_keys(parts, state, optional)
    saved_parts = {key: part for key, part in parts.items() if key in state}
    fitted: dict[str, Any] = {}
    for key, part in saved_parts.items():
        if isinstance(part, torch.optim.Optimizer):
            fitted[key] = fit_optimizer_state(part, state[key], names, key)
        elif isinstance(part, Tensor) and not _is_like(state[key], part):
            raise ValueError(
                f"{key} does not fit: it is {_describe(state[key])}, and must be a tensor {_describe(part)}"
            )
    for key, part in saved_parts.items():
        if isinstance(part, Tensor):
            part.detach().copy_(state[key])
        else:
            part.load_state_dict(fitted.get(key, state[key]))


def check_keys(keys: Iterable[str], state: Any, optional: Collection[str] = ()) -> None:
    """Raise ValueError if `state` is not a dict, or lacks one of `keys` that is not optional."""
    if not isinstance(state, Mapping):
        raise ValueError(f"the state is {_describe(state)}; it must be a dict with {', '.join(keys)}")
    missing = [key for key in keys if key not in state and key not in optional]
    if missing:
        found = textwrap.shorten(", ".join(map(str, state)) or "nothing", 200)
        raise ValueError(
            f"the state lacks {', '.join(missing)}; it has {found}. It was not saved by such a policy, "
            "or with other settings; the weights of a module are its model"
        )


def load_model(model: Any, state: Any) -> None:
    """Load `state["model"]` into `model`.

    Raises:
        ValueError: `state` is not a dict with the dict `model`.
        RuntimeError: the weights do not fit.
    """
    check_keys(["model"], state)
    if not isinstance(state["model"], Mapping):
        raise ValueError(f"model is {_describe(state['model'])}; it must be a dict of weights by name")
    model.load_state_dict(state["model"], strict=True)


def fit_optimizer_state(
    optimizer: torch.optim.Optimizer, state: Any, names: Names | None = None, key: str = "optimizer"
) -> dict[str, Any]:
    """Return `state` for `optimizer.load_state_dict`, after a check against the shapes of the parameters.

    torch checks only the number of parameters; with a state of other parameters, fused steps write beyond their memory.
    Options that choose the implementation, such as `fused`, and missing options become those of `optimizer`. A state
    with the parameters in an order that the optimizer accepts (`accept_order`) is brought into its own order.

    Args:
        names: the names of the parameters by their ids, for errors.
        key: the name of the state in errors.

    Raises:
        ValueError: the state does not fit. The message names a parameter and its shape.
    """
    groups, entries = _parse(optimizer, state, key)
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    own_order: Sequence[int] = range(len(parameters))
    problems = []
    for order in (own_order, *getattr(optimizer, "accepted_orders", ())):
        sorted_entries = [entry for _, entry in sorted(zip(order, entries, strict=True), key=itemgetter(0))]
        problem = _mismatch(optimizer, parameters, sorted_entries, names)
        if problem is None:
            pairs = enumerate(zip(parameters, sorted_entries, strict=True))
            kept = {position: _copy_entry(parameter, entry) for position, (parameter, entry) in pairs if entry}
            return {"state": kept, "param_groups": groups}
        problems.append(problem)
    raise ValueError(
        f"the state of {key} does not fit the parameters of {type(optimizer).__name__}: {problems[0]}. Load a state of "
        "the same config, or only the weights of the model"
    )


def _copy_entry(parameter: Tensor, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Copy what is saved for a parameter, since torch keeps the tensors, and several optimizers may load one state.

    Tensors of the parameter's shape also get its strides: fused steps walk through both in the order of memory, and
    would write beyond the memory of an expanded tensor.
    """
    return {
        name: torch.empty_like(parameter, dtype=value.dtype, device=value.device, requires_grad=False).copy_(value)
        if isinstance(value, Tensor) and value.shape == parameter.shape and name in _SHAPED
        else copy.deepcopy(value)
        for name, value in entry.items()
    }


def _parse(
    optimizer: torch.optim.Optimizer, state: Any, key: str
) -> tuple[list[dict[str, Any]], list[Mapping[str, Any]]]:
    """Return the groups, with renumbered parameters, and the entries of each parameter."""
    if not isinstance(state, Mapping) or not {"state", "param_groups"} <= state.keys():
        raise ValueError(f"{key} is {_describe(state)}; the state of an optimizer has state and param_groups")
    current, saved = optimizer.param_groups, state["param_groups"]
    sizes, own_sizes = [len(group["params"]) for group in saved], [len(group["params"]) for group in current]
    if sizes != own_sizes:
        raise ValueError(
            f"the state of {key} has groups of {sizes} parameters, but {type(optimizer).__name__} has {own_sizes}: it "
            "was saved with another model or config"
        )
    groups, first = [], 0
    for own_group, group in zip(current, saved, strict=True):
        fixed = {name: own_group[name] for name in _IMPLEMENTATION if name in own_group}
        numbers = list(range(first, first + len(group["params"])))
        groups.append({**own_group, **group, **fixed, "params": numbers})
        first += len(numbers)
    return groups, [state["state"].get(number) or {} for group in saved for number in group["params"]]


def _mismatch(
    optimizer: torch.optim.Optimizer,
    parameters: Sequence[Tensor],
    entries: Sequence[Mapping[str, Any]],
    names: Names | None,
) -> str | None:
    """Return a text about the first entry that does not fit its parameter, or None if all do."""
    bases = (cls for cls in type(optimizer).__mro__ if issubclass(cls, torch.optim.Optimizer))
    if not any(cls.__module__.startswith("torch.optim.") and cls is not torch.optim.Optimizer for cls in bases):
        return None  # others may use the same names for, say, moments of lower rank
    for position, (parameter, entry) in enumerate(zip(parameters, entries, strict=True)):
        for name, value in entry.items():
            if name in _SHAPED and value is not None and not _is_like(value, parameter):
                own = (names or {}).get(id(parameter), f"parameter {position}")
                return f"{own} {list(parameter.shape)}: {name} is {_describe(value)}"
    return None


def _is_like(value: Any, parameter: Tensor) -> bool:
    """Return whether a value can be copied into `parameter` without losing anything but precision."""
    return (
        isinstance(value, Tensor)
        and value.shape == parameter.shape
        and value.is_floating_point() == parameter.is_floating_point()
        and value.is_complex() == parameter.is_complex()
    )


def _describe(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{list(value.shape)}{'' if value.is_floating_point() else f' of {value.dtype}'}"
    return f"a {type(value).__name__}"
