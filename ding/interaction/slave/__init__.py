"""The side that runs tasks."""

from ding.interaction.exception.refusal import ConnectionRefuse, DisconnectionRefuse, TaskFail, TaskRefuse
from ding.interaction.slave.slave import Slave

__all__ = ["ConnectionRefuse", "DisconnectionRefuse", "Slave", "TaskFail", "TaskRefuse"]
