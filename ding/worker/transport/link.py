"""The interface between the roles of parallel training and the transports that carry their messages.

A worker offers a `Station`, which runs one task at a time; the coordinator reaches each station over a `Link` that its
`Hub` makes. Tasks and results are dicts of JSON values. Other modules of this package implement the interface.
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
    """A base class before that of a comm worker, which receives its tasks from a station.

    The constructor of a subclass sets `_station`, which calls `serve`.

    Attributes:
        transport: the name of the transport of the station.
    """

    transport: str
    _station: Station

    @property
    def port(self) -> int:
        """The port of the station, or its number within one process; known after `start`."""
        return self._station.port

    def start(self) -> None:
        """Start to accept tasks.

        Raises:
            OSError: the port is in use.
        """
        self._station.start()
        super().start()  # type: ignore[misc]  # the comm worker

    def close(self) -> None:
        """End the running task and accept no more tasks. Bounded in time; idempotent."""
        try:
            super().close()  # type: ignore[misc]
        finally:
            self._station.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # half-built, or at interpreter exit: no caller could handle an error
            self.close()


def connect(hub: Hub, name: str, host: str, port: int, timeout_s: float) -> tuple[Link, dict[str, Any]]:
    """Return a link to the worker at that address, and its resources.

    Raises:
        WorkerLost: the worker did not answer in time, or refuses.
        TaskFailed: the worker failed to report its resources.
    """
    deadline = monotonic() + timeout_s
    link = hub.link(name, host, port)
    try:
        link.connect(timeout_s)
        return link, link.run({"name": RESOURCE, "batched": True}, max(0.1, deadline - monotonic()))
    except BaseException as e:
        link.drop(f"it could not be connected: {e}")  # disconnecting a worker that does not answer would take longer
        raise


# How long after the limit the own reason of an attempt is awaited.
_GRACE_S = 0.5


def connect_all(attempts: Mapping[str, Callable[[], Any]], timeout_s: float) -> None:
    """Make all attempts at the same time, and wait for them for `timeout_s`.

    Args:
        attempts: by the name of the worker, a function that connects it within `timeout_s` or raises.

    Raises:
        ConnectionError: attempts have failed; the text names all of them.
    """
    failures: dict[str, str | None] = {}  # None for a connected worker

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
# Runs a task and returns its result; raises `ding.interaction.TaskFail` to fail it with a given result.
Serve = Callable[[dict[str, Any]], Any]


class TaskFailed(RuntimeError):
    """A worker has failed a task.

    Attributes:
        worker: the name of the worker.
        task: the name of the task.
        result: `message`, and after an exception `exception` and `traceback`.
    """

    def __init__(self, worker: str, task: str, result: Mapping[str, Any]) -> None:
        self.worker, self.task, self.result = worker, task, dict(result)
        super().__init__(f"worker {worker} failed the task {task}: {describe(result)}")


class WorkerLost(RuntimeError):
    """A worker cannot be reached, or did not answer in time; it is unknown whether it ran the task."""


class WorkerReleased(WorkerLost):
    """The coordinator had released the worker before the task was lost: another may have replaced it by now."""


class Link(Protocol):
    """The coordinator's end of the connection to one worker. One thread uses it at a time; any thread may close it."""

    def connect(self, timeout_s: float) -> None:
        """Wait until the worker has started, and connect to it.

        Raises:
            WorkerLost: the worker did not connect in time, or refuses.
        """

    def run(self, task: Task, timeout_s: float) -> dict[str, Any]:
        """Run `task` on the worker and return the result.

        Raises:
            TaskFailed: the worker failed the task.
            WorkerLost: the connection was lost, or the result did not arrive in time.
        """

    def watch(self, on_lost: Callable[[str], Any]) -> None:
        """Call `on_lost` with the reason when the worker is lost, at once if it is lost already; perhaps twice."""

    def drop(self, reason: str) -> None:
        """Close the link without a message to the worker, which has ended or hangs; its task raises `WorkerLost`."""

    def silence_s(self) -> float | None:
        """Return the seconds since the last sign of life of the worker; None before the first one."""

    def close(self) -> None:
        """Disconnect; a running task raises `WorkerLost`. Idempotent, and bounded in time."""


class Hub(Protocol):
    """The coordinator's side of the transport."""

    @property
    def url(self) -> str | None:
        """The URL at which it listens after `start`; None if it does not listen."""

    def serve_page(self, path: str, page: Page) -> None:
        """Answer GET requests at `path`, if it listens. Called before `start`."""

    def start(self) -> None:
        """Start to listen, if workers need an address for their answers."""

    def link(self, name: str, host: str, port: int) -> Link:
        """Return a link, not connected yet, to the worker at that address."""

    def close(self) -> None:
        """Close all links and stop. Idempotent."""


class Station(Protocol):
    """A worker's side of the transport."""

    @property
    def port(self) -> int:
        """The port at which it accepts tasks, known after `start`."""

    def start(self) -> None:
        """Start to accept tasks."""

    def close(self) -> None:
        """Accept no more tasks. Idempotent."""


def describe(result: Mapping[str, Any]) -> str:
    """Return the result of a failed task as text: the traceback if it has one, else the message."""
    return str(result.get("traceback") or result.get("message") or dict(result))
