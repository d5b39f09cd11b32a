"""The sessions of a master with its slaves: the tasks of each, and the table of all sessions."""

from __future__ import annotations

import hashlib
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from ding.interaction.base.app import ProtocolError
from ding.interaction.base.common import RecentIds, random_token
from ding.interaction.exception.base import MasterErrorCode
from ding.interaction.exception.refusal import failure_for
from ding.interaction.master.task import ResultThread, Task, TaskResultType

if TYPE_CHECKING:
    from ding.interaction.master.connection import SlaveConnection


class SlaveSession:
    """One session with a slave, from just before `/connect` is sent until it ends. Thread-safe.

    A connection that connects again begins another session.
    """

    def __init__(self, connection: SlaveConnection) -> None:
        self.connection = connection
        self.token = random_token()
        self.last_seen = time.monotonic()
        self._lock = threading.Lock()
        self._tasks: dict[str, Task] = {}
        self._settled = RecentIds()
        self._has_ended = False

    def add(self, task_id: str, task: Task) -> bool:
        """Register a task whose result is expected; return false if the session has ended."""
        with self._lock:
            if not self._has_ended:
                self._tasks[task_id] = task
            return not self._has_ended

    def take(self, task_id: str) -> Task | None:
        """Remove and return a task whose result has arrived or will never arrive; None if it is not expected."""
        with self._lock:
            task = self._tasks.pop(task_id, None)
            if task is not None:
                self._settled.add(task_id)
            return task

    def has_settled(self, task_id: str) -> bool:
        """Return whether the task was registered and taken."""
        with self._lock:
            return task_id in self._settled

    def end(self) -> list[Task] | None:
        """End the session; return its unfinished tasks, or None if it has ended before."""
        with self._lock:
            if self._has_ended:
                return None
            self._has_ended = True
            tasks = list(self._tasks.values())
            self._tasks.clear()
            return tasks


def _digest_of(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()


class SlaveTable:
    """The sessions of a master, by the names of their connections and by their tokens. Thread-safe.

    A token is valid before the slave receives it, because the first heartbeat may overtake the slave's reply; a name is
    taken from the slave's reply on.
    """

    def __init__(self) -> None:
        self.results = ResultThread()
        self._lock = threading.Lock()
        self._is_open = False
        self._active: dict[str, SlaveSession] = {}
        self._pending: list[SlaveSession] = []
        self._by_digest: dict[bytes, SlaveSession] = {}

    def open(self) -> None:
        """Admit sessions."""
        self._is_open = True

    def close(self) -> None:
        """Admit no more sessions, end all of them, and stop the result thread."""
        with self._lock:
            self._is_open = False
            sessions = [*self._active.values(), *self._pending]
        for session in sessions:
            session.connection.drop(session, "the master was closed")
        self.results.stop()

    def reserve(self, session: SlaveSession) -> None:
        """Add a session whose slave is about to be asked.

        Raises:
            RuntimeError: the master does not run.
            KeyError: another connection has the name.
        """
        connection = session.connection
        with self._lock:
            self.check_is_open()
            sessions = [*self._active.values(), *self._pending]
            if any(s.connection.name == connection.name and s.connection is not connection for s in sessions):
                raise KeyError(connection.name)
            self._pending.append(session)
            self._by_digest[_digest_of(session.token)] = session

    def activate(self, session: SlaveSession) -> None:
        """Mark a session as connected, unless it has ended.

        Raises:
            RuntimeError: the master was closed.
        """
        with self._lock:
            if session in self._pending:
                self._pending.remove(session)
                session.last_seen = time.monotonic()
                self._active[session.connection.name] = session
            self.check_is_open()

    def end(self, session: SlaveSession, reason: str) -> bool:
        """Remove a session and fail its tasks; return false if it has ended before."""
        with self._lock:
            if session in self._pending:
                self._pending.remove(session)
            if self._active.get(session.connection.name) is session:
                del self._active[session.connection.name]
            self._by_digest.pop(_digest_of(session.token), None)
        tasks = session.end()
        message = f"the connection to the slave {session.connection.name!r} has ended: {reason}"
        for task in tasks or ():
            failure = failure_for(message, "SlaveLost")
            self.results.submit(partial(task.finish, TaskResultType.FAILED, failure, is_lost=True))
        return tasks is not None

    def finish(self, session: SlaveSession, task_id: str, kind: TaskResultType, result: Any) -> None:
        """Finish a task of the session; the same result may arrive twice.

        Raises:
            ProtocolError: the session had no such task.
        """
        self.seen(session)
        task = session.take(task_id)
        if task is None:
            if not session.has_settled(task_id):
                raise ProtocolError(400, MasterErrorCode.TASK_DATA_INVALID, "The slave has no such task.")
        elif task.has_callbacks(kind):
            self.results.submit(partial(task.finish, kind, result))
        else:
            task.finish(kind, result)

    def get(self, name: str) -> SlaveSession | None:
        """Return the active session of the connection `name`."""
        with self._lock:
            return self._active.get(name)

    def matches(self, token: str) -> SlaveSession | None:
        """Return the session whose slave has `token`.

        Tokens are looked up by their digests: the time of a look-up does not show how much of a token is right.
        """
        return self._by_digest.get(_digest_of(token))

    def seen(self, session: SlaveSession) -> None:
        """Record a sign of life."""
        session.last_seen = time.monotonic()

    def silent(self, now: float, tolerance_s: float) -> list[SlaveSession]:
        """Return the active sessions without a sign of life for longer than `tolerance_s`."""
        with self._lock:
            return [session for session in self._active.values() if now - session.last_seen > tolerance_s]

    def excuse(self, seconds: float) -> None:
        """Do not count the last `seconds` as silence, because the master itself was stopped."""
        with self._lock:
            for session in self._active.values():
                session.last_seen += seconds

    def check_is_open(self) -> None:
        """Raise a RuntimeError if the master does not run."""
        if not self._is_open:
            raise RuntimeError("the master does not run, so that no slave could report to it: start it first")
