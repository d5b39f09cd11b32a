"""The samples of a run on Ray, which one actor holds as objects of Ray."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from ding.worker.transport.ray.store_actor import StoreActor, start_store_actor
from ding.worker.transport.stores import SampleStore, name_under

Data = npt.NDArray[np.uint8]


class SampleServer:
    """The samples of a run, which outlive their collectors. This class is thread-safe.

    Chunks that are written together are views of one array: one of Ray's object store if it is large.
    """

    def __init__(self) -> None:
        self._chunks: dict[str, Data] = {}

    def write(self, sizes: Mapping[str, int], data: Data) -> None:
        """Store the chunks of these names and sizes in bytes, which lie in `data` one after the other."""
        self._chunks.update(_split(sizes, data))

    def read(self, names: Collection[str]) -> tuple[dict[str, int], Data]:
        """Return the chunks of these names that exist: their sizes in bytes, and their data one after the other."""
        found = {name: data for name in names if (data := self._chunks.get(name)) is not None}
        sizes = {name: len(data) for name, data in found.items()}
        return sizes, np.concatenate([np.empty(0, np.uint8), *found.values()])

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


def _split(sizes: Mapping[str, int], data: Data) -> dict[str, Data]:
    """Return the views of `data` with these sizes, by name."""
    ends = accumulate(sizes.values())
    return {name: data[end - size : end] for (name, size), end in zip(sizes.items(), ends, strict=True)}


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
        self._written: dict[str, bytes] = {}  # until `flush`
        self._fetched: dict[str, Data] = {}  # until they are read, or others are fetched

    def write(self, name: str, data: bytes) -> None:
        self._written[name_under(self.root, name)] = data

    def flush(self) -> None:
        written = self._written.copy()  # copied in one step: another thread writes meanwhile
        if not written:
            return
        sizes = {name: len(data) for name, data in written.items()}
        self._server.ask("write", sizes, np.frombuffer(b"".join(written.values()), np.uint8))
        for name in written:
            self._written.pop(name, None)

    def fetch(self, names: Collection[str]) -> None:
        self._fetched = _split(*self._server.ask("read", [name_under(self.root, name) for name in names]))

    def read(self, name: str) -> bytes:
        name = name_under(self.root, name)
        data = self._fetched.pop(name, None)
        if data is None:
            data = _split(*self._server.ask("read", [name])).get(name)
        if data is None:
            raise FileNotFoundError(f"the samples {name!r} were deleted, or lost with their actor")
        return data.tobytes()

    def delete(self, *names: str) -> None:
        """Have the data deleted, without waiting for it."""
        names = tuple(name_under(self.root, name) for name in names)
        for name in names:
            self._written.pop(name, None)
        self._server.call("delete", names)

    def names(self, among: Collection[str] | None = None) -> set[str]:
        names: set[str] = self._server.ask("names", among)
        return names
