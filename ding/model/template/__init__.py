"""Whole models, registered by name."""

from ding.utils.import_helper import exports

__all__, __getattr__ = exports(
    __name__,
    {
        "bc": "ContinuousBC DiscreteBC",
        "q_learning": "BDQ C51DQN DQN DRQN FQF IQN QRDQN RainbowDQN SQN",
        "qac": "ContinuousQAC ContinuousQVAC DiscreteQAC QAC QACDIST",
        "vac": "ACER MAVAC PG PPG VAC",
    },
)
