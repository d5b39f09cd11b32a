"""The parameters and buffers of a module as flat lists, without walking the module each time."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn


class ModuleStructure:
    """Remembers which children the modules of `module` have, to tell cheaply whether that has changed.

    Example:
        >>> net = nn.Sequential(nn.Linear(1, 1))
        >>> structure = ModuleStructure(net)
        >>> net[0] = nn.Linear(1, 1)
        >>> structure.is_unchanged()
        False
    """

    def __init__(self, module: nn.Module) -> None:
        self._children = [(part._modules, tuple(part._modules.values())) for part in module.modules()]

    def is_unchanged(self) -> bool:
        """Whether all modules still hold the same children in the same order."""
        for children, expected in self._children:  # noqa: SIM110 (a generator doubles the time)
            if tuple(children.values()) != expected:
                return False
        return True


class ModuleTensors:
    """The parameters and persistent buffers of `module`, each once, in the order of its state dict.

    Tensors and children that are assigned anew later are noticed.

    Attributes:
        names: the names of the parameters, and of the buffers, as in the state dict.
        version: counts the changes of the structure of `module` that were noticed.

    Example:
        >>> tensors = ModuleTensors(nn.Linear(2, 1))
        >>> tensors.names
        (['weight', 'bias'], [])
        >>> [parameter.shape for parameter in tensors.current()[0]]
        [torch.Size([1, 2]), torch.Size([1])]
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.version = 0
        self._index()

    def _index(self) -> None:
        self._structure = ModuleStructure(self.module)
        parameters: dict[str, tuple[dict[str, Any], str]] = {}
        buffers: dict[str, tuple[dict[str, Any], str]] = {}
        seen: set[int] = set()
        for prefix, part in self.module.named_modules():
            hidden = part._non_persistent_buffers_set
            for slots, tensors in ((parameters, part._parameters), (buffers, part._buffers)):
                for name, tensor in tensors.items():
                    if tensor is not None and id(tensor) not in seen and name not in hidden:
                        seen.add(id(tensor))
                        slots[f"{prefix}.{name}" if prefix else name] = (tensors, name)
        self.names = list(parameters), list(buffers)
        self._slots = list(parameters.values()), list(buffers.values())

    def current(self) -> tuple[list[Tensor], list[Tensor]]:
        """The parameters and the buffers, as they are now."""
        if not self._structure.is_unchanged():
            self._index()
            self.version += 1
        parameters, buffers = self._slots
        return [tensors[name] for tensors, name in parameters], [tensors[name] for tensors, name in buffers]
