"""Conversion of nested data between tensors, arrays and Python values."""

from __future__ import annotations

import copy
import math
import numbers
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import NoneType
from typing import Any

import numpy as np
import torch
from easydict import EasyDict
from torch import nn
from torch.distributions import Distribution

from ding.utils.data.dataloader import Prefetcher, StreamCopier
from ding.utils.data.nested import is_container, is_mapping, is_namedtuple, is_treetensor, parts_of, rebuilt

_NUMBERS = (numbers.Number, np.generic)
_SCALARS = (str, bytes, NoneType, *_NUMBERS)
# Integers that a model may look up in an embedding. Bytes are not among them: they are images.
WIDE_INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64)


def _unsupported(purpose: str, value: Any) -> TypeError:
    kind = type(value)
    return TypeError(f"cannot {purpose} a value of type {kind.__module__}.{kind.__qualname__}")


def _map_tensors(
    data: Any, purpose: str, function: Callable[[torch.Tensor], torch.Tensor], keep_none: bool = False
) -> Any:
    """Apply `function` to each tensor; dicts become dicts, sequences lists."""
    if is_container(data):
        parts = [_map_tensors(part, purpose, function, keep_none) for _, part in parts_of(data)]
        return rebuilt(data, parts) if is_mapping(data) else parts
    if isinstance(data, torch.Tensor):
        return function(data)
    if data is None and keep_none:
        return None
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
    return _map_tensors(data, "copy the tensors of", lambda tensor: tensor.detach().clone(), keep_none=True)


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
    if isinstance(item, (torch.Tensor, nn.Module)):
        return item.to(device)
    if isinstance(item, (*_SCALARS, np.ndarray, Distribution)):
        return item
    if isinstance(item, Mapping):
        return {key: value if key in ignore_keys else to_device(value, device) for key, value in item.items()}
    if isinstance(item, Sequence):
        return [to_device(value, device) for value in item]
    if not is_treetensor(type(item)):
        raise _unsupported("move to a device", item)
    if "prev_state" not in item:
        return item.to(device)
    state = item.pop("prev_state")  # recurrent states may be lists with None, which trees cannot move
    try:
        moved = item.to(device)
    finally:
        item.prev_state = state
    moved.prev_state = to_device(state, device)
    return moved


def to_tensor(
    item: Any, dtype: torch.dtype | None = None, ignore_keys: list[str] = [], transform_scalar: bool = True
) -> Any:
    """Convert arrays and numbers in nested data to tensors.

    An array of float64 becomes a float32 tensor; other writable arrays share memory with the tensor. A list that starts
    with a number becomes one tensor, other sequences become lists; `[]` stays. Namedtuples keep their type, and all
    their numbers become tensors. Bools, text and None stay unchanged.

    Args:
        dtype: the dtype of all tensors; None keeps the dtype of each array, except float64.
        ignore_keys: keys of the outermost dict whose values stay unchanged.
        transform_scalar: whether single numbers become 0-dimensional tensors; numpy scalars keep their dtype.

    Raises:
        TypeError: a part has an unsupported type, such as an array of strings.

    Example:
        >>> to_tensor({"obs": np.zeros(2), "done": False})
        {'obs': tensor([0., 0.]), 'done': False}
    """
    if isinstance(item, (bool, str, bytes, NoneType)):
        return item
    if isinstance(item, np.ndarray):
        if dtype is None and item.dtype == np.float64:
            item = item.astype(np.float32)
        # torch supports neither read-only memory nor negative strides.
        is_shared = item.flags.writeable and all(stride >= 0 for stride in item.strides)
        item = torch.from_numpy(item if is_shared else item.copy())
    if isinstance(item, torch.Tensor) or is_treetensor(type(item)):
        return item if dtype is None else item.to(dtype)
    if isinstance(item, _NUMBERS):
        return torch.as_tensor(item, dtype=dtype) if transform_scalar else item
    if isinstance(item, Mapping):
        return {k: v if k in ignore_keys else to_tensor(v, dtype, [], transform_scalar) for k, v in item.items()}
    if is_namedtuple(type(item)):
        return type(item)(*(to_tensor(value, dtype) for value in item))
    if not isinstance(item, Sequence):
        raise _unsupported("convert to a tensor", item)
    if len(item) and isinstance(item[0], _NUMBERS):
        return torch.tensor(item, dtype=dtype)
    return [to_tensor(value, dtype, ignore_keys, transform_scalar) for value in item]


def to_ndarray(item: Any, dtype: Any = None) -> Any:
    """Convert tensors and numbers in nested data to arrays; the inverse of `to_tensor`.

    A CPU tensor shares memory with the array. Numbers become 0-dimensional arrays, a list that starts with a number
    becomes one array, an empty sequence becomes None. Namedtuples keep their type. Bools, text and None stay unchanged.

    Raises:
        TypeError: a part has an unsupported type.
        RuntimeError: a tensor requires grad.
    """
    if isinstance(item, (bool, str, bytes, NoneType)):
        return item
    if isinstance(item, torch.Tensor):
        item = item.cpu().numpy()
    if isinstance(item, np.ndarray):
        return item if dtype is None else item.astype(dtype)
    if isinstance(item, _NUMBERS):
        return np.array(item, dtype=dtype)
    if isinstance(item, Mapping):
        return {key: to_ndarray(value, dtype) for key, value in item.items()}
    if is_namedtuple(type(item)):
        return type(item)(*(to_ndarray(value, dtype) for value in item))
    if not isinstance(item, Sequence):
        raise _unsupported("convert to an array", item)
    if len(item) == 0:
        return None
    if isinstance(item[0], _NUMBERS):
        return np.array(item, dtype=dtype)
    return [to_ndarray(value, dtype) for value in item]


