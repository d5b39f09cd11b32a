"""Samples and metadata as the content of a file or of a message: in columns, decoded without running code.

A sample is a dict (of tensors, arrays, numbers, strings, and dicts and lists of them), or a list of dicts for recurrent
policies. Tensors and arrays that have the same key, shape and dtype in every sample become one array.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

from ding.utils.compression_helper import get_data_compressor, get_data_decompressor
from ding.utils.data.plain_columns import from_plain, to_plain
from ding.utils.data.samples import Items, concatenate_items, node_items, part_of, rows_of, table_of
from ding.utils.msgpack_helper import pack, unpack

# The keys of metadata that name the chunk of a sample, and its place there.
DATA_ID, DATA_INDEX = "data_id", "data_index"


def encode_chunk(samples: Items, compressor: str = "lz4") -> bytes:
    """Return the samples as bytes; samples in columns are encoded without a loop over samples.

    Args:
        compressor: `lz4`, `zlib`, or `none`, which packs without compression.

    Raises:
        KeyError: the compressor is unknown.
        TypeError: a sample holds an object that cannot be packed.
        ValueError: `samples` is empty, or too large for the compressor.
    """
    if not len(samples):
        raise ValueError("a chunk needs at least one sample")
    content = to_content(samples)
    if compressor == "none":
        return pack(content)
    encoded: bytes = get_data_compressor(compressor)(content)
    return encoded


def decode_chunk(data: bytes, compressor: str = "lz4") -> list[Any]:
    """Return the encoded samples, in columns (see `Samples`) if they have the same form.

    Nothing in `data` is executed or imported.

    Raises:
        KeyError: the compressor is unknown.
        ValueError: the bytes are damaged or not a chunk, or there is not enough memory.
    """
    decompress = get_data_decompressor(compressor)
    try:
        content = unpack(data) if compressor == "none" else decompress(data)
    except (ArithmeticError, LookupError, MemoryError, RuntimeError, SyntaxError, TypeError) as e:
        raise ValueError(f"the data is damaged: {e!r}") from e  # errors of numpy and torch
    return samples_of(content)


def samples_of(chunk: Any) -> list[Any]:
    """Return the samples of a chunk that was decompressed and unpacked.

    Raises:
        ValueError: it is not a chunk.
    """
    try:
        samples = from_plain(chunk)
    except (MemoryError, ValueError) as e:
        raise ValueError(f"the data is not a chunk of samples: {e}") from e
    if not len(samples):
        raise ValueError("the data is not a chunk of samples: it holds none")
    return samples


def to_content(rows: Items) -> dict[str, Any]:
    """Return samples, or their metadata, as the content of a chunk or of a message, which `from_plain` reads."""
    table = table_of(rows)
    return to_plain(rows if table is None else table.compact())


def pack_batches(batches: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Return the entries of a message that carry batches; `unpack_batches` decodes them."""
    return {"batches": to_content(concatenate_items(batches)), "batch_sizes": [len(batch) for batch in batches]}


def unpack_batches(message: Mapping[str, Any]) -> list[list[Any]]:
    """Return the batches in a message.

    Raises:
        ValueError: the message is damaged, or its batches have other sizes than it states.
    """
    return split(from_plain(message["batches"]), message["batch_sizes"])


def split(rows: Sequence[Any], sizes: Sequence[int]) -> list[list[Any]]:
    """Split `rows` into parts of these sizes; the parts are in columns if `rows` are.

    Raises:
        ValueError: the number of rows is not the sum of the sizes.
    """
    if len(rows) != sum(sizes):
        raise ValueError(f"got {len(rows)} samples; the sizes add up to {sum(sizes)}")
    return [part_of(rows, start, stop) for start, stop in pairwise(accumulate(sizes, initial=0))]


def chunks_of(rows: Items) -> list[str]:
    """Return the chunks of the samples, without samples that name none."""
    table = table_of(rows)
    if table is not None:
        return node_items(table.columns[DATA_ID]) if DATA_ID in table.columns else []
    items = rows_of(rows)
    try:
        return [row[DATA_ID] for row in items]
    except (KeyError, TypeError):
        return [row[DATA_ID] for row in items if isinstance(row, Mapping) and DATA_ID in row]


def pick_sample(samples: list[Any], meta: Mapping[str, Any]) -> Any:
    """Return the sample at `data_index` (0 by default) with `meta` added, or a part of a long trajectory.

    Such a part begins at `unroll_split_begin` and has `unroll_len` steps (1 by default); one step is returned as a
    dict.

    Raises:
        ValueError: the indices are out of range or not integers, or the sample is not made of dicts.
    """
    begin, length = meta.get("unroll_split_begin", meta.get(DATA_INDEX, 0)), 1
    if "unroll_split_begin" in meta:
        length = meta.get("unroll_len", 1)
    if not (isinstance(begin, int) and isinstance(length, int)):
        raise ValueError(f"{begin!r} and {length!r} are not indices of samples in the chunk {meta.get(DATA_ID)!r}")
    if not 0 <= begin < begin + length <= len(samples):
        raise ValueError(
            f"the chunk {meta.get(DATA_ID)!r} has {len(samples)} samples; it has no sample {begin + length - 1}"
        )
    return with_meta(samples[begin] if length == 1 else samples[begin : begin + length], meta)


def with_meta(sample: Any, meta: Mapping[str, Any]) -> Any:
    """Return a copy of `sample` (a dict, or a list of dicts) with the keys of `meta` added.

    Raises:
        ValueError: `sample` is neither a dict nor a list of dicts.
    """
    if isinstance(sample, list):
        return [with_meta(step, meta) for step in sample]
    if not isinstance(sample, dict):
        raise ValueError(f"the chunk {meta.get(DATA_ID)!r} holds a {type(sample).__name__} instead of a sample")
    return {**sample, **meta}
