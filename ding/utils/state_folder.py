"""A folder of the newest states of a run: atomic, checksummed, code-free files that share unchanged large arrays.

A run holds its folder's lock, and compares its config with that of a state before it resumes from it.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
import os
import platform
import re
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from ding.utils.config_helper import ConfigError
from ding.utils.file_helper import atomic_write, sweep_temporary
from ding.utils.lock_helper import hold_file
from ding.utils.log_helper import shown
from ding.utils.msgpack_helper import is_tensor, pack, plain_dtype, unpack, unpack_items
from ding.utils.references import REFERENCE, items_of, saved_form

# Another version for each change of the states of the parts of a run.
_FORMAT, _VERSION = "ding-run-state", 5
_NAME = re.compile(r"state_(\d+)\.msgpack")
_CHUNK_NAME = re.compile(r"[0-9a-f]{40}")
# Arrays of at least this size are stored as chunks in files of their own.
_LARGE_BYTES = 1 << 16
# Chunk sizes of arrays up to 64 MiB, and of larger ones.
_CHUNK_BYTES, _MANY_BYTES = 1 << 20, 1 << 22
# Key of the reference that replaces a large array in a state.
_PLACE = "__array__"
_REMEDY = "remove it to resume from the previous state, or remove the folder to start again"


class StateError(ValueError):
    """A file contains no state from which a run can resume."""


class Saved(NamedTuple):
    """A state in a folder.

    Attributes:
        path: path of its file.
        about: the description that was passed to `write`.
        size_bytes: size of the file and of all chunks that it refers to.
    """

    path: str
    about: dict[str, Any]
    size_bytes: int


class StateFolder:
    """The newest states of one run, in files `state_<n>.msgpack`. Not thread-safe; for a single writer.

    Files are written atomically and have a checksum. Arrays and tensors of at least 64 KiB are stored in the folder
    `chunks`, in files named by the SHA-256 of their content, so that states share equal chunks. Chunks that no kept
    state refers to are removed, other files there are left alone. No code in a file is executed.

    Args:
        path: the folder, created by the first `write`.
        keep: number of states to keep.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as path:
        ...     folder = StateFolder(path, keep=2)
        ...     _ = [folder.write({"step": i, "data": np.zeros(100_000)}, {"iter": i}) for i in range(3)]
        ...     state, about = folder.read()
        ...     state["step"], about, [saved.about["iter"] for saved in folder.states()]
        (2, {'iter': 2}, [1, 2])
    """

    def __init__(self, path: str | os.PathLike[str], keep: int = 2) -> None:
        self.path, self._keep = os.fspath(path), keep
        self._chunks = os.path.join(self.path, "chunks")
        self._damaged: set[str] = set()

    def write(self, state: Mapping[str, Any], about: Mapping[str, Any]) -> int:
        """Write a state of plain values, arrays and tensors, and remove states beyond the `keep` newest.

        Args:
            state: the state.
            about: a description of the state, of plain values; see `states`.

        Returns:
            The number of written bytes.

        Raises:
            StateError: the folder `chunks` is a symbolic link.
            TypeError, ValueError: the state cannot be packed; see `pack`.
            OSError: a file cannot be written. Earlier states are kept, and what was written of this one is removed.
        """
        self._refuse_link()
        os.makedirs(self._chunks, exist_ok=True)
        writer = _ArrayWriter(self._chunks)
        number = max((number for number, _ in self._files()), default=0) + 1
        path = os.path.join(self.path, f"state_{number:06d}.msgpack")
        try:
            tree = writer.replace(state)
            head = {"about": dict(about), "arrays": writer.arrays}
            body = pack({**head, "state": tree})
            checksum = zlib.crc32(body)
            content = pack({"format": _FORMAT, "version": _VERSION, "checksum": checksum, "body": body})
            with atomic_write(path) as file:
                file.write(content)
        except BaseException:
            if not os.path.exists(path):  # an interrupt may come just after the file is in place
                writer.discard()
            raise
        self._tidy()
        return len(content) + writer.written

    def read(self) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Return the newest undamaged state and its description, or None if the folder has no state.

        A damaged state is skipped with a warning and removed by the next `write`. Damaged chunks are removed at once.

        Raises:
            StateError: all states are damaged or of another version, or the folder `chunks` is a symbolic link.
        """
        self._refuse_link()
        failure: StateError | None = None
        for _, path in reversed(self._files()):
            try:
                body = _read_body(path)
                return _ArrayReader(self._chunks, body["arrays"]).restore(body["state"]), body["about"]
            except (AttributeError, LookupError, MemoryError, OSError, TypeError, ValueError) as e:
                failure = e if isinstance(e, StateError) else StateError(f"{path} cannot be read: {e!r}")
                self._damaged.add(path)
                logging.getLogger("ding").warning("%s; trying the previous state", failure)
        if failure is not None:
            raise StateError(f"no state in {self.path} can be read; the last reason: {failure}; {_REMEDY}")
        return None

    def clear(self) -> None:
        """Remove all states, but no chunks through a symbolic link."""
        for _, path in self._files():
            Path(path).unlink(missing_ok=True)
        if os.path.isdir(self._chunks) and not os.path.islink(self._chunks):
            self._tidy()

    def about(self) -> dict[str, Any] | None:
        """Return the description of the newest state with an undamaged file, or None."""
        saved = [*self.states()]
        return saved[-1].about if saved else None

    def states(self) -> Iterator[Saved]:
        """Yield the states with undamaged files, newest last."""
        for _, path in self._files():
            try:
                body, size = _read_body(path, "about", "arrays"), os.path.getsize(path)
            except (StateError, OSError):  # damaged, or replaced by a newer one meanwhile
                continue
            chunks = {name: length for array in body["arrays"] for name, length in array["chunks"]}
            yield Saved(path, body["about"], size + sum(chunks.values()))

    def _files(self) -> list[tuple[int, str]]:
        """Return the numbers and paths of the files of states, newest last."""
        names = os.listdir(self.path) if os.path.isdir(self.path) else []
        found = [(int(match[1]), os.path.join(self.path, match[0])) for match in map(_NAME.fullmatch, names) if match]
        return sorted(found)

    def _refuse_link(self) -> None:
        """Refuse to remove the files of another folder, whose chunks other states may need."""
        if os.path.islink(self._chunks):
            raise StateError(
                f"{self._chunks} is a symbolic link, which is not allowed; put the folder itself in its place, or link "
                f"{self.path} as a whole"
            )

    def _tidy(self) -> None:
        whole = [path for _, path in self._files() if path not in self._damaged]
        for path in {*whole[: -self._keep], *self._damaged}:
            Path(path).unlink(missing_ok=True)
        self._damaged.clear()
        needed = {name for path in whole[-self._keep :] for name in _chunks_of(path)}
        for entry in _chunk_files(self._chunks):
            if entry.name not in needed:
                os.remove(entry.path)
        for folder in (self.path, self._chunks):
            sweep_temporary(folder)


