"""The codes and exceptions for the replies of a slave."""

from typing import TYPE_CHECKING

from ding.interaction.exception.base import SLAVE_ERRORS, ResponseException, SlaveErrorCode, SlaveResponseException

get_slave_exception_class_by_error_code = SLAVE_ERRORS.class_of
get_slave_exception_by_error = SLAVE_ERRORS.from_error

__all__ = [
    "SlaveErrorCode",
    "SlaveResponseException",
    "get_slave_exception_by_error",
    "get_slave_exception_class_by_error_code",
]
__all__ += [*SLAVE_ERRORS.classes]
globals().update(SLAVE_ERRORS.classes)

if TYPE_CHECKING:

    def __getattr__(name: str) -> type[ResponseException]: ...
