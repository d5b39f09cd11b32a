"""What a master answers besides success, as codes and as exceptions."""

from __future__ import annotations

from enum import IntEnum, unique
from typing import TYPE_CHECKING

from ding.interaction.exception.base import ResponseException, class_name, specific_or_general

if TYPE_CHECKING:
    import requests


@unique
class MasterErrorCode(IntEnum):
    """Codes in the replies of a master."""

    SUCCESS = 0
    SYSTEM_SHUTTING_DOWN = 101
    CHANNEL_NOT_GIVEN = 201
    CHANNEL_INVALID = 202
    MASTER_TOKEN_NOT_GIVEN = 301
    MASTER_TOKEN_INVALID = 302
    SELF_TOKEN_NOT_GIVEN = 401
    SELF_TOKEN_INVALID = 402
    SLAVE_TOKEN_NOT_GIVEN = 501
    SLAVE_TOKEN_INVALID = 502
    TASK_DATA_INVALID = 601


class MasterResponseException(ResponseException):
    """A master refused a request; of just this class for reasons outside the codes, such as a wrong bearer token."""


class MasterSuccess(MasterResponseException):
    """No error."""


class MasterSystemShuttingDown(MasterResponseException):
    """It is shutting down."""


class MasterChannelNotGiven(MasterResponseException):
    """The request names no channel."""


class MasterChannelInvalid(MasterResponseException):
    """The request is for another channel."""


class MasterMasterTokenNotGiven(MasterResponseException):
    """Not sent; the number is reserved."""


class MasterMasterTokenInvalid(MasterResponseException):
    """Not sent; the number is reserved."""


class MasterSelfTokenNotGiven(MasterResponseException):
    """A request to itself has no token."""


class MasterSelfTokenInvalid(MasterResponseException):
    """A request to itself has a wrong token."""


class MasterSlaveTokenNotGiven(MasterResponseException):
    """A slave's request has no token."""


class MasterSlaveTokenInvalid(MasterResponseException):
    """The token belongs to no connected slave."""


class MasterTaskDataInvalid(MasterResponseException):
    """The body does not tell the result of a known task."""


_BY_CODE: dict[int, type[ResponseException]] = {code: globals()[class_name("Master", code)] for code in MasterErrorCode}


def get_master_exception_class_by_error_code(code: int) -> type[ResponseException]:
    """The exception class for a code.

    Raises:
        KeyError: no master sends this code.
    """
    return _BY_CODE[code]


def get_master_exception_by_error(error: requests.HTTPError) -> ResponseException:
    """The exception for a status error of a master.

    Raises:
        KeyError: no master sends this code.
        ValueError: the reply is not JSON.
    """
    return _BY_CODE[ResponseException(error).code](error)


def master_error(error: requests.HTTPError) -> ResponseException:
    """The exception for any status error: `MasterResponseException` itself where no code applies."""
    return specific_or_general(_BY_CODE, MasterResponseException, error)
