"""Move nested data between devices."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from types import NoneType
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.distributions import Distribution

from ding.utils.data.by_type import ByType, is_treetensor


def to_device(item: Any, device: str | torch.device, ignore_keys: list[str] = []) -> Any:
    """Move tensors and modules in nested data to `device`.

    Dicts become new dicts, any sequence a list; numbers, text, arrays, None and distributions stay as they are.

    Args:
        ignore_keys: keys of the outermost dict whose values stay where they are.

    Raises:
        TypeError: a part is of a foreign type.
    """
    return _TO_DEVICE[type(item)](item, device, ignore_keys)


def _dict_to_device(item: Mapping[Any, Any], device: Any, ignore_keys: Sequence[str]) -> dict[Any, Any]:
    return {k: v if k in ignore_keys else _TO_DEVICE[type(v)](v, device, ()) for k, v in item.items()}


def _sequence_to_device(item: Sequence[Any], device: Any, ignore_keys: Sequence[str]) -> list[Any]:
    return [_TO_DEVICE[type(value)](value, device, ()) for value in item]


def _tree_to_device(item: Any, device: Any, ignore_keys: Sequence[str]) -> Any:
    """Recurrent states in a tree of tensors are lists with None in them, which the tree itself cannot move."""
    if "prev_state" not in item:
        return item.to(device)
    state = item.pop("prev_state")
    try:
        moved = item.to(device)
    finally:
        item.prev_state = state
    moved.prev_state = to_device(state, device)
    return moved


_TO_DEVICE: ByType = ByType(
    "move to a device",
    ((torch.Tensor, nn.Module), lambda item, device, ignore_keys: item.to(device)),
    (
        (str, bytes, NoneType, np.ndarray, Distribution, numbers.Number, np.generic),
        lambda item, device, ignore_keys: item,
    ),
    (Mapping, _dict_to_device),
    (Sequence, _sequence_to_device),
    (is_treetensor, _tree_to_device),
)
