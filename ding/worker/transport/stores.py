"""Stores of samples and weights, in a folder or in this process, that writers and readers share."""

from __future__ import annotations

import contextlib
import copy
import errno
import itertools
import logging
import os
import pickle
import secrets
import stat
import threading
from collections.abc import Callable, Collection, Iterator
from time import monotonic
from typing import IO, Any, NamedTuple, Protocol, TypeVar

import torch

from ding.utils.file_helper import atomic_write, load_file, sweep_temporary

T = TypeVar("T")

_MAX_LENGTH = 200


def check_plain_name(name: object) -> str:
    """Check that `name` is a plain file name, and return it.

    Raises:
        ValueError: it is not a str, is empty or too long, begins with a dot, or holds a separator or control character.
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
    """Return the plain name of a file directly under `root`, given as that name or as a path that begins with `root`.

    Raises:
        ValueError: the path leads elsewhere.
    """
    if not isinstance(path, str):
        raise ValueError(f"a file name must be a str, got {path!r:.200}")
    folder, name = os.path.split(path)
    if folder and os.path.abspath(folder) == os.path.abspath(root):
        return check_plain_name(name)
    return check_plain_name(path)


_logger = logging.getLogger("ding")
MAX_FILE_BYTES = 2**31
# Limit of a file of weights.
WEIGHTS_BYTES = 2**32
# Symbolic links are not followed, and opening a pipe does not block.
_READ_FLAGS = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"))


@contextlib.contextmanager
def opened_safely(path: str, what: str, limit_bytes: int) -> Iterator[tuple[IO[bytes], os.stat_result]]:
    """Open a file in a folder that others write to, and yield it with its status.

    Raises:
        ValueError: it is not a regular file, or too large.
        OSError: it cannot be opened, or is a symbolic link.
    """
    descriptor = os.open(path, _READ_FLAGS)
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, descriptor)
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{path} is not a regular file; {what} are read from regular files in the folder only")
        if status.st_size > limit_bytes:  # a sparse file may take little space on the disk
            raise ValueError(f"the file {path} is too large for {what}: {status.st_size} bytes of {limit_bytes}")
        yield stack.enter_context(open(descriptor, "rb", closefd=False)), status


class StorageError(OSError):
    """The error that a store fails for longer than a writer waits, for example because the disk is full."""


# Temporary errors.
_PASSING = frozenset(
    (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN, errno.EBUSY, errno.EINTR)
)
WRITE_PATIENCE_S = 5.0
_FIRST_WAIT_S = 0.05


def may_pass(error: BaseException) -> bool:
    """Return whether the error is temporary."""
    return isinstance(error, OSError) and error.errno in _PASSING


def write_patiently(write: Callable[[], T], wait: Callable[[float], bool], patience_s: float | None = None) -> T:
    """Return what `write` returns; retry after temporary errors, with growing waits.

    Args:
        wait: waits for a number of seconds; returns true to give up at once.
        patience_s: how long to retry; 5 s by default.

    Raises:
        StorageError: the error has persisted.
        OSError: `write` fails with an error that is not temporary.
    """
    deadline, wait_s = monotonic() + (WRITE_PATIENCE_S if patience_s is None else patience_s), _FIRST_WAIT_S
    while True:
        try:
            return write()
        except OSError as e:
            if not may_pass(e):
                raise
            if monotonic() + wait_s > deadline or wait(wait_s):
                raise StorageError(e.errno, e.strerror, e.filename) from e
        wait_s *= 2


class SampleStore:
    """A store of blobs by name. It is thread-safe, and safe for several processes if they share the store.

    Attributes:
        root: the folder, or the name, of the store.
        limit_bytes: limit of the data that `read` returns; it may be set.
    """

    root: str
    limit_bytes: int

    def write(self, name: str, data: bytes) -> None:
        """Store `data` under `name`, for readers after `flush` at the latest; they never see only a part of it."""
        raise NotImplementedError

    def flush(self) -> None:
        """Make what was written readable; one thread calls this at a time."""

    def fetch(self, names: Collection[str]) -> None:
        """Prepare to read the data under these names, which a store elsewhere is asked for once."""

    def read(self, name: str) -> bytes:
        """Return the data under `name`.

        Raises:
            FileNotFoundError: there is none, or it was deleted.
            OSError: it cannot be read.
            ValueError: it is too large, or `name` leads out of the store.
        """
        raise NotImplementedError

    def delete(self, *names: str) -> None:
        """Delete the data under these names, if any."""
        raise NotImplementedError

    def names(self, among: Collection[str] | None = None) -> set[str]:
        """Return the names of all data, or those of `among` that have data."""
        raise NotImplementedError

    def sweep(self) -> None:
        """Remove the unfinished files of writers that were killed, if there may be any."""


class PolicyVersion(NamedTuple):
    """Weights, and a token that is unique among the versions under the same name."""

    state: dict[str, Any]
    token: Any


# The name of the weights that the newest evaluation used, as its collector has read them.
EVALUATED = "evaluated"


class PolicyStore(Protocol):
    """A store of the newest weights by name.

    Attributes:
        limit_bytes: limit of the size of a file of weights; it may be set.
    """

    limit_bytes: int

    def write(self, name: str, state: dict[str, Any], known: Any = None) -> Any:
        """Replace the weights under `name` by `state` = `{'model': ..., 'iter': ...}`.

        Args:
            known: the token of the last version that the caller wrote; if it is given, weights of a later iteration
                that another writer has stored since are kept.

        Returns:
            The token of the version, or None if it was not written.
        """

    def read(self, name: str, known: Any = None) -> PolicyVersion | None:
        """Return the newest version; None if its token is `known`.

        Args:
            known: the token of the weights that the caller has. If it is given, None is returned for damaged weights,
                too: the next version will replace them.

        Raises:
            FileNotFoundError: there is no version yet.
        """


class FolderSampleStore(SampleStore):
    """The store of samples in files of the folder `root`, which is made with its parents.

    Names are plain file names, or paths that begin with `root`; symbolic links are not followed.

    Raises:
        OSError: the folder cannot be made or is not writable.
    """

    limit_bytes = MAX_FILE_BYTES

    def __init__(self, root: str) -> None:
        self.root = _writable_folder(root, "path_data")

    def write(self, name: str, data: bytes) -> None:
        with atomic_write(self._path(name)) as file:
            file.write(data)

    def read(self, name: str) -> bytes:
        with opened_safely(self._path(name), "samples", self.limit_bytes) as (file, status):
            return file.read(status.st_size)  # it may grow meanwhile

    def delete(self, *names: str) -> None:
        """Delete the data under these names, if any; the first error is raised after all others are deleted."""
        errors: list[Exception] = []
        for name in names:
            try:
                os.remove(self._path(name))
            except FileNotFoundError:
                pass
            except (OSError, ValueError) as e:
                errors.append(e)
        if errors:
            raise errors[0]

    def names(self, among: Collection[str] | None = None) -> set[str]:
        if among is not None:
            return {name for name in among if os.path.lexists(self._path(name))}
        with os.scandir(self.root) as entries:  # names of unfinished files begin with a dot
            return {e.name for e in entries if not e.name.startswith(".") and e.is_file(follow_symlinks=False)}

    def sweep(self) -> None:
        sweep_temporary(self.root)

    def _path(self, name: str) -> str:
        return os.path.join(self.root, name_under(self.root, name))


class FolderPolicyStore:
    """The store of weights in files of the folder `root`, written by `torch.save` and read without running code.

    Damaged weights are an error for a reader that has none yet; a reader that has some skips them and logs a warning.

    Args:
        root: the folder, which is made with its parents.
        trust_pickle: whether to read files with other objects than numbers, strings, containers, arrays and tensors.
            Every user who can write into the folder can then run code in this process.

    Attributes:
        damaged_count: the number of skipped versions.
        limit_bytes: limit of the size of a file; it may be set.

    Raises:
        OSError: the folder cannot be made or is not writable.
    """

    def __init__(self, root: str, trust_pickle: bool = False) -> None:
        self.root = _writable_folder(root, "path_policy")
        self.limit_bytes = WEIGHTS_BYTES
        self.damaged_count = 0
        self._trust_pickle = trust_pickle
        self._damaged: dict[str, Any] = {}  # tokens by path, so that each version is read once

    def write(self, name: str, state: dict[str, Any], known: Any = None) -> Any:
        if known is not None:
            with contextlib.suppress(FileNotFoundError):
                version = self.read(name, known)
                if version is not None and iteration_of(version.state) > iteration_of(state):
                    return None
        with atomic_write(self._path(name)) as file:
            torch.save(state, file)
            file.flush()
            return _token_of(os.fstat(file.fileno()))

    def read(self, name: str, known: Any = None) -> PolicyVersion | None:
        path = self._path(name)
        status = os.stat(path, follow_symlinks=False)
        token = _token_of(status)
        if token == known or (known is not None and token == self._damaged.get(path)):
            return None
        try:
            if stat.S_ISLNK(status.st_mode):
                raise ValueError(f"{path} is a symbolic link; weights are read from regular files in the folder only")
            with opened_safely(path, "weights", self.limit_bytes) as (file, status):
                token = _token_of(status)
                return PolicyVersion(load_weights(file, path, self._trust_pickle), token)
        except (ValueError, pickle.UnpicklingError) as e:
            if known is None:
                raise
            self._damaged[path] = token
            self.damaged_count += 1
            _logger.warning("new weights are skipped: %s", e)
            return None

    def _path(self, name: str) -> str:
        return os.path.join(self.root, name_under(self.root, name))


def load_weights(file: IO[bytes], path: str, trust_pickle: bool) -> dict[str, Any]:
    """Return the weights in a file of `torch.save`, with tensors on the CPU.

    Raises:
        pickle.UnpicklingError: the file needs `trust_pickle`, or is damaged.
        ValueError: it holds no weights.
    """
    state = load_file(file, path, trust_pickle)
    if not isinstance(state, dict):
        raise ValueError(f"{path} holds a {type(state).__name__}, not weights")
    return state


def _token_of(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_mtime_ns, status.st_ino, status.st_size


def iteration_of(state: dict[str, Any]) -> int:
    """Return the iteration of weights; -1 if they have none."""
    return int(state.get("iter", -1))


class MemorySampleStore(SampleStore):
    """The store of samples in this process, shared by all stores with the same `root`."""

    def __init__(self, root: str) -> None:
        self.root, self.limit_bytes = root, MAX_FILE_BYTES
        self._blobs: dict[str, bytes] = _shared("samples", root, dict)

    def write(self, name: str, data: bytes) -> None:
        self._blobs[name_under(self.root, name)] = data

    def read(self, name: str) -> bytes:
        try:
            return self._blobs[name_under(self.root, name)]
        except KeyError:
            raise FileNotFoundError(f"there are no samples {name!r} in the store {self.root!r}") from None

    def delete(self, *names: str) -> None:
        for name in names:
            self._blobs.pop(name_under(self.root, name), None)

    def names(self, among: Collection[str] | None = None) -> set[str]:
        if among is not None:
            return {name for name in among if name_under(self.root, name) in self._blobs}
        return set(self._blobs.copy())  # copied in one step: other threads may write meanwhile


class Token(NamedTuple):
    """The id of a version of weights.

    Attributes:
        life: a random id of the `Versions` that gave the token.
        number: the number of the version among them.
        iteration: the learner's iteration; -1 if unknown.
    """

    life: str
    number: int
    iteration: int


class Versions:
    """The newest weights under each name, in whatever form. This class is thread-safe."""

    def __init__(self, root: str) -> None:
        self.root = root
        self._life = secrets.token_hex(8)
        self._numbers = itertools.count(1)
        self._kept: dict[str, tuple[Token, Any]] = {}
        self._lock = threading.RLock()  # reentrant: see `_lock` of local_transport

    def write(self, name: str, data: Any, iteration: int, known: Token | None) -> Token | None:
        """Replace the version under `name` and return its token; None if the old one is later and not `known`."""
        with self._lock:
            last = self._find(name)
            if last is not None and known not in (None, last[0]) and last[0].iteration > iteration:
                return None
            return self._keep(name, data, iteration)

    def read(self, name: str, known: Token | None) -> tuple[Token, Any] | None:
        """Return the token of the newest version, and the version; None if `known` is as new.

        A version of another life with a later iteration counts as newer.

        Raises:
            FileNotFoundError: there is no version yet.
        """
        with self._lock:
            kept = self._find(name)
        if kept is None:
            raise FileNotFoundError(f"there are no weights {name!r} in {self.root} yet")
        token = kept[0]
        is_new = known is None or (known != token and (known.life == token.life or known.iteration <= token.iteration))
        return kept if is_new else None

    def _find(self, name: str) -> tuple[Token, Any] | None:
        return self._kept.get(name)

    def _keep(self, name: str, data: Any, iteration: int) -> Token:
        token = Token(self._life, next(self._numbers), iteration)
        self._kept[name] = token, data
        return token


class MemoryPolicyStore:
    """The store of weights in this process, shared by all stores with the same `root`; weights may have any size.

    Written weights are copied, so that the writer may continue to train; readers must not change the returned ones.
    """

    def __init__(self, root: str) -> None:
        self.root, self.limit_bytes = root, WEIGHTS_BYTES
        self._versions: Versions = _shared("policies", root, lambda: Versions(root))

    def write(self, name: str, state: dict[str, Any], known: Any = None) -> Any:
        return self._versions.write(name_under(self.root, name), copy.deepcopy(state), iteration_of(state), known)

    def read(self, name: str, known: Any = None) -> PolicyVersion | None:
        found = self._versions.read(name_under(self.root, name), known)
        return None if found is None else PolicyVersion(found[1], found[0])


_shared_lock = threading.RLock()  # reentrant: see `_lock` of local_transport
_shared_content: dict[tuple[str, str], Any] = {}


def _shared(kind: str, root: str, make: Callable[[], T]) -> T:
    with _shared_lock:
        content: T = _shared_content.setdefault((kind, os.path.normpath(root)), make())
        return content


def forget_memory_stores(root: str) -> None:
    """Delete the content of the memory stores of `root`."""
    with _shared_lock:
        for kind in ("samples", "policies"):
            _shared_content.pop((kind, os.path.normpath(root)), None)


def _writable_folder(path: str, key: str) -> str:
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as e:
        raise type(e)(e.errno, f"the folder {key} cannot be made ({e.strerror}); choose a writable one", path) from e
    if not os.access(path, os.W_OK | os.X_OK):
        raise PermissionError(13, f"the folder {key} is not writable; choose another one", path)
    sweep_temporary(path)
    return path
