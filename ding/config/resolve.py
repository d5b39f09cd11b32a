"""Lookup of the classes that a create config names by type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from ding.config.main_settings import check_import_names
from ding.utils.config_helper import ConfigError, check_values, instance_of
from ding.utils.import_helper import import_module
from ding.utils.registry_factory import registries

# Entry of a create config -> (registry, packages whose import registers our classes).
_SOURCES = {
    "env": ("env", "ding.envs"),
    "env_manager": ("env_manager", "ding.envs"),
    "policy": ("policy", "ding.policy"),
    "collector": ("serial_collector", "ding.worker.collector"),
    "evaluator": ("serial_evaluator", "ding.worker.collector"),
    "replay_buffer": ("buffer", "ding.worker.replay_buffer"),
    "reward_model": ("reward_model", None),
    "world_model": ("world_model", None),
}
# As above, for parallel training, whose collectors have their own registry.
_PARALLEL_SOURCES = {
    "learner": ("learner", "ding.worker.learner"),
    "parallel_collector": (
        "parallel_collector",
        [f"ding.worker.collector.{name}_parallel_collector" for name in ("zergling", "marine")],
    ),
    "commander": ("commander", "ding.worker.coordinator.one_vs_one_parallel_commander"),
}
ENTRIES = (*_SOURCES, "learner", "commander", "comm_learner", "comm_collector", "league", "dataset")
# Type of the env section if the user creates the envs. Never registered.
GENERATED_ENV_TYPE = "ding_env_wrapper_generated"


@dataclass(frozen=True, slots=True)
class ConfigClasses:
    """The classes from whose defaults a config is compiled; None if not given.

    `buffer` may also be a dict from buffer name to class.
    """

    env: Any = None
    env_manager: Any = None
    policy: Any = None
    learner: Any = None
    collector: Any = None
    evaluator: Any = None
    buffer: Any = None
    reward_model: Any = None
    world_model: Any = None


def resolve_class(name: str, entry: Mapping[str, Any], where: str = "") -> Any:
    """Import `entry['import_names']`, then return the class registered as `entry['type']`.

    Args:
        name: entry of the create config, which determines the registry.
        entry: a dict with `type` and, optionally, `import_names`.
        where: name of the section in errors; by default `create_config.<name>`.

    Raises:
        ConfigError: there is no `type`.
        KeyError: the type is not registered. The message names the section and the registered types.
    """
    where = where or f"create_config.{name}"
    if not isinstance(entry, Mapping) or "type" not in entry:
        raise ConfigError(f"{where} = {entry!r} is not allowed; it must name a type, as in {where}=dict(type=...)")
    registry, package = {**_SOURCES, **_PARALLEL_SOURCES}[name]
    import_module(package)
    import_module(entry.get("import_names"), f"{where}.import_names")
    try:
        return registries[registry].get(entry["type"])
    except KeyError as e:
        hint = "add the module that registers it to import_names"
        raise KeyError(f"{where}: {e.args[0]}; {hint}") from None


def complete_create_config(create: dict[str, Any]) -> bool:
    """Add the default entries to `create`, where None counts as missing, and return whether the buffer was missing.

    Raises:
        ConfigError: a required entry is missing, or an entry is not a dict.
    """
    check_values(create, "create_config", dict.fromkeys(ENTRIES, instance_of(Mapping, optional=True)))
    check_import_names(create, "create_config")
    for name in [name for name, entry in create.items() if entry is None]:
        del create[name]
    for name in ("env_manager", "policy"):
        if name not in create:
            raise ConfigError(f"create_config.{name} is missing; the config has {', '.join(create) or 'nothing'}")
    create.setdefault("env", {"type": GENERATED_ENV_TYPE})
    create.setdefault("collector", {"type": "sample"})
    buffer_is_missing = "replay_buffer" not in create
    create.setdefault("replay_buffer", {"type": "advanced"})
    return buffer_is_missing


def resolve_classes(given: ConfigClasses, create: Mapping[str, Any], force_default_buffer: bool) -> ConfigClasses:
    """Add the classes that a complete create config names to the `given` ones, which have precedence.

    For the evaluator, the type in the create config has precedence, because `given` always has the default one.
    Collector and buffer are looked up later, when the policy's defaults are known.
    """
    found = {}
    for field in fields(ConfigClasses):
        name = field.name
        if getattr(given, name) is None and name in ("env_manager", "policy", "reward_model", "world_model"):
            found[name] = resolve_class(name, create[name]) if create.get(name) else None
    if given.env is None and create["env"].get("type") != GENERATED_ENV_TYPE:
        found["env"] = resolve_class("env", create["env"])
    if given.evaluator is not None and "type" in (create.get("evaluator") or {}):
        found["evaluator"] = resolve_class("evaluator", create["evaluator"])
    if force_default_buffer:
        found["buffer"] = resolve_class("replay_buffer", create["replay_buffer"])
    return replace(given, **found)
