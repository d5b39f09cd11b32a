"""Reading of files of `torch.save` without running code, and without trusting the sizes that they state.

`torch.load(weights_only=True)` runs no code either, but a file can make it return uninitialized memory, or allocate any
amount: by `torch.Tensor(10**12)` or `numpy.ndarray`, for example, or by storages larger than their records. Here each
object is made by a function of this module, from bytes that the file has.
"""

from __future__ import annotations

import collections
import math
import os
import pickle
import pickletools
import struct
import zipfile
from collections.abc import Callable, Iterable, Mapping
from typing import IO, Any, NamedTuple

import numpy as np
import torch

from ding.utils.msgpack_helper import check_text, has_values, plain_dtype

_LOCAL_HEADER, _MAGIC = struct.Struct("<4s22xHH"), b"PK\x03\x04"
# Values of a tensor that share memory, as those of an expanded one, beyond the size of its storage.
_SHARED_VALUES = 2**16
# Tuples that are keys are hashed by a recursion in C, which overflows the stack where they are nested deeply.
_MAX_NESTED_KEYS = 32
# Limit of the work and the memory that a pickle causes, for each of its bytes.
_EXPANSION = 100
_ARRAY_KINDS = "biufcSU"
_STORAGE_MODULES = ("torch", "torch.storage")
_STORAGES = {
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
    "ComplexDoubleStorage": torch.complex128,
    "ComplexFloatStorage": torch.complex64,
    "UntypedStorage": torch.uint8,
}


class UnknownContent(pickle.UnpicklingError):
    """The file is not an archive, or contains an object of a kind that this module does not make."""


class _Name(NamedTuple):
    """The name of a global in a file."""

    module: str
    name: str


_ARRAY_TYPE = _Name("numpy", "ndarray")


class _Storage(NamedTuple):
    values: torch.Tensor  # bytes
    dtype: torch.dtype


def load_archive(file: IO[bytes], structure_bytes: int | None = None) -> Any:
    """Return the object that `torch.save` wrote to a file, with tensors on the CPU.

    The memory is at most the size of the file for tensors, and about 100 times the size of the pickle in it for other
    objects.

    Args:
        structure_bytes: the maximum size of the pickle, which holds all but the values of tensors.

    Raises:
        UnknownContent: the file has another format, or contains other objects than numbers, strings, containers, dense
            tensors, parameters and arrays.
        pickle.UnpicklingError: it is damaged, claims a larger size than it has, or has keys of more than 32 nested
            tuples.
    """
    try:
        archive = _Archive(file)
        code = archive.record("data.pkl", structure_bytes)
        return _Machine(archive).run(bytes(code))
    except (zipfile.BadZipFile, NotImplementedError) as error:
        raise UnknownContent(f"not an archive of torch.save: {error}") from error
    except (pickle.UnpicklingError, OSError, MemoryError):
        raise
    except Exception as error:  # whatever a damaged pickle leads to
        raise pickle.UnpicklingError(f"the pickle is damaged: {error!r}") from error


