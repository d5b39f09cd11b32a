"""Checks of networks for use in tests."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import torch
from torch import nn


def is_differentiable(loss: torch.Tensor, model: nn.Module | Iterable[nn.Module], print_instead: bool = False) -> None:
    """Run `loss.backward()` and check that every parameter of `model` gets a gradient.

    Clear the gradients before a second call on the same model. With `print_instead`, parameters without a gradient are
    logged as a warning.

    Raises:
        AssertionError: `loss` is not a tensor, or a parameter has a gradient before or none afterwards.
        TypeError: `model` is neither a module nor a list of modules.

    Example:
        >>> net = nn.Linear(2, 1)
        >>> is_differentiable(net(torch.ones(1, 2)).sum(), net)
    """
    if not isinstance(loss, torch.Tensor):
        raise AssertionError(f"loss must be a tensor, not {type(loss).__name__}")
    parameters = _named_parameters(model)
    for name, parameter in parameters:
        if parameter.grad is not None:
            raise AssertionError(f"{name} has a gradient before backward; clear it first")
    torch.autograd.backward(loss)
    missing = [name for name, parameter in parameters if not isinstance(parameter.grad, torch.Tensor)]
    if missing and print_instead:
        logging.getLogger("ding").warning("no gradient reached: %s", ", ".join(missing))
    elif missing:
        raise AssertionError(f"no gradient reached: {', '.join(missing)}")


def _named_parameters(model: nn.Module | Iterable[nn.Module]) -> list[tuple[str, nn.Parameter]]:
    if isinstance(model, nn.Module):
        return list(model.named_parameters())
    if not isinstance(model, (list, tuple, nn.ModuleList)) or not all(isinstance(m, nn.Module) for m in model):
        raise TypeError(f"model must be a module or a list of modules, not {type(model).__name__}")
    return [pair for module in model for pair in module.named_parameters()]
