"""A task of a master."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from enum import IntEnum, unique
from typing import Any

Callback = Callable[[Any, Any], Any]


@unique
class TaskResultType(IntEnum):
    """The way in which a task ended."""

    COMPLETED = 1
    FAILED = 2


@unique
class TaskStatus(IntEnum):
    """The state of a task."""

    IDLE = 0x00
    STARTING = 0x11
    STARTED = 0x12
    START_FAILED = 0x13
    COMPLETED = 0x21
    FAILED = 0x22


_SETTLED = (TaskStatus.IDLE, TaskStatus.START_FAILED)
_ENDS = {TaskResultType.COMPLETED: TaskStatus.COMPLETED, TaskResultType.FAILED: TaskStatus.FAILED}


class Task:
    """A task for a slave, made by `new_task` of a connection. It always ends, as it fails if the slave is lost.

    Args:
        data: the data to send to the slave.
        launch: sends the task to the slave, and calls `mark_started` or `mark_start_failed`.
    """

    def __init__(self, data: Any, launch: Callable[[Task], None]) -> None:
        self._data = data
        self._launch = launch
        self._changed = threading.Condition()
        self._status = TaskStatus.IDLE
        self._result: Any = None
        self._is_lost = False
        self._is_over = False  # set after the callbacks
        self._callbacks: dict[TaskResultType, list[Callback]] = {kind: [] for kind in TaskResultType}

    @property
    def task(self) -> Any:
        """The data that was passed to the constructor."""
        return self._data

    @property
    def status(self) -> TaskStatus:
        """The state of the task."""
        return self._status

    @property
    def result(self) -> Any:
        """The result from the slave; None until it has arrived.

        For a failed task it is the result of the slave's `TaskFail`, or else a dict of `message`, `exception` and
        `traceback`.
        """
        return self._result

    @property
    def is_lost(self) -> bool:
        """Whether the task failed because the connection ended; whether the slave has run it is then unknown."""
        return self._is_lost

    def start(self) -> Task:
        """Send the task, and return when the slave has accepted it.

        Raises:
            ValueError: the task was started before.
            requests.RequestException: the slave was not reached; `_error_new_task` of the master may return instead.
            SlaveResponseException: the slave did not accept it.
        """
        with self._changed:
            if self._status is not TaskStatus.IDLE:
                raise ValueError(f"a task starts once; this one is {self._status.name}")
            self._status = TaskStatus.STARTING
        try:
            self._launch(self)
        except BaseException:
            self.mark_start_failed()
            raise
        return self

    def join(self, timeout: float | None = None) -> Task:
        """Wait for the end of the task and its callbacks, at most `timeout` seconds; `status` tells the outcome.

        Before `start`, and after a failed start, it returns at once. It returns the task itself.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or self._status in _SETTLED, timeout)
        return self

    def on_complete(self, callback: Callback) -> Task:
        """Call `callback(data, result)` in the thread of the task when it completes, and return the task.

        Callbacks are called in the order of their registration; one that is registered after the end is not called.
        """
        self._callbacks[TaskResultType.COMPLETED].append(callback)
        return self

    def on_fail(self, callback: Callback) -> Task:
        """Call `callback(data, result)` when the task fails, and return the task; see `on_complete`."""
        self._callbacks[TaskResultType.FAILED].append(callback)
        return self

    def mark_started(self) -> None:
        """Record that the slave has accepted the task; its result may have arrived before."""
        self._mark(TaskStatus.STARTED)

    def mark_start_failed(self) -> None:
        """Record that the slave has not accepted the task."""
        self._mark(TaskStatus.START_FAILED)

    def finish(self, kind: TaskResultType, result: Any, is_lost: bool = False) -> None:
        """Set the result, run the callbacks, and wake waiting threads; this is called once."""
        with self._changed:
            self._status, self._result, self._is_lost = _ENDS[kind], result, is_lost
        for callback in tuple(self._callbacks[kind]):
            try:
                callback(self._data, result)
            except BaseException:  # the task must end and the thread continue
                logging.getLogger("ding.interaction").exception("a callback of a task has failed")
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def _mark(self, status: TaskStatus) -> None:
        with self._changed:
            if self._status is TaskStatus.STARTING:
                self._status = status
                self._changed.notify_all()
