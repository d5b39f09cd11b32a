"""Code-free serialization: msgpack with extension types for tuples, arrays, tensors and others."""

from __future__ import annotations

import math
import re
import struct
import sys
from collections.abc import Callable, Mapping
from enum import IntEnum
from functools import partial
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


# Strings from the system, such as names of files, may hold bytes that are no text, as surrogates.
_UNICODE_ERRORS = "surrogatepass"
_LEVELS = 32  # of messages within messages: some hundred of them would overflow the stack of a thread
_NUMPY_KINDS = "biufcSUmM"
# Names of these dtypes, as numpy writes them. It also reads units such as `s/0` and `0s`, at which it divides by zero.
_DTYPE_NAME = re.compile(r"[<>|=]?([biufcSU][0-9]{1,10}|[mM]8(\[([1-9][0-9]*)?[A-Za-z]+\])?)")
_INTEGERS = frozenset(("bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))))


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


def pack(obj: Any, levels: int = _LEVELS) -> bytes:
    """Return `obj` as bytes.

    `unpack` restores dicts, lists, tuples, sets, `EasyDict`s, strings, bytes, numbers of any size, bools, None, numpy
    scalars and arrays, and dense tensors, which are moved to the CPU and detached. Other subclasses of dict and list
    become dicts and lists.

    Raises:
        TypeError: `obj` contains another type, such as a named tuple, an object array or a class instance.
        ValueError: more than `levels` tuples, sets and `EasyDict`s, or some hundred dicts and lists, are nested in each
            other, as when `obj` contains itself.
    """
    import msgpack

    if levels < 0:
        raise ValueError("too many tuples, sets and EasyDicts are nested in each other")
    encode = partial(_encode, levels)
    result: bytes = msgpack.packb(obj, default=encode, strict_types=True, unicode_errors=_UNICODE_ERRORS)
    return result


def can_pack(obj: Any) -> bool:
    """Return whether `pack` accepts `obj`, which takes as long as packing it."""
    try:
        pack(obj)
    except (TypeError, ValueError):
        return False
    return True


def unpack(data: bytes | bytearray | memoryview, levels: int = _LEVELS) -> Any:
    """Return the object that was passed to `pack`; arrays and tensors own their memory and are writable.

    It is safe for untrusted data: nothing is executed or imported.

    Raises:
        ValueError: `data` is damaged, or not a result of `pack`.
    """
    import msgpack

    if levels < 0:
        raise ValueError("too many tuples, sets and EasyDicts are nested in each other")
    try:
        decode = partial(_decode, levels)
        return msgpack.unpackb(data, ext_hook=decode, strict_map_key=False, unicode_errors=_UNICODE_ERRORS)
    except (msgpack.UnpackException, ValueError, TypeError, struct.error, IndexError) as error:
        raise ValueError(f"the data is damaged or of another format: {type(error).__name__}: {error}") from error


def _encode(levels: int, obj: Any) -> Any:
    if isinstance(obj, np.ndarray):
        return _ext(_Ext.NDARRAY, _array_bytes(obj))
    if is_tensor(obj):
        return _ext(_Ext.TENSOR, _tensor_bytes(obj))
    if isinstance(obj, np.generic):
        return _ext(_Ext.NUMPY_SCALAR, _array_bytes(np.asarray(obj)))
    if isinstance(obj, EasyDict):
        return _ext(_Ext.EASY_DICT, pack(dict(obj), levels - 1))
    if type(obj) is tuple:
        return _ext(_Ext.TUPLE, pack(list(obj), levels - 1))
    if type(obj) in (set, frozenset):
        return _ext(_Ext.SET, pack(list(obj), levels - 1))
    return dict(obj) if isinstance(obj, Mapping) else _encode_value(obj)


def _encode_value(obj: Any) -> Any:
    if type(obj) is int:
        # Only integers beyond 64 bits reach this point.
        return _ext(_Ext.BIG_INT, obj.to_bytes(obj.bit_length() // 8 + 1, "little", signed=True))
    if type(obj) is complex:
        return _ext(_Ext.COMPLEX, struct.pack("<dd", obj.real, obj.imag))
    for base, plain in _PLAIN.items():
        if isinstance(obj, base):
            return plain(obj)
    raise TypeError(
        f"{type(obj).__module__}.{type(obj).__qualname__} cannot be packed; use dicts, lists, tuples, strings, bytes, "
        "numbers, numpy arrays or tensors"
    )


def _ext(code: _Ext, data: bytes) -> Any:
    import msgpack

    return msgpack.ExtType(code, data)


# Of instances of subclasses, without calling methods that these override.
_PLAIN: dict[type, Callable[[Any], Any]] = {
    list: list,
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
    if not _DTYPE_NAME.fullmatch(name):
        raise ValueError(f"dtype {name[:100]!r} is not allowed; it must be one of numbers, text or times")
    dtype, size = np.dtype(name), math.prod(shape)
    if len(body) != size * dtype.itemsize or (size and not body):
        raise ValueError(f"{len(body)} bytes are not an array of shape {shape} and dtype {name}")
    content = _booleans(body) if dtype.kind == "b" else bytearray(body)
    return np.frombuffer(content, dtype).reshape(shape) if body else np.empty(shape, dtype)


def _booleans(body: memoryview) -> bytearray:
    """Return bools as bytes of 0 and 1; with others, functions of numpy and torch may fail, or read foreign memory."""
    return bytearray((np.frombuffer(body, np.uint8) != 0).tobytes())


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
    content = _booleans(body) if dtype is torch.bool else bytearray(body)
    return torch.frombuffer(content, dtype=dtype).reshape(shape)


def _decode(levels: int, code: int, data: bytes) -> Any:
    match code:
        case _Ext.NDARRAY:
            return _array_from(data)
        case _Ext.TENSOR:
            return _tensor_from(data)
        case _Ext.NUMPY_SCALAR:
            return _array_from(data)[()]
        case _Ext.TUPLE:
            return tuple(unpack(data, levels - 1))
        case _Ext.SET:
            return set(unpack(data, levels - 1))
        case _Ext.EASY_DICT:
            return EasyDict(unpack(data, levels - 1))
        case _Ext.BIG_INT:
            return int.from_bytes(data, "little", signed=True)
        case _Ext.COMPLEX:
            real, imaginary = struct.unpack("<dd", data)
            return complex(real, imaginary)
    raise ValueError(f"unknown extension type {code}")
