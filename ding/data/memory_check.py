"""A warning if a buffer will not fit into memory."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import psutil
import torch

from ding.utils.data.samples import Kind, Samples, columns_of, part_of

# Memory of a tensor without its elements: the Python object and torch's metadata. Measured.
_TENSOR_BYTES = 400
# Maximum number of items that the estimate is based on.
_MAX_ITEMS = 256


class MemoryCheck:
    """Estimates the memory of a full buffer from its first items, and warns if less is free.

    Each GPU is estimated separately. Views of one array count each, the same object counts once.

    Args:
        logger: Logs the estimate and the warning.

    Attributes:
        is_done: Whether the estimate was made.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self.is_done = False

    def estimate(self, items: Sequence[Any], capacity: int, column_bytes: int = 0) -> None:
        """Log the estimated memory of `capacity` items like `items`. Only the first call with items does something.

        Args:
            items: The first items.
            capacity: Number of items of a full buffer.
            column_bytes: Memory of the full columns. For items in columns, only objects are added to it.
        """
        if self.is_done or not items:
            return
        self.is_done = True
        known = part_of(items, 0, _MAX_ITEMS)
        sizes = {device: size * capacity // len(known) for device, size in memory_of(_objects_of(known)).items()}
        sizes["cpu"] += column_bytes
        for device, full_bytes in sizes.items():
            self._logger.info(
                "a full buffer, %d items like the first %d, takes up to about %s of %s",
                capacity,
                len(known),
                _readable(full_bytes),
                _name_of(device),
            )
            free_bytes = _free_on(device)
            if free_bytes is not None and full_bytes > free_bytes:
                self._warn(device, full_bytes, free_bytes, capacity)

    def _warn(self, device: str, full_bytes: float, free_bytes: int, capacity: int) -> None:
        self._logger.warning(
            "the buffer will not fit into %s: its %d items take up to about %s, but only %s are free; "
            "reduce replay_buffer_size to about %d",
            _name_of(device),
            capacity,
            _readable(full_bytes),
            _readable(free_bytes),
            int(capacity * (free_bytes / full_bytes)),
        )


def memory_of(items: Iterable[Any]) -> dict[str, int]:
    """Returns the approximate memory of `items` and their contents in bytes, by device ("cpu", "cuda:0", ...)."""
    todo, seen = list(items), set[int]()
    sizes = Counter({"cpu": 0})
    while todo:
        item = todo.pop()
        if item is None or id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, torch.Tensor):
            sizes["cpu"] += _TENSOR_BYTES
            if item.layout is torch.strided:
                sizes[str(item.device)] += item.numel() * item.element_size()
        elif isinstance(item, np.ndarray):
            sizes["cpu"] += sys.getsizeof(item) + (item.nbytes if item.base is not None else 0)
            todo.extend(item.ravel().tolist() if item.dtype.hasobject else ())
        elif isinstance(item, Samples) and item.columns is not None:
            arrays = {id(column.data): column.data for column in columns_of(item.columns)}
            todo.extend(arrays.values())
        else:
            sizes["cpu"] += sys.getsizeof(item)
            if isinstance(item, (Mapping, list, tuple)):
                todo.extend(item.values() if isinstance(item, Mapping) else item)
    return dict(sizes)


def _objects_of(items: Sequence[Any]) -> Sequence[Any]:
    if not isinstance(items, Samples) or items.columns is None:
        return items
    columns = [column for column in columns_of(items.columns) if column.kind is Kind.OBJECT]
    return [value for column in columns for value in column.items()]


def _free_on(device: str) -> int | None:
    if device == "cpu":
        return int(psutil.virtual_memory().available)
    if device.startswith("cuda"):
        return int(torch.cuda.mem_get_info(device)[0])
    return None


def _name_of(device: str) -> str:
    return "memory" if device == "cpu" else f"memory of {device}"


def _readable(size_bytes: float) -> str:
    for unit, unit_bytes in (("GiB", 2**30), ("MiB", 2**20)):
        if size_bytes >= unit_bytes:
            return f"{size_bytes / unit_bytes:.1f} {unit}"
    return f"{size_bytes / 1024:.1f} KiB"
