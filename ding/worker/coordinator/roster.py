"""Who works for a coordinator, and who did."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ding.worker.transport.link import Link

# With more workers lost than these, the first ones are forgotten: an operator gives each a new name.
_MAX_LOST = 50
_ORDER = {"learner": 0, "collector": 1}


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """How a worker is.

    Attributes:
        address: where it was connected last, as `host:port`.
        task_id: the task it runs, None where it runs none.
        silence_s: seconds since its last sign of life: an answer or, over HTTP, a heartbeat.
        restarts: how often it has come back.
    """

    kind: str
    name: str
    address: str
    state: Literal["free", "busy", "lost"]
    task_id: str | None
    silence_s: float | None
    restarts: int


@dataclass(slots=True)
class _Entry:
    kind: str
    address: str
    link: Link
    restarts: int = 0
    is_lost: bool = False


class Roster:
    """The workers by name, those that were lost included. Thread-safe."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._lock = threading.Lock()

    def joined(self, kind: str, name: str, address: str, link: Link) -> None:
        """A worker is connected, for the first time or again."""
        with self._lock:
            before = self._entries.get(name)
            restarts = 0 if before is None else before.restarts + 1
            self._entries[name] = _Entry(kind, address, link, restarts)

    def left(self, name: str, link: Link) -> None:
        """The worker at the other end of this link is gone; it may have come back by another."""
        with self._lock:
            entry = self._entries.get(name)
            if entry is None or entry.link is not link:
                return
            entry.is_lost = True
            lost = [name for name, entry in self._entries.items() if entry.is_lost]
            for name in lost[:-_MAX_LOST]:
                del self._entries[name]

    def statuses(self, tasks: Mapping[str, str]) -> tuple[WorkerStatus, ...]:
        """How they all are, learners first.

        Args:
            tasks: name of a worker -> id of the task that it runs.
        """
        with self._lock:
            entries = sorted(
                self._entries.items(), key=lambda item: (_ORDER.get(item[1].kind, 2), len(item[0]), item[0])
            )
            return tuple(_status(name, entry, tasks.get(name)) for name, entry in entries)


def _status(name: str, entry: _Entry, task_id: str | None) -> WorkerStatus:
    if entry.is_lost:
        task_id = None
    state: Literal["free", "busy", "lost"] = "lost" if entry.is_lost else "free" if task_id is None else "busy"
    return WorkerStatus(entry.kind, name, entry.address, state, task_id, entry.link.silence_s(), entry.restarts)
