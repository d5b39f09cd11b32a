"""The section `ray` of a system config."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ding.utils.config_helper import NO_DEFAULT, Setting, Settings, check_config, instance_of, integer, number, one_of

ROLES = ("learner", "collector")

_ROLE_SETTINGS = {
    "num_cpus": Setting(NO_DEFAULT, number(0), "CPUs that an actor of this role requests."),
    "num_gpus": Setting(NO_DEFAULT, number(0), "GPUs that an actor of this role requests."),
    "memory": Setting(NO_DEFAULT, number(0), "Bytes of memory that an actor of this role requests."),
    "resources": Setting(NO_DEFAULT, instance_of(Mapping), "Other resources that it requests: {name: amount}."),
}
RAY_SETTINGS = Settings(
    {
        "address": Setting(
            None,
            instance_of(str, optional=True),
            "Address of the cluster to join; None for that of RAY_ADDRESS, or else for a new one on this machine.",
        ),
        "num_cpus": Setting(None, integer(1, optional=True), "CPUs of a new cluster; None for what all roles request."),
        "object_store_memory": Setting(
            None,
            integer(80 * 2**20, optional=True),
            "Bytes of the object store of a new cluster; None for Ray's default.",
        ),
        "runtime_env": Setting(
            {}, instance_of(Mapping), "Ray's description of code and packages for the nodes; {} if they have them."
        ),
        "placement": Setting(
            None,
            one_of(None, "PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"),
            "Strategy of the placement group of all workers; None for no group.",
        ),
        "start_timeout_s": Setting(
            120.0, number(0), "Seconds that the workers may take to start, including nodes that an autoscaler adds."
        ),
        "learner.num_cpus": 1,
        "collector.num_cpus": 1,
    },
    Settings({f"{role}.{key}": setting for role in ROLES for key, setting in _ROLE_SETTINGS.items()}),
)


def ray_section(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the section with its defaults.

    Raises:
        ConfigError: a value is not allowed.
    """
    check_config(given, "system_config.ray", RAY_SETTINGS.rules())
    defaults = RAY_SETTINGS.config()
    roles = {role: {**defaults[role], **given.get(role, {})} for role in ROLES}
    return {**defaults, **given, **roles}


def actor_options(section: Mapping[str, Any], role: str) -> dict[str, Any]:
    """Return Ray's options for an actor of a role, from the complete `section`."""
    return {key: value for key, value in section[role].items() if key in _ROLE_SETTINGS}


def bundle(section: Mapping[str, Any], role: str) -> dict[str, float]:
    """Return the resources that an actor of a role requests, by name."""
    options = actor_options(section, role)
    named = {"CPU": options.get("num_cpus"), "GPU": options.get("num_gpus"), "memory": options.get("memory")}
    return {key: value for key, value in {**named, **options.get("resources", {})}.items() if value}
