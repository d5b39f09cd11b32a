"""Return values of training and evaluation."""

from ding.bonus.common import EvalReturn, TrainingReturn

__all__ = ["EvalReturn", "TrainingReturn"]
