"""Code-free serialization: msgpack with extension types for tuples, arrays, tensors and others."""

from __future__ import annotations

import contextlib
import functools
import math
import re
import struct
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np
from easydict import EasyDict

if TYPE_CHECKING:
    from typing import TypeGuard

    import torch


def is_tensor(value: Any) -> TypeGuard[torch.Tensor]:
    """Return whether `value` is a tensor, which it cannot be before torch is imported."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


_NUMPY_KINDS = "biufcSUmM"
# Names of these dtypes, as numpy writes them. It also reads units such as `s/0` and `0s`, at which it divides by zero.
_DTYPE_NAME = re.compile(r"[<>|=]?([biufcSU][0-9]{1,10}|[mM]8(\[([1-9][0-9]*)?[A-Za-z]+\])?)")
_INTEGERS = frozenset(("bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))))
# A nested tuple, set or EasyDict is a message inside a message, and unpacking one takes about 40 kB of C stack. Without
# a limit, a short message could crash the process.
_MAX_NESTED_MESSAGES = 32


@functools.cache
def _msgpack() -> Any:
    try:
        import msgpack
    except ImportError as error:
        raise ImportError("packing data needs the package msgpack: pip install msgpack") from error
    return msgpack


class _Ext(IntEnum):
    """Extension codes, which are part of the file format and must never be renumbered."""

    NDARRAY = 1
    NUMPY_SCALAR = 2
    TENSOR = 3
    TUPLE = 4
    BIG_INT = 5
    EASY_DICT = 6
    COMPLEX = 7
    SET = 8


def pack(obj: Any) -> bytes:
    """Return `obj` as bytes.

    `unpack` restores dicts, lists, tuples, sets, `EasyDict`s, strings, bytes, numbers of any size, bools, None, numpy
    scalars and arrays, and dense tensors, which are moved to the CPU and detached. Other subclasses of dict and list
    become dicts and lists.

    Raises:
        TypeError: `obj` contains another type, such as a named tuple, an object array or a class instance.
        ValueError: more than 32 tuples, sets and `EasyDict`s, or about 500 dicts and lists, are nested in each
            other, as when `obj` contains itself.
    """
    return _pack(obj, 0)


def can_pack(obj: Any) -> bool:
    """Return whether `pack` accepts `obj`, which takes as long as packing it."""
    try:
        pack(obj)
    except (TypeError, ValueError):
        return False
    return True


def _pack(obj: Any, depth: int) -> bytes:
    if depth > _MAX_NESTED_MESSAGES:
        raise ValueError(f"more than {_MAX_NESTED_MESSAGES} tuples, sets and EasyDicts are nested; reduce the nesting")
    result: bytes = _msgpack().packb(obj, default=_encoders[depth], strict_types=True)
    return result


def unpack(data: bytes | bytearray | memoryview) -> Any:
    """Return the object that was passed to `pack`; arrays and tensors own their memory and are writable.

    It is safe for untrusted data: nothing is executed or imported.

    Raises:
        ValueError: `data` is damaged, or not a result of `pack`.
    """
    with _damage_is_a_value_error():
        return _unpack(data, 0)


def unpack_items(data: bytes, names: Collection[str]) -> dict[str, Any]:
    """Return the items `names` of the dict that was passed to `pack`, without decoding the other items.

    Raises:
        ValueError: `data` is damaged, or not a dict of `pack`.
    """
    with _damage_is_a_value_error():
        reader = _msgpack().Unpacker(ext_hook=_decoders[0], strict_map_key=False, max_buffer_size=len(data))
        reader.feed(data)
        items = {}
        for _ in range(reader.read_map_header()):
            name = reader.unpack()
            if name in names:
                items[name] = reader.unpack()
            else:
                reader.skip()
        return items


@contextlib.contextmanager
def _damage_is_a_value_error() -> Iterator[None]:
    try:
        yield
    except (_msgpack().UnpackException, ValueError, TypeError, struct.error, IndexError) as error:
        raise ValueError(f"the data is damaged or of another format: {type(error).__name__}: {error}") from error


def _ext(code: _Ext, data: bytes) -> Any:
    return _msgpack().ExtType(code, data)


def _unpack(data: bytes | bytearray | memoryview, depth: int) -> Any:
    if depth > _MAX_NESTED_MESSAGES:
        raise ValueError(f"more than {_MAX_NESTED_MESSAGES} messages inside each other")
    return _msgpack().unpackb(data, ext_hook=_decoders[depth], strict_map_key=False)


def _encode(depth: int, obj: Any) -> Any:
    if isinstance(obj, np.ndarray):
        return _ext(_Ext.NDARRAY, _array_bytes(obj))
    if is_tensor(obj):
        return _ext(_Ext.TENSOR, _tensor_bytes(obj))
    if isinstance(obj, np.generic):
        return _ext(_Ext.NUMPY_SCALAR, _array_bytes(np.asarray(obj)))
    if isinstance(obj, EasyDict):
        return _ext(_Ext.EASY_DICT, _pack(dict(obj), depth + 1))
    return _encode_container(obj, depth)


def _encode_container(obj: Any, depth: int) -> Any:
    if type(obj) is tuple:
        return _ext(_Ext.TUPLE, _pack(list(obj), depth + 1))
    if type(obj) in (set, frozenset):
        return _ext(_Ext.SET, _pack(list(obj), depth + 1))
    if isinstance(obj, Mapping):
        return dict(obj)
    if isinstance(obj, list):
        return list(obj)
    return _encode_value(obj)


def _encode_value(obj: Any) -> Any:
    if type(obj) is int:
        # Only integers beyond 64 bits reach this point.
        return _ext(_Ext.BIG_INT, obj.to_bytes(obj.bit_length() // 8 + 1, "little", signed=True))
    if type(obj) is complex:
        return _ext(_Ext.COMPLEX, struct.pack("<dd", obj.real, obj.imag))
    for base in (int, float, str, bytes):
        if isinstance(obj, base):
            # Not base(obj), which would call overridden methods of the subclass.
            return _PLAIN[base](obj)
    raise TypeError(
        f"{type(obj).__module__}.{type(obj).__qualname__} cannot be packed; use dicts, lists, tuples, strings, bytes, "
        "numbers, numpy arrays or tensors"
    )


_PLAIN: dict[type, Callable[[Any], Any]] = {
    int: int.__int__,
    float: float.__float__,
    str: str.__str__,
    bytes: lambda value: bytes(memoryview(value)),
}


def _header(dtype: str, shape: tuple[int, ...]) -> bytes:
    """Return the length of the dtype's name, the name, the number of dimensions and the dimensions."""
    name = dtype.encode("ascii")
    return struct.pack(f"<B{len(name)}sB{len(shape)}Q", len(name), name, len(shape), *shape)


