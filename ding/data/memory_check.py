"""A warning before a buffer outgrows the memory, not after."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import psutil
import torch

# What a tensor takes beside its elements, the Python object and what torch keeps about it, and what more about a view
# of another tensor. Measured.
_TENSOR_BYTES, _VIEW_BYTES = 400, 300
# Neighbours share arrays; so many of them tell how many.
_MAX_LOOKED_AT = 256

# Memory addresses, half-open.
_Span = tuple[int, int]


class MemoryCheck:
    """Estimates, when the first items come, how much memory a full buffer takes, and warns where that is not free.

    Arrays that several items share, or one item under several keys, count once; memory of GPUs is told apart.

    Args:
        logger: gets the estimate, and the warning.

    Attributes:
        is_done: whether the estimate was made.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self.is_done = False

    def look_at(self, items: Sequence[Any], capacity: int) -> None:
        """Estimate the memory of `capacity` items like `items`. Does nothing but at the first call with items."""
        if self.is_done or not items:
            return
        self.is_done = True
        known = items[:_MAX_LOOKED_AT]
        for device, known_bytes in memory_of(known).items():
            full_bytes = known_bytes * capacity / len(known)
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
    """About how many bytes `items` and what they contain take, by device ("cpu", "cuda:0", ...).

    What is there several times counts once: objects, and the memory that arrays and tensors share.
    """
    todo, seen, objects = list(items), set[int](), 0
    spans: dict[str, list[_Span]] = {"cpu": []}
    while todo:
        item = todo.pop()
        if item is None or id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, torch.Tensor):
            objects += _TENSOR_BYTES + _VIEW_BYTES * item._is_view()
            spans.setdefault(str(item.device), []).append(_span_of_tensor(item))
        elif isinstance(item, np.ndarray):
            objects += sys.getsizeof(item) - (item.nbytes if item.base is None else 0)
            spans["cpu"].append(_span_of_array(item))
            if item.dtype.hasobject:
                todo.extend(item.ravel().tolist())
        else:
            objects += sys.getsizeof(item)
            if isinstance(item, Mapping):
                todo.extend(item.values())
            elif isinstance(item, (list, tuple)):
                todo.extend(item)
    sizes = {device: _length_of_union(of_device) for device, of_device in spans.items()}
    sizes["cpu"] += objects
    return sizes


def _span_of_array(array: np.ndarray) -> _Span:
    start: int = array.__array_interface__["data"][0]
    if array.size == 0:
        return start, start
    reach = [(count - 1) * stride for count, stride in zip(array.shape, array.strides, strict=True)]
    low, high = sum(step for step in reach if step < 0), sum(step for step in reach if step > 0)
    return start + low, start + high + array.itemsize


def _span_of_tensor(tensor: torch.Tensor) -> _Span:
    if tensor.layout is not torch.strided or tensor.device.type == "meta":
        return 0, 0
    start = tensor.data_ptr()
    if tensor.numel() == 0:
        return start, start
    last = sum((count - 1) * stride for count, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return start, start + (last + 1) * tensor.element_size()


def _length_of_union(spans: list[_Span]) -> int:
    length = end = 0
    for start, stop in sorted(spans):
        length += max(0, stop - max(start, end))
        end = max(end, stop)
    return length


def free_memory() -> int:
    """Bytes of host memory that can be taken without swapping."""
    return int(psutil.virtual_memory().available)


def _free_on(device: str) -> int | None:
    if device == "cpu":
        return free_memory()
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
