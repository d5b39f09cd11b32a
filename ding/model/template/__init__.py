"""Whole models, registered by name."""

from ding.model.template.bc import ContinuousBC, DiscreteBC
from ding.model.template.mavac import MAVAC
from ding.model.template.pg import PG
from ding.model.template.ppg import PPG
from ding.model.template.q_learning import BDQ, C51DQN, DQN, DRQN, FQF, IQN, QRDQN, SQN, RainbowDQN
from ding.model.template.qac import QAC, ContinuousQAC, ContinuousQVAC, DiscreteQAC
from ding.model.template.qac_dist import QACDIST
from ding.model.template.vac import ACER, VAC

__all__ = [
    "ACER",
    "BDQ",
    "C51DQN",
    "ContinuousBC",
    "ContinuousQAC",
    "ContinuousQVAC",
    "DQN",
    "DRQN",
    "DiscreteBC",
    "DiscreteQAC",
    "FQF",
    "IQN",
    "MAVAC",
    "PG",
    "PPG",
    "QAC",
    "QACDIST",
    "QRDQN",
    "RainbowDQN",
    "SQN",
    "VAC",
]
