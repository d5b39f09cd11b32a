"""Where samples and weights lie between those who write and those who read them: a folder, or this process."""

from __future__ import annotations

import contextlib
import copy
import errno
import logging
import os
import pickle
import stat
import threading
from collections.abc import Callable
from time import monotonic
from typing import Any, NamedTuple, Protocol, TypeVar

import torch

from ding.utils.file_helper import atomic_write, read_file, sweep_temporary

T = TypeVar("T")

_MAX_LENGTH = 200


def check_plain_name(name: object) -> str:
    """`name`, if it names a file in a folder and nothing else.

    Raises:
        ValueError: it is no str, is empty or long, begins with a dot, or holds a separator or control character.
    """
    if not isinstance(name, str):
        raise ValueError(f"a file name must be a str, got {name!r:.200}")
    is_plain = 0 < len(name) <= _MAX_LENGTH and not name.startswith(".") and name.isprintable()
    if not is_plain or any(character in name for character in "/\\:"):
        raise ValueError(
            f"the file name {name[:_MAX_LENGTH]!r} is not allowed: it must be a plain name of at most {_MAX_LENGTH} "
            "characters, without '/', '\\' and ':', that does not begin with a dot"
        )
    return name


def name_under(root: str, path: str) -> str:
    """The plain name of a file directly under `root`, given as that name or as a path that begins with `root`.

    Raises:
        ValueError: the file would lie elsewhere.
    """
    if not isinstance(path, str):
        raise ValueError(f"a file name must be a str, got {path!r:.200}")
    folder, name = os.path.split(path)
    if folder and os.path.abspath(folder) == os.path.abspath(root):
        return check_plain_name(name)
    return check_plain_name(path)


_logger = logging.getLogger("ding")
# Symbolic links are not followed, and a pipe that somebody has put there is not waited for.
_MAX_FILE_BYTES = 2**31
_READ_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


class StorageError(OSError):
    """A store has failed for longer than a writer waits: its disk is full, say, or its server has gone."""


# Errors that may pass by themselves.
_PASSING = frozenset(
    (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN, errno.EBUSY, errno.EINTR)
)
_WRITE_PATIENCE_S = 5.0
_FIRST_WAIT_S = 0.05


def may_pass(error: BaseException) -> bool:
    """Whether it is an error that may pass by itself."""
    return isinstance(error, OSError) and error.errno in _PASSING


def write_patiently(write: Callable[[], T], wait: Callable[[float], bool], patience_s: float | None = None) -> T:
    """What `write` returns, tried again for some seconds, less and less often, while it fails by what may pass.

    Args:
        wait: waits so many seconds; True if there is no use in waiting on.
        patience_s: how long it is tried; 5 s unless given.

    Raises:
        StorageError: it has not passed.
        OSError: `write` fails by something else.
    """
    deadline, wait_s = monotonic() + (_WRITE_PATIENCE_S if patience_s is None else patience_s), _FIRST_WAIT_S
    while True:
        try:
            return write()
        except OSError as e:
            if not may_pass(e):
                raise
            if monotonic() + wait_s > deadline or wait(wait_s):
                raise StorageError(e.errno, e.strerror, e.filename) from e
        wait_s *= 2


class SampleStore(Protocol):
    """Blobs by name. All methods may be called from several threads, and processes where the store is shared.

    Attributes:
        root: where they lie.
    """

    root: str

    def write(self, name: str, data: bytes) -> None:
        """Keep `data` under `name`; it appears whole."""

    def read(self, name: str) -> bytes:
        """What was written under `name`.

        Raises:
            FileNotFoundError: nothing was, or it has been deleted.
            OSError: it cannot be read.
            ValueError: it is too large, or `name` leads out of the store.
        """

    def delete(self, name: str) -> None:
        """Forget `name`; nothing happens if it is unknown."""

    def names(self) -> set[str]:
        """The names of all that is there."""

    def sweep(self) -> None:
        """Remove what writers that were killed have left half-written."""


