"""A deep copy for what transitions are made of, several times faster than `copy.deepcopy`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch


class _FastCopy:
    """Copies lists, dicts, tensors and arrays; everything else is shared with the original.

    `dispatch` maps an exact type to the function that copies it; other modules add their own types.

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
        """A copy of `data`; a type that is not in `dispatch` (subclasses count as other types) is returned as it is."""
        copier = self.dispatch.get(type(data))
        return data if copier is None else copier(data)


fastcopy = _FastCopy()
