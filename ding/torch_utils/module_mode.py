"""Fast access to the mode and the dtype of modules."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class ModuleMode:
    """Switch of modules between training and evaluation mode, at 2 % of the cost of `module.train(mode)`.

    The submodules are listed once, and again after one was added, removed or replaced. If a submodule overrides
    `train`, `train` of all modules is called. A deep copy belongs to the copied modules.

    Example:
        >>> net = nn.Sequential(nn.Linear(1, 1))
        >>> ModuleMode(net).set(False)
        >>> net.training, net[0].training
        (False, False)
    """

    def __init__(self, *modules: nn.Module) -> None:
        self.modules = modules
        self._list_parts()

    def __reduce__(self) -> tuple[Any, ...]:
        return ModuleMode, self.modules

    def _list_parts(self) -> None:
        parts = [part for module in self.modules for part in module.modules()]
        self._children = [part._modules for part in parts]
        self._expected = [dict(children) for children in self._children]
        self._classes = [type(part) for part in parts]
        # Setting `training` in `__dict__` avoids the slow `nn.Module.__setattr__`.
        self._entries = [part.__dict__ for part in parts]
        self._parameters = [part._parameters for part in parts if part._parameters]

    def set(self, training: bool) -> None:
        """Set all submodules to training or evaluation mode, unless the modules are in that mode.

        After a change of submodules the mode is always set, because new ones may be in the other mode.
        """
        if self._children != self._expected:
            self._list_parts()
        else:
            for module in self.modules:
                if module.training is not training:
                    break
            else:
                return
        for cls, entry in zip(self._classes, self._entries, strict=True):
            if cls.train is not nn.Module.train or "train" in entry:
                for module in self.modules:
                    module.train(training)
                return
        for entry in self._entries:
            entry["training"] = training

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the first floating-point parameter, float32 if there is none; as of the last `set`."""
        for parameters in self._parameters:
            for parameter in parameters.values():
                if parameter is not None and parameter.is_floating_point():
                    return parameter.dtype
        return torch.float32
