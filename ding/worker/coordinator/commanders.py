"""The commanders of parallel training; importing this module registers them all."""

from ding.worker.coordinator.base_parallel_commander import NaiveCommander
from ding.worker.coordinator.one_vs_one_parallel_commander import OneVsOneCommander
from ding.worker.coordinator.solo_parallel_commander import SoloCommander

__all__ = ["NaiveCommander", "OneVsOneCommander", "SoloCommander"]
