# Written by docs/generate.py: the exports of the table in __init__.py, for type checkers and editors.

from typing import Any

from ding.policy.base_policy import BatchPolicy as BatchPolicy
from ding.policy.base_policy import CommandModePolicy as CommandModePolicy
from ding.policy.base_policy import Policy as Policy
from ding.policy.base_policy import create_policy as create_policy
from ding.policy.base_policy import get_policy_cls as get_policy_cls
from ding.policy.bc import BehaviourCloningPolicy as BehaviourCloningPolicy
from ding.policy.command_mode_policy_instance import BehaviourCloningCommandModePolicy as BehaviourCloningCommandModePolicy
from ding.policy.command_mode_policy_instance import DDPGCommandModePolicy as DDPGCommandModePolicy
from ding.policy.command_mode_policy_instance import DiscreteSACCommandModePolicy as DiscreteSACCommandModePolicy
from ding.policy.command_mode_policy_instance import DummyCommandModePolicy as DummyCommandModePolicy
from ding.policy.command_mode_policy_instance import EpsCommandModePolicy as EpsCommandModePolicy
from ding.policy.common_utils import default_preprocess_learn as default_preprocess_learn
from ding.policy.common_utils import single_env_forward_wrapper as single_env_forward_wrapper
from ding.policy.common_utils import single_env_forward_wrapper_ttorch as single_env_forward_wrapper_ttorch
from ding.policy.ddpg import D4PGPolicy as D4PGPolicy
from ding.policy.ddpg import DDPGPolicy as DDPGPolicy
from ding.policy.ddpg import TD3BCPolicy as TD3BCPolicy
from ding.policy.ddpg import TD3Policy as TD3Policy
from ding.policy.distributional import C51Policy as C51Policy
from ding.policy.distributional import DiscreteCQLPolicy as DiscreteCQLPolicy
from ding.policy.distributional import FQFPolicy as FQFPolicy
from ding.policy.distributional import IQNPolicy as IQNPolicy
from ding.policy.distributional import QRDQNPolicy as QRDQNPolicy
from ding.policy.distributional import RainbowDQNPolicy as RainbowDQNPolicy
from ding.policy.dqn import BDQPolicy as BDQPolicy
from ding.policy.dqn import DQFDPolicy as DQFDPolicy
from ding.policy.dqn import DQNPolicy as DQNPolicy
from ding.policy.iql import IQLPolicy as IQLPolicy
from ding.policy.pg import A2CPolicy as A2CPolicy
from ding.policy.pg import PGPolicy as PGPolicy
from ding.policy.pg import PPOPGPolicy as PPOPGPolicy
from ding.policy.policy_factory import PolicyFactory as PolicyFactory
from ding.policy.policy_factory import get_random_policy as get_random_policy
from ding.policy.ppg import PPGOffPolicy as PPGOffPolicy
from ding.policy.ppo import PPOOffPolicy as PPOOffPolicy
from ding.policy.ppo import PPOPolicy as PPOPolicy
from ding.policy.r2d2 import R2D2Policy as R2D2Policy
from ding.policy.sac import CQLPolicy as CQLPolicy
from ding.policy.sac import DiscreteSACPolicy as DiscreteSACPolicy
from ding.policy.sac import SACPolicy as SACPolicy
from ding.policy.sequence_policy import ACERPolicy as ACERPolicy
from ding.policy.sequence_policy import IMPALAPolicy as IMPALAPolicy
from ding.policy.soft_q import MDQNPolicy as MDQNPolicy
from ding.policy.soft_q import SQLPolicy as SQLPolicy
from ding.policy.soft_q import SQNPolicy as SQNPolicy

A2CCommandModePolicy: Any
ACERCommandModePolicy: Any
ACERCommandModePolisy: Any
BDQCommandModePolicy: Any
C51CommandModePolicy: Any
CQLCommandModePolicy: Any
D4PGCommandModePolicy: Any
DQFDCommandModePolicy: Any
DQNCommandModePolicy: Any
DiscreteCQLCommandModePolicy: Any
FQFCommandModePolicy: Any
IMPALACommandModePolicy: Any
IQLCommandModePolicy: Any
IQNCommandModePolicy: Any
MDQNCommandModePolicy: Any
PGCommandModePolicy: Any
PPGOffCommandModePolicy: Any
PPOCommandModePolicy: Any
PPOOffCommandModePolicy: Any
PPOPGCommandModePolicy: Any
QRDQNCommandModePolicy: Any
R2D2CommandModePolicy: Any
RainbowDQNCommandModePolicy: Any
SACCommandModePolicy: Any
SQLCommandModePolicy: Any
SQNCommandModePolicy: Any
TD3BCCommandModePolicy: Any
TD3CommandModePolicy: Any
