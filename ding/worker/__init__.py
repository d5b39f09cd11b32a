"""The worker layer: collectors, evaluators, learner, replay buffers and commander."""

from ding.data.buffer.deque_buffer_wrapper import DequeBufferWrapper
from ding.worker.collector import (
    InteractionSerialEvaluator,
    ISerialCollector,
    ISerialEvaluator,
    SampleSerialCollector,
    VectorEvalMonitor,
    create_serial_collector,
    create_serial_evaluator,
    get_serial_collector_cls,
    to_tensor_transitions,
)
from ding.worker.coordinator.base_serial_commander import BaseSerialCommander
from ding.worker.learner import (
    BaseLearner,
    LearnerHook,
    add_learner_hook,
    build_learner_hook_by_cfg,
    create_learner,
    merge_hooks,
    register_learner_hook,
)
from ding.worker.replay_buffer import (
    AdvancedReplayBuffer,
    IBuffer,
    NaiveReplayBuffer,
    create_buffer,
    get_buffer_cls,
)

__all__ = [
    "AdvancedReplayBuffer",
    "BaseLearner",
    "BaseSerialCommander",
    "DequeBufferWrapper",
    "IBuffer",
    "ISerialCollector",
    "ISerialEvaluator",
    "InteractionSerialEvaluator",
    "LearnerHook",
    "NaiveReplayBuffer",
    "SampleSerialCollector",
    "VectorEvalMonitor",
    "add_learner_hook",
    "build_learner_hook_by_cfg",
    "create_buffer",
    "create_learner",
    "create_serial_collector",
    "create_serial_evaluator",
    "get_buffer_cls",
    "get_serial_collector_cls",
    "merge_hooks",
    "register_learner_hook",
    "to_tensor_transitions",
]
