# Written by docs/generate.py: the exports of the table in __init__.py, for type checkers and editors.

from ding.model.template.bc import ContinuousBC as ContinuousBC
from ding.model.template.bc import DiscreteBC as DiscreteBC
from ding.model.template.q_learning import BDQ as BDQ
from ding.model.template.q_learning import C51DQN as C51DQN
from ding.model.template.q_learning import DQN as DQN
from ding.model.template.q_learning import DRQN as DRQN
from ding.model.template.q_learning import FQF as FQF
from ding.model.template.q_learning import IQN as IQN
from ding.model.template.q_learning import QRDQN as QRDQN
from ding.model.template.q_learning import RainbowDQN as RainbowDQN
from ding.model.template.q_learning import SQN as SQN
from ding.model.template.qac import ContinuousQAC as ContinuousQAC
from ding.model.template.qac import ContinuousQVAC as ContinuousQVAC
from ding.model.template.qac import DiscreteQAC as DiscreteQAC
from ding.model.template.qac import QAC as QAC
from ding.model.template.qac import QACDIST as QACDIST
from ding.model.template.vac import ACER as ACER
from ding.model.template.vac import MAVAC as MAVAC
from ding.model.template.vac import PG as PG
from ding.model.template.vac import PPG as PPG
from ding.model.template.vac import VAC as VAC
