"""Agents, which are imported on first use, and the return values of training and evaluation."""

from typing import TYPE_CHECKING

from ding.bonus.common import EvalReturn, TrainingReturn
from ding.utils.import_helper import lazy_names

if TYPE_CHECKING:
    from ding.bonus.agent import Agent
    from ding.bonus.dqn import DQNAgent
    from ding.bonus.ppof import PPOF
    from ding.bonus.td3 import TD3Agent

__all__ = ["PPOF", "Agent", "DQNAgent", "EvalReturn", "TD3Agent", "TrainingReturn"]

_MODULES = {"Agent": "agent", "DQNAgent": "dqn", "PPOF": "ppof", "TD3Agent": "td3"}

__getattr__ = lazy_names(__name__, {name: f"ding.bonus.{module}" for name, module in _MODULES.items()})
