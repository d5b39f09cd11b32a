"""The seam between the roles of parallel training and what carries their messages.

A worker offers a `Station`, which runs one task at a time; the coordinator reaches each of them over a `Link` that its
`Hub` makes. Tasks and results are dicts that JSON can hold. The other modules of this package are the implementations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ding.utils.page import Page

import contextlib
import threading
from time import monotonic

from ding.worker.transport.tasks import RESOURCE


class Hosted:
    """Put before a comm worker: what it serves, its station takes in.

    A subclass sets `_station`, which calls `serve`, when it is made.

    Attributes:
        transport: the name of the transport that the station belongs to.
    """

    transport: str
    _station: Station

    @property
    def port(self) -> int:
        """The port (or number, within one process) of the station, from `start` on."""
        return self._station.port

    def start(self) -> None:
        """Begin to take tasks.

        Raises:
            OSError: the port is taken.
        """
        self._station.start()
        super().start()  # type: ignore[misc]  # the comm worker

    def close(self) -> None:
        """End what still runs, and take no more tasks. Bounded in time; idempotent."""
        try:
            super().close()  # type: ignore[misc]
        finally:
            self._station.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # half-built, or at interpreter exit: nobody is left to tell
            self.close()


def connect(hub: Hub, name: str, host: str, port: int, timeout_s: float) -> tuple[Link, dict[str, Any]]:
    """A link to the worker at that address, and what it answers when it is asked for its resources.

    Raises:
        WorkerLost: it has not answered in time, or refuses.
        TaskFailed: it cannot tell its resources.
    """
    deadline = monotonic() + timeout_s
    link = hub.link(name, host, port)
    try:
        link.connect(timeout_s)
        return link, link.run({"name": RESOURCE, "batched": True}, max(0.1, deadline - monotonic()))
    except BaseException as e:
        link.drop(f"it could not be connected: {e}")  # to tell one that does not answer would take longer still
        raise


# By how much an attempt may miss its own limit, to give a better reason than that.
_GRACE_S = 0.5


def connect_all(attempts: Mapping[str, Callable[[], Any]], timeout_s: float) -> None:
    """Make all attempts at the same time, and wait for them until `timeout_s` has passed.

    Args:
        attempts: by name of the worker, what connects it within `timeout_s`, or raises.

    Raises:
        ConnectionError: some have failed; it names them all.
    """
    failures: dict[str, str | None] = {}  # None of those that are connected

    def attempt(name: str, act: Callable[[], Any]) -> None:
        try:
            act()
        except Exception as e:
            failures[name] = str(e)
        else:
            failures[name] = None

    deadline = monotonic() + timeout_s + _GRACE_S
    threads = [
        threading.Thread(target=attempt, args=item, name=f"connect_{item[0]}", daemon=True) for item in attempts.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - monotonic()))
    reasons = {name: failures.get(name, "it has not answered") for name in attempts}
    failed = {name: reason for name, reason in reasons.items() if reason is not None}
    if failed:
        raise ConnectionError(
            f"no connection within {timeout_s:g} s to "
            + "; ".join(f"{name}: {reason}" for name, reason in sorted(failed.items()))
        )


Task = Mapping[str, Any]
# Runs a task and returns its result; raises `ding.interaction.TaskFail` to fail it with a result of its own.
Serve = Callable[[dict[str, Any]], Any]


class TaskFailed(RuntimeError):
    """A worker has failed a task.

    Attributes:
        result: what it said: `message`, and where an exception was the cause `exception` and `traceback`.
    """

    def __init__(self, worker: str, task: str, result: Mapping[str, Any]) -> None:
        self.worker, self.task, self.result = worker, task, dict(result)
        super().__init__(f"worker {worker} failed the task {task}: {describe(result)}")


class WorkerLost(RuntimeError):
    """A worker cannot be reached, or has not answered in time; whether it ran the task is not known."""


class WorkerLetGo(WorkerLost):
    """The coordinator had let go of the worker before its task was lost: another may be in its place by now."""


class Link(Protocol):
    """The coordinator's end of the connection to one worker. One thread may use it at a time, but for `close`."""

    def connect(self, timeout_s: float) -> None:
        """Wait for the worker to come up and take its connection.

        Raises:
            WorkerLost: it has not done so in time, or refuses.
        """

    def run(self, task: Task, timeout_s: float) -> dict[str, Any]:
        """Have the worker run `task` and return the result.

        Raises:
            TaskFailed: the worker failed the task.
            WorkerLost: the connection is gone, or there is no result in time.
        """

    def watch(self, on_lost: Callable[[str], Any]) -> None:
        """Have `on_lost` called with the reason when the worker is lost, at once if it is by now; perhaps twice."""

    def drop(self, reason: str) -> None:
        """End it at once, without a word to the worker, which has gone or hangs; its task ends in `WorkerLost`."""

    def silence_s(self) -> float | None:
        """Seconds since the last sign of life of the worker, which may be lost by now; None if it was never there."""

    def close(self) -> None:
        """Disconnect; a task that runs ends in `WorkerLost`. Idempotent, and bounded in time."""


class Hub(Protocol):
    """The coordinator's side of the transport."""

    @property
    def url(self) -> str | None:
        """Where it listens, from `start` on; None where nothing listens."""

    def serve_page(self, path: str, page: Page) -> None:
        """Answer GET requests at `path`, too, where something listens; called before `start`."""

    def start(self) -> None:
        """Begin to listen, where workers need an address to answer to."""

    def link(self, name: str, host: str, port: int) -> Link:
        """A link, not connected yet, to the worker at that address."""

    def close(self) -> None:
        """Close all links and stop. Idempotent."""


class Station(Protocol):
    """A worker's side of the transport."""

    @property
    def port(self) -> int:
        """Where it takes tasks, from `start` on."""

    def start(self) -> None:
        """Begin to take tasks."""

    def close(self) -> None:
        """Take no further task. Idempotent."""


def describe(result: Mapping[str, Any]) -> str:
    """The result of a failed task as text: the traceback where there is one, else the message."""
    return str(result.get("traceback") or result.get("message") or dict(result))
