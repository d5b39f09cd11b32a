"""Memory for columns, or files that they are mapped to."""

from __future__ import annotations

import contextlib
import itertools
import math
import os

import numpy as np

from ding.data.row_ring import Array

# A line of the cache.
LINE_BYTES = 64


class ColumnMemory:
    """Allocates the arrays of a store, in memory or in files.

    Args:
        folder: of the files; created when the first array is mapped. None for memory.
    """

    def __init__(self, folder: str | None) -> None:
        self._folder = folder
        self._files: list[str] = []
        self._numbers = itertools.count()

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype) -> Array:
        """An array that begins where a line of the cache does; the system finds memory for what is written."""
        if self._folder is None:
            memory = np.empty(math.prod(shape) * dtype.itemsize + LINE_BYTES, np.uint8)
            array: Array = np.ndarray(shape, dtype, memory, -memory.ctypes.data % LINE_BYTES)
            return array
        os.makedirs(self._folder, exist_ok=True)
        name = os.path.join(self._folder, f"{os.getpid()}_{id(self):x}_{next(self._numbers)}.column")
        self._files.append(name)
        return np.asarray(np.memmap(name, dtype, "w+", shape=shape))

    def delete_files(self) -> None:
        """Delete the files of all arrays."""
        for name in self._files:
            with contextlib.suppress(FileNotFoundError):  # somebody has cleared the folder
                os.remove(name)
        self._files.clear()
