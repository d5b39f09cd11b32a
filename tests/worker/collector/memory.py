"""How much memory samples keep alive."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import torch


def held_bytes(make: Callable[[], Any]) -> tuple[Any, int]:
    """What `make` returns, and the bytes of numpy's and Python's memory that live on with it."""
    make()  # what is imported and remembered at the first time does not count
    gc.collect()
    tracemalloc.start()
    try:
        kept = make()
        gc.collect()
        return kept, tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def own_bytes(item: Any) -> int:
    """Bytes of the arrays and tensors that an item shows."""
    if isinstance(item, dict):
        return sum(map(own_bytes, item.values()))
    if isinstance(item, list | tuple):
        return sum(map(own_bytes, item))
    return int(item.nbytes) if isinstance(item, np.ndarray | torch.Tensor) else 0
