"""Tasks between processes over HTTP: a `Master` sends them, a `Slave` runs them."""

from ding.interaction.exception import ConnectionRefuse, DisconnectionRefuse, TaskFail, TaskRefuse
from ding.interaction.master.master import Master
from ding.interaction.slave import Slave

__all__ = ["ConnectionRefuse", "DisconnectionRefuse", "Master", "Slave", "TaskFail", "TaskRefuse"]
