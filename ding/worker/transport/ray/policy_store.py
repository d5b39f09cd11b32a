"""The weights of a run on Ray: objects in the object store, to which one actor has the references."""

from __future__ import annotations

import io
import os
from typing import Any

import ray
import torch

from ding.utils.file_helper import atomic_write
from ding.worker.transport.ray.store_actor import StoreActor, start_store_actor
from ding.worker.transport.stores import (
    PolicyVersion,
    load_weights,
    name_under,
    new_token,
)


class WeightsServer:
    """The newest weights by name: a token, and a list of one reference to bytes in the object store.

    It also writes them to files in `root`, which a restarted actor, a resumed run and evaluations read. This class is
    thread-safe.

    Args:
        root: a folder, created with its parents.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._kept: dict[str, tuple[str, list[Any]]] = {}
        os.makedirs(root, exist_ok=True)

    def write(self, name: str, data: bytes) -> None:
        """Replace the weights under `name`."""
        with atomic_write(os.path.join(self._root, name)) as file:
            file.write(data)
        self._kept[name] = new_token(), [ray.put(data)]

    def read(self, name: str, known: str | None) -> tuple[str, list[Any]] | None:
        """Return the newest weights under `name`, from their file if necessary; None if their token is `known`.

        Raises:
            FileNotFoundError: there are none yet.
        """
        if name not in self._kept:
            with open(os.path.join(self._root, name), "rb") as file:
                self._kept[name] = new_token(), [ray.put(file.read())]
        kept = self._kept[name]
        return None if kept[0] == known else kept

    def pid(self) -> int:
        """Return the id of this process."""
        return os.getpid()


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
        self.root = os.path.abspath(root)
        self._trust_pickle = trust_pickle
        self._server = StoreActor(weights_server_name(self.root))

    def write(self, name: str, state: dict[str, Any]) -> None:
        file = io.BytesIO()
        torch.save(state, file)
        self._server.ask("write", name_under(self.root, name), file.getvalue())

    def read(self, name: str, known: Any = None) -> PolicyVersion | None:
        found = self._server.ask("read", name_under(self.root, name), known)
        if found is None:
            return None
        token, (reference,) = found
        content: bytes = self._server.get(reference)
        path = os.path.join(self.root, name)
        return PolicyVersion(load_weights(io.BytesIO(content), path, self._trust_pickle), token)
