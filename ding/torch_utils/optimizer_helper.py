"""Adam and RMSprop that can clip or ignore gradients, with the fastest step that the parameters allow."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from ding.torch_utils.gradient_guard import (
    GradientGuard,
    calculate_grad_norm,
    calculate_grad_norm_without_bias_two_norm,
    grad_ignore_norm,
    grad_ignore_value,
)
from ding.utils.config_helper import ConfigError

__all__ = [
    "Adam",
    "RMSprop",
    "calculate_grad_norm",
    "calculate_grad_norm_without_bias_two_norm",
    "grad_ignore_norm",
    "grad_ignore_value",
]

# Torch wraps some methods of its optimizers so that their first call imports the whole compiler (about a second, 800
# modules). That matters only under torch.compile; otherwise what is wrapped does the same.
_Plain = torch.optim.Optimizer
_add_param_group = inspect.unwrap(_Plain.add_param_group)
_state_dict = inspect.unwrap(_Plain.state_dict)
_load_state_dict = inspect.unwrap(_Plain.load_state_dict)
_zero_grad = inspect.unwrap(_Plain.zero_grad)
_adam_step = inspect.unwrap(torch.optim.Adam.step)
_rmsprop_step = inspect.unwrap(torch.optim.RMSprop.step)


def _is_uniform_float(parameters: list[Tensor]) -> bool:
    """Whether fused and foreach implementations take `parameters`: floating point tensors of one type and device."""
    kinds = {(type(p) in (Tensor, torch.nn.Parameter), p.is_floating_point(), p.dtype, p.device) for p in parameters}
    return (
        len(kinds) == 1
        and all(is_plain and is_float for is_plain, is_float, _, _ in kinds)
        and all(device.type in ("cpu", "cuda") for *_, device in kinds)
    )


def _is_ready_on_cpu(state: Mapping[Tensor, dict[str, Any]], group: dict[str, Any]) -> bool:
    """Whether each parameter of `group` has a gradient and a state, and one fused call on the CPU can step them all."""
    if not group["fused"] or group["amsgrad"] or group["capturable"]:
        return False
    for parameter in group["params"]:
        if parameter.grad is None or parameter not in state or not parameter.is_cpu:
            return False
    return True


def _fused_step_on_cpu(state: Mapping[Tensor, dict[str, Any]], group: dict[str, Any]) -> None:
    """What torch's fused Adam does, without its grouping by device, which costs as much as the step of a small net."""
    parameters = group["params"]
    states = [state[parameter] for parameter in parameters]
    steps = [entry["step"] for entry in states]
    beta1, beta2 = group["betas"]
    kernel = torch._fused_adamw_ if group["decoupled_weight_decay"] else torch._fused_adam_
    torch._foreach_add_(steps, 1)
    kernel(
        parameters,
        [parameter.grad for parameter in parameters],
        [entry["exp_avg"] for entry in states],
        [entry["exp_avg_sq"] for entry in states],
        [],
        steps,
        lr=group["lr"],
        beta1=beta1,
        beta2=beta2,
        weight_decay=group["weight_decay"],
        eps=group["eps"],
        amsgrad=False,
        maximize=group["maximize"],
        grad_scale=None,
        found_inf=None,
    )


class _GuardedOptimizer(torch.optim.Optimizer):
    """What both optimizers share: the gradient guard, and torch's bookkeeping without the compiler."""

    _guard: GradientGuard
    _grad_norm_type: float | None
    # The option of a parameter group that selects the fast implementation.
    _fast_option: str

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        _add_param_group(self, param_group)
        if param_group[self._fast_option] is None and _is_uniform_float(param_group["params"]):
            param_group[self._fast_option] = True
        self._parameters = [parameter for group in self.param_groups for parameter in group["params"]]

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = _state_dict(self)
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what `state_dict` of this or of torch's optimizer returned; how the step is computed stays as it is."""
        own = [group[self._fast_option] for group in self.param_groups]
        saved = state_dict["param_groups"]
        if len(saved) == len(own):
            groups = [{**group, self._fast_option: fast} for group, fast in zip(saved, own, strict=True)]
            state_dict = {**state_dict, "param_groups": groups}
        _load_state_dict(self, state_dict)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients of all parameters, or set them to zero in place."""
        if not set_to_none:
            _zero_grad(self, False)
            return
        for parameter in self._parameters:
            parameter.grad = None

    def get_grad(self) -> float:
        """The sum over all gradients of their norm to the power of its type (`grad_norm_type`, 2 when None)."""
        norm_type = 2.0 if self._grad_norm_type is None else self._grad_norm_type
        grads = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
        return float(sum(float(torch.linalg.vector_norm(grad, norm_type)) ** norm_type for grad in grads))

    def _run_closure(self, closure: Callable[[], Any] | None) -> Any:
        """The loss of `closure`; then the gradients are clipped or ignored."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if self._guard.is_active:
            self._guard.apply(self)
        return loss

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_guard": self._guard, "_grad_norm_type": self._grad_norm_type}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._parameters = [parameter for group in self.param_groups for parameter in group["params"]]


