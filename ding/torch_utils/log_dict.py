"""The dict in which logged values are gathered between two writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, torch.Tensor) else value


class LogDict(dict[Any, Any]):
    """A dict that holds no tensors: they become lists, 0-dimensional ones scalars, when they are put in.

    Example:
        >>> logs = LogDict()
        >>> logs["loss"] = torch.tensor(0.5)
        >>> logs.update({"q": torch.tensor([1.0, 2.0])})
        >>> logs
        {'loss': 0.5, 'q': [1.0, 2.0]}
    """

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, _plain(value))

    def update(self, data: Mapping[Any, Any]) -> None:  # type: ignore[override]
        """Put in each entry of `data`."""
        super().update({key: _plain(value) for key, value in data.items()})


def build_log_buffer() -> LogDict:
    """A new, empty `LogDict`."""
    return LogDict()
