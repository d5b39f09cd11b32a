"""The wrapper of a target network: follows an online network by copies or by a moving average."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ding.model.wrapper.base_wrapper import IModelWrapper
from ding.torch_utils.module_tensors import ModuleTensors
from ding.utils.config_helper import ConfigError, integer, number

_Tensors = tuple[list[Tensor], list[Tensor]]


class TargetNetworkWrapper(IModelWrapper):
    """A model whose weights follow those of an online model.

    Args:
        update_type: 'assign' copies the online weights at every `freq`-th update; 'momentum' moves the parameters at
            each update to (1 - theta) * own + theta * online, and copies the buffers.
        update_kwargs: `{'freq': n}` or `{'theta': t}`.

    The weights are changed in place.

    Raises:
        ConfigError: an unknown `update_type`, or `freq` or `theta` is missing or out of range.

    Example:
        >>> online, target = nn.Linear(1, 1), nn.Linear(1, 1)
        >>> wrapper = TargetNetworkWrapper(target, "assign", {"freq": 2})
        >>> wrapper.update_from(online)
        >>> bool(target.bias == online.bias)
        False
        >>> wrapper.update_from(online)
        >>> bool(target.bias == online.bias)
        True
    """

    def __init__(self, model: nn.Module | IModelWrapper, update_type: str, update_kwargs: Mapping[str, Any]) -> None:
        super().__init__(model)
        rules = {"assign": ("freq", integer(1)), "momentum": ("theta", number(0, 1))}
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
        self._own: ModuleTensors | None = None
        self._online: ModuleTensors | None = None
        self._alike: tuple[tuple[Any, ...], bool] | None = None

    def reset(self, data_id: list[int] | None = None, target_update_count: int | None = None, **kwargs: Any) -> None:
        """Set the counter of the updates to `target_update_count`; None leaves it."""
        if target_update_count is not None:
            self._update_count = target_update_count
        super().reset(data_id=data_id, **kwargs)

    def update(self, state_dict: Mapping[str, Any] | nn.Module | IModelWrapper, direct: bool = False) -> None:
        """Count one update to the online weights `state_dict`, or `direct`: load them now and restart the counter.

        A model in place of a state dict is what `update_from` takes.

        Raises:
            RuntimeError: loading finds missing, unexpected or misshaped entries.
            KeyError: a parameter is missing in a momentum update.
        """
        if not isinstance(state_dict, Mapping):
            self.update_from(state_dict, direct)
        elif self._is_due(direct):
            self.unwrap().load_state_dict(state_dict, strict=True)
        elif self._update_type == "momentum":
            self._own = self._tensors_of(self.unwrap(), self._own)
            own = self._own.current()
            parameter_names, buffer_names = self._own.names
            self._follow(
                own, ([state_dict[name] for name in parameter_names], [state_dict[name] for name in buffer_names])
            )

    def update_from(self, model: nn.Module | IModelWrapper, direct: bool = False) -> None:
        """As `update` with the state dict of `model`, without making one; weights are read only when they are due."""
        is_due = self._is_due(direct)
        if not is_due and self._update_type == "assign":
            return
        module: nn.Module = model.unwrap() if isinstance(model, IModelWrapper) else model
        self._own = self._tensors_of(self.unwrap(), self._own)
        self._online = self._tensors_of(module, self._online)
        own, online = self._own.current(), self._online.current()
        if not self._is_alike(self._own, self._online):
            self._update_by_dict(module, is_due)
        elif is_due:
            _copy([*own[0], *own[1]], [*online[0], *online[1]])
        else:
            self._follow(own, online)

    def _is_alike(self, own: ModuleTensors, online: ModuleTensors) -> bool:
        """Whether both modules have the same names and shapes, looked at once for each pair of structures."""
        pair = (own, own.version, online, online.version)
        if self._alike is None or self._alike[0] != pair:
            shapes = [[tensor.shape for tensors in side.current() for tensor in tensors] for side in (own, online)]
            self._alike = (pair, own.names == online.names and shapes[0] == shapes[1])
        return self._alike[1]

    def _update_by_dict(self, module: nn.Module, is_due: bool) -> None:
        """For an online model that is built otherwise: names decide, and loading tells what does not fit."""
        state_dict = module.state_dict()
        if is_due:
            self.unwrap().load_state_dict(state_dict, strict=True)
        else:
            self.update(state_dict)

    def _is_due(self, direct: bool) -> bool:
        """Count an update and tell whether all weights are to be taken over now."""
        if direct:
            self._update_count = 0
            return True
        if self._update_type == "momentum":
            return False
        self._update_count += 1
        is_due: bool = self._update_count % self._update_kwargs["freq"] == 0
        return is_due

    @staticmethod
    def _tensors_of(module: nn.Module, known: ModuleTensors | None) -> ModuleTensors:
        return known if known is not None and known.module is module else ModuleTensors(module)

    def _follow(self, own: _Tensors, online: _Tensors) -> None:
        """Move the own parameters towards the online ones; copy the buffers."""
        with torch.no_grad():
            if own[0]:
                torch._foreach_lerp_(own[0], _like(online[0], own[0]), self._update_kwargs["theta"])
        _copy(own[1], _like(online[1], own[1]))

    def __getstate__(self) -> dict[str, Any]:
        # A copy must not drag the online model along.
        return {**self.__dict__, "_own": None, "_online": None, "_alike": None}


def _copy(target: list[Tensor], source: list[Tensor]) -> None:
    if target:
        with torch.no_grad():
            torch._foreach_copy_(target, source)


def _like(tensors: list[Tensor], examples: list[Tensor]) -> list[Tensor]:
    """`tensors` in the types and on the devices of `examples`; a foreach call would broadcast other shapes."""
    result = []
    for tensor, example in zip(tensors, examples, strict=True):
        if tensor.shape != example.shape:
            raise RuntimeError(
                f"target update: an online weight of shape {tuple(tensor.shape)} does not fit a target weight of "
                f"shape {tuple(example.shape)}; both models must be built alike"
            )
        is_like = tensor.dtype is example.dtype and tensor.device == example.device
        result.append(tensor if is_like else tensor.to(example))
    return result
