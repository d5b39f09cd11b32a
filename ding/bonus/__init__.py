"""What trainings and evaluations return to programs that call them."""

from ding.bonus.common import EvalReturn, TrainingReturn

__all__ = ["EvalReturn", "TrainingReturn"]
