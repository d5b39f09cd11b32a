"""Collectors and evaluators."""

from typing import TYPE_CHECKING

from ding.utils.import_helper import lazy_names
from ding.worker.collector.base_parallel_collector import (
    BaseParallelCollector,
    create_parallel_collector,
    get_parallel_collector_cls,
)
from ding.worker.collector.base_serial_collector import (
    ISerialCollector,
    create_serial_collector,
    get_serial_collector_cls,
    to_tensor_transitions,
)
from ding.worker.collector.base_serial_evaluator import ISerialEvaluator, VectorEvalMonitor, create_serial_evaluator
from ding.worker.collector.battle_episode_serial_collector import (
    BattleEpisodeSerialCollector,
    Episode1v1Collector,
)
from ding.worker.collector.battle_interaction_serial_evaluator import (
    BattleInteractionSerialEvaluator,
    OnevOneEvaluator,
)
from ding.worker.collector.battle_sample_serial_collector import BattleSampleSerialCollector
from ding.worker.collector.comm import BaseCommCollector, create_comm_collector
from ding.worker.collector.episode_serial_collector import EpisodeSerialCollector
from ding.worker.collector.interaction_serial_evaluator import InteractionSerialEvaluator
from ding.worker.collector.metric_serial_evaluator import IMetric, MetricSerialEvaluator
from ding.worker.collector.sample_serial_collector import SampleSerialCollector

if TYPE_CHECKING:
    from ding.worker.collector.comm.flask_fs_collector import FlaskFileSystemCollector
    from ding.worker.collector.comm.utils import NaiveCollector
    from ding.worker.collector.marine_parallel_collector import MarineParallelCollector
    from ding.worker.collector.zergling_parallel_collector import ZerglingParallelCollector

__all__ = [
    "BaseCommCollector",
    "BaseParallelCollector",
    "BattleEpisodeSerialCollector",
    "BattleInteractionSerialEvaluator",
    "BattleSampleSerialCollector",
    "Episode1v1Collector",
    "EpisodeSerialCollector",
    "FlaskFileSystemCollector",
    "IMetric",
    "ISerialCollector",
    "ISerialEvaluator",
    "InteractionSerialEvaluator",
    "MarineParallelCollector",
    "MetricSerialEvaluator",
    "NaiveCollector",
    "OnevOneEvaluator",
    "SampleSerialCollector",
    "VectorEvalMonitor",
    "ZerglingParallelCollector",
    "create_comm_collector",
    "create_parallel_collector",
    "create_serial_collector",
    "create_serial_evaluator",
    "get_parallel_collector_cls",
    "get_serial_collector_cls",
    "to_tensor_transitions",
]

# The classes of parallel training are imported on first access.
__getattr__ = lazy_names(
    __name__,
    {
        "MarineParallelCollector": "ding.worker.collector.marine_parallel_collector",
        "ZerglingParallelCollector": "ding.worker.collector.zergling_parallel_collector",
        "FlaskFileSystemCollector": "ding.worker.collector.comm",
        "NaiveCollector": "ding.worker.collector.comm",
    },
)