def _read_header(data: bytes) -> tuple[str, tuple[int, ...], memoryview]:
    name_end = 1 + data[0]
    dtype = data[1:name_end].decode("ascii")
    ndim = data[name_end]
    shape = struct.unpack_from(f"<{ndim}Q", data, name_end + 1)
    return dtype, shape, memoryview(data)[name_end + 1 + 8 * ndim :]


def _array_bytes(array: np.ndarray) -> bytes:
    if array.dtype.kind not in _NUMPY_KINDS:
        raise TypeError(f"an array of dtype {array.dtype} cannot be packed; use a dtype of numbers, strings or times")
    return _header(array.dtype.str, array.shape) + array.tobytes()


def _array_from(data: bytes) -> np.ndarray:
    name, shape, body = _read_header(data)
    dtype = plain_dtype(name)
    size = math.prod(shape)
    if len(body) != size * dtype.itemsize or (size and not dtype.itemsize):
        raise ValueError(f"{len(body)} bytes are not an array of shape {shape} and dtype {name}")
    check_text(body, dtype)
    array = np.empty(shape, dtype)
    if body:
        array.reshape(-1).view(np.uint8)[:] = _booleans(body) if dtype.kind == "b" else body
    return array


def plain_dtype(name: str) -> np.dtype:
    """Return the dtype of numbers, text or times with this name, which is `dtype.str` or that without the byte order.

    Raises:
        ValueError, TypeError: `name` is another one.
    """
    if not _DTYPE_NAME.fullmatch(name):
        raise ValueError(f"dtype {name[:100]!r} is not allowed; it must be one of numbers, text or times")
    return np.dtype(name)


