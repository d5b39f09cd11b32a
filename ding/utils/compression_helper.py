"""Compression of objects. Decompression never unpickles, so it cannot run code."""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from ding.utils.import_helper import optional_module
from ding.utils.msgpack_helper import pack, unpack

# Maximum size of uncompressed data in bytes. Otherwise, a short message could claim all memory.
_MAX_EXPANDED = 2**30


class CloudPickleWrapper:
    """A wrapper that pickles `data` by cloudpickle, so that lambdas and closures can be sent to a child process.

    Example:
        >>> pickle.loads(pickle.dumps(CloudPickleWrapper(lambda x: x + 1))).data(1)
        2
    """

    def __init__(self, data: Any) -> None:
        self.data = data

    def __getstate__(self) -> bytes:
        import cloudpickle

        state: bytes = cloudpickle.dumps(self.data)
        return state

    def __setstate__(self, state: bytes) -> None:
        # The state always comes from the parent process.
        self.data = pickle.loads(state)


def dummy_compressor(data: Any) -> Any:
    """Return `data` itself."""
    return data


def dummy_decompressor(data: Any) -> Any:
    """Return `data` itself."""
    return data


def zlib_data_compressor(data: Any) -> bytes:
    """Return `data` packed by `msgpack_helper.pack` and compressed by zlib."""
    return zlib.compress(pack(data))


def zlib_data_decompressor(compressed_data: bytes) -> Any:
    """Return the object that was passed to `zlib_data_compressor`.

    Raises:
        ValueError: the data is damaged, of another format, or expands to more than 2^30 bytes.
    """
    expander = zlib.decompressobj()
    try:
        content = expander.decompress(compressed_data, _MAX_EXPANDED)
    except zlib.error as error:
        raise ValueError(f"the data is not compressed by zlib: {error}") from error
    if expander.unconsumed_tail:
        raise ValueError(f"the data expands to more than {_MAX_EXPANDED} bytes")
    if not expander.eof:
        raise ValueError("the data is not compressed by zlib: it is incomplete")
    return unpack(content)


def lz4_data_compressor(data: Any) -> bytes:
    """Return `data` packed by `msgpack_helper.pack` and compressed by lz4 (block format with its size)."""
    import lz4.block

    result: bytes = lz4.block.compress(pack(data))
    return result


def lz4_data_decompressor(compressed_data: bytes) -> Any:
    """Return the object that was passed to `lz4_data_compressor`.

    Raises:
        ValueError: the data is damaged, of another format, or expands to more than 2^30 bytes.
    """
    import lz4.block

    # The first four bytes are the size to allocate. lz4 expands at most 255 times, so a larger size is not valid.
    claimed = int.from_bytes(compressed_data[:4], "little")
    if len(compressed_data) < 4 or claimed > 255 * len(compressed_data):
        raise ValueError(f"the data is not compressed by lz4: {len(compressed_data)} bytes cannot hold {claimed}")
    if claimed > _MAX_EXPANDED:
        raise ValueError(f"the data expands to more than {_MAX_EXPANDED} bytes")
    try:
        return unpack(lz4.block.decompress(compressed_data))
    except lz4.block.LZ4BlockError as error:
        raise ValueError(f"the data is not compressed by lz4: {error}") from error


def jpeg_data_compressor(data: np.ndarray) -> bytes:
    """Return the uint8 image `data`, [H, W] or [H, W, C], as JPEG, which is lossy; the order of channels is kept."""
    cv2 = _cv2()
    _, encoded = cv2.imencode(".jpg", data)
    result: bytes = encoded.tobytes()
    return result


def jpeg_data_decompressor(compressed_data: bytes, gray_scale: bool = False) -> np.ndarray:
    """Return the uint8 image in `compressed_data`: [H, W, 3], or [H, W, 1] with `gray_scale`.

    Raises:
        ValueError: the data is not an image.
    """
    cv2 = _cv2()
    flag = cv2.IMREAD_GRAYSCALE if gray_scale else cv2.IMREAD_COLOR
    image = cv2.imdecode(np.frombuffer(compressed_data, dtype=np.uint8), flag)
    if image is None:
        raise ValueError("the data is not an image")
    return np.asarray(image[..., None] if gray_scale else image)


_COMPRESSORS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "lz4": (lz4_data_compressor, lz4_data_decompressor),
    "zlib": (zlib_data_compressor, zlib_data_decompressor),
    "none": (dummy_compressor, dummy_decompressor),
    "jpeg": (jpeg_data_compressor, jpeg_data_decompressor),
}


def get_data_compressor(name: str) -> Callable[..., Any]:
    """Return the compressor `name`: `lz4`, `zlib`, `jpeg` (images only) or `none`.

    Raises:
        KeyError: the name is unknown.
    """
    return _pair(name)[0]


def get_data_decompressor(name: str) -> Callable[..., Any]:
    """Return the decompressor of `get_data_compressor(name)`.

    Raises:
        KeyError: the name is unknown.
    """
    return _pair(name)[1]


def _pair(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    if name not in _COMPRESSORS:
        raise KeyError(f"unknown compressor {name!r}; it must be one of {', '.join(_COMPRESSORS)}")
    return _COMPRESSORS[name]


def _cv2() -> Any:
    return optional_module("cv2", "JPEG", "opencv-python-headless", "atari")
