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


class ErrorTable:
    """The exceptions for the replies of one kind of server.

    Args:
        prefix: the beginning of the names of the exceptions, which the words of the code's name follow.
        codes: the codes of the server.
        general: the base class of the exceptions.

    Attributes:
        classes: the exception classes by their names.
    """

    def __init__(self, prefix: str, codes: type[Code], general: type[ResponseException]) -> None:
        self._general = general
        self._by_code: dict[int, type[ResponseException]] = {}
        for code in codes:
            name = prefix + "".join(word.capitalize() for word in code.name.split("_"))
            self._by_code[code] = type(name, (general,), {"__doc__": code.__doc__, "__module__": __name__})
        self.classes = {cls.__name__: cls for cls in self._by_code.values()}

    def class_of(self, code: int) -> type[ResponseException]:
        """Return the exception class for a code.

        Raises:
            KeyError: this kind of server does not send the code.
        """
        return self._by_code[code]

    def from_error(self, error: requests.HTTPError) -> ResponseException:
        """Return the exception for a status error with a code of this kind of server.

        Raises:
            KeyError: this kind of server does not send the code.
            ValueError: the reply is not JSON.
        """
        return self._by_code[ResponseException(error).code](error)

    def from_any_error(self, error: requests.HTTPError) -> ResponseException:
        """Return the exception for any status error; it has the general class if no code applies.

        The reply may come from another program, such as a proxy, which knows no such codes.
        """
        try:
            values = get_values_from_response(error.response)
            return self._by_code.get(values[2], self._general)(error, values)
        except (ValueError, KeyError, TypeError):
            status = error.response.status_code
            message = f"{status} {error.response.reason}: the reply does not come from a master or slave"
            return self._general(error, (status, False, CommonErrorCode.COMMON_FAILURE, message, {}))


MASTER_ERRORS = ErrorTable("Master", MasterErrorCode, MasterResponseException)
SLAVE_ERRORS = ErrorTable("Slave", SlaveErrorCode, SlaveResponseException)
get_master_exception_class_by_error_code = MASTER_ERRORS.class_of
get_master_exception_by_error = MASTER_ERRORS.from_error
get_slave_exception_class_by_error_code = SLAVE_ERRORS.class_of
get_slave_exception_by_error = SLAVE_ERRORS.from_error

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
__all__ += [*MASTER_ERRORS.classes, *SLAVE_ERRORS.classes]
globals().update(MASTER_ERRORS.classes, **SLAVE_ERRORS.classes)

if TYPE_CHECKING:

    def __getattr__(name: str) -> type[ResponseException]: ...
