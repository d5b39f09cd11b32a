"""A warning before a buffer outgrows the memory, not after."""

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

# What a tensor takes beside its elements: the Python object and what torch keeps about it. Measured.
_TENSOR_BYTES = 400
# Items that are looked at.
_MAX_LOOKED_AT = 256


class MemoryCheck:
    """Estimates, when the first items come, how much memory a full buffer takes, and warns where that is not free.

    Memory of GPUs is told apart. Arrays that several items share count for each of them, objects that are the same
    once.

    Args:
        logger: gets the estimate, and the warning.

    Attributes:
        is_done: whether the estimate was made.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self.is_done = False

    def estimate(self, items: Sequence[Any], capacity: int, column_bytes: int = 0) -> None:
        """Estimate the memory of `capacity` items like `items`. Does nothing but at the first call with items.

        Args:
            items: the first ones.
            capacity: number of items.
            column_bytes: what columns take when they are full. Of items in columns, objects alone count then.
        """
        if self.is_done or not items:
            return
        self.is_done = True
        known = part_of(items, 0, _MAX_LOOKED_AT)
        sizes = {device: size * capacity // len(known) for device, size in memory_of(_objects_of(known)).items()}
        sizes["cpu"] += column_bytes
        for device, full_bytes in sizes.items():
            self._logger.info(
                "a full buffer, %d items like the first %d, takes up to about %s of %s",
                capacity,
                len(known),
                _readable(full_bytes),
                _kind(device),
            )
            free_bytes = _free_on(device)
            if free_bytes is not None and full_bytes > free_bytes:
                self._warn(device, full_bytes, free_bytes, capacity)

    def _warn(self, device: str, full_bytes: float, free_bytes: int, capacity: int) -> None:
        self._logger.warning(
            "the buffer will not fit into %s: its %d items take up to about %s, but only %s are free; "
            "lower replay_buffer_size, to about %d",
            _kind(device),
            capacity,
            _readable(full_bytes),
            _readable(free_bytes),
            int(capacity * (free_bytes / full_bytes)),
        )


def memory_of(items: Iterable[Any]) -> dict[str, int]:
    """About how many bytes `items` and what they contain take, by device ("cpu", "cuda:0", ...)."""
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


def _kind(device: str) -> str:
    return "memory" if device == "cpu" else f"memory of {device}"


def _readable(size_bytes: float) -> str:
    for unit, unit_bytes in (("GiB", 2**30), ("MiB", 2**20)):
        if size_bytes >= unit_bytes:
            return f"{size_bytes / unit_bytes:.1f} {unit}"
    return f"{size_bytes / 1024:.1f} KiB"
