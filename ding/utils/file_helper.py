"""Files on the local disk, written atomically and read without running code."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import pickle
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from ding.utils.lock_helper import get_file_lock


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike[str], mode: str = "wb") -> Iterator[IO[Any]]:
    """Open a temporary file for writing, which replaces `path` if the block ends without an exception.

    Readers see either the old or the new content. Missing parent folders are created. The data is flushed, but not
    synced to the disk. `mode` is `wb`, or `w` for UTF-8 text.

    Raises:
        OSError: the file cannot be written.
        ValueError: `mode` has another value.
    """
    if mode not in ("wb", "w"):
        raise ValueError(f"mode = {mode!r} is not allowed; it must be 'wb' or 'w'")
    folder, name = os.path.split(os.path.abspath(path))
    os.makedirs(folder, exist_ok=True)
    temporary = os.path.join(folder, f".{name}.{secrets.token_hex(8)}.tmp")
    try:
        # `x` instead of tempfile, so that the umask applies as to any other file.
        with open(temporary, mode.replace("w", "x"), encoding=None if "b" in mode else "utf-8") as file:
            yield file
        os.replace(temporary, os.path.join(folder, name))
    except BaseException:
        with contextlib.suppress(OSError):  # on a read-only disk it fails, too, and would hide the first error
            os.remove(temporary)
        raise


def beside(folder: str, suffix: str) -> str:
    """Return the name of another folder beside `folder`, which may end with a slash.

    Example:
        >>> beside("runs/a/", "seed0")
        'runs/a_seed0'
    """
    return f"{folder.rstrip(os.sep) or folder}_{suffix}"


def sweep_temporary(folder: str | os.PathLike[str], age_s: float = 3600.0) -> None:
    """Remove the temporary files in `folder` that killed writers left: those that have not changed for `age_s` seconds.

    Files that cannot be removed are kept.
    """
    for path in Path(folder).glob(".*.tmp"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > age_s:
                path.unlink()


def read_file(
    path: str | os.PathLike[str], fs_type: str | None = None, use_lock: bool = False, trust_pickle: bool = False
) -> Any:
    """Return the object that `save_file` wrote to `path`, with tensors on the CPU.

    Files may contain plain containers, numbers, strings, numpy arrays and tensors. Files with other types can run code
    when they are read, so they need `trust_pickle=True`. With `use_lock`, the lock `get_file_lock(path)` is held.

    Raises:
        pickle.UnpicklingError: the file is damaged, or holds other types and `trust_pickle` is false.
        AssertionError: `fs_type` is unknown.
        NotImplementedError: `path` starts with `s3://`, or `fs_type` names a remote store.
    """
    _require_local(path, fs_type)
    with _lock(path, "read", use_lock):
        return load_file(path, os.fspath(path), trust_pickle)


_DAMAGED_OR_UNTRUSTED = (
    "is damaged, or holds more than numbers, strings, containers, arrays and tensors; pass trust_pickle=True only if "
    "you trust its source"
)


def load_file(source: Any, name: str, trust_pickle: bool = False) -> Any:
    """Return the object in an open file of `torch.save`, or in that of a path; tensors are on the CPU.

    Raises:
        pickle.UnpicklingError: the data is damaged, or holds other types and `trust_pickle` is false; it has `name`.
    """
    import torch

    if not trust_pickle:
        _allow_arrays()
    try:
        # Without `mmap`, which saves 27 ms of reading 390 MB: the tensors would change, or end the process, when
        # somebody writes to the same path.
        return torch.load(source, map_location="cpu", weights_only=not trust_pickle)
    except (OSError, MemoryError):
        raise
    except Exception as error:  # torch raises many kinds of errors for what it has not written
        unknown = re.search(r"unsupported (global: )?global \S+", str(error), re.IGNORECASE)
        reason = unknown[0] if unknown else repr(error).split("\\n")[0]
        cause = "is damaged" if trust_pickle else _DAMAGED_OR_UNTRUSTED
        raise pickle.UnpicklingError(f"{name} {cause} ({reason})") from error


@functools.cache
def _allow_arrays() -> None:
    """Let `torch.load(weights_only=True)` read what numpy's arrays and scalars consist of, which runs no code."""
    import numpy as np
    import torch

    arrays = importlib.import_module("numpy._core.multiarray" if hasattr(np, "_core") else "numpy.core.multiarray")
    names: list[Any] = [np.ndarray, np.dtype, bytes, frozenset]
    names += {type(np.dtype(code)) for code in np.typecodes["All"]}
    for module in ("numpy._core.multiarray", "numpy.core.multiarray"):
        names += [(getattr(arrays, name), f"{module}.{name}") for name in ("_reconstruct", "scalar")]
    torch.serialization.add_safe_globals(names)


def save_file(path: str | os.PathLike[str], data: Any, fs_type: str | None = None, use_lock: bool = False) -> None:
    """Write `data` to `path` atomically with `torch.save`, creating parent folders.

    Raises:
        AssertionError: `fs_type` is unknown.
        NotImplementedError: `path` starts with `s3://`, or `fs_type` names a remote store.
    """
    import torch

    _require_local(path, fs_type)
    with _lock(path, "write", use_lock), atomic_write(path) as file:
        torch.save(data, file)


def remove_file(path: str | os.PathLike[str], fs_type: str | None = None) -> None:
    """Delete the file, or the folder with its contents; a missing path is not an error.

    Raises:
        AssertionError: `fs_type` is unknown.
        NotImplementedError: `path` starts with `s3://`, or `fs_type` names a remote store.
    """
    _require_local(path, fs_type)
    with contextlib.suppress(FileNotFoundError):
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.remove(path)


def _require_local(path: str | os.PathLike[str], fs_type: str | None) -> None:
    if fs_type not in (None, "normal", "ceph", "mc"):
        raise AssertionError(f"fs_type = {fs_type!r} is not allowed; it must be None or 'normal'")
    if fs_type in ("ceph", "mc") or (fs_type is None and os.fspath(path).lower().startswith("s3://")):
        raise NotImplementedError(
            f"{os.fspath(path)} (fs_type = {fs_type!r}) is in a remote store, which is not supported; "
            "use a path on a mounted disk"
        )


def _lock(path: str | os.PathLike[str], op: str, use_lock: bool) -> contextlib.AbstractContextManager[Any]:
    return get_file_lock(os.fspath(path), op) if use_lock else contextlib.nullcontext()
