"""Stores of samples and weights that writers and readers share, and those in a folder."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Collection
from typing import IO, Any, NamedTuple, Protocol

import torch

from ding.utils.file_helper import atomic_write, load_file, sweep_temporary

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


class SampleStore:
    """A store of blobs by name. It is thread-safe, and safe for several processes if they share the store.

    Attributes:
        root: the folder, or the name, of the store.
    """

    root: str

    def write(self, name: str, data: bytes) -> None:
        """Store `data` under `name`; readers never see only a part of it."""
        raise NotImplementedError

    def read(self, name: str) -> bytes:
        """Return the data under `name`.

        Raises:
            FileNotFoundError: there is none, or it was deleted.
            OSError: it cannot be read.
            ValueError: `name` leads out of the store.
        """
        raise NotImplementedError

    def delete(self, *names: str) -> None:
        """Delete the data under these names, if any."""
        raise NotImplementedError

    def names(self, among: Collection[str] | None = None) -> set[str]:
        """Return the names of all data, or those of `among` that have data."""
        raise NotImplementedError


class PolicyVersion(NamedTuple):
    """Weights, and a token that is unique among the versions under the same name."""

    state: dict[str, Any]
    token: Any


# The name of the weights that the newest evaluation used, as its collector has read them.
EVALUATED = "evaluated"


class PolicyStore(Protocol):
    """A store of the newest weights by name."""

    def write(self, name: str, state: dict[str, Any]) -> None:
        """Replace the weights under `name` by `state` = `{'model': ..., 'iter': ...}`."""

    def read(self, name: str, known: Any = None) -> PolicyVersion | None:
        """Return the newest version; None if its token is `known`.

        Raises:
            FileNotFoundError: there is no version yet.
        """


class FolderSampleStore(SampleStore):
    """The store of samples in files of the folder `root`, which is made with its parents.

    Names are plain file names, or paths that begin with `root`.

    Raises:
        OSError: the folder cannot be made or is not writable.
    """

    def __init__(self, root: str) -> None:
        self.root = _writable_folder(root, "path_data")

    def write(self, name: str, data: bytes) -> None:
        with atomic_write(self._path(name)) as file:
            file.write(data)

    def read(self, name: str) -> bytes:
        with open(self._path(name), "rb") as file:
            return file.read()

    def delete(self, *names: str) -> None:
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                os.remove(self._path(name))

    def names(self, among: Collection[str] | None = None) -> set[str]:
        if among is not None:
            return {name for name in among if os.path.exists(self._path(name))}
        with os.scandir(self.root) as entries:  # names of unfinished files begin with a dot
            return {entry.name for entry in entries if not entry.name.startswith(".") and entry.is_file()}

    def _path(self, name: str) -> str:
        return os.path.join(self.root, name_under(self.root, name))


class FolderPolicyStore:
    """The store of weights in files of the folder `root`, written by `torch.save` and read without running code.

    Args:
        root: the folder, which is made with its parents.
        trust_pickle: whether to read files with other objects than numbers, strings, containers, arrays and tensors.
            Every user who can write into the folder can then run code in this process.

    Raises:
        OSError: the folder cannot be made or is not writable.
    """

    def __init__(self, root: str, trust_pickle: bool = False) -> None:
        self.root = _writable_folder(root, "path_policy")
        self._trust_pickle = trust_pickle

    def write(self, name: str, state: dict[str, Any]) -> None:
        with atomic_write(self._path(name)) as file:
            torch.save(state, file)

    def read(self, name: str, known: Any = None) -> PolicyVersion | None:
        path = self._path(name)
        if _token_of(os.stat(path)) == known:
            return None
        with open(path, "rb") as file:
            return PolicyVersion(load_weights(file, path, self._trust_pickle), _token_of(os.fstat(file.fileno())))

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


def new_token() -> str:
    """Return a random token of a version of weights."""
    return secrets.token_hex(8)


def _writable_folder(path: str, key: str) -> str:
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as e:
        raise type(e)(e.errno, f"the folder {key} cannot be made ({e.strerror}); choose a writable one", path) from e
    if not os.access(path, os.W_OK | os.X_OK):
        raise PermissionError(13, f"the folder {key} is not writable; choose another one", path)
    sweep_temporary(path)
    return path
