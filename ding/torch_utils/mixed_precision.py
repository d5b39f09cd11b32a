"""Autocast to 16 bits."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor

_Result = TypeVar("_Result")

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
AUTOCAST_TYPES = (None, *_DTYPES)


class MixedPrecision:
    """Execution of forward passes and losses under `torch.autocast`; parameters and optimizer stay in float32.

    With `fp16` the loss is scaled, so that small gradients do not vanish, and a step whose gradients overflow is
    skipped. `bf16` has the range of float32 and needs neither.

    Args:
        kind: `bf16` or `fp16`.
        device: the device of the model, such as `cpu` or `cuda:0`.

    Example:
        >>> net = torch.nn.Linear(2, 1)
        >>> optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        >>> precision = MixedPrecision("bf16", "cpu")
        >>> loss = precision.run(lambda: net(torch.ones(1, 2)).sum())
        >>> precision.scale(loss).backward()
        >>> precision.unscale(optimizer)
        >>> precision.step(optimizer)
        >>> loss.dtype
        torch.bfloat16
    """

    def __init__(self, kind: str, device: str) -> None:
        self._device_type = torch.device(device).type
        self._dtype = _DTYPES[kind]
        self._scaler = torch.amp.GradScaler(self._device_type) if kind == "fp16" else None

    def run(self, function: Callable[..., _Result], *args: Any, **kwargs: Any) -> _Result:
        """Return `function(*args, **kwargs)`, called under autocast."""
        # Without the cache of cast weights: a policy may take a step and use the new weights in one call.
        with torch.autocast(self._device_type, self._dtype, cache_enabled=False):
            return function(*args, **kwargs)

    def wrap(self, function: Callable[..., _Result]) -> Callable[..., _Result]:
        """Return a function that runs `function` under autocast."""
        return functools.wraps(function)(functools.partial(self.run, function))

    def paused(self) -> Any:
        """Return a context without autocast, for the backward pass and the step."""
        return torch.autocast(self._device_type, enabled=False)

    def scale(self, loss: Tensor) -> Tensor:
        """Return the scaled loss, of which to call `backward`."""
        return loss if self._scaler is None else self._scaler.scale(loss)

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Divide the gradients of `optimizer` by the scale of the loss."""
        if self._scaler is not None:
            self._scaler.unscale_(optimizer)

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """Take a step, unless gradients have overflowed."""
        if self._scaler is None:
            optimizer.step()
        else:
            self._scaler.step(optimizer)
            self._scaler.update()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the loss scale."""
        return {} if self._scaler is None else dict(self._scaler.state_dict())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue with the scale in `state`."""
        if self._scaler is not None and state:
            self._scaler.load_state_dict(dict(state))


def compile_option(value: Any) -> str | None:
    """Return None if `value` is allowed for `learn.compile`, else what is expected."""
    return None if isinstance(value, bool | str) else "True, False or the name of a backend of torch.compile"
