"""Collectors, evaluators, learners, replay buffers, coordinators and commanders."""

from typing import TYPE_CHECKING

from ding.data.buffer.deque_buffer_wrapper import DequeBufferWrapper
from ding.utils.import_helper import lazy_names
from ding.worker.collector import (
    BaseCommCollector,
    BaseParallelCollector,
    BattleEpisodeSerialCollector,
    BattleInteractionSerialEvaluator,
    BattleSampleSerialCollector,
    Episode1v1Collector,
    EpisodeSerialCollector,
    IMetric,
    InteractionSerialEvaluator,
    ISerialCollector,
    ISerialEvaluator,
    MetricSerialEvaluator,
    OnevOneEvaluator,
    SampleSerialCollector,
    VectorEvalMonitor,
    create_comm_collector,
    create_parallel_collector,
    create_serial_collector,
    create_serial_evaluator,
    get_parallel_collector_cls,
    get_serial_collector_cls,
    to_tensor_transitions,
)
from ding.worker.coordinator import BaseSerialCommander, create_parallel_commander, get_parallel_commander_cls
from ding.worker.learner import (
    BaseCommLearner,
    BaseLearner,
    LearnerHook,
    add_learner_hook,
    build_learner_hook_by_cfg,
    create_comm_learner,
    create_learner,
    merge_hooks,
    register_learner_hook,
)
from ding.worker.replay_buffer import (
    AdvancedReplayBuffer,
    ElasticReplayBuffer,
    EpisodeReplayBuffer,
    IBuffer,
    NaiveReplayBuffer,
    SequenceReplayBuffer,
    create_buffer,
    get_buffer_cls,
)

if TYPE_CHECKING:
    from ding.worker.adapter import LearnerAggregator
    from ding.worker.collector import (
        FlaskFileSystemCollector,
        MarineParallelCollector,
        NaiveCollector,
        ZerglingParallelCollector,
    )
    from ding.worker.coordinator import Coordinator, OneVsOneCommander
    from ding.worker.learner import FlaskFileSystemLearner

__all__ = [
    "AdvancedReplayBuffer",
    "BaseCommCollector",
    "BaseCommLearner",
    "BaseLearner",
    "BaseParallelCollector",
    "BaseSerialCommander",
    "BattleEpisodeSerialCollector",
    "BattleInteractionSerialEvaluator",
    "BattleSampleSerialCollector",
    "Coordinator",
    "DequeBufferWrapper",
    "ElasticReplayBuffer",
    "Episode1v1Collector",
    "EpisodeReplayBuffer",
    "EpisodeSerialCollector",
    "FlaskFileSystemCollector",
    "FlaskFileSystemLearner",
    "IBuffer",
    "IMetric",
    "ISerialCollector",
    "ISerialEvaluator",
    "InteractionSerialEvaluator",
    "LearnerAggregator",
    "LearnerHook",
    "MarineParallelCollector",
    "MetricSerialEvaluator",
    "NaiveCollector",
    "NaiveReplayBuffer",
    "OneVsOneCommander",
    "OnevOneEvaluator",
    "SampleSerialCollector",
    "SequenceReplayBuffer",
    "VectorEvalMonitor",
    "ZerglingParallelCollector",
    "add_learner_hook",
    "build_learner_hook_by_cfg",
    "create_buffer",
    "create_comm_collector",
    "create_comm_learner",
    "create_learner",
    "create_parallel_collector",
    "create_parallel_commander",
    "create_serial_collector",
    "create_serial_evaluator",
    "get_buffer_cls",
    "get_parallel_collector_cls",
    "get_parallel_commander_cls",
    "get_serial_collector_cls",
    "merge_hooks",
    "register_learner_hook",
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
        "FlaskFileSystemLearner": "ding.worker.learner.comm",
        "Coordinator": "ding.worker.coordinator.coordinator",
        "OneVsOneCommander": "ding.worker.coordinator.one_vs_one_parallel_commander",
        "LearnerAggregator": "ding.worker.adapter",
    },
)
