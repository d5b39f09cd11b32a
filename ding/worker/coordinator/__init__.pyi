# Written by docs/generate.py: the exports of the table in __init__.py, for type checkers and editors.

from ding.worker.coordinator.base_parallel_commander import create_parallel_commander as create_parallel_commander
from ding.worker.coordinator.base_parallel_commander import get_parallel_commander_cls as get_parallel_commander_cls
from ding.worker.coordinator.base_serial_commander import BaseSerialCommander as BaseSerialCommander
from ding.worker.coordinator.coordinator import Coordinator as Coordinator
from ding.worker.coordinator.one_vs_one_parallel_commander import OneVsOneCommander as OneVsOneCommander
from ding.worker.coordinator.solo_parallel_commander import SoloCommander as SoloCommander
