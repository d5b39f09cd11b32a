"""Agents, and the return values of training and evaluation, which are imported on first use."""

from typing import TYPE_CHECKING

from ding.utils.import_helper import lazy_names

if TYPE_CHECKING:
    from ding.bonus.agent import PPOF, Agent, DQNAgent, EvalReturn, TD3Agent, TrainingReturn

__all__ = ["PPOF", "Agent", "DQNAgent", "EvalReturn", "TD3Agent", "TrainingReturn"]

__getattr__ = lazy_names(__name__, dict.fromkeys(__all__, "ding.bonus.agent"))
