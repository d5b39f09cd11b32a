"""The weights of a run on Ray: objects in the object store, to which one actor has the references."""

from __future__ import annotations

import contextlib
import io
import os
from typing import Any

import ray
import torch

from ding.utils.file_helper import atomic_write
from ding.worker.transport.ray.store_actor import StoreActor, start_store_actor
from ding.worker.transport.stores import (
    WEIGHTS_BYTES,
    PolicyVersion,
    Token,
    Versions,
    iteration_of,
    load_weights,
    name_under,
    opened_safely,
)


class WeightsServer(Versions):
    """The newest weights by name, each a list of one reference to bytes in the object store. This class is thread-safe.

    It also writes them to files in `root`, which a restarted actor, a resumed run and evaluations read.

    Args:
        root: a folder, created with its parents.
    """

    def __init__(self, root: str) -> None:
        super().__init__(root)
        os.makedirs(root, exist_ok=True)

    def write(self, name: str, data: bytes, iteration: int, known: Token | None) -> Token | None:
        name = name_under(self.root, name)
        with self._lock:
            token = super().write(name, [ray.put(data)], iteration, known)
            if token is not None:
                with atomic_write(os.path.join(self.root, name)) as file:
                    file.write(data)
        return token

    def pid(self) -> int:
        """Return the id of this process."""
        return os.getpid()

    def _find(self, name: str) -> tuple[Token, Any] | None:
        """Return the weights under `name`, read from their file if necessary; those of a file count as the oldest."""
        if name not in self._kept:
            path = os.path.join(self.root, name_under(self.root, name))
            with (
                contextlib.suppress(FileNotFoundError),
                opened_safely(path, "weights", WEIGHTS_BYTES) as (file, status),
            ):
                self._keep(name, [ray.put(file.read(status.st_size))], -1)
        return super()._find(name)


def weights_server_name(root: str) -> str:
    """Return the name, within the namespace of the run, of the actor for the weights of `root`."""
    return f"weights:{os.path.abspath(root)}"


def start_weights_server(root: str, options: dict[str, Any]) -> Any:
    """Start the actor for the weights of `root`, and return its handle; it ends when the last handle is gone."""
    return start_store_actor(WeightsServer, weights_server_name(root), (os.path.abspath(root),), options)


class RayPolicyStore:
    """A client of the actor for the weights of `root`; see `PolicyStore`.

    Args:
        trust_pickle: whether to read also weights with objects other than numbers, strings, containers, arrays and
            tensors, which may run code.
    """

    def __init__(self, root: str, trust_pickle: bool = False) -> None:
        self.root, self.limit_bytes = os.path.abspath(root), WEIGHTS_BYTES
        self._trust_pickle = trust_pickle
        self._server = StoreActor(weights_server_name(self.root))

    def write(self, name: str, state: dict[str, Any], known: Any = None) -> Any:
        file = io.BytesIO()
        torch.save(state, file)
        return self._server.ask("write", name_under(self.root, name), file.getvalue(), iteration_of(state), known)

    def read(self, name: str, known: Any = None) -> PolicyVersion | None:
        found = self._server.ask("read", name_under(self.root, name), known)
        if found is None:
            return None
        token, (reference,) = found
        content: bytes = self._server.get(reference)
        path = os.path.join(self.root, name)
        if len(content) > self.limit_bytes:
            raise ValueError(f"the weights {path} are too large: {len(content)} bytes of {self.limit_bytes}")
        return PolicyVersion(load_weights(io.BytesIO(content), path, self._trust_pickle), token)
