# Written by docs/generate.py: the exports of the table in __init__.py, for type checkers and editors.

from ding.bonus.agent import Agent as Agent
from ding.bonus.agent import DQNAgent as DQNAgent
from ding.bonus.agent import EvalReturn as EvalReturn
from ding.bonus.agent import PPOF as PPOF
from ding.bonus.agent import TD3Agent as TD3Agent
from ding.bonus.agent import TrainingReturn as TrainingReturn
