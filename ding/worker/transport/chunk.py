"""Samples, or what is told of them, as the content of a file or as text: in columns, read without running code.

A sample is a dict (of tensors, arrays, numbers, strings, and dicts and lists of them), or a list of dicts for policies
with memory. Tensors and arrays that have the same key, shape and dtype in every sample become one array.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

from ding.utils.compression_helper import get_data_compressor, get_data_decompressor
from ding.utils.data.plain_columns import from_plain, to_plain
from ding.utils.data.samples import part_of, whole_of
from ding.utils.msgpack_helper import pack, unpack


def encode_chunk(samples: Sequence[Any], compressor: str = "lz4") -> bytes:
    """The samples as bytes. Those in columns are not looked at one by one.

    Args:
        compressor: as for `get_data_compressor`; `none` packs without compressing.

    Raises:
        KeyError: there is no such compressor.
        TypeError: a sample holds what cannot be packed.
        ValueError: `samples` is empty, or too large; see the compressor.
    """
    if not len(samples):
        raise ValueError("a chunk needs at least one sample")
    content = to_plain(samples)
    if compressor == "none":
        return pack(content)
    encoded: bytes = get_data_compressor(compressor)(content)
    return encoded


def decode_chunk(data: bytes, compressor: str = "lz4") -> list[Any]:
    """The samples that `encode_chunk` was given, in columns (`Samples`) where they are alike.

    Nothing in `data` is executed or imported, and it takes no more memory than the samples in it.

    Raises:
        KeyError: there is no such compressor.
        ValueError: the bytes are damaged, or no chunk, or there is no memory for them.
    """
    decompress = unpack if compressor == "none" else get_data_decompressor(compressor)
    try:
        content = decompress(data)
    except (ArithmeticError, LookupError, MemoryError, RuntimeError, SyntaxError, TypeError) as e:
        raise ValueError(f"the data is damaged: {e!r}") from e  # errors of numpy and torch
    return samples_of(content)


def samples_of(chunk: Any) -> list[Any]:
    """The samples of a chunk that was decompressed and unpacked.

    Raises:
        ValueError: it is no chunk.
    """
    try:
        samples = from_plain(chunk)
    except (MemoryError, ValueError) as e:
        raise ValueError(f"the data is not a chunk of samples: {e}") from e
    if not len(samples):
        raise ValueError("the data is not a chunk of samples: there is none in it")
    return samples


def to_text(rows: Sequence[Any]) -> str:
    """Samples, or their metadata, as text for a message; none at all are the empty text."""
    return base64.b64encode(encode_chunk(rows, "none")).decode("ascii") if len(rows) else ""


def from_text(text: Any) -> list[Any]:
    """What `to_text` was given, in columns (`Samples`) where they are alike.

    Raises:
        ValueError: it is something else.
    """
    if not isinstance(text, str):
        raise ValueError(f"the data is not a chunk of samples: it is a {type(text).__name__}")
    return decode_chunk(base64.b64decode(text, validate=True), "none") if text else []


def pack_batches(batches: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """The entries of a message that carry batches; `unpack_batches` reads them."""
    return {"batches": to_text(whole_of(batches)), "batch_sizes": [len(batch) for batch in batches]}


def unpack_batches(message: Mapping[str, Any]) -> list[list[Any]]:
    """The batches in a message.

    Raises:
        ValueError: there are none in it, or they are of other sizes than it says.
    """
    rows, sizes = from_text(message["batches"]), message.get("batch_sizes")
    if type(sizes) is not list or not all(type(size) is int and size >= 0 for size in sizes):
        raise ValueError(f"batch_sizes = {str(sizes)[:200]} is not allowed; it must be the list of the batches' sizes")
    return split(rows, sizes)


def split(rows: Sequence[Any], sizes: Sequence[int]) -> list[list[Any]]:
    """Parts of these sizes, in columns where `rows` are.

    Raises:
        ValueError: there are not as many rows as that.
    """
    if len(rows) != sum(sizes):
        raise ValueError(f"{len(rows)} samples came; wanted are {sum(sizes)}")
    return [part_of(rows, start, stop) for start, stop in pairwise(accumulate(sizes, initial=0))]
