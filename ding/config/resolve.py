"""From a `{type, import_names}` entry to the class registered under that type."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from ding.config.checks import check_import_names
from ding.utils.config_helper import ConfigError, check_config, instance_of
from ding.utils.registry_factory import registries

# Entry of a create config -> (registry, package whose import fills it with our own classes).
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
# Those of parallel training; its collectors have a registry of their own.
_PARALLEL_SOURCES = {
    "learner": ("learner", "ding.worker.learner"),
    "parallel_collector": ("parallel_collector", "ding.worker.collector.parallel_collectors"),
    "commander": ("commander", "ding.worker.coordinator.one_vs_one_parallel_commander"),
}
_ENTRIES = (*_SOURCES, "learner", "commander", "comm_learner", "comm_collector", "league", "dataset")
# Type of the env section when the envs are built by hand; never registered.
GENERATED_ENV_TYPE = "ding_env_wrapper_generated"


@dataclass(frozen=True, slots=True)
class Parts:
    """The classes whose default configs make a config; None for what is not there.

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
    """The class registered as `entry['type']` for the create config's entry `name`; `import_names` are imported first.

    Args:
        where: what to call the section in errors; `create_config.<name>` when empty.

    Raises:
        AssertionError: there is no `type`.
        KeyError: the type is not registered; the message names the section and what is registered.
    """
    where = where or f"create_config.{name}"
    if not isinstance(entry, Mapping) or "type" not in entry:
        raise ConfigError(f"{where} must name its type, as in {where}=dict(type=...); it is {entry!r}")
    registry, package = {**_SOURCES, **_PARALLEL_SOURCES}[name]
    for module in (package, *entry.get("import_names", ())):
        if module is not None:
            importlib.import_module(module)
    try:
        return registries[registry].get(entry["type"])
    except KeyError as e:
        hint = "add the module that registers it to import_names"
        raise KeyError(f"{where}: {e.args[0]}; {hint}") from None


def complete_create_config(create: dict[str, Any]) -> bool:
    """Fill in the entries that may be left out; return whether the replay buffer was one of them.

    Raises:
        ConfigError: a required entry is missing, or a name is misspelt.
    """
    check_config(create, "create_config", dict.fromkeys(_ENTRIES, instance_of(Mapping, optional=True)))
    check_import_names(create, "create_config")
    for name in ("env_manager", "policy"):
        if name not in create:
            raise ConfigError(f"create_config lacks the entry {name!r}; it has: {', '.join(create) or 'nothing'}")
    create.setdefault("env", {"type": GENERATED_ENV_TYPE})
    create.setdefault("collector", {"type": "sample"})
    buffer_is_missing = "replay_buffer" not in create
    create.setdefault("replay_buffer", {"type": "advanced"})
    return buffer_is_missing


def resolve_parts(given: Parts, create: Mapping[str, Any], force_default_buffer: bool) -> Parts:
    """The parts that a complete create config names; a class in `given` wins, but for the evaluator.

    The default evaluator cannot be told from a given one, so there the type in the create config wins.
    Collector and buffer are looked up later, when the policy's defaults are known.
    """
    found = {}
    for part in fields(Parts):
        name = part.name
        if getattr(given, name) is None and name in ("env_manager", "policy", "reward_model", "world_model"):
            found[name] = resolve_class(name, create[name]) if create.get(name) else None
    if given.env is None and create["env"].get("type") != GENERATED_ENV_TYPE:
        found["env"] = resolve_class("env", create["env"])
    if given.evaluator is not None and "type" in (create.get("evaluator") or {}):
        found["evaluator"] = resolve_class("evaluator", create["evaluator"])
    if force_default_buffer:
        found["buffer"] = resolve_class("replay_buffer", create["replay_buffer"])
    return replace(given, **found)
