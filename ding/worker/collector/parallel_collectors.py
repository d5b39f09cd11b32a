"""The parallel collectors; importing this module registers them all."""

from ding.worker.collector.marine_parallel_collector import MarineParallelCollector
from ding.worker.collector.zergling_parallel_collector import ZerglingParallelCollector

__all__ = ["MarineParallelCollector", "ZerglingParallelCollector"]
