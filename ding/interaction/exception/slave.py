"""What a slave answers besides success, as codes and as exceptions."""

from __future__ import annotations

from enum import IntEnum, unique
from typing import TYPE_CHECKING

from ding.interaction.exception.base import ResponseException, class_name, specific_or_general

if TYPE_CHECKING:
    import requests


@unique
class SlaveErrorCode(IntEnum):
    """Codes in the replies of a slave."""

    SUCCESS = 0
    SYSTEM_SHUTTING_DOWN = 101
    CHANNEL_NOT_FOUND = 201
    CHANNEL_INVALID = 202
    MASTER_TOKEN_NOT_FOUND = 301
    MASTER_TOKEN_INVALID = 302
    SELF_TOKEN_NOT_FOUND = 401
    SELF_TOKEN_INVALID = 402
    SLAVE_ALREADY_CONNECTED = 501
    SLAVE_NOT_CONNECTED = 502
    SLAVE_CONNECTION_REFUSED = 503
    SLAVE_DISCONNECTION_REFUSED = 504
    TASK_ALREADY_EXIST = 601
    TASK_REFUSED = 602


class SlaveResponseException(ResponseException):
    """A slave refused a request; of just this class for reasons outside the codes, such as a wrong bearer token."""


class SlaveSuccess(SlaveResponseException):
    """No error."""


class SlaveSystemShuttingDown(SlaveResponseException):
    """It is shutting down."""


class SlaveChannelNotFound(SlaveResponseException):
    """The request names no channel."""


class SlaveChannelInvalid(SlaveResponseException):
    """The request is for another channel."""


class SlaveMasterTokenNotFound(SlaveResponseException):
    """A master's request has no token."""


class SlaveMasterTokenInvalid(SlaveResponseException):
    """The token is not that of the connected master."""


class SlaveSelfTokenNotFound(SlaveResponseException):
    """A request to itself has no token."""


class SlaveSelfTokenInvalid(SlaveResponseException):
    """A request to itself has a wrong token."""


class SlaveSlaveAlreadyConnected(SlaveResponseException):
    """It has a master."""


class SlaveSlaveNotConnected(SlaveResponseException):
    """Not sent; the number is reserved."""


class SlaveSlaveConnectionRefused(SlaveResponseException):
    """It does not want to be connected."""


class SlaveSlaveDisconnectionRefused(SlaveResponseException):
    """It does not want to be disconnected."""


class SlaveTaskAlreadyExist(SlaveResponseException):
    """It has a task."""


class SlaveTaskRefused(SlaveResponseException):
    """It does not want the task."""


_BY_CODE: dict[int, type[ResponseException]] = {code: globals()[class_name("Slave", code)] for code in SlaveErrorCode}


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
