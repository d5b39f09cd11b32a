"""Agents, and the return values of training and evaluation, which are imported on first use."""

from ding.utils.import_helper import exports

__all__, __getattr__ = exports(__name__, {}, {"agent": "Agent DQNAgent EvalReturn PPOF TD3Agent TrainingReturn"})
