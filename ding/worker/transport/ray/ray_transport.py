"""The transport 'ray', whose workers are actors; other actors keep samples and weights."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

try:
    import ray
except ImportError as e:
    raise ImportError("the transport 'ray' needs the package ray: pip install 'ding-worker[ray]'") from e

from ding.utils.registry_factory import TRANSPORT_REGISTRY
from ding.worker.transport.http_transport import HttpTransport
from ding.worker.transport.ray.stores import RayPolicyStore, RaySampleStore
from ding.worker.transport.transport import Launch


@TRANSPORT_REGISTRY.register("ray")
class RayTransport(HttpTransport):
    """The transport with workers in actors, tasks over HTTP, and samples and weights in the object store of Ray."""

    name = "ray"
    launch = Launch.ACTOR

    def sample_store(self, root: str) -> RaySampleStore:
        return RaySampleStore(root)

    def policy_store(self, root: str, trust_pickle: bool = False) -> RayPolicyStore:
        return RayPolicyStore(root, trust_pickle)


# Concurrent calls of an actor: `watch` and `place` of several processes, and `close`.
_CONCURRENCY = 8


def actor_name(worker: str, life: int) -> str:
    """Return the name of a worker's actor in the namespace of the run; each restart has another `life`."""
    return f"{worker}:{life}"


class WorkerActor:
    """The actor of a worker. This class is thread-safe.

    Args:
        make: prepares this process, and returns a comm worker that has started, and the address at which it listens.
    """

    def __init__(self, make: Callable[[], tuple[Any, str]]) -> None:
        self._worker, self._host = make()
        self._ended = threading.Event()

    def place(self) -> dict[str, Any]:
        """Return the process of the worker and its address, as `pid`, `host` and `port`."""
        return {"pid": os.getpid(), "host": self._host, "port": self._worker.port}

    def watch(self) -> None:
        """Return when the worker is closed. A caller that waits for this is notified at once if the process dies."""
        self._ended.wait()

    def close(self) -> None:
        """End the task, with a final checkpoint, and the worker. Further calls do nothing."""
        try:
            self._worker.close()
        finally:
            self._ended.set()


def actor_class() -> Any:
    """Return `WorkerActor` as a class of actors."""
    decorate: Any = ray.remote(max_concurrency=_CONCURRENCY)  # type: ignore[call-overload]
    return decorate(WorkerActor)


def when_done(reference: Any, done: Callable[[Any], Any], failed: Callable[[object], Any]) -> None:
    """Call `done` with the value of a reference once it is available, or `failed` with its error."""

    def settle(future: Future[Any]) -> None:
        error = future.exception()
        if error is None:
            done(future.result())
        else:
            failed(error)

    reference.future().add_done_callback(settle)