def _read_body(path: str, *names: str) -> dict[str, Any]:
    """Return the content of a state's file, or only its items `names`."""
    try:
        content: Any = unpack(Path(path).read_bytes())
    except ValueError as e:
        raise StateError(f"{path} is damaged, or not a state of a run ({e})") from e
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise StateError(f"{path} is not a state of a run")
    if content.get("version") != _VERSION:
        raise StateError(
            f"{path} is of version {content.get('version')}, but this package reads version {_VERSION}; go on with the "
            "package that wrote it, or start anew in another folder"
        )
    body = content.get("body")
    if not isinstance(body, bytes) or zlib.crc32(body) != content.get("checksum"):
        raise StateError(f"{path} is damaged: its checksum is wrong")
    result: dict[str, Any] = unpack_items(body, names) if names else unpack(body)
    return result


def _chunks_of(path: str) -> Iterator[str]:
    try:
        arrays = _read_body(path, "arrays")["arrays"]
    except (StateError, OSError):
        return
    for array in arrays:
        yield from (name for name, _ in array["chunks"])


def _chunk_files(folder: str) -> list[os.DirEntry[str]]:
    return [e for e in os.scandir(folder) if _CHUNK_NAME.fullmatch(e.name) and e.is_file(follow_symlinks=False)]


