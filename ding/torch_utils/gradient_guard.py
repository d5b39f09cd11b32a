"""Clipping and ignoring gradients before an optimizer step, and their norms."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ding.utils.config_helper import ConfigError

CLIP_TYPES = (None, "clip_momentum", "clip_value", "clip_norm", "clip_momentum_norm")
IGNORE_TYPES = (None, "ignore_momentum", "ignore_value", "ignore_norm", "ignore_momentum_norm")


@dataclass(frozen=True)
class GradientGuard:
    """What an optimizer does to the gradients before each step: first ignore, then clip.

    To ignore a gradient is to set it to zero, of all parameters (for the 'momentum' types: of the group). The limits:

    - 'value': no element may be larger than `clip_value` (`ignore_value`).
    - 'norm': the norm of all gradients together may not be larger than it.
    - 'momentum': no element may be larger than `coef` times the running root mean square of its past gradients.
    - 'momentum_norm': the norm of a group may not be larger than `coef` times the norm of those root mean squares.

    The 'momentum' types begin once `momentum_timestep` steps are taken.

    Raises:
        ConfigError: an unknown type, or a type without its value.
    """

    clip_type: str | None
    clip_value: float | None
    clip_coef: float
    clip_norm_type: float
    clip_momentum_timestep: int
    ignore_type: str | None
    ignore_value: float | None
    ignore_coef: float
    ignore_norm_type: float
    ignore_momentum_timestep: int

    def __post_init__(self) -> None:
        for kind, value, name, known in (
            (self.clip_type, self.clip_value, "clip", CLIP_TYPES),
            (self.ignore_type, self.ignore_value, "ignore", IGNORE_TYPES),
        ):
            if kind not in known:
                raise ConfigError(f"grad_{name}_type = {kind!r} is unknown; it must be one of {known}")
            if kind is not None and value is None:
                raise ConfigError(f"grad_{name}_type = {kind!r} needs {name}_value")

    @property
    def is_active(self) -> bool:
        """Whether there is anything to do."""
        return self.clip_type is not None or self.ignore_type is not None

    def apply(self, optimizer: torch.optim.Optimizer) -> None:
        """Change the gradients of all parameters of `optimizer` in place."""
        parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        if self.ignore_type == "ignore_value":
            grad_ignore_value(parameters, _given(self.ignore_value))
        elif self.ignore_type == "ignore_norm":
            grad_ignore_norm(parameters, _given(self.ignore_value), self.ignore_norm_type)
        elif self.ignore_type is not None:
            self._ignore_by_momentum(optimizer)
        if self.clip_type == "clip_value":
            nn.utils.clip_grad_value_(parameters, _given(self.clip_value))
        elif self.clip_type == "clip_norm":
            _clip_norm(parameters, _given(self.clip_value), self.clip_norm_type)
        elif self.clip_type is not None:
            self._clip_by_momentum(optimizer)

    def _ignore_by_momentum(self, optimizer: torch.optim.Optimizer) -> None:
        for grads, rms in _momenta(optimizer, self.ignore_momentum_timestep):
            if self.ignore_type == "ignore_momentum":
                is_large = any(bool((g.abs() > self.ignore_coef * r).any()) for g, r in zip(grads, rms, strict=True))
            else:
                norm = total_norm(grads, self.ignore_norm_type)
                is_large = norm > self.ignore_coef * total_norm(rms, self.ignore_norm_type)
            if is_large:
                torch._foreach_zero_(grads)

    def _clip_by_momentum(self, optimizer: torch.optim.Optimizer) -> None:
        for grads, rms in _momenta(optimizer, self.clip_momentum_timestep):
            if self.clip_type == "clip_momentum":
                for grad, limit in zip(grads, rms, strict=True):
                    limit.mul_(self.clip_coef)
                    torch.clamp(grad, -limit, limit, out=grad)
            else:
                limit_norm = self.clip_coef * total_norm(rms, self.clip_norm_type)
                norm = total_norm(grads, self.clip_norm_type)
                if norm > limit_norm:
                    torch._foreach_mul_(grads, limit_norm / norm)


def _clip_norm(parameters: list[Tensor], max_norm: float, norm_type: float) -> None:
    """What `clip_grad_norm_` does, without its grouping, which costs as much as the norms of a small net."""
    grads = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if len({(grad.device, grad.dtype) for grad in grads}) != 1:
        nn.utils.clip_grad_norm_(parameters, max_norm, norm_type)
        return
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads, norm_type)), norm_type)
    torch._foreach_mul_(grads, torch.clamp(max_norm / (norm + 1e-6), max=1.0))


def _given(value: float | None) -> float:
    assert value is not None, "checked at construction"
    return value


def _momenta(optimizer: torch.optim.Optimizer, min_step: int) -> Iterator[tuple[list[Tensor], list[Tensor]]]:
    """For each group the gradients, and the root mean square of the past ones, of parameters with `min_step` steps."""
    for group in optimizer.param_groups:
        decay = group["betas"][1] if "betas" in group else group["alpha"]
        has_bias_correction = "betas" in group
        grads, rms = [], []
        for parameter in group["params"]:
            state: Mapping[str, Any] = optimizer.state.get(parameter, {})
            if parameter.grad is None or not state or state["step"] < max(min_step, 1):
                continue
            square = state["exp_avg_sq"] if "exp_avg_sq" in state else state["square_avg"]
            correction = 1 - decay ** float(state["step"]) if has_bias_correction else 1.0
            grads.append(parameter.grad)
            rms.append((square / correction).sqrt())
        if grads:
            yield grads, rms


def total_norm(tensors: Iterable[Tensor], norm_type: float) -> float:
    """The norm of all elements of `tensors` as of one vector; `norm_type` may be infinity."""
    norms = [float(torch.linalg.vector_norm(tensor, norm_type)) for tensor in tensors]
    if norm_type == math.inf:
        return max(norms, default=0.0)
    return float(sum(norm**norm_type for norm in norms) ** (1 / norm_type))


def grad_ignore_norm(parameters: Iterable[Tensor], max_norm: float, norm_type: float = 2) -> None:
    """Set all gradients to zero when their total norm is larger than `max_norm`."""
    grads = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if grads and total_norm(grads, norm_type) > max_norm:
        torch._foreach_zero_(grads)


def grad_ignore_value(parameters: Iterable[Tensor], clip_value: float) -> None:
    """Set all gradients to zero when the absolute value of any element is larger than `clip_value`."""
    grads = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if grads and total_norm(grads, math.inf) > clip_value:
        torch._foreach_zero_(grads)


def calculate_grad_norm(model: nn.Module, norm_type: float | str = 2) -> float:
    """The norm of all gradients of `model` as of one vector; 'inf' is the largest absolute value."""
    grads = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    return total_norm(grads, float(norm_type))


def calculate_grad_norm_without_bias_two_norm(model: nn.Module) -> float:
    """The 2-norm of the gradients of all parameters of `model` whose name does not contain 'bias'."""
    grads = [p.grad for name, p in model.named_parameters() if "bias" not in name and p.grad is not None]
    return total_norm(grads, 2)
