"""The samples of a run on Ray, which one actor holds as objects of Ray."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ding.worker.transport.ray.store_actor import StoreActor, start_store_actor
from ding.worker.transport.stores import SampleStore, name_under

Data = npt.NDArray[np.uint8]


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

    def pid(self) -> int:
        """Return the id of this process."""
        return os.getpid()


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
