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
    # The cluster to join; None for that of RAY_ADDRESS, or else for a new one on this machine that ends with the run.
    "address": None,
    # Of a cluster that the run starts: its number of CPUs (None: what all roles request), and the bytes of its object
    # store (None: Ray's default).
    "num_cpus": None,
    "object_store_memory": None,
    # Ray's description of code and packages for the nodes; {} if they are installed there.
    "runtime_env": {},
    # The strategy of the placement group of all workers; None for no group.
    "placement": None,
    # How long the workers may take to start, including nodes that an autoscaler adds.
    "start_timeout_s": 120.0,
}
# What an actor of each role requests: `num_cpus`, `num_gpus`, `memory` (bytes) and `resources` ({name: amount}).
_ROLE_DEFAULTS: dict[str, dict[str, Any]] = {
    "learner": {"num_cpus": 1},
    "collector": {"num_cpus": 1},
    "replay": {"num_cpus": 0},
}


def ray_section(given: Mapping[str, Any]) -> dict[str, Any]:
    """The section with its defaults.

    Raises:
        ConfigError: a value is not allowed, or a key is unknown.
    """
    check_config(given, "system_config.ray", _RULES)
    roles = {role: {**_ROLE_DEFAULTS[role], **given.get(role, {})} for role in ROLES}
    return {**_DEFAULTS, **given, **roles}


def actor_options(section: Mapping[str, Any], role: str) -> dict[str, Any]:
    """Ray's options for an actor of a role; `section` is complete."""
    return {key: value for key, value in section[role].items() if key in _ROLE_RULES}


def bundle(section: Mapping[str, Any], role: str) -> dict[str, float]:
    """The resources that an actor of a role requests, by name."""
    options = actor_options(section, role)
    named = {"CPU": options.get("num_cpus"), "GPU": options.get("num_gpus"), "memory": options.get("memory")}
    return {key: value for key, value in {**named, **options.get("resources", {})}.items() if value}
