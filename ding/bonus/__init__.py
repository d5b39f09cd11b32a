"""Agents, which are imported on first use, and the return values of training and evaluation."""

from typing import TYPE_CHECKING

from ding.bonus.common import EvalReturn, TrainingReturn
from ding.utils.import_helper import lazy_names

if TYPE_CHECKING:
    from ding.bonus.agent import PPOF, Agent, DQNAgent, TD3Agent

__all__ = ["PPOF", "Agent", "DQNAgent", "EvalReturn", "TD3Agent", "TrainingReturn"]

__getattr__ = lazy_names(__name__, dict.fromkeys(("Agent", "DQNAgent", "PPOF", "TD3Agent"), "ding.bonus.agent"))
