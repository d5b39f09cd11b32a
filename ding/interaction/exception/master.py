"""What a master answers besides success, as codes and as exceptions: one class for each code, named after it."""

from __future__ import annotations

from enum import unique
from typing import TYPE_CHECKING

from ding.interaction.exception.base import Code, ResponseException, exceptions_of, specific_or_general

if TYPE_CHECKING:
    import requests


@unique
class MasterErrorCode(Code):
    """Codes in the replies of a master, and what they mean."""

    SUCCESS = 0, "No error."
    SYSTEM_SHUTTING_DOWN = 101, "It is shutting down."
    CHANNEL_NOT_GIVEN = 201, "The request names no channel."
    CHANNEL_INVALID = 202, "The request is for another channel."
    MASTER_TOKEN_NOT_GIVEN = 301, "Not sent; the number is reserved."
    MASTER_TOKEN_INVALID = 302, "Not sent; the number is reserved."
    SELF_TOKEN_NOT_GIVEN = 401, "A request to itself has no token."
    SELF_TOKEN_INVALID = 402, "A request to itself has a wrong token."
    SLAVE_TOKEN_NOT_GIVEN = 501, "A slave's request has no token."
    SLAVE_TOKEN_INVALID = 502, "The token belongs to no connected slave."
    TASK_DATA_INVALID = 601, "The body does not tell the result of a known task."


class MasterResponseException(ResponseException):
    """A master refused a request; of just this class for reasons outside the codes, such as a wrong token."""


_BY_CODE = exceptions_of("Master", MasterErrorCode, MasterResponseException)
MASTER_EXCEPTIONS = {cls.__name__: cls for cls in _BY_CODE.values()}
globals().update(MASTER_EXCEPTIONS)

if TYPE_CHECKING:

    def __getattr__(name: str) -> type[MasterResponseException]: ...


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
