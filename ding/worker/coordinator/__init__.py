"""What directs the other workers."""

from ding.worker.coordinator.base_parallel_commander import create_parallel_commander, get_parallel_commander_cls
from ding.worker.coordinator.base_serial_commander import BaseSerialCommander
from ding.worker.coordinator.coordinator import Coordinator
from ding.worker.coordinator.solo_parallel_commander import SoloCommander

__all__ = [
    "BaseSerialCommander",
    "Coordinator",
    "SoloCommander",
    "create_parallel_commander",
    "get_parallel_commander_cls",
]
