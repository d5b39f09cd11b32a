"""The section `ray` of a system config."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ding.utils.config_helper import Rule, check_config, instance_of, integer, number, one_of

ROLES = ("learner", "collector", "replay")

_ROLE_RULES: dict[str, Rule] = {
    "num_cpus": number(0),
    "num_gpus": number(0),
    "memory": number(0),
    "resources": instance_of(Mapping),
}
_RULES: dict[str, Rule] = {
    "address": instance_of(str, optional=True),
    "num_cpus": integer(1, optional=True),
    "object_store_memory": integer(80 * 2**20, optional=True),
    "runtime_env": instance_of(Mapping),
    "placement": one_of(None, "PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"),
    "start_timeout_s": number(0),
    **{f"{role}.{key}": rule for role in ROLES for key, rule in _ROLE_RULES.items()},
}
_DEFAULTS: dict[str, Any] = {
    # The cluster to join; None: that of RAY_ADDRESS, or else one of the run's own, on this machine.
    "address": None,
    # Of a Ray of the run's own: CPUs that it counts (as many as all roles want), and bytes of its object store (Ray's
    # own choice).
    "num_cpus": None,
    "object_store_memory": None,
    # Code and packages for the nodes, see Ray; {}: they are installed there.
    "runtime_env": {},
    # How the workers are spread over the nodes: the strategy of a placement group; None for no group.
    "placement": None,
    # How long the workers may take to start, which may include that nodes are started.
    "start_timeout_s": 120.0,
}
# What an actor of each role takes up: `num_cpus`, `num_gpus`, `memory` (bytes) and `resources` ({name: amount}).
_ROLE_DEFAULTS: dict[str, dict[str, Any]] = {
    "learner": {"num_cpus": 1},
    "collector": {"num_cpus": 1},
    "replay": {"num_cpus": 0},
}


def ray_section(given: Mapping[str, Any]) -> dict[str, Any]:
    """The section in full.

    Raises:
        ConfigError: a value is not allowed, or a name misspelt.
    """
    check_config(given, "system_config.ray", _RULES)
    roles = {role: {**_ROLE_DEFAULTS[role], **given.get(role, {})} for role in ROLES}
    return {**_DEFAULTS, **given, **roles}


def actor_options(section: Mapping[str, Any], role: str) -> dict[str, Any]:
    """The options of Ray for an actor of a role, by the full section."""
    return {key: value for key, value in section[role].items() if key in _ROLE_RULES}


def bundle(section: Mapping[str, Any], role: str) -> dict[str, float]:
    """What an actor of a role takes up, by the name of the resource."""
    options = actor_options(section, role)
    named = {"CPU": options.get("num_cpus"), "GPU": options.get("num_gpus"), "memory": options.get("memory")}
    return {key: value for key, value in {**named, **options.get("resources", {})}.items() if value}