def check_text(content: bytes | memoryview, dtype: np.dtype) -> None:
    """Check that bytes are text if `dtype` is one of text; numpy fails when it shows or copies other code points.

    Raises:
        ValueError: a code point is beyond those of Unicode.
    """
    if dtype.kind == "U" and len(content) and np.frombuffer(content, f"{dtype.byteorder}u4").max() > sys.maxunicode:
        raise ValueError(f"text of dtype {dtype.str} has code points beyond those of Unicode")


def _booleans(body: memoryview) -> np.ndarray:
    """Return bools as bytes of 0 and 1; with others, functions of numpy and torch may fail, or read foreign memory."""
    flags: np.ndarray = np.frombuffer(body, np.uint8) != 0
    return flags.view(np.uint8)


def _tensor_bytes(tensor: torch.Tensor) -> bytes:
    import torch

    if tensor.layout is not torch.strided or tensor.is_meta or not has_values(tensor.dtype):
        raise TypeError(f"a tensor of layout {tensor.layout} and dtype {tensor.dtype} cannot be packed; make it dense")
    dense = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    flat = dense.as_strided((dense.numel(),), (1,))  # a contiguous axis of length 1 may still have another stride
    body = flat.view(torch.uint8).numpy().tobytes() if dense.numel() else b""
    return _header(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape)) + body


def has_values(dtype: torch.dtype) -> bool:
    """Return whether any bytes are valid values of a dtype; quantized tensors made of bytes crash the process."""
    return dtype.is_floating_point or dtype.is_complex or str(dtype).removeprefix("torch.") in _INTEGERS


def _tensor_from(data: bytes) -> torch.Tensor:
    import torch

    name, shape, body = _read_header(data)
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype) or not name.isidentifier() or not has_values(dtype):
        raise ValueError(f"dtype {name!r} is not a dtype of numbers of torch")
    if len(body) != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{len(body)} bytes are not a tensor of shape {shape} and dtype {name}")
    if not body:
        return torch.empty(shape, dtype=dtype)
    content = bytearray(_booleans(body) if dtype is torch.bool else body)
    return torch.frombuffer(content, dtype=dtype).reshape(shape)


def _decode(depth: int, code: int, data: bytes) -> Any:
    match code:
        case _Ext.NDARRAY:
            return _array_from(data)
        case _Ext.TENSOR:
            return _tensor_from(data)
        case _Ext.NUMPY_SCALAR:
            return _array_from(data)[()]
        case _Ext.TUPLE:
            return tuple(_unpack(data, depth + 1))
        case _Ext.SET:
            return set(_unpack(data, depth + 1))
        case _Ext.EASY_DICT:
            return EasyDict(_unpack(data, depth + 1))
        case _Ext.BIG_INT:
            return int.from_bytes(data, "little", signed=True)
        case _Ext.COMPLEX:
            return complex(*struct.unpack("<dd", data))
    raise ValueError(f"unknown extension type {code}")


_encoders = [functools.partial(_encode, depth) for depth in range(_MAX_NESTED_MESSAGES + 1)]
_decoders = [functools.partial(_decode, depth) for depth in range(_MAX_NESTED_MESSAGES + 1)]
