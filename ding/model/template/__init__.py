"""Whole models, registered by name."""

from ding.model.template.acer import ACER
from ding.model.template.bc import ContinuousBC, DiscreteBC
from ding.model.template.mavac import MAVAC
from ding.model.template.pg import PG
from ding.model.template.ppg import PPG
from ding.model.template.q_learning import BDQ, C51DQN, DQN, DRQN, FQF, IQN, QRDQN, RainbowDQN
from ding.model.template.qac import QAC, ContinuousQAC, DiscreteQAC
from ding.model.template.qac_dist import QACDIST
from ding.model.template.qvac import ContinuousQVAC
from ding.model.template.sqn import SQN
from ding.model.template.vac import VAC

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
