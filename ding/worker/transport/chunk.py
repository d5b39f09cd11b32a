"""Chunks: many samples as one file's content, in columns.

A sample is a dict (of tensors, arrays, numbers, strings, and dicts and lists of them), or a list of dicts for policies
with memory. Tensors and arrays that have the same key, shape and dtype in every sample become one array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ding.utils.compression_helper import get_data_compressor, get_data_decompressor
from ding.utils.data.samples import Samples, from_plain, to_plain
from ding.utils.msgpack_helper import pack, unpack

# A damaged chunk must not announce so many that making room for them takes all memory.
_MAX_SIZE = 2**20


def encode_chunk(samples: Sequence[Any], compressor: str = "lz4") -> bytes:
    """The samples as bytes. Those in columns are not looked at one by one.

    Args:
        compressor: as for `get_data_compressor`; `none` packs without compressing.

    Raises:
        KeyError: there is no such compressor.
        TypeError: a sample holds what cannot be packed.
        ValueError: `samples` is empty, or they are more than 2^20.
    """
    if not 0 < len(samples) <= _MAX_SIZE:
        raise ValueError(f"a chunk needs at least one sample and holds at most {_MAX_SIZE}; there are {len(samples)}")
    columns = Samples.of(samples)
    content = {"items": list(samples)} if columns is None else to_plain(columns)
    if compressor == "none":
        return pack(content)
    encoded: bytes = get_data_compressor(compressor)(content)
    return encoded


def decode_chunk(data: bytes, compressor: str = "lz4") -> list[Any]:
    """The samples that `encode_chunk` was given, in columns (`Samples`) where they are alike.

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
    if not isinstance(chunk, dict):
        raise ValueError(f"the data is not a chunk of samples: it is a {type(chunk).__name__}")
    if "items" in chunk:
        items = chunk["items"]
        if type(items) is not list or not 0 < len(items) <= _MAX_SIZE:
            raise ValueError("the data is not a chunk of samples: its items are no list, none or too many")
        return items
    size = chunk.get("size")
    if type(size) is not int or not 0 < size <= _MAX_SIZE:
        raise ValueError(f"the data is not a chunk of samples: it announces {size!r} of them")
    try:
        return from_plain(chunk)
    except ValueError as e:
        raise ValueError(f"the data is not a chunk of samples: {e}") from e
