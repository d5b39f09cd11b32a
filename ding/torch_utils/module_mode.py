"""Switching a module between training and evaluation without walking it."""

from __future__ import annotations

from torch import nn

from ding.torch_utils.module_tensors import ModuleStructure


class ModuleMode:
    """`module.train(mode)` at a fiftieth of its cost, for who switches at each iteration.

    The parts are listed once, and again where one has been added or exchanged since; where one defines `train` itself,
    the module's own `train` is called.

    Example:
        >>> net = nn.Sequential(nn.Linear(1, 1))
        >>> ModuleMode(net).set(False)
        >>> net.training, net[0].training
        (False, False)
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self._index()

    def _index(self) -> None:
        parts = list(self.module.modules())
        self._structure = ModuleStructure(self.module)
        self._is_plain = all(type(part).train is nn.Module.train and "train" not in part.__dict__ for part in parts)
        # `training` is an ordinary entry there; assigning it through the module costs a search among its tensors.
        self._entries = [part.__dict__ for part in parts]

    def set(self, training: bool) -> None:
        """Put all parts into training mode or into evaluation mode; nothing is done when the module is in it."""
        if self.module.training is training:
            return
        if not self._structure.is_unchanged():
            self._index()
        if not self._is_plain:
            self.module.train(training)
            return
        for entry in self._entries:
            entry["training"] = training
