"""The free workers of a coordinator."""

from __future__ import annotations

import random
import threading
from typing import Any

_KINDS = ("collector", "learner")


class NaiveResourceManager:
    """The set of free workers, of which one is assigned at random. This class is thread-safe.

    Example:
        >>> manager = NaiveResourceManager()
        >>> manager.update("learner", "learner0", {"gpu": 1})
        >>> manager.assign_learner({"task_id": "t"})
        {'learner_id': 'learner0', 'resource_info': {'gpu': 1}}
        >>> manager.assign_learner({"task_id": "t"}) is None
        True
    """

    def __init__(self) -> None:
        self._free: dict[str, dict[str, Any]] = {kind: {} for kind in _KINDS}
        self._lock = threading.Lock()
        # Not the global generator: the choice must neither depend on nor change the experiment's random state.
        self._random = random.SystemRandom()

    def assign_collector(self, collector_task: dict[str, Any]) -> dict[str, Any] | None:
        """Remove a free collector and return `{'collector_id', 'resource_info'}`; None if none is free."""
        return self._assign("collector")

    def assign_learner(self, learner_task: dict[str, Any]) -> dict[str, Any] | None:
        """Remove a free learner and return `{'learner_id', 'resource_info'}`; None if none is free."""
        return self._assign("learner")

    def _assign(self, kind: str) -> dict[str, Any] | None:
        with self._lock:
            free = self._free[kind]
            if not free:
                return None
            worker_id = self._random.choice(list(free))
            return {f"{kind}_id": worker_id, "resource_info": free.pop(worker_id)}

    def have_assigned(self, name: str, worker_id: str) -> bool:
        """Return whether the worker is among the free ones (the name says the opposite)."""
        with self._lock:
            return worker_id in self._of(name)

    def delete(self, name: str, worker_id: str) -> bool:
        """Remove a free worker; return False if it is not free."""
        with self._lock:
            return self._of(name).pop(worker_id, _MISSING) is not _MISSING

    def update(self, name: str, worker_id: str, resource_info: dict[str, Any]) -> None:
        """Add a free worker with its resources.

        Raises:
            AssertionError: `name` is neither 'collector' nor 'learner'; all methods with `name` may raise this.
        """
        with self._lock:
            self._of(name)[worker_id] = resource_info

    def count(self, name: str) -> int:
        """Return the number of free workers of this kind."""
        with self._lock:
            return len(self._of(name))

    def _of(self, name: str) -> dict[str, Any]:
        if name not in _KINDS:
            raise AssertionError(f"the kind of worker {name!r} is not allowed; it must be one of {', '.join(_KINDS)}")
        return self._free[name]


_MISSING = object()
