"""Adapters between a coordinator and groups of workers."""

from typing import TYPE_CHECKING

from ding.utils.import_helper import lazy_names

if TYPE_CHECKING:
    from ding.worker.adapter.learner_aggregator import LearnerAggregator

__all__ = ["LearnerAggregator"]

__getattr__ = lazy_names(__name__, {"LearnerAggregator": "ding.worker.adapter.learner_aggregator"})
