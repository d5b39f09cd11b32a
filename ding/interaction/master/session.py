"""What a master knows of one connection to a slave, and the table of all of them."""

from __future__ import annotations

import hashlib
import threading
import time
from typing import TYPE_CHECKING

from ding.interaction.base.common import RecentIds, random_token

if TYPE_CHECKING:
    from ding.interaction.master.connection import SlaveConnection
    from ding.interaction.master.task import Task


class SlaveSession:
    """One connection, from just before `/connect` is sent until it is ended; a later one is another object."""

    def __init__(self, connection: SlaveConnection) -> None:
        self.connection = connection
        self.token = random_token()
        self.last_seen = time.monotonic()
        self._lock = threading.Lock()
        self._tasks: dict[str, Task] = {}
        self._settled = RecentIds()
        self._is_over = False

    def add(self, task_id: str, task: Task) -> bool:
        """Expect the result of a task; False where the session has ended."""
        with self._lock:
            if not self._is_over:
                self._tasks[task_id] = task
            return not self._is_over

    def take(self, task_id: str) -> Task | None:
        """Expect the result of a task no more, because it is there or will never be; None where it is not expected."""
        with self._lock:
            task = self._tasks.pop(task_id, None)
            if task is not None:
                self._settled.add(task_id)
            return task

    def has_settled(self, task_id: str) -> bool:
        """Whether the result of a task was expected once."""
        with self._lock:
            return task_id in self._settled

    def end(self) -> list[Task] | None:
        """Expect nothing any more; the tasks whose results were expected, None where the session has ended before."""
        with self._lock:
            if self._is_over:
                return None
            self._is_over = True
            tasks = list(self._tasks.values())
            self._tasks.clear()
            return tasks


def _digest_of(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()


class SlaveTable:
    """The connections of a master by name, and by the tokens of their slaves. Thread-safe.

    A token counts from before the slave gets it, because its first sign of life may overtake its reply; a name counts
    from when the slave has agreed.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._active: dict[str, SlaveSession] = {}
        self._pending: list[SlaveSession] = []
        self._by_digest: dict[bytes, SlaveSession] = {}

    def reserve(self, session: SlaveSession) -> None:
        """Begin to connect.

        Raises:
            KeyError: another connection has the name.
        """
        connection = session.connection
        with self._lock:
            sessions = [*self._active.values(), *self._pending]
            if any(s.connection.name == connection.name and s.connection is not connection for s in sessions):
                raise KeyError(connection.name)
            self._pending.append(session)
            self._by_digest[_digest_of(session.token)] = session

    def activate(self, session: SlaveSession) -> int:
        """Be connected; how many are, 0 where the session was removed meanwhile."""
        with self._lock:
            if session not in self._pending:
                return 0
            self._pending.remove(session)
            session.last_seen = time.monotonic()
            self._active[session.connection.name] = session
            return len(self._active)

    def remove(self, session: SlaveSession) -> None:
        """Be connected no more, or give up to be."""
        with self._lock:
            if session in self._pending:
                self._pending.remove(session)
            if self._active.get(session.connection.name) is session:
                del self._active[session.connection.name]
            self._by_digest.pop(_digest_of(session.token), None)

    def get(self, name: str) -> SlaveSession | None:
        """The connection that is active under `name`."""
        with self._lock:
            return self._active.get(name)

    def active(self) -> list[SlaveSession]:
        """All active connections."""
        with self._lock:
            return list(self._active.values())

    def all(self) -> list[SlaveSession]:
        """The active connections, and those that are being made."""
        with self._lock:
            return [*self._active.values(), *self._pending]

    def matches(self, token: str) -> SlaveSession | None:
        """The connection whose slave has `token`.

        Tokens are looked up by their digests: the time that takes tells nothing about a token that is nearly right.
        """
        return self._by_digest.get(_digest_of(token))

    def seen(self, session: SlaveSession) -> None:
        """Note a sign of life."""
        session.last_seen = time.monotonic()

    def silent(self, now: float, tolerance_s: float) -> list[SlaveSession]:
        """The active connections without a sign of life for longer than `tolerance_s`."""
        return [session for session in self.active() if now - session.last_seen > tolerance_s]

    def excuse(self, seconds: float) -> None:
        """Do not count the last `seconds` as silence: it was the master that did not listen."""
        for session in self.active():
            session.last_seen += seconds
