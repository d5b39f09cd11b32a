"""States of modules and optimizers: loaded only as a whole, and only if they fit."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor, nn

# Entries of optimizers that have the shape of their parameter, and those without which a step is not possible.
_SHAPED = frozenset(
    ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "exp_inf", "square_avg", "grad_avg", "momentum_buffer", "acc_delta")
) | {"sum", "prev"}
_REQUIRED: dict[type[torch.optim.Optimizer], tuple[str, ...]] = {
    torch.optim.Adam: ("step", "exp_avg", "exp_avg_sq"),
    torch.optim.AdamW: ("step", "exp_avg", "exp_avg_sq"),
    torch.optim.RMSprop: ("step", "square_avg"),
}
# Options of a group with which a step is not possible without a further entry.
_REQUIRED_BY_OPTION = {"amsgrad": "max_exp_avg_sq", "centered": "grad_avg", "momentum": "momentum_buffer"}
# Options that choose the implementation of a step. They depend on the machine, and are not part of a state.
_IMPLEMENTATION = ("fused", "foreach", "capturable", "differentiable")
# Parameters that an error lists at most.
_LISTED = 8

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
    """Load `state[key]` into each part; on an error all parts stay unchanged.

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
    given = {key: part for key, part in parts.items() if key in state}
    fitted: dict[str, Any] = {}
    for key, part in given.items():
        if isinstance(part, torch.optim.Optimizer):
            fitted[key] = fit_optimizer_state(part, state[key], names, key)
        elif isinstance(part, Tensor) and not _is_like(state[key], part):
            raise ValueError(
                f"{key} does not fit: it is {_describe(state[key])}, and must be a tensor {_describe(part)}"
            )
    _load_all_or_none([(part, fitted.get(key, state[key])) for key, part in given.items()])


