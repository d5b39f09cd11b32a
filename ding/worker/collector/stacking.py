"""Batches of per-env items: stacking them, looking for NaN in them, and cutting them into tensors."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch

from ding.torch_utils.data_helper import to_tensor


def stack_rows(items: Sequence[Any]) -> tuple[list[Any], Any]:
    """Copy `items` into one batch; return the rows of the batch and the batch.

    Arrays and tensors of one shape become one array [E, *shape], dicts with the same keys a dict of them. The batch is
    None where items do not stack (ragged shapes, foreign types); then the rows are independent copies.
    """
    first = items[0]
    if is_array(first):
        batch = stack_arrays(items)
        return ([np.array(x) for x in items], None) if batch is None else (list(batch), batch)
    if isinstance(first, torch.Tensor) and all(isinstance(x, torch.Tensor) and x.shape == first.shape for x in items):
        stacked = torch.stack([x.detach() for x in items])
        return list(stacked.unbind(0)), stacked
    if isinstance(first, dict) and all(isinstance(x, dict) and x.keys() == first.keys() for x in items):
        columns = {key: stack_rows([item[key] for item in items]) for key in first}
        rows = [{key: column[0][i] for key, column in columns.items()} for i in range(len(items))]
        batches = {key: column[1] for key, column in columns.items()}
        return rows, None if any(batch is None for batch in batches.values()) else batches
    if isinstance(first, np.ndarray) and not first.dtype.hasobject:
        return [x.copy() for x in items], np.array(items)
    if isinstance(first, (int, float, np.number, np.bool_)):
        return list(items), np.array(items)
    return [copy.deepcopy(x) for x in items], None


def is_array(item: Any) -> bool:
    return isinstance(item, np.ndarray) and item.ndim > 0 and not item.dtype.hasobject


def stack_arrays(items: Sequence[Any]) -> np.ndarray | None:
    try:
        return np.array(items)
    except ValueError:  # ragged shapes
        return None


def nan_rows(stacked: Any, path: str = "") -> Iterable[tuple[int, str]]:
    """(row, key path) of each row of a batch that holds a NaN; nothing for a batch without one."""
    if isinstance(stacked, dict):
        for key, value in stacked.items():
            yield from nan_rows(value, f"{path}[{key!r}]")
    elif isinstance(stacked, torch.Tensor):
        if stacked.is_floating_point():
            yield from nan_rows(stacked.numpy(force=True), path)
    elif isinstance(stacked, np.ndarray) and stacked.dtype.kind == "f" and has_nan(stacked):
        rows = np.isnan(stacked.reshape(len(stacked), -1)).any(axis=1)
        yield from ((int(row), path) for row in np.flatnonzero(rows))


def has_nan(array: np.ndarray) -> bool:
    # A sum of squares is NaN exactly when an element is: squares never cancel, infinite ones included.
    flat = array.reshape(-1)
    return math.isnan(flat.dot(flat))


_FLOAT32 = np.dtype(np.float32)


def as_tensor(value: Any) -> Any:
    """`to_tensor` without scalars, with a shortcut for what most values are."""
    if type(value) is torch.Tensor:
        return value
    if type(value) is np.ndarray and value.dtype is _FLOAT32:
        return torch.from_numpy(value)
    return to_tensor(value, transform_scalar=False)


def tensor_rows(batch: np.ndarray | torch.Tensor) -> Sequence[torch.Tensor]:
    """The rows of a batch [E, *shape] as tensors, [1] for numbers; see `as_tensor` for what memory they share."""
    if batch.ndim > 2 or 0 in batch.shape:
        rows: Sequence[torch.Tensor] = as_tensor(batch).unbind(0)
        return rows
    # Cut in this way, a row does not keep what autograd notes about a view, which is half of a small tensor's memory.
    flat: torch.Tensor = as_tensor(batch if batch.ndim == 1 else batch.reshape(-1))
    count = batch.shape[0]
    # `unsafe_chunk` gives the same pieces, but slices them one by one.
    return (flat,) if count == 1 else flat.unsafe_split_with_sizes([len(flat) // count] * count)
