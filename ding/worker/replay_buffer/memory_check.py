"""A warning before a buffer outgrows the machine's memory, not after."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch


def warn_if_too_large(item: Any, capacity: int, logger: logging.Logger) -> None:
    """Log a warning when `capacity` items like `item` need more memory than is free now."""
    free_bytes = free_memory()
    needed_bytes = size_of(item) * capacity
    if free_bytes is not None and needed_bytes > free_bytes:
        logger.warning(
            "%d items like the first one take about %.1f GiB when the buffer is full, "
            "but only %.1f GiB of memory are free; lower replay_buffer_size",
            capacity,
            needed_bytes / 2**30,
            free_bytes / 2**30,
        )


def size_of(item: Any) -> int:
    """About how many bytes of host memory `item` and what it contains take; shared parts count each time."""
    if isinstance(item, torch.Tensor):
        on_host = item.numel() * item.element_size() if item.device.type == "cpu" else 0
        return sys.getsizeof(item) + on_host
    if isinstance(item, np.ndarray):
        return sys.getsizeof(item) if item.base is None else sys.getsizeof(item) + item.nbytes
    size = sys.getsizeof(item)
    if isinstance(item, Mapping):
        return size + sum(size_of(value) for value in item.values())
    if isinstance(item, (list, tuple)):
        return size + sum(size_of(value) for value in item)
    return size


def free_memory() -> int | None:
    """Bytes that can be allocated without swapping; None where the system does not tell."""
    try:
        with open("/proc/meminfo", encoding="ascii") as meminfo:
            for line in meminfo:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        return None
    return None