class Adam(_GuardedOptimizer, torch.optim.Adam):
    """Adam that can clip or ignore gradients inside `step`; see `GradientGuard` for how.

    The fused implementation is used for floating point parameters of one type on one device. The state dict is that of
    `torch.optim.Adam`.

    Args:
        optim_type: 'adam', or 'adamw' for decoupled weight decay.
        grad_norm_type: the norm that `get_grad` reports.

    Raises:
        ConfigError: an unknown `optim_type` or clipping or ignoring type, or a type without its value.

    Example:
        >>> net = torch.nn.Linear(2, 1)
        >>> optimizer = Adam(net.parameters(), lr=0.1, grad_clip_type="clip_norm", clip_value=0.5)
        >>> net(torch.ones(1, 2)).sum().backward()
        >>> optimizer.step()
    """

    _fast_option = "fused"

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        optim_type: str = "adam",
        grad_clip_type: str | None = None,
        clip_value: float | None = None,
        clip_coef: float = 5,
        clip_norm_type: float = 2.0,
        clip_momentum_timestep: int = 100,
        grad_norm_type: float | None = None,
        grad_ignore_type: str | None = None,
        ignore_value: float | None = None,
        ignore_coef: float = 5,
        ignore_norm_type: float = 2.0,
        ignore_momentum_timestep: int = 100,
    ) -> None:
        if optim_type not in ("adam", "adamw"):
            raise ConfigError(f"optim_type = {optim_type!r} is unknown; it must be 'adam' or 'adamw'")
        self._guard = GradientGuard(
            grad_clip_type,
            clip_value,
            clip_coef,
            clip_norm_type,
            clip_momentum_timestep,
            grad_ignore_type,
            ignore_value,
            ignore_coef,
            ignore_norm_type,
            ignore_momentum_timestep,
        )
        self._grad_norm_type = grad_norm_type
        torch.optim.Adam.__init__(
            self,
            params,
            lr=lr,
            betas=(betas[0], betas[1]),
            eps=eps,
            weight_decay=weight_decay,
            amsgrad=amsgrad,
            decoupled_weight_decay=optim_type == "adamw",
        )

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step; `closure`, if given, computes the loss (which is returned) and the gradients first."""
        loss = self._run_closure(closure)
        if all(_is_ready_on_cpu(self.state, group) for group in self.param_groups):
            for group in self.param_groups:
                _fused_step_on_cpu(self.state, group)
        else:
            _adam_step(self)
        return loss


class RMSprop(_GuardedOptimizer, torch.optim.RMSprop):
    """RMSprop that can clip or ignore gradients inside `step`; see `GradientGuard` for how.

    The state dict is that of `torch.optim.RMSprop`.

    Args:
        grad_norm_type: the norm that `get_grad` reports.

    Raises:
        ConfigError: an unknown clipping or ignoring type, or a type without its value.

    Example:
        >>> net = torch.nn.Linear(2, 1)
        >>> optimizer = RMSprop(net.parameters(), grad_ignore_type="ignore_norm", ignore_value=10)
        >>> net(torch.ones(1, 2)).sum().backward()
        >>> optimizer.step()
    """

    _fast_option = "foreach"

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        grad_clip_type: str | None = None,
        clip_value: float | None = None,
        clip_coef: float = 5,
        clip_norm_type: float = 2.0,
        clip_momentum_timestep: int = 100,
        grad_norm_type: float | None = None,
        grad_ignore_type: str | None = None,
        ignore_value: float | None = None,
        ignore_coef: float = 5,
        ignore_norm_type: float = 2.0,
        ignore_momentum_timestep: int = 100,
    ) -> None:
        self._guard = GradientGuard(
            grad_clip_type,
            clip_value,
            clip_coef,
            clip_norm_type,
            clip_momentum_timestep,
            grad_ignore_type,
            ignore_value,
            ignore_coef,
            ignore_norm_type,
            ignore_momentum_timestep,
        )
        self._grad_norm_type = grad_norm_type
        torch.optim.RMSprop.__init__(
            self, params, lr=lr, alpha=alpha, eps=eps, weight_decay=weight_decay, momentum=momentum, centered=centered
        )

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step; `closure`, if given, computes the loss (which is returned) and the gradients first."""
        loss = self._run_closure(closure)
        _rmsprop_step(self)
        return loss
