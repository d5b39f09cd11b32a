"""The wrapper of a target network, which follows an online network by copies or by a moving average."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ding.model.wrapper.base_wrapper import IModelWrapper
from ding.utils.config_helper import ConfigError, integer, number


def _share(value: Any) -> str | None:
    """Return None if `value` is a rate that moves the target, else what is expected."""
    return "a number above 0, and 1 at most" if number(0, 1)(value) is not None or value == 0 else None


class TargetNetworkWrapper(IModelWrapper):
    """A model whose weights follow those of an online model.

    Args:
        update_type: 'assign' copies the online weights at every `freq`-th update; 'momentum' moves the parameters at
            each update to (1 - theta) * own + theta * online, and copies the buffers.
        update_kwargs: `{'freq': n}` or `{'theta': t}`.

    The weights are changed in place.

    Raises:
        ConfigError: `update_type` is unknown, or `freq` or `theta` is missing or out of range.

    Example:
        >>> online, target = nn.Linear(1, 1), nn.Linear(1, 1)
        >>> wrapper = TargetNetworkWrapper(target, "assign", {"freq": 2})
        >>> wrapper.update(online)
        >>> bool(target.bias == online.bias)
        False
        >>> wrapper.update(online)
        >>> bool(target.bias == online.bias)
        True
    """

    def __init__(self, model: nn.Module | IModelWrapper, update_type: str, update_kwargs: Mapping[str, Any]) -> None:
        super().__init__(model)
        rules = {"assign": ("freq", integer(1)), "momentum": ("theta", _share)}
        if update_type not in rules:
            raise ConfigError(f"target update_type {update_type!r} is unknown; allowed: {', '.join(rules)}")
        key, rule = rules[update_type]
        allowed = rule(update_kwargs.get(key))
        if allowed is not None:
            raise ConfigError(
                f"target update of type {update_type!r}: {key} = {update_kwargs.get(key)!r}; it must be {allowed}"
            )
        self._update_type = update_type
        self._update_kwargs = update_kwargs
        self._update_count = 0

    @property
    def update_count(self) -> int:
        """Number of updates counted by 'assign'; `reset` sets it."""
        return self._update_count

    def reset(self, data_id: list[int] | None = None, target_update_count: int | None = None, **kwargs: Any) -> None:
        """Set the counter of the updates to `target_update_count`, unless that is None."""
        if target_update_count is not None:
            self._update_count = target_update_count
        super().reset(data_id=data_id, **kwargs)

    def update(self, state_dict: Mapping[str, Any] | nn.Module | IModelWrapper, direct: bool = False) -> None:
        """Count one update to the online weights; with `direct`, load them now and restart the counter.

        Args:
            state_dict: the weights, or a model, whose weights are read only when they are due.

        Raises:
            RuntimeError: loading finds missing, unexpected or misshaped entries.
            KeyError: a parameter is missing in a momentum update.
        """
        is_copied = direct or self._update_type == "assign"
        if is_copied:
            self._update_count = 0 if direct else self._update_count + 1
            if not direct and self._update_count % self._update_kwargs["freq"]:
                return
        weights = state_dict
        if not isinstance(weights, Mapping):
            module: nn.Module = weights.unwrap() if isinstance(weights, IModelWrapper) else weights
            weights = module.state_dict() if is_copied else _weights_of(module)
        if is_copied:
            self.unwrap().load_state_dict(weights, strict=True)
        else:
            self._follow(weights)

    @torch.no_grad()
    def _follow(self, online: Mapping[str, Tensor]) -> None:
        """Move the own parameters towards those in `online`, and copy its buffers."""
        theta = self._update_kwargs["theta"]
        module: nn.Module = self.unwrap()
        for name, own in module.named_parameters():
            if name not in online:
                raise KeyError(
                    f"target update: the online model has no weight {name!r}; what is changed later, such as by "
                    "spectral_norm, must be changed in both models"
                )
            goal = online[name]
            if goal.shape != own.shape:
                raise RuntimeError(
                    f"target update: the online weight {name!r} of shape {tuple(goal.shape)} does not fit a target "
                    f"weight of shape {tuple(own.shape)}; both models must be built alike"
                )
            is_alike = goal.dtype is own.dtype and goal.device == own.device
            own.lerp_(goal if is_alike else goal.to(own), theta)
        for name, buffer in module.named_buffers():
            if name in online:
                buffer.copy_(online[name])


def _weights_of(module: nn.Module) -> dict[str, Tensor]:
    return {**dict(module.named_parameters(remove_duplicate=False)), **dict(module.named_buffers())}