class _ArrayWriter:
    """Writer of the large arrays of a state as chunks.

    Attributes:
        arrays: dtype, shape and chunks of each array.
        written: number of bytes written so far.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._known = {entry.name: entry.stat().st_size for entry in _chunk_files(folder)}
        self._added: list[str] = []
        self._places: dict[int, dict[str, int]] = {}  # by the id of the array, which the state keeps alive
        self.arrays: list[dict[str, Any]] = []
        self.written = 0

    def discard(self) -> None:
        """Remove the chunks that were not there before; those that cannot be removed are kept."""
        for name in self._added:
            with contextlib.suppress(OSError):
                os.remove(os.path.join(self._folder, name))

    def replace(self, node: Any) -> Any:
        """Return `node` with references instead of its large arrays and tensors."""
        if is_tensor(node):
            is_large = str(node.layout) == "torch.strided" and node.numel() * node.element_size() >= _LARGE_BYTES
            return self._place(node) if is_large else node
        if isinstance(node, np.ndarray):
            return self._place(node) if node.nbytes >= _LARGE_BYTES and node.dtype.kind in "biufc" else node
        if isinstance(node, Mapping):
            if _PLACE in node:
                raise ValueError(f"a dict with the key {_PLACE!r} cannot be saved")
            return {key: self.replace(value) for key, value in node.items()}
        if type(node) in (list, tuple):
            return type(node)(self.replace(value) for value in node)
        return node

    def _place(self, array: Any) -> dict[str, int]:
        if id(array) not in self._places:
            self._places[id(array)] = {_PLACE: len(self.arrays)}
            of_torch = is_tensor(array)
            dtype = str(array.dtype).removeprefix("torch.") if of_torch else array.dtype.str
            chunks = self._write(_bytes_of(array))
            self.arrays.append({"tensor": of_torch, "dtype": dtype, "shape": list(array.shape), "chunks": chunks})
        return self._places[id(array)]

    def _write(self, content: np.ndarray) -> list[list[Any]]:
        step = _CHUNK_BYTES if len(content) <= 64 * _CHUNK_BYTES else _MANY_BYTES
        chunks = []
        for start in range(0, len(content), step):
            part = content[start : start + step]
            name = hashlib.sha256(part.data).hexdigest()[:40]
            if self._known.get(name) != len(part):
                if name not in self._known:
                    self._added.append(name)
                with atomic_write(os.path.join(self._folder, name)) as file:
                    file.write(part.data)
                self._known[name] = len(part)
                self.written += len(part)
            chunks.append([name, len(part)])
        return chunks


def _bytes_of(array: Any) -> np.ndarray:
    """Return the bytes of an array or tensor, without a copy if it is contiguous in CPU memory."""
    if is_tensor(array):
        import torch

        dense = array.detach().cpu().resolve_conj().resolve_neg().contiguous()
        return dense.reshape(-1).view(torch.uint8).numpy()
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


class _ArrayReader:
    """Reader of the large arrays of a state; an array with several references is one object again.

    Nothing is allocated for an array before its chunks are known to exist and to fill it.
    """

    def __init__(self, folder: str, arrays: list[dict[str, Any]]) -> None:
        self._folder = folder
        self._arrays = [self._read(array) for array in arrays]

    def restore(self, node: Any) -> Any:
        """Return `node` with arrays instead of references."""
        if isinstance(node, dict):
            if len(node) == 1 and _PLACE in node:
                return self._arrays[node[_PLACE]]
            return {key: self.restore(value) for key, value in node.items()}
        if type(node) in (list, tuple):
            return type(node)(self.restore(value) for value in node)
        return node

    def _read(self, array: dict[str, Any]) -> Any:
        shape, chunks = tuple(array["shape"]), array["chunks"]
        if array["tensor"]:
            import torch

            dtype = getattr(torch, array["dtype"])
            self._check(chunks, math.prod(shape) * dtype.itemsize)
            tensor = torch.empty(shape, dtype=dtype)
            self._fill(tensor.reshape(-1).view(torch.uint8).numpy(), chunks)
            return tensor
        dtype = plain_dtype(array["dtype"])
        self._check(chunks, math.prod(shape) * dtype.itemsize)
        result = np.empty(math.prod(shape), dtype)
        self._fill(result.view(np.uint8), chunks)
        return result.reshape(shape)

    def _check(self, chunks: list[list[Any]], size_bytes: int) -> None:
        """Check that the chunks exist, and that their sizes add up to that of their array."""
        for name, size in chunks:
            path = self._path(name)
            if not os.path.exists(path):
                raise StateError(f"the chunk {path} of a state is missing")
            if os.path.getsize(path) != size:
                raise StateError(f"the chunk {path} of a state is damaged: it has not {size} bytes")
        if sum(size for _, size in chunks) != size_bytes:
            raise StateError(f"the chunks of an array of {size_bytes} bytes have {sum(size for _, size in chunks)}")

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, os.path.basename(name))

    def _fill(self, content: np.ndarray, chunks: list[list[Any]]) -> None:
        start = 0
        for name, size in chunks:
            part = content[start : start + size]
            with open(self._path(name), "rb") as file:
                file.readinto(part.data)
            if hashlib.sha256(part.data).hexdigest()[:40] != name:
                os.remove(self._path(name))  # a later state may need the same content
                raise StateError(f"the chunk {self._path(name)} of a state is damaged")
            start += size


FOLDER = "run_state"
# Keys whose values may differ when a run resumes: budgets, folders, the number of workers, and how it resumes.
_FREE = (
    "exp_name",
    "run_state",
    "env.stop_value",
    "policy.eval.evaluator.stop_value",
    "policy.eval.evaluator.patience",
    "policy.learn.learner.keep_checkpoints",
    "policy.learn.train_epoch",
    "policy.learn.resume_training",
    "policy.learn.learner.train_iterations",
    "policy.learn.learner.hook.load_ckpt_before_run",
    "policy.collect.collector.collector_num",
    "policy.learn.learner.learner_num",
    "policy.other.commander.collector_task_space",
    "policy.other.commander.path_policy",
)
_FREE_SECTIONS = ("run_state.", "logger.")


def hold_run(exp_name: str) -> IO[bytes] | None:
    """Lock the folder of a run, so that no other process trains there until the result is closed; see `hold_file`.

    Raises:
        StateError: another process holds the lock.
    """
    try:
        return hold_file(os.path.join(exp_name, FOLDER, "lock"))
    except BlockingIOError as e:
        raise StateError(f"another process uses {exp_name} ({e}); end it first, or choose another exp_name") from e


def describe_state(
    kind: str,
    exp_name: str,
    config: Mapping[str, str],
    reason: str,
    train_iter: int,
    env_step: int,
    last_return: float | None,
    inexact: Sequence[str],
) -> dict[str, Any]:
    """Return the description of a state that is saved now, for `StateFolder.write`.

    Args:
        kind: 'serial' or 'parallel'.
        config: see `flat_config`.
        reason: the reason why it is saved.
        inexact: the reason why the run does not resume exactly from it; empty if it does.
    """
    import torch

    return {
        "kind": kind,
        "exp_name": exp_name,
        "config": dict(config),
        "reason": reason,
        "train_iter": train_iter,
        "env_step": env_step,
        "last_return": last_return,
        "time": time.time(),
        "is_exact": not inexact,
        "inexact": list(inexact),
        "versions": {"python": platform.python_version(), "torch": str(torch.__version__), "numpy": np.__version__},
    }


def read_run_state(
    path: str,
    kind: str,
    config: Mapping[str, str],
    defaults: Callable[[set[str]], Mapping[str, str]] = lambda keys: {},
) -> dict[str, Any] | None:
    """Return the newest state in the folder `path`, or None if there is none.

    Args:
        kind: 'serial' or 'parallel', see `describe_state`.
        config: the config of the run that resumes, see `flat_config`.
        defaults: a function that returns the defaults of keys that the config of the state lacks.

    Raises:
        StateError: no state is readable, or the state is of a run of the other kind.
        ConfigError: the config of the state differs.
    """
    found = StateFolder(path).read()
    if found is None:
        return None
    state, about = found
    saved_kind = about.get("kind", "serial")
    if saved_kind != kind:
        raise StateError(
            f"the state in {path} is that of a {saved_kind} run, which no {kind} run resumes; choose another exp_name"
        )
    saved: Mapping[str, str] = about["config"]
    check_same_config({**defaults(set(config) - set(saved)), **saved}, config, path)
    return state


# ---- configs


def plain_tree(cfg: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the leaves of a config by dotted path; an empty section is a leaf, and so is the saved form of an object.

    Example:
        >>> plain_tree({"policy": {"learn": {"batch_size": 64}, "model": {}}, "seed": 0})
        {'policy.learn.batch_size': 64, 'policy.model': {}, 'seed': 0}
    """
    leaves: dict[str, Any] = {}
    for key, value in cfg.items():
        if isinstance(value, Mapping) and value and REFERENCE not in value:
            leaves.update(plain_tree(value, f"{prefix}{key}."))
        else:
            leaves[f"{prefix}{key}"] = value
    return leaves