def to_list(item: Any) -> Any:
    """Convert nested data to Python dicts, lists and scalars; text and None stay unchanged.

    Raises:
        TypeError: a part has an unsupported type.
    """
    return _to_list(item, (torch.Tensor, np.ndarray, np.generic))


def tensor_to_list(item: Any) -> Any:
    """Convert nested data like `to_list`, but from tensors only.

    Raises:
        TypeError: a part is an array or has an unsupported type.
    """
    return _to_list(item, (torch.Tensor,))


def _to_list(item: Any, kinds: tuple[Any, ...]) -> Any:
    """Convert what is of these `kinds` in nested data by its `tolist`."""
    if isinstance(item, kinds):
        return item.tolist()
    if isinstance(item, _SCALARS):
        return item
    if isinstance(item, Mapping):
        return {key: _to_list(value, kinds) for key, value in item.items()}
    if isinstance(item, Sequence):
        return [_to_list(value, kinds) for value in item]
    raise _unsupported("convert to a list", item)


def to_item(data: Any, ignore_error: bool = True) -> Any:
    """Convert arrays and tensors with one element in nested data to Python scalars; sequences become lists.

    EasyDicts and tree tensors become EasyDicts, other mappings dicts.

    Args:
        ignore_error: whether to leave out dict entries that contain an array or tensor with several elements.

    Raises:
        ValueError: an array or tensor has several elements, and is not in a dict or `ignore_error` is False.
        TypeError: a part has an unsupported type.
    """
    if isinstance(data, (torch.Tensor, np.ndarray)):
        if math.prod(data.shape) != 1:
            raise ValueError(f"expected one element, got shape {tuple(data.shape)}")
        return data.item()
    if isinstance(data, _SCALARS):
        return data.item() if isinstance(data, np.generic) else data
    if isinstance(data, Sequence):
        return [to_item(value, ignore_error) for value in data]
    if is_treetensor(type(data)):
        data = EasyDict(data.json())
    if not isinstance(data, Mapping):
        raise _unsupported("convert to a scalar", data)
    result: dict[Any, Any] = EasyDict() if isinstance(data, EasyDict) else {}
    for key, value in data.items():
        try:
            result[key] = to_item(value, ignore_error)
        except ValueError:
            if not ignore_error:
                raise
    return result


class LogDict(dict[Any, Any]):
    """A dict that converts tensors to lists, and 0-dimensional tensors to scalars, on assignment.

    Example:
        >>> logs = LogDict()
        >>> logs["loss"] = torch.tensor(0.5)
        >>> logs.update({"q": torch.tensor([1.0, 2.0])})
        >>> logs
        {'loss': 0.5, 'q': [1.0, 2.0]}
    """

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value.tolist() if isinstance(value, torch.Tensor) else value)

    def update(self, data: Mapping[Any, Any]) -> None:  # type: ignore[override]
        """Set each entry of `data`."""
        super().update(data)
        for key, value in data.items():
            if isinstance(value, torch.Tensor):
                self[key] = value


def build_log_buffer() -> LogDict:
    """Return a new `LogDict`."""
    return LogDict()


class CudaFetcher:
    """Prefetcher that moves batches from an iterator to a device, in a background thread and on its own CUDA stream.

    `run` starts the thread, `next(fetcher)` or `fetcher.next()` returns the next batch, `close` ends the thread.
    Exceptions of the source, including StopIteration, are raised by `next`; after `close`, it returns None.

    Args:
        source: the iterator of batches.
        device: the target device, such as 'cuda'.
        queue_size: the number of batches to prefetch.
        sleep: ignored; for compatibility.

    Example:
        >>> import torch
        >>> fetcher = CudaFetcher(iter([{"x": torch.zeros(2)}]), "cpu")
        >>> fetcher.run()
        >>> next(fetcher)
        {'x': tensor([0., 0.])}
        >>> fetcher.close()
    """

    def __init__(self, source: Iterator[Any], device: str, queue_size: int = 4, sleep: float = 0.1) -> None:
        self._source = source
        self._queue_size = queue_size
        self._copier = StreamCopier(str(device), to_device)
        self._prefetcher: Prefetcher | None = None

    def run(self) -> None:
        """Start fetching; a second call does nothing."""
        if self._prefetcher is None:
            source, copier = self._source, self._copier
            self._prefetcher = Prefetcher(lambda: copier.move(next(source)), self._queue_size, "cuda_fetcher")

    def close(self) -> None:
        """Stop fetching and wait for the thread; a second call does nothing."""
        if self._prefetcher is not None:
            self._prefetcher.close()

    def __iter__(self) -> CudaFetcher:
        return self

    def __next__(self) -> Any:
        if self._prefetcher is None:
            raise RuntimeError("the fetcher is not running; call run() before next()")
        return self._copier.hand_over(self._prefetcher.get())

    def next(self) -> Any:
        """Return the next batch on the device; see the class.

        Raises:
            RuntimeError: `run` has not been called.
        """
        return self.__next__()