class _Archive:
    """The records of a file, which are not compressed."""

    def __init__(self, file: IO[bytes]) -> None:
        size = file.seek(0, os.SEEK_END)
        self._file = file
        self._storages: dict[str, _Storage] = {}
        records = zipfile.ZipFile(file).infolist()
        claimed = sum(record.file_size for record in records)
        if claimed > size or any(record.compress_type != zipfile.ZIP_STORED for record in records):
            raise pickle.UnpicklingError(
                f"the file has {size} bytes, but its content is compressed, or claims to have more ({claimed})"
            )
        self._records = {record.filename.partition("/")[2]: record for record in records}
        if "data.pkl" not in self._records:
            raise UnknownContent("not an archive of torch.save: it has no data.pkl")
        if "byteorder" in self._records and self.record("byteorder") != b"little":
            raise pickle.UnpicklingError("the file was written on a machine of another byte order")

    def record(self, name: str, limit_bytes: int | None = None) -> bytearray:
        """Return the bytes of a record."""
        info = self._records[name]
        if limit_bytes is not None and info.file_size > limit_bytes:
            raise pickle.UnpicklingError(f"{name} has {info.file_size} bytes, more than {limit_bytes}")
        self._file.seek(info.header_offset)
        magic, name_size, extra_size = _LOCAL_HEADER.unpack(self._file.read(_LOCAL_HEADER.size))
        self._file.seek(name_size + extra_size, os.SEEK_CUR)
        content = bytearray(self._file.read(info.file_size))
        if magic != _MAGIC or len(content) != info.file_size:
            raise pickle.UnpicklingError(f"the record {name} is incomplete")
        return content

    def storage(self, kind: str, storage_type: Any, key: str, location: str, size: int) -> _Storage:
        """Return the storage that a pickle refers to."""
        if kind != "storage" or type(storage_type) is not _Name or storage_type.name not in _STORAGES:
            raise UnknownContent("it holds a storage of an unknown type")
        if type(key) is not str or type(size) is not int:
            raise pickle.UnpicklingError("the key of a storage is not text, or its size is not an integer")
        if key not in self._storages:
            dtype, content = _STORAGES[storage_type.name], self.record(f"data/{key}")
            if size * dtype.itemsize != len(content):
                raise pickle.UnpicklingError(f"{len(content)} bytes are not {size} values of {dtype}")
            if dtype is torch.bool:
                content = bytearray((np.frombuffer(content, np.uint8) != 0).tobytes())  # others are undefined
            values = torch.frombuffer(content, dtype=torch.uint8) if content else torch.empty(0, dtype=torch.uint8)
            self._storages[key] = _Storage(values, dtype)
        return self._storages[key]


