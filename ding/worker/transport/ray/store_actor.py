"""The actors of a run on Ray that hold its samples and weights, and their clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

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
