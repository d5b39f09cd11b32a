"""Everything that a peer or a hook refuses with; each code of either side has an exception, made from its table."""

from typing import TYPE_CHECKING

from ding.interaction.exception.base import ResponseException
from ding.interaction.exception.master import (
    MASTER_EXCEPTIONS,
    MasterErrorCode,
    MasterResponseException,
    get_master_exception_by_error,
)
from ding.interaction.exception.refusal import ConnectionRefuse, DisconnectionRefuse, TaskFail, TaskRefuse
from ding.interaction.exception.slave import (
    SLAVE_EXCEPTIONS,
    SlaveErrorCode,
    SlaveResponseException,
    get_slave_exception_by_error,
)

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
__all__ += [*MASTER_EXCEPTIONS, *SLAVE_EXCEPTIONS]
globals().update(MASTER_EXCEPTIONS, **SLAVE_EXCEPTIONS)

if TYPE_CHECKING:

    def __getattr__(name: str) -> type[ResponseException]: ...
