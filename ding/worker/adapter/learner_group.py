"""The learners behind an aggregator, and messages to all of them at once."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from functools import partial
from typing import Any

from ding.interaction.exception import TaskFail
from ding.worker.transport.link import Hub, Link, Task, TaskFailed, WorkerLost, connect, connect_all

Address = tuple[str, str, int]

# When a learner has failed, so long may the others take to answer; they may well be waiting for it.
_GRACE_S = 1.0


class LearnerSeat:
    """A connected learner; a thread of its own talks to it, one message after the other.

    Attributes:
        is_batched: it takes many batches in one message.
        is_lost: it takes no more messages.
    """

    def __init__(self, name: str, link: Link, resource: Mapping[str, Any]) -> None:
        self.name = name
        self.is_batched = bool(resource.get("batched", False))
        self.is_lost = False
        self._link = link
        self._lock = threading.Lock()
        self._calls: queue.SimpleQueue[tuple[Task, float, Future[dict[str, Any]]] | None] = queue.SimpleQueue()
        threading.Thread(target=self._work, name=f"aggregator_{name}", daemon=True).start()

    def run(self, task: Task, timeout_s: float) -> Future[dict[str, Any]]:
        """Have the learner run `task`; see `Link.run`. One that does not answer in time is lost."""
        future: Future[dict[str, Any]] = Future()
        with self._lock:
            if self.is_lost:
                future.set_exception(WorkerLost(f"the learner {self.name} has gone"))
            else:
                self._calls.put((task, timeout_s, future))
        return future

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            task, timeout_s, future = call
            try:
                result = self._link.run(task, timeout_s)
            except BaseException as e:  # whatever it is, whoever waits is told
                if isinstance(e, WorkerLost):
                    self.close()
                future.set_exception(e)
            else:
                future.set_result(result)

    def close(self) -> None:
        """Disconnect; what runs, and what waits, ends in `WorkerLost`. Idempotent."""
        with self._lock:
            is_lost, self.is_lost = self.is_lost, True
            if not is_lost:
                self._calls.put(None)
        if not is_lost:
            self._link.close()


class LearnerGroup:
    """Learners that are connected; they may join and leave at any time. Thread-safe.

    Args:
        hub: where they are reached; it stays the caller's.
        logger: a text logger.
    """

    def __init__(self, hub: Hub, logger: Any) -> None:
        self._hub, self._logger = hub, logger
        self._seats: dict[str, tuple[int, LearnerSeat]] = {}
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._is_closed = False

    @property
    def seats(self) -> list[LearnerSeat]:
        """Those that are connected, in the order in which they were to join."""
        with self._lock:
            return [seat for _, seat in sorted(self._seats.values(), key=lambda entry: entry[0]) if not seat.is_lost]

    def join_all(self, addresses: Sequence[Address], timeout_s: float) -> None:
        """Connect learners, all at the same time.

        Raises:
            ConnectionError: some could not be reached in time; it names them all.
        """
        numbers = [next(self._numbers) for _ in addresses]
        attempts = {
            str(address[0]): partial(self._join, number, *address, timeout_s)
            for number, address in zip(numbers, addresses, strict=True)
        }
        connect_all(attempts, timeout_s)

    def join(self, name: str, host: str, port: int, timeout_s: float) -> None:
        """Connect a learner.

        Raises:
            WorkerLost, TaskFailed: see `connect`.
        """
        self._join(next(self._numbers), name, host, port, timeout_s)

    def _join(self, number: int, name: str, host: str, port: int, timeout_s: float) -> None:
        link, resource = connect(self._hub, str(name), host, int(port), timeout_s)
        seat = LearnerSeat(str(name), link, resource)
        with self._lock:
            if not self._is_closed:
                _, before = self._seats.get(seat.name, (0, None))
                self._seats[seat.name] = (number, seat)
        if self._is_closed:
            before = seat
        if before is not None:
            before.close()
        self._logger.info("the learner %s at %s:%s is connected: %s", name, host, port, resource)

    def leave(self, name: str) -> None:
        """Disconnect a learner, if it is there."""
        with self._lock:
            _, seat = self._seats.pop(name, (0, None))
        if seat is not None:
            seat.close()
            self._logger.info("the learner %s has left", name)

    def missing(self, names: Sequence[str]) -> list[str]:
        """Those of `names` that are not connected."""
        connected = {seat.name for seat in self.seats}
        return [name for name in names if name not in connected]

    def close(self) -> None:
        """Let go of all; to be called when the hub is closed. Idempotent."""
        with self._lock:
            self._is_closed = True
            seats = [seat for _, seat in self._seats.values()]
        for seat in seats:
            seat.close()


def ask_all(
    calls: Sequence[tuple[LearnerSeat, Task]], timeout_s: float, message: str | None = None, to_the_end: bool = False
) -> list[dict[str, Any]]:
    """Have each learner run its task, all at the same time; returns what they answer, in order.

    Args:
        timeout_s: how long they may take.
        message: of the failure; that of the first failed learner, if None.
        to_the_end: whether to wait for all even when one has failed.

    Raises:
        TaskFail: learners have failed, were lost, or have not answered; its `traceback` has what all of them say.
    """
    futures = [seat.run(task, timeout_s) for seat, task in calls]
    left = wait(futures, timeout_s, "ALL_COMPLETED" if to_the_end else FIRST_EXCEPTION).not_done
    if left:
        wait(left, _GRACE_S)
    failures: list[tuple[str, BaseException]] = []
    late: list[tuple[str, BaseException]] = []
    for (seat, task), future in zip(calls, futures, strict=True):
        error = future.exception() if future.done() else None
        if error is not None:
            failures.append((seat.name, error))
        elif not future.done():
            reason = f"the learner {seat.name} has not answered the task {task['name']} within {timeout_s:g} s"
            late.append((seat.name, WorkerLost(reason)))
    if failures or late:
        raise _failure(failures or late, message)
    return [future.result() for future in futures]


def _failure(failures: Sequence[tuple[str, BaseException]], message: str | None) -> TaskFail:
    name, error = failures[0]
    said = error.result if isinstance(error, TaskFailed) else {}
    message = message or f"the learner {name}: {said.get('message') or error}"
    result = {
        "message": message,
        "exception": said.get("exception") or type(error).__name__,
        "traceback": "\n".join(str(error) for _, error in failures),
    }
    return TaskFail(result=result, message=message)
