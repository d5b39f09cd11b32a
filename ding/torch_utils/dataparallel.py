"""One model on several GPUs of one process."""

from __future__ import annotations

from typing import Any

from torch import nn


class DataParallel(nn.DataParallel[nn.Module]):
    """torch's `DataParallel` with access to the attributes and methods of the model.

    A batch is split along its first axis into one part for each GPU; without a GPU, the model runs unchanged. Names in
    the state dict start with `module.`.

    Example:
        >>> model = DataParallel(nn.Linear(4, 2))
        >>> model.out_features
        2
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            # `module` is missing while the object is created or copied.
            if name == "module" or name.startswith("__"):
                raise
            return getattr(self.module, name)
