"""What a policy asks of its module at each iteration, without walking it: the mode, and the dtype."""

from __future__ import annotations

import torch
from torch import nn


class ModuleMode:
    """`module.train(mode)` at a fiftieth of its cost, for a caller that switches at each iteration.

    The parts are listed once, and again where one has been added, removed or exchanged since. Where a part has a
    `train` of its own, the module's own `train` is called.

    Example:
        >>> net = nn.Sequential(nn.Linear(1, 1))
        >>> ModuleMode(net).set(False)
        >>> net.training, net[0].training
        (False, False)
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self._list_parts()

    def _list_parts(self) -> None:
        parts = list(self.module.modules())
        self._children = [part._modules for part in parts]
        self._expected = [dict(children) for children in self._children]
        self._classes = {type(part) for part in parts}
        # `training` is an ordinary entry there; assigning it through the module costs a search among its tensors.
        self._entries = [part.__dict__ for part in parts]
        self._parameters = [part._parameters for part in parts if part._parameters]

    def set(self, training: bool) -> None:
        """Put all parts into training mode or into evaluation mode; nothing is done when the module is in it.

        A module that has got other parts since the last call is not: they may be in another mode.
        """
        if self._children != self._expected:
            self._list_parts()
        elif self.module.training is training:
            return
        if self._has_own_train():
            self.module.train(training)
            return
        for entry in self._entries:
            entry["training"] = training

    @property
    def dtype(self) -> torch.dtype:
        """That of the first floating-point parameter, float32 if there is none; for parts as of the last `set`."""
        for parameters in self._parameters:
            for parameter in parameters.values():
                if parameter is not None and parameter.is_floating_point():
                    return parameter.dtype
        return torch.float32

    def _has_own_train(self) -> bool:
        """Whether a part has another `train` than that of `nn.Module`."""
        is_overridden = any(cls.train is not nn.Module.train for cls in self._classes)
        return is_overridden or any("train" in entry for entry in self._entries)
