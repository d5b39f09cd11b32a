"""Files on the local disk, written atomically and read without running code."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
import pickle
import re
import secrets
import shutil
import socket
import time
from collections.abc import Iterator
from typing import IO, Any

from ding.utils.lock_helper import get_file_lock


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike[str], mode: str = "wb") -> Iterator[IO[Any]]:
    """Open a temporary file for writing, which replaces `path` if the block ends without an exception.

    Readers see either the old or the new content. Missing parent folders are created. The data is flushed, but not
    synced to the disk. `mode` is `wb`, or `w` for UTF-8 text.

    Raises:
        OSError: the file cannot be written. A full disk is reported even if the block raises another error for it.
        ValueError: `mode` has another value.
    """
    if mode not in ("wb", "w"):
        raise ValueError(f"mode = {mode!r} is not allowed; it must be 'wb' or 'w'")
    folder, name = os.path.split(os.path.abspath(path))
    os.makedirs(folder, exist_ok=True)
    temporary = os.path.join(folder, f".{name}.{_machine()}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        # `x` instead of tempfile, so that the umask applies as to any other file.
        with open(temporary, mode.replace("w", "x"), encoding=None if "b" in mode else "utf-8") as file:
            yield file
        os.replace(temporary, os.path.join(folder, name))
    except BaseException as e:
        with contextlib.suppress(OSError):  # on a read-only disk it fails, too, and would hide the first error
            os.remove(temporary)
        full = _disk_full_error(e)
        if full is None:
            raise
        advice = "free some space, or choose another exp_name or working directory"
        raise OSError(full.errno, f"{full.strerror}: {os.path.join(folder, name)} is not written; {advice}") from e


def beside(folder: str, suffix: str) -> str:
    """Return the name of another folder beside `folder`, which may end with a slash.

    Example:
        >>> beside("runs/a/", "seed0")
        'runs/a_seed0'
    """
    return f"{folder.rstrip(os.sep) or folder}_{suffix}"


def sweep_temporary(folder: str | os.PathLike[str], age_s: float = 3600.0) -> None:
    """Remove the temporary files in `folder` of killed writers.

    These are files of processes of this machine that have ended, and files that have not changed for `age_s` seconds.
    Files that cannot be removed are kept.
    """
    with contextlib.suppress(OSError), os.scandir(folder) as entries:  # such files only take up space
        for entry in entries:
            match = _TEMPORARY.fullmatch(entry.name)
            if match is None:
                continue
            import psutil  # only here: it takes longer to load than the rest of this module

            with contextlib.suppress(OSError):
                is_old = time.time() - entry.stat(follow_symlinks=False).st_mtime > age_s
                is_orphan = match["machine"] == _machine() and not psutil.pid_exists(int(match["pid"]))
                if is_old or is_orphan:
                    os.remove(entry.path)


_TEMPORARY = re.compile(r"\..+\.(?P<machine>[0-9a-f]{8})\.(?P<pid>[0-9]{1,9})\.[0-9a-f]{8}\.tmp")


def _machine() -> str:
    """Return a short name of this machine, because several may share the folder."""
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]


def _disk_full_error(error: BaseException | None) -> OSError | None:
    """Return the error of a full disk or quota in the chain of causes of `error`, or None."""
    while error is not None and not (isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)):
        error = error.__cause__ or error.__context__
    return error


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
        return _load(path, os.fspath(path), trust_pickle)


def file_content(data: bytes, name: str, trust_pickle: bool = False) -> Any:
    """Return the object in the bytes of a file that `save_file` wrote; `name` is for error messages.

    Raises:
        pickle.UnpicklingError: the data is damaged, or holds other types and `trust_pickle` is false.
    """
    return _load(io.BytesIO(data), name, trust_pickle)


def _load(source: Any, name: str, trust_pickle: bool) -> Any:
    import torch

    from ding.utils.torch_file import UnknownContent, load_archive

    if trust_pickle:
        return torch.load(source, map_location="cpu", weights_only=False)
    with contextlib.ExitStack() as stack:
        file: Any = source if isinstance(source, io.IOBase) else stack.enter_context(open(source, "rb"))
        try:
            return load_archive(file)
        except UnknownContent as error:  # torch knows older formats, and other kinds of tensors
            reason: Exception = error
        except pickle.UnpicklingError as error:
            raise pickle.UnpicklingError(f"{name} is damaged, or not a file of torch.save ({error})") from error
        file.seek(0)
        try:
            return torch.load(file, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            raise pickle.UnpicklingError(
                f"{name} holds more than numbers, strings, containers, arrays and tensors, or is damaged; "
                f"pass trust_pickle=True only if you trust its source ({reason})"
            ) from error
        except (OSError, MemoryError):
            raise
        except Exception as error:  # torch raises many kinds of errors for what it has not written
            raise pickle.UnpicklingError(f"{name} is damaged, or not a file of torch.save ({error!r})") from error


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
