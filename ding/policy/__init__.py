"""Policies: how to learn from samples and how to act."""

from importlib import import_module

from ding.utils.import_helper import lazy_names

_NAMES = {
    "base_policy": "BatchPolicy CommandModePolicy Policy create_policy get_policy_cls",
    "bc": "BehaviourCloningPolicy",
    "command_mode_policy_instance": "DummyCommandModePolicy EpsCommandModePolicy",
    "common_utils": "default_preprocess_learn single_env_forward_wrapper single_env_forward_wrapper_ttorch",
    "ddpg": "D4PGPolicy DDPGPolicy TD3BCPolicy TD3Policy",
    "distributional": "C51Policy DiscreteCQLPolicy FQFPolicy IQNPolicy QRDQNPolicy RainbowDQNPolicy",
    "dqn": "BDQPolicy DQFDPolicy DQNPolicy",
    "iql": "IQLPolicy",
    "pg": "A2CPolicy PGPolicy PPOPGPolicy",
    "policy_factory": "PolicyFactory get_random_policy",
    "ppg": "PPGOffPolicy",
    "ppo": "PPOOffPolicy PPOPolicy",
    "r2d2": "R2D2Policy",
    "sac": "CQLPolicy DiscreteSACPolicy SACPolicy",
    "sequence_policy": "ACERPolicy IMPALAPolicy",
    "soft_q": "MDQNPolicy SQLPolicy SQNPolicy",
}

_MODULES = {name: f"ding.policy.{module}" for module, names in _NAMES.items() for name in names.split()}
__getattr__ = lazy_names(__name__, _MODULES)

# Policies are registered when their module is imported.
_imported = {module: import_module(f"{__name__}.{module}") for module in _NAMES}
_command = _imported["command_mode_policy_instance"]
_MODULES |= dict.fromkeys(_command.add_command_modes(), _command.__name__)

__all__ = sorted(_MODULES)
