"""Tensor operations on nested data (dicts and sequences of tensors), and moving such data between devices."""

from __future__ import annotations

import copy
import numbers
from collections.abc import Callable, Mapping, Sequence
from types import NoneType
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.distributions import Distribution

from ding.utils.data.collate_fn import ByType, is_treetensor


def _map_tensors(data: Any, purpose: str, function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Apply `function` to each tensor; dicts become dicts, sequences lists."""
    if isinstance(data, torch.Tensor):
        return function(data)
    if isinstance(data, Mapping):
        return {key: _map_tensors(value, purpose, function) for key, value in data.items()}
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return [_map_tensors(value, purpose, function) for value in data]
    raise TypeError(
        f"cannot {purpose} a value of type {type(data).__name__}: only tensors, dicts and sequences of them"
    )


def to_dtype(item: Any, dtype: torch.dtype) -> Any:
    """Convert each tensor to `dtype`.

    Raises:
        TypeError: a part is not a tensor, dict or sequence.
    """
    return _map_tensors(item, f"convert to {dtype}", lambda tensor: tensor.to(dtype))


def unsqueeze(data: Any, dim: int = 0) -> Any:
    """Insert a dimension of size 1 at `dim` into each tensor.

    Raises:
        TypeError: a part is not a tensor, dict or sequence.
    """
    return _map_tensors(data, "unsqueeze", lambda tensor: tensor.unsqueeze(dim))


def squeeze(data: Any, dim: int = 0) -> Any:
    """Remove the dimension `dim` from each tensor in which it has size 1.

    Raises:
        TypeError: a part is not a tensor, dict or sequence.
    """
    return _map_tensors(data, "squeeze", lambda tensor: tensor.squeeze(dim))


def zeros_like(h: Any) -> Any:
    """Return zeros of the shape, dtype and device of each tensor.

    Raises:
        TypeError: a part is not a tensor, dict or sequence.
    """
    return _map_tensors(h, "make zeros like", torch.zeros_like)


def get_tensor_data(data: Any) -> Any:
    """Return copies of the tensors without gradient history; None stays unchanged.

    Raises:
        TypeError: a part is not a tensor, None, dict or sequence.
    """
    if data is None:
        return None
    if isinstance(data, Mapping):
        return {key: get_tensor_data(value) for key, value in data.items()}
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return [get_tensor_data(value) for value in data]
    return _map_tensors(data, "copy the tensors of", lambda tensor: tensor.detach().clone())


def same_shape(data: Sequence[Any]) -> bool:
    """Return whether all tensors of a list have the same shape.

    Raises:
        AssertionError: `data` is not a list or tuple.
    """
    if not isinstance(data, (list, tuple)):
        raise AssertionError(f"same_shape compares the tensors of a list or tuple, got {type(data).__name__}")
    return len({tuple(tensor.shape) for tensor in data}) <= 1


def get_null_data(template: Any, num: int) -> list[Any]:
    """Return `num` copies of a transition as padding, with `null` and `done` True and the reward zero."""
    result = []
    for _ in range(num):
        data = copy.deepcopy(template)
        data["null"] = True
        data["done"] = True
        data["reward"].zero_()
        result.append(data)
    return result


def to_device(item: Any, device: str | torch.device, ignore_keys: list[str] = []) -> Any:
    """Move tensors and modules in nested data to `device`.

    Dicts become new dicts and sequences lists; numbers, text, arrays, None and distributions stay unchanged.

    Args:
        ignore_keys: keys of the outermost dict whose values are not moved.

    Raises:
        TypeError: a part has an unsupported type.
    """
    return _TO_DEVICE[type(item)](item, device, ignore_keys)


def _dict_to_device(item: Mapping[Any, Any], device: Any, ignore_keys: Sequence[str]) -> dict[Any, Any]:
    return {k: v if k in ignore_keys else _TO_DEVICE[type(v)](v, device, ()) for k, v in item.items()}


def _sequence_to_device(item: Sequence[Any], device: Any, ignore_keys: Sequence[str]) -> list[Any]:
    return [_TO_DEVICE[type(value)](value, device, ()) for value in item]


def _tree_to_device(item: Any, device: Any, ignore_keys: Sequence[str]) -> Any:
    """Move a tree tensor, whose recurrent states may be lists with None, which tree tensors cannot move."""
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
