"""The learners of an aggregator, and messages to all of them."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from functools import partial
from typing import Any

from ding.interaction.exception import TaskFail
from ding.worker.transport.transport import Connector, Task, TaskFailed, WorkerClient, WorkerLost, connect, connect_all

Address = tuple[str, str, int]

# Seconds for the other learners to answer after one has failed; they may be waiting for it.
GRACE_S = 1.0


class LearnerSeat:
    """A connected learner with a thread that sends its messages in order.

    Attributes:
        is_batched: whether it accepts several batches in one message.
        is_lost: whether it is disconnected.
    """

    def __init__(self, name: str, client: WorkerClient, resource: Mapping[str, Any]) -> None:
        self.name = name
        self.is_batched = bool(resource.get("batched", False))
        self.is_lost = False
        self._client = client
        self._lock = threading.Lock()
        self._calls: queue.SimpleQueue[tuple[Task, float, Future[dict[str, Any]]] | None] = queue.SimpleQueue()
        threading.Thread(target=self._work, name=f"aggregator_{name}", daemon=True).start()

    def run(self, task: Task, timeout_s: float) -> Future[dict[str, Any]]:
        """Have the learner run `task`; see `WorkerClient.run`. One that does not answer in time counts as lost."""
        future: Future[dict[str, Any]] = Future()
        with self._lock:
            if self.is_lost:
                future.set_exception(WorkerLost(f"the learner {self.name} is disconnected"))
            else:
                self._calls.put((task, timeout_s, future))
        return future

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            task, timeout_s, future = call
            try:
                result = self._client.run(task, timeout_s)
            except BaseException as e:  # passed on to the waiting caller
                if isinstance(e, WorkerLost):
                    self.close()
                future.set_exception(e)
            else:
                future.set_result(result)

    def close(self) -> None:
        """Disconnect; running and waiting messages end with `WorkerLost`. Further calls do nothing."""
        with self._lock:
            is_lost, self.is_lost = self.is_lost, True
            if not is_lost:
                self._calls.put(None)
        if not is_lost:
            self._client.close()


class LearnerGroup:
    """The connected learners, which may join and leave at any time. This class is thread-safe.

    Args:
        connector: connects to the learners; the caller closes it.
        logger: a text logger.
    """

    def __init__(self, connector: Connector, logger: Any) -> None:
        self._connector, self._logger = connector, logger
        self._seats: dict[str, tuple[int, LearnerSeat]] = {}
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._is_closed = False

    @property
    def seats(self) -> list[LearnerSeat]:
        """The connected learners in the order of the requests to join."""
        with self._lock:
            return [seat for _, seat in sorted(self._seats.values(), key=lambda entry: entry[0]) if not seat.is_lost]

    def join_all(self, addresses: Sequence[Address], timeout_s: float) -> None:
        """Connect learners concurrently.

        Raises:
            ConnectionError: some learners cannot be reached in time; the message names all of them.
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
        client, resource = connect(self._connector, str(name), host, int(port), timeout_s)
        seat = LearnerSeat(str(name), client, resource)
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
        """Disconnect a learner, if connected."""
        with self._lock:
            _, seat = self._seats.pop(name, (0, None))
        if seat is not None:
            seat.close()
            self._logger.info("the learner %s has left", name)

    def missing(self, names: Sequence[str]) -> list[str]:
        """Return the `names` that are not connected."""
        connected = {seat.name for seat in self.seats}
        return [name for name in names if name not in connected]

    def close(self) -> None:
        """Disconnect all learners; call it after closing the connector. Further calls do nothing."""
        with self._lock:
            self._is_closed = True
            seats = [seat for _, seat in self._seats.values()]
        for seat in seats:
            seat.close()


def ask_all(
    calls: Sequence[tuple[LearnerSeat, Task]], timeout_s: float, message: str | None = None, to_the_end: bool = False
) -> list[dict[str, Any]]:
    """Have each learner run its task, all concurrently, and return the results in order.

    Args:
        timeout_s: seconds for all learners to answer.
        message: the error message if a learner fails; None for the message of the first learner that failed.
        to_the_end: whether to wait for all learners even if one has failed.

    Raises:
        TaskFail: a learner failed, is lost, or did not answer; its `traceback` has all errors.
    """
    futures = [seat.run(task, timeout_s) for seat, task in calls]
    left = wait(futures, timeout_s, "ALL_COMPLETED" if to_the_end else FIRST_EXCEPTION).not_done
    if left:
        wait(left, GRACE_S)
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
    details = error.result if isinstance(error, TaskFailed) else {}
    message = message or f"the learner {name}: {details.get('message') or error}"
    result = {
        "message": message,
        "exception": details.get("exception") or type(error).__name__,
        "traceback": "\n".join(str(error) for _, error in failures),
    }
    return TaskFail(result=result, message=message)