class PolicyVersion(NamedTuple):
    """Weights, and a token that differs from that of every other version under the same name."""

    state: dict[str, Any]
    token: Any


# Name of the weights that the newest evaluation judges, as the collector that plays it has read them.
EVALUATED = "evaluated"


class PolicyStore(Protocol):
    """The newest weights by name."""

    def write(self, name: str, state: dict[str, Any], known: Any = None) -> Any:
        """Replace what is under `name` by `state` = `{'model': ..., 'iter': ...}`.

        Args:
            known: the token of what the caller wrote there last; with one, weights of a later iteration that somebody
                else has written since are left in place.

        Returns:
            the token of the version, None where it was not written.
        """

    def read(self, name: str, known: Any = None) -> PolicyVersion | None:
        """The newest version; None if its token is `known`.

        Args:
            known: the token of the weights that the caller has; with one, weights that are damaged count as nothing
                new, for the next ones will replace them.

        Raises:
            FileNotFoundError: there is none yet.
        """


class FolderSampleStore:
    """Files in the folder `root`, which is made with its parents.

    Names are plain file names, or paths that begin with `root`; symbolic links are not followed.

    Raises:
        OSError: the folder cannot be made or written to.
    """

    def __init__(self, root: str) -> None:
        self.root = _writable_folder(root, "path_data")

    def write(self, name: str, data: bytes) -> None:
        with atomic_write(self._path(name)) as file:
            file.write(data)

    def read(self, name: str) -> bytes:
        with open(self._path(name), "rb", opener=lambda path, _: os.open(path, _READ_FLAGS)) as file:
            size = os.fstat(file.fileno()).st_size
            if size > _MAX_FILE_BYTES:  # of a few blocks on the disk, perhaps
                raise ValueError(f"the file {name!r} is too large for samples: {size} bytes of {_MAX_FILE_BYTES}")
            return file.read(_MAX_FILE_BYTES)

    def delete(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.remove(self._path(name))

    def names(self) -> set[str]:
        with os.scandir(self.root) as entries:  # names that begin with a dot are of files that are being written
            return {e.name for e in entries if not e.name.startswith(".") and e.is_file(follow_symlinks=False)}

    def sweep(self) -> None:
        sweep_temporary(self.root)

    def _path(self, name: str) -> str:
        return os.path.join(self.root, name_under(self.root, name))


class FolderPolicyStore:
    """Weights in files of the folder `root`, as `torch.save` writes them; read without running code.

    Damaged weights are an error for whoever has none yet, which names the file; whoever has some passes them over, with
    a line in the log.

    Args:
        root: made with its parents.
        trust_pickle: read files that hold other objects than numbers, strings, containers, arrays and tensors. Whoever
            can write into the folder can then run code in this process.

    Attributes:
        damaged_count: how many damaged versions were passed over.

    Raises:
        OSError: the folder cannot be made or written to.
    """

    def __init__(self, root: str, trust_pickle: bool = False) -> None:
        self.root = _writable_folder(root, "path_policy")
        self.damaged_count = 0
        self._trust_pickle = trust_pickle
        self._damaged: dict[str, Any] = {}  # tokens by name, so that each version is looked at once

    def write(self, name: str, state: dict[str, Any], known: Any = None) -> Any:
        if known is not None and self._has_later(name, state, known):
            return None
        with atomic_write(self._path(name)) as file:
            torch.save(state, file)
            file.flush()
            return _token_of(os.fstat(file.fileno()))

    def _has_later(self, name: str, state: dict[str, Any], known: Any) -> bool:
        try:
            version = self.read(name, known)
        except FileNotFoundError:
            return False
        return version is not None and _is_later(version.state, state)

    def read(self, name: str, known: Any = None) -> PolicyVersion | None:
        path = self._path(name)
        status = os.stat(path, follow_symlinks=False)
        token = _token_of(status)
        if token == known or (known is not None and token == self._damaged.get(path)):
            return None
        try:
            return PolicyVersion(self._load(path, status.st_mode), token)
        except (ValueError, pickle.UnpicklingError) as e:
            if known is None:
                raise
            self._damaged[path] = token
            self.damaged_count += 1
            _logger.warning("new weights are passed over, the next ones are waited for: %s", e)
            return None

    def _load(self, path: str, mode: int) -> dict[str, Any]:
        """The weights in a file.

        Raises:
            pickle.UnpicklingError: they hold what only `trust_pickle` allows, or are damaged.
            ValueError: the same, or they are no weights.
        """
        if not stat.S_ISREG(mode):
            kind = "a symbolic link" if stat.S_ISLNK(mode) else "no regular file"
            raise ValueError(f"{path} is {kind}; weights are read from files of the folder only")
        try:
            state = read_file(path, trust_pickle=self._trust_pickle)
        except (FileNotFoundError, pickle.UnpicklingError):
            raise
        except Exception as e:  # torch has many ways to tell that a file is damaged
            raise ValueError(f"the weights in {path} are damaged: {e!r}") from e
        if not isinstance(state, dict):
            raise ValueError(f"{path} holds a {type(state).__name__}, not weights")
        return state

    def _path(self, name: str) -> str:
        return os.path.join(self.root, name_under(self.root, name))


def _token_of(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_mtime_ns, status.st_ino, status.st_size


def _is_later(state: dict[str, Any], other: dict[str, Any]) -> bool:
    return bool(state.get("iter", -1) > other.get("iter", -1))


class MemorySampleStore:
    """Blobs in this process, shared by all stores with the same `root`."""

    def __init__(self, root: str) -> None:
        self.root = root
        self._blobs: dict[str, bytes] = _shared("samples", root)

    def write(self, name: str, data: bytes) -> None:
        self._blobs[name_under(self.root, name)] = data

    def read(self, name: str) -> bytes:
        try:
            return self._blobs[name_under(self.root, name)]
        except KeyError:
            raise FileNotFoundError(f"there are no samples {name!r} in the store {self.root!r}") from None

    def delete(self, name: str) -> None:
        self._blobs.pop(name_under(self.root, name), None)

    def names(self) -> set[str]:
        return set(self._blobs.copy())  # in one step, for others may write meanwhile

    def sweep(self) -> None:
        """Nothing is left half-written here."""


class MemoryPolicyStore:
    """Weights in this process, shared by all stores with the same `root`.

    What is written is copied, for whoever wrote it may train on; readers must not change what they are handed.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self._versions: dict[str, PolicyVersion] = _shared("policies", root)

    def write(self, name: str, state: dict[str, Any], known: Any = None) -> Any:
        name, state = name_under(self.root, name), copy.deepcopy(state)
        with _shared_lock:
            last = self._versions.get(name)
            if last is not None and known not in (None, last.token) and _is_later(last.state, state):
                return None
            version = self._versions[name] = PolicyVersion(state, 1 if last is None else last.token + 1)
        return version.token

    def read(self, name: str, known: Any = None) -> PolicyVersion | None:
        try:
            version = self._versions[name_under(self.root, name)]
        except KeyError:
            raise FileNotFoundError(f"there are no weights {name!r} in the store {self.root!r}") from None
        return None if version.token == known else version


_shared_lock = threading.RLock()  # reentrant: see `_lock` of local_transport
_shared_content: dict[tuple[str, str], dict[str, Any]] = {}


def _shared(kind: str, root: str) -> dict[str, Any]:
    with _shared_lock:
        return _shared_content.setdefault((kind, os.path.normpath(root)), {})


def forget_memory_stores(root: str) -> None:
    """Drop what the memory stores of `root` hold."""
    with _shared_lock:
        for kind in ("samples", "policies"):
            _shared_content.pop((kind, os.path.normpath(root)), None)


def _writable_folder(path: str, key: str) -> str:
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as e:
        raise type(e)(
            e.errno, f"the folder {key} cannot be made ({e.strerror}); choose one you may write to", path
        ) from e
    if not os.access(path, os.W_OK | os.X_OK):
        raise PermissionError(13, f"the folder {key} cannot be written to; choose another one", path)
    sweep_temporary(path)
    return path
