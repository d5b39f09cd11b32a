"""Whole models, registered by name."""

from ding.model.template.q_learning import DQN

__all__ = ["DQN"]
