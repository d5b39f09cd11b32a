"""Policies: how to learn from samples and how to act."""

from ding.policy.base_policy import (
    CommandModePolicy,
    Policy,
    create_policy,
    get_policy_cls,
)
from ding.policy.command_mode_policy_instance import (
    DQNCommandModePolicy,
    DummyCommandModePolicy,
    EpsCommandModePolicy,
    PPOCommandModePolicy,
    R2D2CommandModePolicy,
    SACCommandModePolicy,
)
from ding.policy.common_utils import (
    default_preprocess_learn,
    single_env_forward_wrapper,
    single_env_forward_wrapper_ttorch,
)
from ding.policy.dqn import (
    DQNPolicy,
)
from ding.policy.policy_factory import (
    PolicyFactory,
    get_random_policy,
)
from ding.policy.ppo import (
    PPOPolicy,
)
from ding.policy.r2d2 import (
    R2D2Policy,
)
from ding.policy.sac import (
    SACPolicy,
)

__all__ = [
    "CommandModePolicy",
    "DQNCommandModePolicy",
    "DQNPolicy",
    "DummyCommandModePolicy",
    "EpsCommandModePolicy",
    "PPOCommandModePolicy",
    "PPOPolicy",
    "Policy",
    "PolicyFactory",
    "R2D2CommandModePolicy",
    "R2D2Policy",
    "SACCommandModePolicy",
    "SACPolicy",
    "create_policy",
    "default_preprocess_learn",
    "get_policy_cls",
    "get_random_policy",
    "single_env_forward_wrapper",
    "single_env_forward_wrapper_ttorch",
]
