"""Fast copies of nested lists, dicts, tensors and arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch


class _FastCopy:
    """Copying of lists, dicts, tensors and arrays; other objects are shared with the original.

    `dispatch` maps an exact type to its copy function. Other modules add their types.

    Example:
        >>> original = {"obs": np.zeros(2), "reward": [1.0]}
        >>> fastcopy.copy(original)["obs"] is original["obs"]
        False
    """

    def __init__(self) -> None:
        self.dispatch: dict[type, Callable[[Any], Any]] = {
            list: lambda data: [self.copy(item) for item in data],
            dict: lambda data: {key: self.copy(value) for key, value in data.items()},
            torch.Tensor: lambda data: data.clone(),
            np.ndarray: lambda data: data.copy(),
        }

    def copy(self, data: Any) -> Any:
        """Return a copy of `data`, or `data` itself if its exact type is not in `dispatch`."""
        copier = self.dispatch.get(type(data))
        return data if copier is None else copier(data)


fastcopy = _FastCopy()
