"""The exceptions with which peers and hooks refuse; each code of a master or slave has one."""

from typing import TYPE_CHECKING

from ding.interaction.exception.base import (
    MASTER_ERRORS,
    SLAVE_ERRORS,
    ConnectionRefuse,
    DisconnectionRefuse,
    MasterErrorCode,
    MasterResponseException,
    ResponseException,
    SlaveErrorCode,
    SlaveResponseException,
    TaskFail,
    TaskRefuse,
)
from ding.interaction.exception.master import get_master_exception_by_error
from ding.interaction.exception.slave import get_slave_exception_by_error

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
