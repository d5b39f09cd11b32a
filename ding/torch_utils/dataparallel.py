"""One model on several GPUs of one process."""

from __future__ import annotations

from typing import Any

from torch import nn


class DataParallel(nn.DataParallel[nn.Module]):
    """torch's `DataParallel` under which the attributes and methods of the model can still be asked for.

    A batch is cut along its first axis, one part for each GPU; without a GPU the model runs as it is. Names in the
    state dict begin with `module.`, as torch has them.

    Example:
        >>> model = DataParallel(nn.Linear(4, 2))
        >>> model.out_features
        2
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            # `module` itself is missing while an object is being made or copied.
            if name == "module" or name.startswith("__"):
                raise
            return getattr(self.module, name)
