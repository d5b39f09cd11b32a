"""What a slave answers besides success, as codes and as exceptions: one class for each code, named after it."""

from __future__ import annotations

from enum import unique
from typing import TYPE_CHECKING

from ding.interaction.exception.base import Code, ResponseException, exceptions_of, specific_or_general

if TYPE_CHECKING:
    import requests


@unique
class SlaveErrorCode(Code):
    """Codes in the replies of a slave, and what they mean."""

    SUCCESS = 0, "No error."
    SYSTEM_SHUTTING_DOWN = 101, "It is shutting down."
    CHANNEL_NOT_FOUND = 201, "The request names no channel."
    CHANNEL_INVALID = 202, "The request is for another channel."
    MASTER_TOKEN_NOT_FOUND = 301, "A master's request has no token."
    MASTER_TOKEN_INVALID = 302, "The token is not that of the connected master."
    SELF_TOKEN_NOT_FOUND = 401, "A request to itself has no token."
    SELF_TOKEN_INVALID = 402, "A request to itself has a wrong token."
    SLAVE_ALREADY_CONNECTED = 501, "It has a master."
    SLAVE_NOT_CONNECTED = 502, "Not sent; the number is reserved."
    SLAVE_CONNECTION_REFUSED = 503, "It does not want to be connected."
    SLAVE_DISCONNECTION_REFUSED = 504, "It does not want to be disconnected."
    TASK_ALREADY_EXIST = 601, "It has a task."
    TASK_REFUSED = 602, "It does not want the task."


class SlaveResponseException(ResponseException):
    """A slave refused a request; of just this class for reasons outside the codes, such as a wrong token."""


_BY_CODE = exceptions_of("Slave", SlaveErrorCode, SlaveResponseException)
SLAVE_EXCEPTIONS = {cls.__name__: cls for cls in _BY_CODE.values()}
globals().update(SLAVE_EXCEPTIONS)

if TYPE_CHECKING:

    def __getattr__(name: str) -> type[SlaveResponseException]: ...


def get_slave_exception_class_by_error_code(code: int) -> type[ResponseException]:
    """The exception class for a code.

    Raises:
        KeyError: no slave sends this code.
    """
    return _BY_CODE[code]


def get_slave_exception_by_error(error: requests.HTTPError) -> ResponseException:
    """The exception for a status error of a slave.

    Raises:
        KeyError: no slave sends this code.
        ValueError: the reply is not JSON.
    """
    return _BY_CODE[ResponseException(error).code](error)


def slave_error(error: requests.HTTPError) -> ResponseException:
    """The exception for any status error: `SlaveResponseException` itself where no code applies."""
    return specific_or_general(_BY_CODE, SlaveResponseException, error)
