"""What directs the other workers."""

from ding.worker.coordinator.base_serial_commander import BaseSerialCommander

__all__ = ["BaseSerialCommander"]
