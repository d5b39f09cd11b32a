"""The newest weights of a run on Ray: one actor keeps them, and readers get them from the object store."""

from __future__ import annotations

import errno
import io
import itertools
import os
import secrets
import threading
from typing import Any, NamedTuple

import ray
import torch
from ray.exceptions import RayError, RayTaskError

from ding.utils.file_helper import atomic_write, file_content
from ding.worker.transport.stores import PolicyVersion, name_under

# How long a reader or writer waits for the actor, which may be restarting, in seconds.
_TIMEOUT_S = 30.0
# The iteration of weights that were read from a file: they count as older than any others.
_OF_A_FILE = -1


class Token(NamedTuple):
    """Identifies a version of weights.

    Attributes:
        life: a random id of the actor process.
        number: counts the versions of a life.
        iteration: the learner's.
    """

    life: str
    number: int
    iteration: int


class _Kept(NamedTuple):
    token: Token
    data: Any  # an ObjectRef to the bytes


class WeightsServer:
    """Keeps the newest weights by name, as bytes that are put into the object store once per version. Thread-safe.

    It also writes them to files in `root`, which a restarted actor, a resumed run and evaluations read.

    Args:
        root: a folder, created with its parents.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        os.makedirs(root, exist_ok=True)
        self._life = secrets.token_hex(8)
        self._numbers = itertools.count(1)
        self._kept: dict[str, _Kept] = {}
        self._lock = threading.Lock()

    def write(self, name: str, data: bytes, iteration: int, known: Token | None) -> Token | None:
        """Replace the weights under `name`; None if the existing ones have a later iteration and are not `known`."""
        name = name_under(self._root, name)
        with self._lock:
            last = self._find(name)
            if last is not None and known not in (None, last.token) and last.token.iteration > iteration:
                return None
            token = self._keep(name, data, iteration)
            with atomic_write(os.path.join(self._root, name)) as file:
                file.write(data)
        return token

    def read(self, name: str, known: Token | None) -> tuple[Token, list[Any]] | None:
        """The token of the newest version, and a list of one reference to its bytes; None if `known` is as new.

        A version of a lost actor with a later iteration counts as newer.

        Raises:
            FileNotFoundError: there are no weights yet.
        """
        name = name_under(self._root, name)
        with self._lock:
            kept = self._find(name)
        if kept is None:
            raise FileNotFoundError(f"there are no weights {name!r} in {self._root} yet")
        if known is not None and (known == kept.token or _is_later(known, kept.token)):
            return None
        return kept.token, [kept.data]

    def pid(self) -> int:
        """The id of this process."""
        return os.getpid()

    def _find(self, name: str) -> _Kept | None:
        """The weights under `name`, read from their file if necessary."""
        if name not in self._kept:
            try:
                with open(os.path.join(self._root, name), "rb") as file:
                    self._keep(name, file.read(), _OF_A_FILE)
            except FileNotFoundError:
                return None
        return self._kept[name]

    def _keep(self, name: str, data: bytes, iteration: int) -> Token:
        token = Token(self._life, next(self._numbers), iteration)
        self._kept[name] = _Kept(token, ray.put(data))
        return token


def _is_later(token: Token, other: Token) -> bool:
    return token.life != other.life and token.iteration > other.iteration


def server_name(root: str) -> str:
    """The name, within the namespace of the run, of the actor for the weights of `root`."""
    return f"weights:{os.path.abspath(root)}"


def start_server(root: str, options: dict[str, Any]) -> Any:
    """Start the actor for the weights of `root`; returns its handle. The actor ends when the last handle is gone."""
    actor = ray.remote(WeightsServer).options(
        name=server_name(root),
        num_cpus=0,
        max_concurrency=8,
        max_restarts=-1,
        max_task_retries=-1,
        **options,
    )
    return actor.remote(os.path.abspath(root))


class RayPolicyStore:
    """A client of the actor for the weights of `root`; see `PolicyStore`.

    Args:
        trust_pickle: also read weights with objects other than numbers, strings, containers, arrays and tensors, which
            may run code.
    """

    def __init__(self, root: str, trust_pickle: bool = False) -> None:
        self.root = os.path.abspath(root)
        self._trust_pickle = trust_pickle
        self._actor: Any = None

    def write(self, name: str, state: dict[str, Any], known: Any = None) -> Any:
        file = io.BytesIO()
        torch.save(state, file)
        iteration = int(state.get("iter", _OF_A_FILE))
        return self._ask("write", name_under(self.root, name), file.getvalue(), iteration, known)

    def read(self, name: str, known: Any = None) -> PolicyVersion | None:
        found = self._ask("read", name_under(self.root, name), known)
        if found is None:
            return None
        token, (reference,) = found
        state = file_content(self._get(reference), os.path.join(self.root, name), self._trust_pickle)
        return PolicyVersion(state, token)

    def _ask(self, method: str, *args: Any) -> Any:
        if self._actor is None:
            self._actor = self._find()
        return self._get(getattr(self._actor, method).remote(*args))

    def _find(self) -> Any:
        try:
            return ray.get_actor(server_name(self.root))
        except ValueError as e:
            raise OSError(errno.ESTALE, f"this run has no actor for the weights of {self.root}") from e

    def _get(self, reference: Any) -> Any:
        try:
            return ray.get(reference, timeout=_TIMEOUT_S)
        except RayTaskError as e:
            raise e.cause from None
        except RayError as e:
            raise OSError(errno.ETIMEDOUT, f"the weights of {self.root} cannot be reached: {e}") from e
