"""Chunks: many samples as one file's content, in columns.

A sample is a dict (of tensors, arrays, numbers, strings, and dicts and lists of them), or a list of dicts for policies
with memory. Tensors and arrays that have the same key, shape and dtype in every sample become one array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from ding.utils.compression_helper import get_data_compressor, get_data_decompressor
from ding.utils.msgpack_helper import pack, unpack

_STACK, _DICT, _LIST = "stack", "dict", "list"
# A damaged chunk must not announce so many that making room for them takes all memory.
_MAX_SIZE = 2**20


def encode_chunk(samples: Sequence[Any], compressor: str = "lz4") -> bytes:
    """The samples as bytes.

    Args:
        compressor: as for `get_data_compressor`; `none` packs without compressing.

    Raises:
        KeyError: there is no such compressor.
        TypeError: a sample holds what cannot be packed.
        ValueError: `samples` is empty, or they are more than 2^20.
    """
    if not 0 < len(samples) <= _MAX_SIZE:
        raise ValueError(f"a chunk needs at least one sample and holds at most {_MAX_SIZE}; there are {len(samples)}")
    content = {"size": len(samples), "content": _encode(list(samples))}
    if compressor == "none":
        return pack(content)
    encoded: bytes = get_data_compressor(compressor)(content)
    return encoded


def decode_chunk(data: bytes, compressor: str = "lz4") -> list[Any]:
    """The samples that `encode_chunk` was given; their tensors and arrays are views of shared memory.

    Nothing in `data` is executed or imported.

    Raises:
        KeyError: there is no such compressor.
        ValueError: the bytes are damaged, or no chunk.
    """
    decompress = unpack if compressor == "none" else get_data_decompressor(compressor)
    return samples_of(_expanded(decompress, data))


def _expanded(decompress: Callable[[bytes], Any], data: bytes) -> Any:
    try:
        return decompress(data)
    except (ArithmeticError, LookupError, RuntimeError, SyntaxError, TypeError) as e:  # of numpy and torch
        raise ValueError(f"the data is damaged: {e!r}") from e


def samples_of(chunk: Any) -> list[Any]:
    """The samples of a chunk that was decompressed and unpacked.

    Raises:
        ValueError: it is no chunk.
    """
    try:
        size, (kind, content) = chunk["size"], chunk["content"]
        if not 0 < size <= _MAX_SIZE:
            raise ValueError(f"{size} samples are announced")
        return _decode(kind, content, size)
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as e:
        raise ValueError(f"the data is not a chunk of samples: {e!r}") from e


def _encode(values: list[Any]) -> list[Any]:
    first = values[0]
    if isinstance(first, torch.Tensor) and _is_uniform(values, torch.Tensor):
        return [_STACK, torch.stack([value.detach().cpu() for value in values])]
    if isinstance(first, np.ndarray) and not first.dtype.hasobject and _is_uniform(values, np.ndarray):
        return [_STACK, np.stack(values)]
    if type(first) is dict and all(type(value) is dict and value.keys() == first.keys() for value in values):
        return [_DICT, {key: _encode([value[key] for value in values]) for key in first}]
    return [_LIST, values]


def _is_uniform(values: list[Any], kind: Any) -> bool:
    first = values[0]
    return all(isinstance(v, kind) and v.shape == first.shape and v.dtype == first.dtype for v in values)


def _decode(kind: str, content: Any, size: int) -> list[Any]:
    """A column.

    Raises:
        ValueError: it is none, or has another length; as may AttributeError, LookupError and TypeError.
    """
    if kind in (_STACK, _LIST) and len(content) != size:
        raise ValueError(f"{size} are announced, {len(content)} are there")
    if kind == _STACK:
        # A row of a one-dimensional array would be a numpy scalar, not the array [] that it was.
        return list(content.unbind(0)) if isinstance(content, torch.Tensor) else [content[i, ...] for i in range(size)]
    if kind == _DICT:
        columns = {key: _decode(column[0], column[1], size) for key, column in content.items()}
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)] or [{}] * size
    if kind == _LIST:
        return list(content)
    raise ValueError(f"unknown kind of column {kind!r}")
