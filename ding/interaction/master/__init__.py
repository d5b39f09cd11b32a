"""The side that sends tasks."""

from ding.interaction.exception import ConnectionRefuse, DisconnectionRefuse, TaskFail, TaskRefuse
from ding.interaction.master.master import Master

__all__ = ["ConnectionRefuse", "DisconnectionRefuse", "Master", "TaskFail", "TaskRefuse"]
