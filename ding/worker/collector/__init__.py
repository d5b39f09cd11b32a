"""Collectors and evaluators."""

from ding.worker.collector.base_serial_collector import (
    ISerialCollector,
    create_serial_collector,
    get_serial_collector_cls,
    to_tensor_transitions,
)
from ding.worker.collector.base_serial_evaluator import ISerialEvaluator, VectorEvalMonitor, create_serial_evaluator
from ding.worker.collector.interaction_serial_evaluator import InteractionSerialEvaluator
from ding.worker.collector.sample_serial_collector import SampleSerialCollector

__all__ = [
    "ISerialCollector",
    "ISerialEvaluator",
    "InteractionSerialEvaluator",
    "SampleSerialCollector",
    "VectorEvalMonitor",
    "create_serial_collector",
    "create_serial_evaluator",
    "get_serial_collector_cls",
    "to_tensor_transitions",
]
