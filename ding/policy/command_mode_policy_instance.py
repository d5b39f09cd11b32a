"""The policies with a command mode, registered as `<name>_command`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ding.policy.a2c import A2CPolicy
from ding.policy.acer import ACERPolicy
from ding.policy.base_policy import CommandModePolicy
from ding.policy.bc import BehaviourCloningPolicy
from ding.policy.bdq import BDQPolicy
from ding.policy.c51 import C51Policy
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
from ding.policy.ppg import PPGOffPolicy
from ding.policy.ppo import PPOPolicy
from ding.policy.ppo_offpolicy import PPOOffPolicy
from ding.policy.ppo_pg import PPOPGPolicy
from ding.policy.qrdqn import QRDQNPolicy
from ding.policy.r2d2 import R2D2Policy
from ding.policy.rainbow import RainbowDQNPolicy
from ding.policy.sac import SACPolicy
from ding.policy.settings import positive
from ding.policy.sql import SQLPolicy
from ding.policy.sqn import SQNPolicy
from ding.policy.td3 import TD3Policy
from ding.policy.td3_bc import TD3BCPolicy
from ding.rl_utils.exploration import get_epsilon_greedy_fn
from ding.utils.config_helper import ConfigError, Setting, Settings, number, one_of
from ding.utils.registry_factory import POLICY_REGISTRY


class EpsCommandModePolicy(CommandModePolicy):
    """Command mode of policies that explore epsilon-greedily: epsilon follows `cfg.other.eps` over env steps."""

    settings: ClassVar[Settings] = Settings(
        {
            "other.eps.type": Setting(rule=one_of("exp", "linear")),
            "other.eps.start": Setting(rule=number(0, 1)),
            "other.eps.end": Setting(rule=number(0, 1)),
            "other.eps.decay": Setting(rule=positive),
        },
        CommandModePolicy.settings,
    )

    def _init_command(self) -> None:
        eps = self._cfg.other.get("eps")
        if eps is None:
            raise ConfigError(
                "policy.other.eps is missing; set it to the schedule of epsilon, such as "
                "{'type': 'exp', 'start': 0.95, 'end': 0.1, 'decay': 10000}"
            )
        self.epsilon_greedy = get_epsilon_greedy_fn(eps.start, eps.end, eps.decay, eps.type)

    def _get_setting_collect(self, command_info: dict[str, Any]) -> dict[str, Any]:
        return {"eps": self.epsilon_greedy(command_info["envstep"])}

    def _get_setting_learn(self, command_info: dict[str, Any]) -> dict[str, Any]:
        return {}

    def _get_setting_eval(self, command_info: dict[str, Any]) -> dict[str, Any]:
        return {}


class DummyCommandModePolicy(CommandModePolicy):
    """Command mode without settings."""

    def _init_command(self) -> None:
        """Do nothing."""

    def _get_setting_collect(self, command_info: dict[str, Any]) -> dict[str, Any]:
        return {}

    def _get_setting_learn(self, command_info: dict[str, Any]) -> dict[str, Any]:
        return {}

    def _get_setting_eval(self, command_info: dict[str, Any]) -> dict[str, Any]:
        return {}


@POLICY_REGISTRY.register("dqn_command")
class DQNCommandModePolicy(DQNPolicy, EpsCommandModePolicy):
    """`DQNPolicy` with an epsilon schedule.

    Example:
        >>> cfg = DQNCommandModePolicy.default_config()
        >>> policy = DQNCommandModePolicy(cfg, enable_field=["command"])
        >>> policy.command_mode.get_setting_collect({"envstep": 0})
        {'eps': 0.95}
    """


@POLICY_REGISTRY.register("c51_command")
class C51CommandModePolicy(C51Policy, EpsCommandModePolicy):
    """`C51Policy` with an epsilon schedule."""


@POLICY_REGISTRY.register("rainbow_command")
class RainbowDQNCommandModePolicy(RainbowDQNPolicy, EpsCommandModePolicy):
    """`RainbowDQNPolicy` with an epsilon schedule."""


@POLICY_REGISTRY.register("qrdqn_command")
class QRDQNCommandModePolicy(QRDQNPolicy, EpsCommandModePolicy):
    """`QRDQNPolicy` with an epsilon schedule."""


@POLICY_REGISTRY.register("iqn_command")
class IQNCommandModePolicy(IQNPolicy, EpsCommandModePolicy):
    """`IQNPolicy` with an epsilon schedule."""


@POLICY_REGISTRY.register("mdqn_command")
class MDQNCommandModePolicy(MDQNPolicy, EpsCommandModePolicy):
    """`MDQNPolicy` with an epsilon schedule."""


@POLICY_REGISTRY.register("sql_command")
class SQLCommandModePolicy(SQLPolicy, EpsCommandModePolicy):
    """`SQLPolicy` with an epsilon schedule."""


@POLICY_REGISTRY.register("bdq_command")
class BDQCommandModePolicy(BDQPolicy, EpsCommandModePolicy):
    """`BDQPolicy` with an epsilon schedule."""


@POLICY_REGISTRY.register("fqf_command")
class FQFCommandModePolicy(FQFPolicy, EpsCommandModePolicy):
    """`FQFPolicy` with an epsilon schedule."""


@POLICY_REGISTRY.register("sqn_command")
class SQNCommandModePolicy(SQNPolicy, DummyCommandModePolicy):
    """`SQNPolicy` with a command mode, which sets nothing."""


@POLICY_REGISTRY.register("ppo_command")
class PPOCommandModePolicy(PPOPolicy, DummyCommandModePolicy):
    """`PPOPolicy` with a command mode, which sets nothing."""


@POLICY_REGISTRY.register("r2d2_command")
class R2D2CommandModePolicy(R2D2Policy, EpsCommandModePolicy):
    """`R2D2Policy` with an epsilon schedule."""


@POLICY_REGISTRY.register("sac_command")
class SACCommandModePolicy(SACPolicy, DummyCommandModePolicy):
    """`SACPolicy` with a command mode, which sets nothing."""


@POLICY_REGISTRY.register("impala_command")
class IMPALACommandModePolicy(IMPALAPolicy, DummyCommandModePolicy):
    """`IMPALAPolicy` with a command mode, which sets nothing."""


@POLICY_REGISTRY.register("a2c_command")
class A2CCommandModePolicy(A2CPolicy, DummyCommandModePolicy):
    """`A2CPolicy` with a command mode, which sets nothing."""


@POLICY_REGISTRY.register("pg_command")
class PGCommandModePolicy(PGPolicy, DummyCommandModePolicy):
    """`PGPolicy` with a command mode, which sets nothing."""


@POLICY_REGISTRY.register("ppo_pg_command")
class PPOPGCommandModePolicy(PPOPGPolicy, DummyCommandModePolicy):
    """`PPOPGPolicy` with a command mode, which sets nothing."""


@POLICY_REGISTRY.register("ppo_offpolicy_command")
class PPOOffCommandModePolicy(PPOOffPolicy, DummyCommandModePolicy):
    """`PPOOffPolicy` with a command mode, which sets nothing."""


@POLICY_REGISTRY.register("ddpg_command")
class DDPGCommandModePolicy(DDPGPolicy, EpsCommandModePolicy):
    """`DDPGPolicy` with an epsilon schedule for the types of hybrid actions; no settings otherwise."""

    def _init_command(self) -> None:
        if self._is_hybrid:
            super()._init_command()

    def _get_setting_collect(self, command_info: dict[str, Any]) -> dict[str, Any]:
        return super()._get_setting_collect(command_info) if self._is_hybrid else {}


@POLICY_REGISTRY.register("td3_command")
class TD3CommandModePolicy(TD3Policy, DummyCommandModePolicy):
    """`TD3Policy` with a command mode, which sets nothing."""


@POLICY_REGISTRY.register("discrete_sac_command")
class DiscreteSACCommandModePolicy(DiscreteSACPolicy, EpsCommandModePolicy):
    """`DiscreteSACPolicy` with an epsilon schedule, whose settings `other.eps` have no defaults."""


@POLICY_REGISTRY.register("d4pg_command")
class D4PGCommandModePolicy(D4PGPolicy, DummyCommandModePolicy):
    """`D4PGPolicy` with a command mode, which sets nothing."""


@POLICY_REGISTRY.register("bc_command")
class BehaviourCloningCommandModePolicy(BehaviourCloningPolicy, DummyCommandModePolicy):
    """`BehaviourCloningPolicy` with schedules of epsilon over env steps, or of the noise over iterations.

    Without `other.eps`, epsilon is 0. `collect.noise_sigma` may be a schedule like `other.eps`, or a number.
    """

    def _get_setting_collect(self, command_info: dict[str, Any]) -> dict[str, Any]:
        if not self._cfg.continuous:
            eps = self._cfg.get("other", {}).get("eps")
            return {"eps": 0.0 if eps is None else _scheduled(eps, command_info["envstep"])}
        return {"sigma": _scheduled(self._cfg.collect.noise_sigma, command_info["learner_step"])}


def _scheduled(schedule: Any, step: int) -> float:
    if not isinstance(schedule, Mapping):
        return float(schedule)
    return get_epsilon_greedy_fn(schedule["start"], schedule["end"], schedule["decay"], schedule["type"])(step)


@POLICY_REGISTRY.register("dqfd_command")
class DQFDCommandModePolicy(DQFDPolicy, EpsCommandModePolicy):
    """`DQFDPolicy` with an epsilon schedule."""


@POLICY_REGISTRY.register("acer_command")
class ACERCommandModePolicy(ACERPolicy, DummyCommandModePolicy):
    """`ACERPolicy` with a command mode, which sets nothing."""


ACERCommandModePolisy = ACERCommandModePolicy  # the name that DI-engine gave it


@POLICY_REGISTRY.register("cql_command")
class CQLCommandModePolicy(CQLPolicy, DummyCommandModePolicy):
    """`CQLPolicy` with a command mode, which sets nothing."""


@POLICY_REGISTRY.register("discrete_cql_command")
class DiscreteCQLCommandModePolicy(DiscreteCQLPolicy, EpsCommandModePolicy):
    """`DiscreteCQLPolicy` with an epsilon schedule."""


@POLICY_REGISTRY.register("iql_command")
class IQLCommandModePolicy(IQLPolicy, DummyCommandModePolicy):
    """`IQLPolicy` with a command mode, which sets nothing."""


@POLICY_REGISTRY.register("td3_bc_command")
class TD3BCCommandModePolicy(TD3BCPolicy, DummyCommandModePolicy):
    """`TD3BCPolicy` with a command mode, which sets nothing."""


@POLICY_REGISTRY.register("ppg_offpolicy_command")
class PPGOffCommandModePolicy(PPGOffPolicy, DummyCommandModePolicy):
    """`PPGOffPolicy` with a command mode, which sets nothing."""
