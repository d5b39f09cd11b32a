"""Arrays in memory shared with child processes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from multiprocessing.context import assert_spawning
from multiprocessing.sharedctypes import RawArray
from typing import Any

import numpy as np


class ShmBuffer:
    """An array in shared memory, without a lock: writers and readers must take turns.

    The memory has no file name and is freed with its last user. A buffer can be passed to child processes only as an
    argument at their start.

    Args:
        dtype: any dtype but that of objects.
        shape: shape of the array.
        copy_on_get: if False, `get` returns the shared memory, which the next `fill` changes.
        ctype: ignored; the memory consists of bytes.

    Raises:
        TypeError: `dtype` contains objects.

    Example:
        >>> buffer = ShmBuffer(np.float32, (2,))
        >>> buffer.fill(np.array([1, 2], np.float32))
        >>> buffer.get()
        array([1., 2.], dtype=float32)
    """

    def __init__(self, dtype: Any, shape: Sequence[int], copy_on_get: bool = True, ctype: Any = None) -> None:
        self.dtype = np.dtype(dtype)
        self.shape = tuple(shape)
        self.copy_on_get = copy_on_get
        if self.dtype.hasobject:
            raise TypeError(f"dtype = {self.dtype} is not allowed: objects cannot be shared")
        self.buffer = RawArray("B", max(1, math.prod(self.shape) * self.dtype.itemsize))
        self._open()

    def fits(self, data: Any) -> bool:
        """Return whether `data` is an array of exactly this dtype and shape."""
        return type(data) is np.ndarray and data.dtype == self.dtype and data.shape == self.shape

    def fill(self, src_arr: np.ndarray) -> None:
        """Copy an array into the buffer; it may be cast to a dtype of the same kind.

        Raises:
            AssertionError: it is not an array of the buffer's shape.
            TypeError: its dtype is of another kind.
        """
        if not isinstance(src_arr, np.ndarray) or src_arr.shape != self.shape:
            shape = getattr(src_arr, "shape", type(src_arr).__name__)
            raise AssertionError(f"{shape} is not allowed; it must be an ndarray of shape {self.shape}")
        np.copyto(self.array, src_arr)

    def get(self) -> np.ndarray:
        """Return a copy of the array, or the shared memory itself without `copy_on_get`."""
        return self.array.copy() if self.copy_on_get else self.array

    def _open(self) -> None:
        flat = np.frombuffer(self.buffer, self.dtype, math.prod(self.shape))
        self.array = flat.reshape(self.shape)

    def __getstate__(self) -> dict[str, Any]:
        assert_spawning(self)
        state = self.__dict__.copy()
        del state["array"]  # a view that pickle would copy
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()


class ShmBufferContainer:
    """Arrays in shared memory, in nested dicts with the structure of `shape`.

    Args:
        dtype: dtype of all arrays, or nested dicts of dtypes.
        shape: shape of the array, or nested dicts of shapes.
        copy_on_get: see `ShmBuffer`.

    Raises:
        RuntimeError: `shape` is neither a dict nor a sequence.

    Example:
        >>> container = ShmBufferContainer({"a": np.int64, "b": bool}, {"a": (1,), "b": ()})
        >>> container.fill({"a": np.array([3]), "b": np.array(True)})
        >>> container.get()
        {'a': array([3]), 'b': array(True)}
    """

    def __init__(self, dtype: Any, shape: Any, copy_on_get: bool = True) -> None:
        self._shape = shape
        self._data: Any
        if isinstance(shape, Mapping):
            dtypes = dtype if isinstance(dtype, Mapping) else dict.fromkeys(shape, dtype)
            self._data = {key: ShmBufferContainer(dtypes[key], shape[key], copy_on_get) for key in shape}
        elif isinstance(shape, Sequence):
            self._data = ShmBuffer(dtype, shape, copy_on_get)
        else:
            raise RuntimeError(f"not support shape: {shape!r}; it must be a sequence of ints or a dict of them")

    def fill(self, src_arr: Any) -> None:
        """Copy an array, or nested dicts of arrays with the keys of `shape`, to the buffers; see `ShmBuffer.fill`."""
        if isinstance(self._data, dict):
            for key, part in self._data.items():
                part.fill(src_arr[key])
        else:
            self._data.fill(src_arr)

    def get(self) -> Any:
        """Return the arrays in the structure of `shape`; see `ShmBuffer.get`."""
        if isinstance(self._data, dict):
            return {key: part.get() for key, part in self._data.items()}
        return self._data.get()
