"""The codes that masters and slaves reply with, one exception for each code, and those with which hooks refuse."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from enum import IntEnum, unique
from typing import TYPE_CHECKING, Any

from ding.interaction.base import CommonErrorCode, ResponsibleException, get_values_from_response

if TYPE_CHECKING:
    import requests
    from typing_extensions import Self


class ResponseException(Exception):
    """The error that a peer has refused a request; its text is the message of the reply.

    Args:
        error: the status error.
        values: `get_values_from_response` of its reply, if the caller has them.

    Raises:
        ValueError: the reply is not JSON.
        KeyError: the reply is not an envelope.
    """

    def __init__(self, error: requests.HTTPError, values: tuple[int, bool, int, str, Any] | None = None) -> None:
        values = values or get_values_from_response(error.response)
        self._status_code, self._success, self._code, self._message, self._data = values
        super().__init__(self._message)

    @property
    def status_code(self) -> int:
        """The HTTP status."""
        return self._status_code

    @property
    def success(self) -> bool:
        """Always False."""
        return self._success

    @property
    def code(self) -> int:
        """The code in the reply."""
        return self._code

    @property
    def message(self) -> str:
        """The message of the reply; `''` if it has none."""
        return self._message

    @property
    def data(self) -> Any:
        """The data of the reply, such as the data of a refusal; `{}` if it has none."""
        return {} if self._data is None else self._data


class Code(IntEnum):
    """A number in a reply and its meaning, declared as `NAME = number, "meaning"`."""

    def __new__(cls, number: int, meaning: str) -> Self:
        member = int.__new__(cls, number)
        member._value_ = number
        member.__doc__ = meaning
        return member


@unique
class MasterErrorCode(Code):
    """Codes in the replies of a master, and their meanings."""

    SUCCESS = 0, "No error."
    SYSTEM_SHUTTING_DOWN = 101, "The master is shutting down."
    CHANNEL_NOT_GIVEN = 201, "Not sent; the number is reserved."
    CHANNEL_INVALID = 202, "Not sent; the number is reserved."
    MASTER_TOKEN_NOT_GIVEN = 301, "Not sent; the number is reserved."
    MASTER_TOKEN_INVALID = 302, "Not sent; the number is reserved."
    SELF_TOKEN_NOT_GIVEN = 401, "A request of the master to itself has no token."
    SELF_TOKEN_INVALID = 402, "A request of the master to itself has a wrong token."
    SLAVE_TOKEN_NOT_GIVEN = 501, "Not sent; the number is reserved."
    SLAVE_TOKEN_INVALID = 502, "Not sent; the number is reserved."
    TASK_DATA_INVALID = 601, "Not sent; the number is reserved."


@unique
class SlaveErrorCode(Code):
    """Codes in the replies of a slave, and their meanings."""

    SUCCESS = 0, "No error."
    SYSTEM_SHUTTING_DOWN = 101, "The slave is shutting down."
    CHANNEL_NOT_FOUND = 201, "The request names no channel."
    CHANNEL_INVALID = 202, "The request is for another channel."
    MASTER_TOKEN_NOT_FOUND = 301, "A master's request has no token."
    MASTER_TOKEN_INVALID = 302, "The token is not that of the connected master."
    SELF_TOKEN_NOT_FOUND = 401, "A request of the slave to itself has no token."
    SELF_TOKEN_INVALID = 402, "A request of the slave to itself has a wrong token."
    SLAVE_ALREADY_CONNECTED = 501, "The slave is connected to a master."
    SLAVE_NOT_CONNECTED = 502, "Not sent; the number is reserved."
    SLAVE_CONNECTION_REFUSED = 503, "The slave refuses the connection."
    SLAVE_DISCONNECTION_REFUSED = 504, "The slave refuses the disconnection."
    TASK_ALREADY_EXIST = 601, "The slave has a task."
    TASK_REFUSED = 602, "The slave refuses the task."


class MasterResponseException(ResponseException):
    """The error that a master refused a request; exactly this class stands for reasons without a code of its own."""


class SlaveResponseException(ResponseException):
    """The error that a slave refused a request; exactly this class stands for reasons without a code of its own."""


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


def _classes(prefix: str, codes: type[Code], general: type[ResponseException]) -> dict[int, type[ResponseException]]:
    """Return the exception class of each code, named by `prefix` and the words of the code's name."""
    names = {code: prefix + "".join(word.capitalize() for word in code.name.split("_")) for code in codes}
    return {
        code: type(name, (general,), {"__doc__": code.__doc__, "__module__": __name__}) for code, name in names.items()
    }


_MASTER_CLASSES = _classes("Master", MasterErrorCode, MasterResponseException)
_SLAVE_CLASSES = _classes("Slave", SlaveErrorCode, SlaveResponseException)


def get_master_exception_class_by_error_code(code: int) -> type[ResponseException]:
    """Return the exception class of a code.

    Raises:
        KeyError: a master does not send the code.
    """
    return _MASTER_CLASSES[code]


def get_slave_exception_class_by_error_code(code: int) -> type[ResponseException]:
    """Return the exception class of a code.

    Raises:
        KeyError: a slave does not send the code.
    """
    return _SLAVE_CLASSES[code]


def get_master_exception_by_error(error: requests.HTTPError) -> ResponseException:
    """Return the exception for a status error of a master.

    Raises:
        KeyError: a master does not send the code in the reply.
        ValueError: the reply is not JSON.
    """
    return _MASTER_CLASSES[ResponseException(error).code](error)


def get_slave_exception_by_error(error: requests.HTTPError) -> ResponseException:
    """Return the exception for a status error of a slave.

    Raises:
        KeyError: a slave does not send the code in the reply.
        ValueError: the reply is not JSON.
    """
    return _SLAVE_CLASSES[ResponseException(error).code](error)


def refusal_of(kind: str, error: requests.HTTPError) -> ResponseException:
    """Return the exception for any status error of a `kind` ('master' or 'slave'); the general one without a code.

    The reply may come from another program, such as a proxy, which knows no such codes.
    """
    general: type[ResponseException] = MasterResponseException if kind == "master" else SlaveResponseException
    classes = _MASTER_CLASSES if kind == "master" else _SLAVE_CLASSES
    try:
        values = get_values_from_response(error.response)
        return classes.get(values[2], general)(error, values)
    except (ValueError, KeyError, TypeError):
        status = error.response.status_code
        message = f"{status} {error.response.reason}: the reply does not come from a master or slave"
        return general(error, (status, False, CommonErrorCode.COMMON_FAILURE, message, {}))


__all__ = [
    "ConnectionRefuse",
    "DisconnectionRefuse",
    "MasterErrorCode",
    "MasterResponseException",
    "ResponseException",
    "SlaveErrorCode",
    "SlaveResponseException",
    "TaskFail",
    "TaskRefuse",
    "get_master_exception_by_error",
    "get_slave_exception_by_error",
]
for _class in (*_MASTER_CLASSES.values(), *_SLAVE_CLASSES.values()):
    globals()[_class.__name__] = _class
    __all__.append(_class.__name__)

if TYPE_CHECKING:

    def __getattr__(name: str) -> type[ResponseException]: ...
