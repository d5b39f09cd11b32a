"""Whole models, registered by name."""

from ding.model.template.q_learning import DQN
from ding.model.template.vac import VAC

__all__ = ["DQN", "VAC"]