class _Machine:
    """Interpreter of pickles that uses the functions of this module for everything that a pickle calls."""

    def __init__(self, archive: _Archive) -> None:
        self._archive = archive
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[Any, Any] = {}
        self._left = 0
        handlers: dict[str, Callable[[Any], Any]] = {
            "PROTO FRAME": lambda arg: None,
            "BINPUT LONG_BINPUT": lambda arg: self._memo.update({arg: self._stack[-1]}),
            "MEMOIZE": lambda arg: self._memo.update({len(self._memo): self._stack[-1]}),
            "BINGET LONG_BINGET": lambda arg: self._stack.append(self._memo[arg]),
            "BININT BININT1 BININT2 LONG1 LONG4 BINFLOAT": self._stack.append,
            "BINUNICODE SHORT_BINUNICODE BINUNICODE8": self._stack.append,
            "BINBYTES SHORT_BINBYTES BINBYTES8 BINSTRING SHORT_BINSTRING": self._stack.append,
            "NONE": lambda arg: self._stack.append(None),
            "NEWTRUE": lambda arg: self._stack.append(True),
            "NEWFALSE": lambda arg: self._stack.append(False),
            "EMPTY_DICT": lambda arg: self._stack.append({}),
            "EMPTY_LIST": lambda arg: self._stack.append([]),
            "EMPTY_TUPLE": lambda arg: self._stack.append(()),
            "EMPTY_SET": lambda arg: self._stack.append(set()),
            "MARK": lambda arg: self._marks.append(len(self._stack)),
            "TUPLE": lambda arg: self._stack.append(tuple(self._popped())),
            "TUPLE1": lambda arg: self._stack.append(tuple(self._popped(1))),
            "TUPLE2": lambda arg: self._stack.append(tuple(self._popped(2))),
            "TUPLE3": lambda arg: self._stack.append(tuple(self._popped(3))),
            "APPEND": lambda arg: self._fill(self._popped(1)),
            "APPENDS ADDITEMS": lambda arg: self._fill(self._popped()),
            "SETITEM": lambda arg: self._update(self._popped(2)),
            "SETITEMS": lambda arg: self._update(self._popped()),
            "GLOBAL": lambda arg: self._stack.append(_found(*arg.split(" "))),
            "STACK_GLOBAL": lambda arg: self._stack.append(_found(*self._popped(2))),
            "REDUCE NEWOBJ": lambda arg: self._stack.append(self._make(*self._popped(2))),
            "BUILD": lambda arg: self._build(*self._popped(2, kept=1)),
            "BINPERSID": lambda arg: self._stack.append(self._archive.storage(*self._stack.pop())),
        }
        self._handlers = {name: handler for names, handler in handlers.items() for name in names.split()}

    def run(self, code: bytes) -> Any:
        """Return the object of a pickle."""
        handlers, self._left = self._handlers, _EXPANSION * len(code)
        for opcode, arg, _ in pickletools.genops(code):
            if opcode.name == "STOP":
                (result,) = self._stack
                return result
            if opcode.name not in handlers:
                raise UnknownContent(f"it holds the opcode {opcode.name}")
            handlers[opcode.name](arg)
        raise pickle.UnpicklingError("the pickle has no end")

    def _popped(self, count: int | None = None, kept: int = 0) -> list[Any]:
        """Return the top `count` items of the stack, by default those since the last mark, and keep `kept` of them.

        Raises:
            IndexError: there are fewer items.
        """
        stack = self._stack
        start = self._marks.pop() if count is None else len(stack) - count
        if not 0 <= start <= len(stack):
            raise IndexError("the stack is too short")
        items = stack[start:]
        del stack[start + kept :]
        return items

    def _fill(self, items: list[Any]) -> None:
        container = self._stack[-1]
        _refuse_names(items)
        if type(container) is list:
            container.extend(items)
        elif type(container) is set:
            self._check_keys(items)
            container.update(items)
        else:
            raise pickle.UnpicklingError(f"items for a {type(container).__name__}")

    def _update(self, items: list[Any]) -> None:
        container = self._stack[-1]
        _refuse_names(items)
        if type(container) not in (dict, collections.OrderedDict, collections.Counter):
            raise pickle.UnpicklingError(f"items for a {type(container).__name__}")
        self._check_keys(items[::2])
        container.update(zip(items[::2], items[1::2], strict=True))

    def _make(self, name: Any, args: Any) -> Any:
        maker = _MAKERS.get(name) if type(name) is _Name else None
        if maker is None:
            raise UnknownContent(f"it holds a {'.'.join(name) if type(name) is _Name else type(name).__name__}")
        if maker in (set, frozenset):
            (members,) = args
            if type(members) is not list:
                raise pickle.UnpicklingError(f"the members of a set are a {type(members).__name__}")
            self._check_keys(members)
        self._count_copies(args)
        return maker(*args)

    def _build(self, made: Any, state: Any) -> None:
        if type(state) is tuple:
            self._count_copies(state)
        _set_state(made, state)

    def _check_keys(self, keys: Iterable[Any], nesting: int = 0) -> None:
        """Check that keys, or members of a set, can be hashed; the hash of a tuple is computed anew each time."""
        for key in keys:
            if isinstance(key, tuple):
                if nesting == _MAX_NESTED_KEYS:
                    raise pickle.UnpicklingError(f"a key of more than {_MAX_NESTED_KEYS} nested tuples")
                self._spend(1 + len(key))
                self._check_keys(key, nesting + 1)

    def _count_copies(self, contents: tuple[Any, ...]) -> None:
        """Count content that is copied: a pickle may hold it once, and name it any number of times."""
        for content in contents:
            if isinstance(content, (str, bytes)):
                self._spend(len(content))
            elif type(content) in (list, dict):  # an item takes at least one byte of the pickle
                self._spend(_EXPANSION * len(content))

    def _spend(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise pickle.UnpicklingError("the pickle repeats parts of itself too often")


def _found(module: str, name: str) -> Any:
    """Return the dtype that a pickle names, or the name of a function that it calls.

    Raises:
        UnknownContent: the pickle names anything else.
    """
    if type(module) is not str or type(name) is not str:
        raise pickle.UnpicklingError("a name is not text")
    dtype = getattr(torch, name, None) if module == "torch" else None
    if isinstance(dtype, torch.dtype):
        return dtype
    found = _Name(module, name)
    if found in _MAKERS or found == _ARRAY_TYPE or (module in _STORAGE_MODULES and name in _STORAGES):
        return found
    raise UnknownContent(f"it holds a {module}.{name}")


def _refuse_names(items: list[Any]) -> None:
    """Refuse functions and classes as values."""
    for item in items:
        if type(item) is _Name:
            raise UnknownContent(f"it holds the object {'.'.join(item)}")


def _tensor_v2(
    storage: _Storage, offset: int, size: Any, stride: Any, requires_grad: bool, hooks: Any, metadata: Any = None
) -> torch.Tensor:
    return _tensor_v3(storage, offset, size, stride, requires_grad, hooks, storage.dtype, metadata)


def _tensor_v3(
    storage: _Storage,
    offset: int,
    size: tuple[int, ...],
    stride: tuple[int, ...],
    requires_grad: bool,
    hooks: Any,
    dtype: torch.dtype,
    metadata: Any = None,
) -> torch.Tensor:
    if metadata:
        raise UnknownContent("it holds a tensor with metadata")
    if not isinstance(dtype, torch.dtype):
        raise pickle.UnpicklingError("a tensor has no dtype")
    if not has_values(dtype):
        raise UnknownContent(f"it holds a tensor of dtype {dtype}")
    if type(storage) is not _Storage:
        raise pickle.UnpicklingError("a tensor has no storage")
    _check_bounds(storage.values.nbytes // dtype.itemsize, offset, size, stride)
    if dtype is torch.bool and storage.dtype is not torch.bool:
        raise pickle.UnpicklingError("a tensor of bools has a storage of another type")
    tensor = torch.empty(0, dtype=dtype)
    tensor.set_(storage.values.untyped_storage(), offset, size, stride)
    return tensor.requires_grad_() if requires_grad else tensor


def _check_bounds(count: int, offset: int, size: tuple[int, ...], stride: tuple[int, ...]) -> None:
    """Check that a tensor consists of the `count` values of its storage; torch would enlarge an empty storage."""
    _check_sizes((offset, *size, *stride))
    last = offset + sum((length - 1) * step for length, step in zip(size, stride, strict=True))
    if math.prod(size) > max(count, _SHARED_VALUES) or (0 not in size and last >= count):
        raise pickle.UnpicklingError(
            f"{count} values are not a tensor of the size {list(size)} and stride {list(stride)} from {offset} on"
        )


def _check_sizes(sizes: Any) -> None:
    if not all(type(size) is int and size >= 0 for size in sizes):
        raise pickle.UnpicklingError("a size, stride or offset is not an integer from 0 on")


def _parameter(data: torch.Tensor, requires_grad: bool, hooks: Any) -> torch.nn.Parameter:
    return torch.nn.Parameter(data.detach(), bool(requires_grad))


def _encoded(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise UnknownContent("it holds text in another encoding than latin1")
    return text.encode(encoding)


def _dtype(text: Any, *flags: Any) -> np.dtype:
    if type(text) is not str:
        raise pickle.UnpicklingError("the name of a dtype is not text")
    try:
        dtype = np.dtype(object) if text in ("O", "O8") else plain_dtype(text)
    except ValueError as error:
        raise UnknownContent(f"it holds an array: {error}") from error
    if dtype.kind not in _ARRAY_KINDS + "O":
        raise UnknownContent(f"it holds an array of dtype {dtype}")
    return dtype


def _scalar(dtype: np.dtype, content: bytes) -> Any:
    if not isinstance(dtype, np.dtype) or dtype.kind == "O":
        raise UnknownContent("it holds a scalar of Python objects")
    if type(content) is not bytes:
        raise pickle.UnpicklingError(f"a scalar is made of a {type(content).__name__}")
    check_text(content, dtype)
    values = np.frombuffer(content, dtype)
    (value,) = values != 0 if dtype.kind == "b" else values
    return value


def _array(of: Any, shape: Any, kind: Any) -> np.ndarray:
    if shape != (0,):
        raise pickle.UnpicklingError("an array without content")
    return np.empty(0, object)  # until `_set_array` fills it


def _copy_of(make: Callable[[bytes], Any]) -> Callable[..., Any]:
    def copied(content: bytes = b"") -> Any:
        if type(content) is not bytes:
            raise pickle.UnpicklingError("bytes without content")
        return make(content)

    return copied


def _mapping(make: Callable[..., Any]) -> Callable[..., Any]:
    def filled(*content: Any) -> Any:
        if any(type(items) is not dict for items in content):
            raise pickle.UnpicklingError("the items of a mapping are not a dict")
        return make(*content)

    return filled


def _size(numbers: Any) -> torch.Size:
    _check_sizes(numbers)
    return torch.Size(numbers)


_BUILTINS: dict[str, Callable[..., Any]] = {
    "set": set,
    "frozenset": frozenset,
    "complex": complex,
    "bytes": _copy_of(bytes),
    "bytearray": _copy_of(bytearray),
}
_MAKERS: dict[_Name, Callable[..., Any]] = {
    _Name("torch._utils", "_rebuild_tensor_v2"): _tensor_v2,
    _Name("torch._utils", "_rebuild_tensor_v3"): _tensor_v3,
    _Name("torch._utils", "_rebuild_parameter"): _parameter,
    _Name("torch", "Size"): _size,
    _Name("torch", "device"): lambda *place: torch.device(*place),
    _Name("collections", "OrderedDict"): _mapping(collections.OrderedDict),
    _Name("collections", "Counter"): _mapping(collections.Counter),
    _Name("_codecs", "encode"): _encoded,
    _Name("numpy", "dtype"): _dtype,
    **{_Name(f"numpy.{core}.multiarray", "_reconstruct"): _array for core in ("core", "_core")},
    **{_Name(f"numpy.{core}.multiarray", "scalar"): _scalar for core in ("core", "_core")},
    **{_Name(module, name): make for module in ("builtins", "__builtin__") for name, make in _BUILTINS.items()},
}


def _set_state(made: Any, state: Any) -> None:
    if isinstance(made, np.ndarray):
        _set_array(made, *state)
    elif isinstance(made, np.dtype):
        _, order, *structure, size, _, _ = state
        if (
            order not in ("<", "|", "=")
            or any(part is not None for part in structure)
            or size not in (-1, made.itemsize)
        ):
            raise UnknownContent(f"it holds an array of another dtype than {made}")
    elif type(made) is collections.OrderedDict and isinstance(state, Mapping) and state.keys() == {"_metadata"}:
        made._metadata = state["_metadata"]  # type: ignore[attr-defined]  # of the state of a module
    else:
        raise UnknownContent(f"it holds a {type(made).__name__} with attributes")


def _set_array(array: np.ndarray, version: int, shape: Any, dtype: Any, order: Any, content: Any) -> None:
    if not isinstance(dtype, np.dtype):
        raise pickle.UnpicklingError("an array has no dtype")
    if array.dtype.kind != "O" or array.size:
        raise pickle.UnpicklingError("an array is filled twice")
    _check_sizes(shape)
    size = math.prod(shape)
    if dtype.kind == "O":
        is_whole = type(content) is list and len(content) == size
        # Arrays of objects release their items by a recursion in C, which overflows the stack if it is deep.
        if is_whole and any(isinstance(item, np.ndarray) and item.dtype.kind == "O" for item in content):
            raise UnknownContent("it holds an array of objects within another one")
    else:
        is_whole = type(content) is bytes and len(content) == size * dtype.itemsize and (dtype.itemsize > 0 or not size)
    if not is_whole:
        raise pickle.UnpicklingError(f"a {type(content).__name__} is not an array of shape {shape} and dtype {dtype}")
    check_text(content, dtype)
    if dtype.kind == "b":
        content = (np.frombuffer(content, np.uint8) != 0).tobytes()  # others are undefined
    state: Any = (1, shape, dtype, bool(order), content)
    array.__setstate__(state)
