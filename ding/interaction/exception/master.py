"""The codes and exceptions for the replies of a master."""

from typing import TYPE_CHECKING

from ding.interaction.exception.base import MASTER_ERRORS, MasterErrorCode, MasterResponseException, ResponseException

get_master_exception_class_by_error_code = MASTER_ERRORS.class_of
get_master_exception_by_error = MASTER_ERRORS.from_error

__all__ = [
    "MasterErrorCode",
    "MasterResponseException",
    "get_master_exception_by_error",
    "get_master_exception_class_by_error_code",
]
__all__ += [*MASTER_ERRORS.classes]
globals().update(MASTER_ERRORS.classes)

if TYPE_CHECKING:

    def __getattr__(name: str) -> type[ResponseException]: ...
