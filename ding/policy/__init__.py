"""Policies: how to learn from samples and how to act."""

from ding.policy.a2c import A2CPolicy
from ding.policy.acer import ACERPolicy
from ding.policy.base_policy import BatchPolicy, CommandModePolicy, Policy, create_policy, get_policy_cls
from ding.policy.bc import BehaviourCloningPolicy
from ding.policy.bdq import BDQPolicy
from ding.policy.c51 import C51Policy
from ding.policy.command_mode_policy_instance import DummyCommandModePolicy, EpsCommandModePolicy, add_command_modes
from ding.policy.common_utils import (
    default_preprocess_learn,
    single_env_forward_wrapper,
    single_env_forward_wrapper_ttorch,
)
from ding.policy.cql import CQLPolicy
from ding.policy.d4pg import D4PGPolicy
from ding.policy.ddpg import DDPGPolicy
from ding.policy.discrete_cql import DiscreteCQLPolicy
from ding.policy.discrete_sac import DiscreteSACPolicy
from ding.policy.dqfd import DQFDPolicy
from ding.policy.dqn import DQNPolicy
from ding.policy.fqf import FQFPolicy
from ding.policy.impala import IMPALAPolicy
from ding.policy.iql import IQLPolicy
from ding.policy.iqn import IQNPolicy
from ding.policy.mdqn import MDQNPolicy
from ding.policy.pg import PGPolicy
from ding.policy.policy_factory import PolicyFactory, get_random_policy
from ding.policy.ppg import PPGOffPolicy
from ding.policy.ppo import PPOPolicy
from ding.policy.ppo_offpolicy import PPOOffPolicy
from ding.policy.ppo_pg import PPOPGPolicy
from ding.policy.qrdqn import QRDQNPolicy
from ding.policy.r2d2 import R2D2Policy
from ding.policy.rainbow import RainbowDQNPolicy
from ding.policy.sac import SACPolicy
from ding.policy.sql import SQLPolicy
from ding.policy.sqn import SQNPolicy
from ding.policy.td3 import TD3Policy
from ding.policy.td3_bc import TD3BCPolicy
from ding.utils.import_helper import lazy_names

_COMMAND_MODES = add_command_modes()

__all__ = [
    "A2CPolicy",
    "ACERPolicy",
    "BDQPolicy",
    "BatchPolicy",
    "BehaviourCloningPolicy",
    "C51Policy",
    "CQLPolicy",
    "CommandModePolicy",
    "D4PGPolicy",
    "DDPGPolicy",
    "DQFDPolicy",
    "DQNPolicy",
    "DiscreteCQLPolicy",
    "DiscreteSACPolicy",
    "DummyCommandModePolicy",
    "EpsCommandModePolicy",
    "FQFPolicy",
    "IMPALAPolicy",
    "IQLPolicy",
    "IQNPolicy",
    "MDQNPolicy",
    "PGPolicy",
    "PPGOffPolicy",
    "PPOOffPolicy",
    "PPOPGPolicy",
    "PPOPolicy",
    "Policy",
    "PolicyFactory",
    "QRDQNPolicy",
    "R2D2Policy",
    "RainbowDQNPolicy",
    "SACPolicy",
    "SQLPolicy",
    "SQNPolicy",
    "TD3BCPolicy",
    "TD3Policy",
    "create_policy",
    "default_preprocess_learn",
    "get_policy_cls",
    "get_random_policy",
    "single_env_forward_wrapper",
    "single_env_forward_wrapper_ttorch",
    *_COMMAND_MODES,
]

__getattr__ = lazy_names(__name__, dict.fromkeys(_COMMAND_MODES, "ding.policy.command_mode_policy_instance"))
