"""Whole models, registered by name."""

from ding.model.template.q_learning import BDQ, C51DQN, DQN, FQF, IQN, QRDQN, RainbowDQN
from ding.model.template.sqn import SQN
from ding.model.template.vac import VAC

__all__ = ["BDQ", "C51DQN", "DQN", "FQF", "IQN", "QRDQN", "RainbowDQN", "SQN", "VAC"]
from ding.model.template.q_learning import DQN, DRQN
from ding.model.template.vac import VAC

__all__ = ["DQN", "DRQN", "VAC"]
from ding.model.template.q_learning import DQN
from ding.model.template.qac import ContinuousQAC, DiscreteQAC
from ding.model.template.vac import VAC

__all__ = ["DQN", "VAC", "ContinuousQAC", "DiscreteQAC"]