def check_keys(keys: Iterable[str], state: Any, optional: Collection[str] = ()) -> None:
    """Raise ValueError if `state` is not a dict, or lacks one of `keys` that is not optional."""
    if not isinstance(state, Mapping):
        raise ValueError(f"the state is {_describe(state)}; it must be a dict with {', '.join(keys)}")
    missing = [key for key in keys if key not in state and key not in optional]
    if missing:
        present = [*map(str, state)]
        more = f" and {len(present) - _LISTED} more" if len(present) > _LISTED else ""
        raise ValueError(
            f"the state lacks {', '.join(missing)}; it has {', '.join(present[:_LISTED]) or 'nothing'}{more}. It was "
            "not saved by such a policy, or with other settings; the weights of a module are its model"
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


def _load_all_or_none(loads: Sequence[tuple[Any, Any]]) -> None:
    """Load the state of each part, or restore all if one refuses it, since a module has then loaded what fits."""
    undo: list[Callable[[], Any]] = []
    try:
        for part, state in loads:
            undo.append(_undo_of(part))
            if isinstance(part, Tensor):
                part.detach().copy_(state)
            else:
                part.load_state_dict(state)
    except Exception:  # it is raised again
        for restore in undo:
            restore()
        raise


def _undo_of(part: Any) -> Callable[[], Any]:
    """Return a function that restores the current state of `part`."""
    if isinstance(part, torch.optim.Optimizer):  # whose state is replaced, not written to
        return partial(vars(part).update, {"state": part.state, "param_groups": part.param_groups})
    if isinstance(part, Tensor):
        return partial(part.detach().copy_, part.detach().clone())
    return partial(part.load_state_dict, copy.deepcopy(part.state_dict()))


def load_optimizer_state(optimizer: torch.optim.Optimizer, state: Any, names: Names | None = None) -> None:
    """Load `state` if it fits, see `fit_optimizer_state`."""
    optimizer.load_state_dict(fit_optimizer_state(optimizer, state, names))


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
        ValueError: the state does not fit. The message names the parameters and shapes.
    """
    groups, entries = _parse(optimizer, state, key)
    orders: Sequence[Sequence[int]] = getattr(optimizer, "accepted_orders", ())
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    own_order = range(len(parameters))
    for order in (own_order, *orders):
        sorted_entries = [entry for _, entry in sorted(zip(order, entries, strict=True), key=itemgetter(0))]
        if not _mismatches(optimizer, parameters, groups, sorted_entries, names):
            pairs = enumerate(zip(parameters, sorted_entries, strict=True))
            kept = {position: _copy_entry(parameter, entry) for position, (parameter, entry) in pairs if entry}
            return {"state": kept, "param_groups": groups}
    problems = _mismatches(optimizer, parameters, groups, entries, names)
    more = f"; and {len(problems) - _LISTED} more" if len(problems) > _LISTED else ""
    raise ValueError(
        f"the state of {key} does not fit the parameters of {type(optimizer).__name__}: "
        f"{'; '.join(problems[:_LISTED])}{more}. Load a state of the same config, or only the weights of the model"
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
    own, saved = optimizer.param_groups, state["param_groups"]
    has_groups = isinstance(saved, Sequence) and all(
        isinstance(group, Mapping) and isinstance(group.get("params"), Sequence) for group in saved
    )
    has_entries = isinstance(state["state"], Mapping) and all(
        entry is None or isinstance(entry, Mapping) for entry in state["state"].values()
    )
    if not has_groups or not has_entries:
        raise ValueError(
            f"the state of {key} is damaged: state must be a dict of dicts, "
            "and param_groups a list of dicts with params"
        )
    sizes, own_sizes = [len(group["params"]) for group in saved], [len(group["params"]) for group in own]
    if sizes != own_sizes:
        raise ValueError(
            f"the state of {key} has groups of {sizes} parameters, but {type(optimizer).__name__} has {own_sizes}: it "
            "was saved with another model or config"
        )
    ids = [number for group in saved for number in group["params"]]
    unknown = [number for number in state["state"] if number not in ids]
    if unknown or len(set(ids)) < len(ids):
        raise ValueError(f"the state of {key} is damaged: its groups have the parameters {ids}, not {unknown}")
    groups, first = [], 0
    for own_group, group in zip(own, saved, strict=True):
        fixed = {name: own_group[name] for name in _IMPLEMENTATION if name in own_group}
        numbers = list(range(first, first + len(group["params"])))
        groups.append({**own_group, **group, **fixed, "params": numbers})
        first += len(numbers)
    return groups, [state["state"].get(number) or {} for number in ids]


def _mismatches(
    optimizer: torch.optim.Optimizer,
    parameters: Sequence[Tensor],
    groups: Sequence[Mapping[str, Any]],
    entries: Sequence[Mapping[str, Any]],
    names: Names | None,
) -> list[str]:
    """Return a line for each parameter that says what does not fit."""
    if not _is_of_torch(optimizer):
        return []
    required = next((names for kind, names in _REQUIRED.items() if isinstance(optimizer, kind)), ())
    options = [group for group in groups for _ in group["params"]]
    problems = []
    for position, (parameter, group, entry) in enumerate(zip(parameters, options, entries, strict=True)):
        needed = [*required, *(name for option, name in _REQUIRED_BY_OPTION.items() if required and group.get(option))]
        problem = _mismatch(parameter, entry, needed) if entry else None
        if problem is not None:
            name = (names or {}).get(id(parameter), f"parameter {position}")
            problems.append(f"{name} {list(parameter.shape)}: {problem}")
    return problems


def _is_of_torch(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether the optimizer is one of torch; others may use the same names for, say, moments of lower rank."""
    bases = (cls for cls in type(optimizer).__mro__ if issubclass(cls, torch.optim.Optimizer))
    return any(cls.__module__.startswith("torch.optim.") and cls is not torch.optim.Optimizer for cls in bases)


def _mismatch(parameter: Tensor, entry: Mapping[str, Any], required: Sequence[str]) -> str | None:
    missing = [name for name in required if name not in entry]
    if missing:
        return f"{', '.join(missing)} missing beside {', '.join(map(str, entry))}"
    for name, value in entry.items():
        if name == "step":
            if isinstance(value, Tensor) and value.numel() == 1 and not value.is_meta:
                value = value.item()
            if not (isinstance(value, int | float) and 0 <= value < math.inf):
                return f"step is {value if isinstance(value, int | float) else _describe(value)}, not a count of steps"
        elif name in _SHAPED and value is not None and not _is_like(value, parameter):
            return f"{name} is {_describe(value)}"
    return None


def _is_like(value: Any, own: Tensor) -> bool:
    """Return whether a value can be copied into `own` without losing anything but precision."""
    if not isinstance(value, Tensor) or value.shape != own.shape or value.is_meta:
        return False
    kinds = [(t.is_floating_point(), t.is_complex(), t.layout, t.is_quantized) for t in (value, own)]
    return kinds[0] == kinds[1]


def _describe(value: Any) -> str:
    if isinstance(value, Tensor):
        kind = "" if value.is_floating_point() else f" of {value.dtype}"
        layout = " without data" if value.is_meta else "" if value.layout == torch.strided else f" of {value.layout}"
        return f"{list(value.shape)}{kind}{layout}"
    return f"a {type(value).__name__}"
