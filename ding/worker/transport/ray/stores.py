"""The stores of samples and weights of a run on Ray: actors that hold them, and their clients."""

from __future__ import annotations

import io
import os
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import ray
import torch
from ray.exceptions import RayError, RayTaskError

from ding.utils.file_helper import atomic_write
from ding.worker.transport.stores import PolicyVersion, SampleStore, load_weights, name_under, new_token

Data = npt.NDArray[np.uint8]
# How long a reader or writer waits for the actor of a store, which may be restarting.
_STORE_S = 30.0


class StoreActor:
    """A client of an actor that holds a store of this run; it is looked up when it is first needed.

    Calls raise the errors of the store, and `OSError` if the actor cannot be reached, the object store is full, or an
    object is lost.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._actor: Any = None

    def call(self, method: str, *args: Any) -> Any:
        """Call a method, and return a reference to its result."""
        if self._actor is None:
            try:
                self._actor = ray.get_actor(self.name)
            except ValueError as e:
                raise OSError(f"this run has no actor {self.name}") from e
        try:
            return getattr(self._actor, method).remote(*args)
        except RayError as e:  # there is no room for the arguments
            raise self._error(e) from e

    def ask(self, method: str, *args: Any) -> Any:
        """Call a method, and return its result."""
        return self.get(self.call(method, *args))

    def get(self, reference: Any) -> Any:
        """Return the object of a reference."""
        try:
            return ray.get(reference, timeout=_STORE_S)
        except RayTaskError as e:
            raise self._error(e.cause) if isinstance(e.cause, RayError) else e.cause from None
        except RayError as e:
            raise self._error(e) from e

    def _error(self, error: RayError) -> OSError:
        return OSError(f"the actor {self.name}, or an object of it, cannot be reached: {error}")


def start_store_actor(cls: type, name: str, args: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
    """Start the actor of a store, which Ray restarts if it is lost; it ends when the last handle is gone."""
    limits = {"num_cpus": 0, "max_concurrency": 8, "max_restarts": -1, "max_task_retries": -1}
    return ray.remote(cls).options(**limits, **options, name=name).remote(*args)


class SampleServer:
    """The samples of a run, which outlive their collectors. This class is thread-safe.

    Large chunks are arrays of Ray's object store.
    """

    def __init__(self) -> None:
        self._chunks: dict[str, Data] = {}

    def write(self, name: str, data: Data) -> None:
        """Store a chunk."""
        self._chunks[name] = data

    def read(self, name: str) -> Data | None:
        """Return the chunk of this name, if it exists."""
        return self._chunks.get(name)

    def delete(self, names: Collection[str]) -> None:
        """Delete the chunks of these names, if any."""
        for name in names:
            self._chunks.pop(name, None)

    def names(self, among: Collection[str] | None) -> set[str]:
        """Return the names of all chunks, or those of `among` that exist."""
        return set(self._chunks.copy()) if among is None else {name for name in among if name in self._chunks}


def sample_server_name(root: str) -> str:
    """Return the name, within the namespace of the run, of the actor for the samples of `root`."""
    return f"samples:{os.path.abspath(root)}"


def start_sample_server(root: str, options: Mapping[str, Any]) -> Any:
    """Start the actor for the samples of `root`, and return its handle; it ends when the last handle is gone."""
    return start_store_actor(SampleServer, sample_server_name(root), (), options)


class RaySampleStore(SampleStore):
    """A client of the actor for the samples of `root`; see `SampleStore`."""

    def __init__(self, root: str) -> None:
        self.root = os.path.abspath(root)
        self._server = StoreActor(sample_server_name(self.root))

    def write(self, name: str, data: bytes) -> None:
        self._server.ask("write", name_under(self.root, name), np.frombuffer(data, np.uint8))

    def read(self, name: str) -> bytes:
        data: Data | None = self._server.ask("read", name_under(self.root, name))
        if data is None:
            raise FileNotFoundError(f"the samples {name!r} were deleted, or lost with their actor")
        return data.tobytes()

    def delete(self, *names: str) -> None:
        """Have the data deleted, without waiting for it."""
        self._server.call("delete", [name_under(self.root, name) for name in names])

    def names(self, among: Collection[str] | None = None) -> set[str]:
        names: set[str] = self._server.ask("names", among)
        return names


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
