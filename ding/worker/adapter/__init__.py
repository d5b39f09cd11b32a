"""Adapters between a coordinator and groups of workers."""

from ding.utils.import_helper import exports

__all__, __getattr__ = exports(__name__, {}, lazy={"learner_aggregator": "LearnerAggregator"})
