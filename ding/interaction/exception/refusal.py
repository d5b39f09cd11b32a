"""The exceptions that hooks and tasks of a slave raise to refuse a request or fail a task."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any

from ding.interaction.base.app import ResponsibleException
from ding.interaction.exception.base import SlaveErrorCode


class ConnectionRefuse(ResponsibleException):
    """The refusal by `Slave._before_connection`; the master gets `SlaveSlaveConnectionRefused` with `data`."""

    def __init__(self, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(SlaveErrorCode.SLAVE_CONNECTION_REFUSED, "The connection is refused.", data, 403)


class DisconnectionRefuse(ResponsibleException):
    """The refusal by `Slave._before_disconnection`; the master gets `SlaveSlaveDisconnectionRefused` with `data`."""

    def __init__(self, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(SlaveErrorCode.SLAVE_DISCONNECTION_REFUSED, "The disconnection is refused.", data, 403)


class TaskRefuse(ResponsibleException):
    """The refusal by `Slave._before_task`; the master gets `SlaveTaskRefused` with `data`."""

    def __init__(self, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(SlaveErrorCode.TASK_REFUSED, "The task is refused.", data, 403)


class TaskFail(Exception):
    """The exception with which `Slave._process_task` fails a task; its result is `result`.

    Args:
        result: the result of the failed task at the master.
        message: the text of the exception, which is not sent.
    """

    def __init__(self, result: Mapping[str, Any] | None = None, message: str | None = None) -> None:
        super().__init__(message or "")
        self._result = {} if result is None else result

    @property
    def result(self) -> Mapping[str, Any]:
        """The result of the failed task; `{}` by default."""
        return self._result


def failure_of(error: BaseException) -> dict[str, Any]:
    """Return the result of a task that `error` ended: `message`, `exception` (the name of the type) and `traceback`."""
    return {
        "message": str(error) or type(error).__name__,
        "exception": type(error).__name__,
        "traceback": "".join(traceback.format_exception(error)),
    }


def failure_for(reason: str, kind: str) -> dict[str, Any]:
    """Return the result of a task that failed for an outside reason, in the form of `failure_of`."""
    return {"message": reason, "exception": kind, "traceback": ""}
