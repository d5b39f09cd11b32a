"""Policies with a command mode, registered as `<name>_command`.

Those without a class statement here are derived: `DQNCommandModePolicy` is `DQNPolicy` with a command mode.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import lru_cache
from types import new_class
from typing import Any, ClassVar

from ding.policy.base_policy import CommandModePolicy, Policy
from ding.policy.bc import BehaviourCloningPolicy
from ding.policy.ddpg import DDPGPolicy
from ding.policy.sac import DiscreteSACPolicy
from ding.rl_utils.exploration import get_epsilon_greedy_fn
from ding.utils.batch_methods import batch_method_name
from ding.utils.config_helper import ConfigError, Setting, Settings, is_of_package, number, one_of, positive
from ding.utils.registry_factory import POLICY_REGISTRY

_COMMAND = "_command"


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
        eps: Any = self._cfg.other.get("eps")
        if not isinstance(eps, Mapping):
            what = "is missing" if eps is None else f"= {eps!r} is not allowed"
            raise ConfigError(
                f"policy.other.eps {what}; set it to the schedule of epsilon, such as "
                "{'type': 'exp', 'start': 0.95, 'end': 0.1, 'decay': 10000}"
            )
        self.epsilon_greedy = get_epsilon_greedy_fn(eps["start"], eps["end"], eps["decay"], eps["type"])

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


@POLICY_REGISTRY.register("ddpg_command")
class DDPGCommandModePolicy(DDPGPolicy, EpsCommandModePolicy):
    """`DDPGPolicy` with an epsilon schedule for the types of hybrid actions; no settings otherwise."""

    def _init_command(self) -> None:
        if self._is_hybrid:
            super()._init_command()

    def _get_setting_collect(self, command_info: dict[str, Any]) -> dict[str, Any]:
        return super()._get_setting_collect(command_info) if self._is_hybrid else {}


@POLICY_REGISTRY.register("discrete_sac_command")
class DiscreteSACCommandModePolicy(DiscreteSACPolicy, EpsCommandModePolicy):
    """`DiscreteSACPolicy` with an epsilon schedule, whose settings `other.eps` have no defaults."""


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


def derive_command_policy(name: str) -> type | None:
    """Derive the class of `<x>_command` if only the policy `<x>` is registered: that policy with a command mode.

    Epsilon follows `other.eps` if the policy's `_forward_collect` or `_act_collect` takes `eps`, or any keyword, and
    its default config has that section; otherwise the modes get no settings. A policy that has a command mode is
    returned unchanged. The result is None for other names.

    Raises:
        KeyError: `<x>` is not registered.

    Example:
        >>> policy_cls = derive_command_policy("dqn_command")
        >>> policy = policy_cls(policy_cls.default_config(), enable_field=["command"])
        >>> policy.command_mode.get_setting_collect({"envstep": 0})
        {'eps': 0.95}
    """
    if not name.endswith(_COMMAND):
        return None
    return _with_command_mode(POLICY_REGISTRY.get(name.removesuffix(_COMMAND)))


@lru_cache
def _with_command_mode(policy: type) -> type | None:
    if hasattr(policy, "_init_command"):  # a policy of another library need not be a `CommandModePolicy`
        return policy
    if not issubclass(policy, Policy):
        return None
    batch_name = batch_method_name(policy._forward_collect)
    act = policy._forward_collect if batch_name is None else getattr(policy, batch_name)
    parameters = inspect.signature(act).parameters
    takes_eps = "eps" in parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    explores = takes_eps and "eps" in policy.default_config().get("other", {})
    mode = EpsCommandModePolicy if explores else DummyCommandModePolicy
    module = __name__ if is_of_package(policy) else policy.__module__
    doc = f"`{policy.__name__}` with {'an epsilon schedule' if explores else 'a command mode, which sets nothing'}."
    name = f"{policy.__name__.removesuffix('Policy')}CommandModePolicy"
    members = {"__module__": module, "__doc__": doc}
    return new_class(name, (policy, mode), exec_body=lambda namespace: namespace.update(members))


POLICY_REGISTRY.derive = derive_command_policy


def add_command_modes() -> list[str]:
    """Register each policy of this package with a command mode, too, and return the names of these classes.

    Each class is an attribute of this module, by which pickles find it.
    """
    package_policies = {name: policy for name, policy in POLICY_REGISTRY.items() if is_of_package(policy)}
    for name in package_policies:
        if not name.endswith(_COMMAND) and f"{name}{_COMMAND}" not in package_policies:
            POLICY_REGISTRY.register(f"{name}{_COMMAND}", derive_command_policy(f"{name}{_COMMAND}"))
    commanded = [policy for name, policy in POLICY_REGISTRY.items() if name.endswith(_COMMAND)]
    classes = {policy.__name__: policy for policy in commanded if is_of_package(policy)}
    classes["ACERCommandModePolisy"] = classes["ACERCommandModePolicy"]  # the name that DI-engine gave it
    globals().update(classes)
    return [*classes]