def flat_config(cfg: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of a compiled config as text by dotted key, except for keys whose values may differ."""
    leaves = plain_tree(cfg).items()
    return {key: _as_text(value) for key, value in leaves if key not in _FREE and not key.startswith(_FREE_SECTIONS)}


def _as_text(value: Any) -> str:
    value = saved_form(value)
    if isinstance(value, Mapping):
        if value.keys() == {REFERENCE}:
            return repr(value[REFERENCE])
        return f"{{{', '.join(f'{key!r}: {_as_text(item)}' for key, item in items_of(value))}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_as_text, value))}]"
    if isinstance(value, (set, frozenset)):  # their order differs from one process to the next
        return f"{{{', '.join(sorted(map(_as_text, value)))}}}"
    if callable(value):
        return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__name__)}"
    text = shown(value)
    return type(value).__qualname__ if " at 0x" in text else text


def _is_filled(key: str, saved: Mapping[str, str], own: Mapping[str, str]) -> bool:
    """Return whether `key` is a section that was empty in the state, so that its entries are compared one by one."""
    return saved.get(key) == "{}" and key not in own and any(name.startswith(f"{key}.") for name in own)


def check_same_config(saved: Mapping[str, str], own: Mapping[str, str], path: str) -> None:
    """Check that the config of a state is the config of the run.

    Raises:
        ConfigError: they differ; the message names the keys.
    """
    names = saved.keys() | own.keys()
    keys = sorted(key for key in names if saved.get(key) != own.get(key) and not _is_filled(key, saved, own))
    if keys:
        pairs = ((key, saved.get(key, "missing"), own.get(key, "missing")) for key in keys[:10])
        shown_keys = "; ".join(f"{key}: {then} then, {now} now" for key, then, now in pairs)
        more = f"; and {len(keys) - 10} more" if len(keys) > 10 else ""
        raise ConfigError(
            f"the state in {path} has another config: {shown_keys}{more}; make them equal, or choose another exp_name "
            "to start afresh. Budgets (stop_value, train_iterations, train_epoch, max_env_step, max_train_iter) may "
            "differ"
        )
