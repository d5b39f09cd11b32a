"""The workers that direct the others: coordinator and commanders."""

from typing import TYPE_CHECKING

from ding.utils.import_helper import lazy_names
from ding.worker.coordinator.base_parallel_commander import create_parallel_commander, get_parallel_commander_cls
from ding.worker.coordinator.base_serial_commander import BaseSerialCommander

if TYPE_CHECKING:
    from ding.worker.coordinator.coordinator import Coordinator
    from ding.worker.coordinator.one_vs_one_parallel_commander import OneVsOneCommander
    from ding.worker.coordinator.solo_parallel_commander import SoloCommander

__all__ = [
    "BaseSerialCommander",
    "Coordinator",
    "OneVsOneCommander",
    "SoloCommander",
    "create_parallel_commander",
    "get_parallel_commander_cls",
]

# The parts of parallel training are imported when they are first used.
__getattr__ = lazy_names(
    __name__,
    {
        "Coordinator": "ding.worker.coordinator.coordinator",
        "OneVsOneCommander": "ding.worker.coordinator.one_vs_one_parallel_commander",
        "SoloCommander": "ding.worker.coordinator.solo_parallel_commander",
    },
)
