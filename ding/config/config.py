"""Compilation of configs from class defaults, the create config, whose classes are looked up, and the user's config."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

from easydict import EasyDict

from ding.config.key_names import DISCOUNTS, KnownKeys, UnknownKey, report_unknown, unknown_entries
from ding.config.main_settings import (
    MAIN_SETTINGS,
    check_import_names,
    check_keys,
    check_main,
    check_sections,
    check_seed,
    value_at,
)
from ding.config.read import (  # noqa: F401 - all are found here, as those of `save`
    Config,
    copied,
    put,
    read_config,
    read_config_directly,
    read_config_with_system,
    read_config_yaml,
    with_arguments,
)
from ding.config.save import (  # noqa: F401
    CREATE_SECTIONS,
    StartFolder,
    claim_experiment,
    formatted_path,
    save_config,
    save_config_formatted,
    save_config_py,
    save_config_yaml,
    save_project_state,
)
from ding.config.utils import (
    SYSTEM_SETTINGS,
    Several,
    parallel_transform,
    parallel_transform_k8s,
    parallel_transform_slurm,
)
from ding.utils.config_helper import ConfigError, check_values, instance_of, integer
from ding.utils.default_helper import deep_merge_dicts
from ding.utils.import_helper import import_module
from ding.utils.metric_sinks import known_sinks
from ding.utils.pytorch_ddp_dist_helper import get_rank
from ding.utils.references import resolved, saved_form
from ding.utils.registry_factory import SERIAL_EVALUATOR_REGISTRY, registries
from ding.worker.collector.interaction_serial_evaluator import InteractionSerialEvaluator
from ding.worker.coordinator.base_serial_commander import BaseSerialCommander
from ding.worker.learner.base_learner import BaseLearner

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


def use_hindsight(user: EasyDict, create: EasyDict) -> bool:
    """Return whether two configs have the buffer `her`; if so, set in place what it needs: whole episodes.

    The setting `her` of the main config is replaced by those of the buffer.

    Raises:
        ConfigError: `her` is neither a bool nor a dict.
    """
    her = user.pop("her", False)
    if not isinstance(her, bool | Mapping):
        raise ConfigError(
            f"her = {her!r} is not allowed; it must be True, False or a dict such as {{'strategy': 'final', 'k': 4}}"
        )
    own, entry = _under(user, *_BUFFER.split(".")), create.get("replay_buffer") or {}
    if her is False and "her" not in (own.get("type"), entry.get("type")):
        return False
    create.replay_buffer = EasyDict(entry if entry.get("type") == "her" else {}, type="her")
    put(user, _BUFFER, EasyDict(own, **({} if isinstance(her, bool) else her)))
    user.policy.other.replay_buffer.pop("type", None)
    put(user, "policy.collect.traj_len_inf", True)
    return True


PLATFORMS = ("local", "slurm", "k8s", "ray")

# Default types of the create config of parallel training.
_TYPES = {
    "learner": "base",
    "collector": "zergling",
    "commander": "solo",
    "comm_learner": "flask_fs",
    "comm_collector": "flask_fs",
}

_BUFFER, _FLAG = "policy.other.replay_buffer", "multi_buffer"


def compile_config(
    cfg: Mapping[str, Any],
    env_manager: Any = None,
    policy: Any = None,
    learner: Any = BaseLearner,
    collector: Any = None,
    evaluator: Any = InteractionSerialEvaluator,
    buffer: Any = None,
    env: Any = None,
    reward_model: Any = None,
    world_model: Any = None,
    seed: int = 0,
    auto: bool = False,
    create_cfg: Mapping[str, Any] | None = None,
    save_cfg: bool = True,
    save_path: str = "total_config.py",
    renew_dir: bool = True,
    *,
    strict_config: bool = False,
) -> EasyDict:
    """Merge the class defaults, the create config and the user's `cfg` into the full configuration of an experiment.

    `cfg` overrides the create config, which overrides the defaults, with three exceptions: `seed` is the argument; the
    evaluator's `stop_value` and `n_episode` are `env.stop_value` and `env.n_evaluator_episode`; `exp_name` gets a time
    stamp if the folder exists. Neither `cfg` nor `create_cfg` is changed.

    Args:
        cfg: the user's main config.
        env_manager, policy, learner, collector, evaluator, env, reward_model, world_model: Classes. With `auto`, those
            that are None are looked up by the types in `create_cfg`.
        buffer: a class, or a dict from buffer name to class for policies with several buffers.
        seed: seed of the experiment.
        auto: whether to look classes up by the types in `create_cfg`.
        create_cfg: the create config; required by `auto`.
        save_cfg: whether to create the folder `exp_name` and write the full config (`save_path`), the runnable pair
            (`formatted_<save_path>`) and the git state to it.
        save_path: name of the file of the full config.
        renew_dir: whether to append a time stamp to `exp_name` if the folder exists, instead of using it.
        strict_config: whether keys that nothing reads raise an error instead of logging a warning.

    Raises:
        TypeError: `cfg` or `create_cfg` is not a dict.
        ConfigError: a required entry is missing or contradicts the policy, or a value is not allowed; with
            `strict_config`, if nothing reads a key.
        KeyError: a type is not registered.
        OSError: the folder cannot be created or written to.
    """
    classes = ConfigClasses(env, env_manager, policy, learner, collector, evaluator, buffer, reward_model, world_model)
    create = None if create_cfg is None else _as_easydict(create_cfg, "create_cfg")
    compiled, _ = _compile(cfg, create, classes, seed, auto, strict_config)
    if save_cfg:
        _save(compiled, create if auto else None, save_path, renew_dir)
    return compiled


def compile_known(main: Mapping[str, Any], create: Mapping[str, Any]) -> tuple[EasyDict, KnownKeys]:
    """Compile two configs without writing files, and return also the keys that the classes of the run read."""
    classes = ConfigClasses(learner=BaseLearner, evaluator=InteractionSerialEvaluator)
    return _compile(main, _as_easydict(create, "create_cfg"), classes, 0, True, False)


def _compile(
    cfg: Mapping[str, Any], create: EasyDict | None, classes: ConfigClasses, seed: int, auto: bool, is_strict: bool
) -> tuple[EasyDict, KnownKeys]:
    seed = check_seed(seed)
    user = _as_easydict(cfg, "cfg")
    check_sections(user)
    check_import_names(user, "main_config")
    if auto:
        if create is None:
            raise ConfigError("create_cfg = None is not allowed with auto=True; pass the create config")
        buffer_is_missing = complete_create_config(create)
        classes = resolve_classes(classes, create, not use_hindsight(user, create) and buffer_is_missing)
    elif classes.policy is None:
        raise ConfigError("policy = None is not allowed without auto=True; pass policy=<the policy class>")
    elif user.get("her"):
        raise ConfigError(f"her = {user.her!r} has no effect without auto=True; pass buffer=HindsightReplayBuffer")
    types = create if auto and create is not None else EasyDict()
    known = KnownKeys()
    tree = _new_tree(classes, types, known)
    if auto:
        tree.policy.other.commander = BaseSerialCommander.default_config()
        known.add_class("policy.other.commander", BaseSerialCommander)
    _add_models(tree, classes, create or {}, known)
    has_buffer = _add_serial_workers(tree.policy, classes, types, user, create is not None, known)
    compiled = _merge(tree, user)
    unknown = [*_unknown_sinks(user), *known.find_unknown(user), *_unknown_of_create(types, known)]
    report_unknown(unknown, compiled, is_strict)
    if "unroll_len" in compiled.policy:
        compiled.policy.collect.unroll_len = compiled.policy.unroll_len
    _set_reward_discount(compiled)
    compiled.seed = seed
    if _takes_episodes(classes.evaluator):
        compiled.policy.eval.evaluator.stop_value = compiled.env.stop_value
        compiled.policy.eval.evaluator.n_episode = compiled.env.n_evaluator_episode
    if "exp_name" not in compiled:
        compiled.exp_name = "default_experiment"
    check_main(compiled, has_buffer)
    return compiled, known


def compile_config_parallel(
    cfg: Mapping[str, Any],
    create_cfg: Mapping[str, Any],
    system_cfg: Mapping[str, Any],
    seed: int = 0,
    save_cfg: bool = True,
    save_path: str = "total_config.py",
    platform: str = "local",
    coordinator_host: str | None = None,
    learner_host: Several = None,
    collector_host: Several = None,
    coordinator_port: int | None = None,
    learner_port: Several = None,
    collector_port: Several = None,
    *,
    renew_dir: bool = True,
    strict_config: bool = False,
) -> EasyDict:
    """Compile the configuration of parallel training.

    The result has the sections `main` (see `compile_config`), `system` (see `set_system_cfg`) and `seed`. `cfg`
    overrides the create config, which overrides the class defaults. No argument is changed. The policy's type must be
    that of a command mode policy, such as `dqn_command`.

    The defaults of the create config are `learner` (base), `collector` (zergling), `commander` (solo), `comm_learner`
    and `comm_collector` (flask_fs), and `replay_buffer` (advanced). `env.evaluator_episode_num` defaults to
    `env.n_evaluator_episode` / `env.evaluator_env_num`, rounded up, and `env.collector_episode_num` to 1.

    Args:
        cfg: the user's main config.
        create_cfg: the create config.
        system_cfg: `coordinator`, `path_data`, `path_policy`, `communication_mode` ('auto'), `learner_gpu_num`. The two
            folders default to `data` and `policy` in the folder of the experiment. They become absolute, and follow a
            change of `exp_name`.
        seed: seed of the experiment.
        save_cfg: whether to create the folder `exp_name` and write the full config (`save_path`) and the git state to
            it.
        save_path: name of the file of the full config.
        platform: 'local', 'k8s' or 'ray', which sets `transport = 'ray'` in the system config.
        coordinator_host, learner_host, collector_host: see `set_host_port`.
        coordinator_port, learner_port, collector_port: see `set_host_port`.
        renew_dir: whether to append a time stamp to `exp_name` if the folder exists, instead of using it.
        strict_config: whether keys that nothing reads raise an error instead of logging a warning.

    Raises:
        TypeError: a config is not a dict.
        ConfigError: a required entry is missing, or a value is not allowed; with `strict_config`, if nothing reads
            a key.
        KeyError: a type is not registered, or the platform is unknown.
        NotImplementedError: `platform` is 'slurm'.
        OSError: the folder cannot be created or written to.
    """
    if platform not in PLATFORMS:
        raise KeyError(f"not support platform type: {platform!r}; it must be one of {', '.join(PLATFORMS)}")
    if platform == "slurm":
        return parallel_transform_slurm()
    seed = check_seed(seed)
    user, system = _as_easydict(cfg, "cfg"), _as_easydict(system_cfg, "system_cfg")
    check_sections(user)
    check_import_names(user, "main_config")
    create = _complete(_as_easydict(create_cfg, "create_cfg"))
    if use_hindsight(user, create):
        raise ConfigError(
            "the replay buffer 'her' works in serial training only, because the buffers of parallel training hold no "
            "observations; leave out parallel, or her"
        )
    main = _main_section(user, create, unknown_entries(system, "system_config", SYSTEM_SETTINGS), strict_config)
    exp_name = main.setdefault("exp_name", "default_experiment")
    check_main(main, has_buffer=True)
    with StartFolder(exp_name) as started:
        if save_cfg:
            main.exp_name = started.taken = claim_experiment(exp_name, renew_dir)
        for key, folder in (("path_data", "data"), ("path_policy", "policy")):
            system[key] = _absolute(system.get(key) or os.path.join(exp_name, folder), exp_name, main.exp_name)
        main.policy.other.commander.path_policy = system.path_policy
        for name in ("comm_learner", "comm_collector"):
            system[name] = EasyDict({**create[name], **system.get(name, {})})
        if platform == "ray":
            system.transport = "ray"
        whole = {"main": main, "system": system, "seed": seed}
        if platform == "k8s":
            ports: Any = coordinator_port, learner_port, collector_port
            result = parallel_transform_k8s(whole, *ports)
        else:
            hosts = coordinator_host, learner_host, collector_host
            result = parallel_transform(whole, *hosts, coordinator_port, learner_port, collector_port)
        result.main.policy.other.commander.transport = result.system.coordinator.transport
        if save_cfg and get_rank() == 0:
            save_project_state(main.exp_name)
            save_config_py(result, os.path.join(main.exp_name, save_path))
    return result


def _as_easydict(cfg: Any, what: str) -> EasyDict:
    """Return a copy of the argument `what`, or raise TypeError if it is not a dict.

    Objects that a saved config names are there again, but in the section `env`, which is read where the envs are made.
    """
    if not isinstance(cfg, Mapping):
        raise TypeError(f"{what} must be an EasyDict or a dict, got {type(cfg).__name__}: {cfg!r}")
    cfg = with_arguments(cfg)
    check_keys(cfg, what)
    sections = copied(cfg).items()
    return EasyDict({key: section if key == "env" else resolved(section, key) for key, section in sections})


def _merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> EasyDict:
    """Return `base` updated by `over`, at all depths."""
    return EasyDict(deep_merge_dicts(dict(base), dict(over)))


def _defaults_of(cls: Any) -> Mapping[str, Any]:
    """Return the default config of a class, or {} if it has none."""
    return cls.default_config() if hasattr(cls, "default_config") else {}


def _under(tree: Mapping[str, Any], *path: str) -> Any:
    """Return the value at `path`, or {} if it is missing."""
    for key in path:
        tree = tree.get(key) or {}
    return tree


def _unknown_sinks(user: Mapping[str, Any]) -> list[UnknownKey]:
    section = user.get("logger")
    return unknown_entries(section, "logger", ("sinks", *known_sinks())) if isinstance(section, Mapping) else []


def _unknown_of_create(create: Mapping[str, Any], known: KnownKeys) -> list[UnknownKey]:
    """Return the unknown entries of a create config, and the unknown keys of entries that the main config adopts."""
    unknown = unknown_entries(create, "create_config", ENTRIES)
    for name, path in CREATE_SECTIONS.items():
        if isinstance(create.get(name), Mapping):
            unknown += known.find_unknown(create[name], ".".join(path), f"create_config.{name}")
    return unknown


def _new_tree(classes: ConfigClasses, types: Mapping[str, Any], known: KnownKeys) -> EasyDict:
    """Return the sections env and policy from the defaults of their classes and the create config."""
    plain = MAIN_SETTINGS.config()
    tree = EasyDict({name: _merge(plain[name], _defaults_of(getattr(classes, name))) for name in ("env", "policy")})
    for name in ("policy", "env"):
        known.add_class(name, getattr(classes, name))
        tree[name].update(copy.deepcopy(types.get(name, {})))
    manager = classes.env_manager or resolve_class("env_manager", {"type": "base"})
    _add_worker(tree.env, "env.manager", manager, types.get("env_manager"), known)
    return tree


def _add_worker(section: EasyDict, path: str, cls: Any, entry: Mapping[str, Any] | None, known: KnownKeys) -> None:
    """Complete the section of a worker by its entry in the create config, and by the defaults of its class.

    Args:
        section: the section that contains it.
        path: its path, whose last part is its key in `section`.
    """
    key = path.rpartition(".")[2]
    section[key] = _merge(_defaults_of(cls), {**(section.get(key) or {}), **copy.deepcopy(dict(entry or {}))})
    known.add_class(path, cls)


def _add_serial_workers(
    policy: EasyDict,
    classes: ConfigClasses,
    types: Mapping[str, Any],
    user: EasyDict,
    has_types: bool,
    known: KnownKeys,
) -> bool:
    """Complete the sections of learner, collector, evaluator and buffers in the policy section.

    Return whether the section of the buffer has the defaults of a buffer class.
    """
    _add_worker(policy.learn, "policy.learn.learner", classes.learner, None, known)
    policy.collect.collector.update(copy.deepcopy(types.get("collector") or {}))
    collector = classes.collector
    if has_types and collector is None:
        where = "policy.collect.collector (or create_config.collector)"
        collector = resolve_class("collector", policy.collect.collector, where)
    _add_worker(policy.collect, "policy.collect.collector", collector, None, known)
    _add_worker(policy.eval, "policy.eval.evaluator", classes.evaluator, types.get("evaluator"), known)
    policy.other.replay_buffer.update(copy.deepcopy(types.get("replay_buffer") or {}))
    has_buffer = has_types or classes.buffer is not None
    if has_buffer:
        own = _under(user, "policy", "other", "replay_buffer")
        policy.other.replay_buffer = _buffer_section(policy.other.replay_buffer, classes.buffer, own, known)
    else:
        known.add_class(_BUFFER, None)
    return has_buffer


def _add_models(tree: EasyDict, classes: ConfigClasses, create: Mapping[str, Any], known: KnownKeys) -> None:
    """Add the sections reward_model and world_model, if they have settings."""
    for name, cls, entry in (
        ("reward_model", classes.reward_model, {}),
        ("world_model", classes.world_model, create.get("world_model")),
    ):
        _add_worker(tree, name, cls, entry if cls is not None else {}, known)
        if not tree[name]:
            del tree[name]


def _buffer_section(section: EasyDict, given: Any, own: Mapping[str, Any], known: KnownKeys) -> EasyDict:
    """Return the buffer section; with the policy's flag `multi_buffer`, it has a sub-section for each buffer name.

    Args:
        own: the user's section. Only its types are used; it is not merged.
    """
    if not section.get(_FLAG, False):
        if own.get(_FLAG, False):
            raise ConfigError(
                f"{_BUFFER}.{_FLAG} = True is not allowed: this policy uses one buffer; leave the key out"
            )
        if isinstance(given, Mapping):
            raise ConfigError(f"buffer = {given!r} is not allowed: this policy uses one buffer; pass one class")
        cls = given or resolve_class("replay_buffer", section, f"{_BUFFER} (or create_config.replay_buffer)")
        known.add_class(_BUFFER, cls)
        return _merge(_defaults_of(cls), section)
    result = EasyDict({_FLAG: True})
    shared = {key: value for key, value in section.items() if not isinstance(value, Mapping) and key != _FLAG}
    for name, named in section.items():
        if isinstance(named, Mapping):
            types = {**shared, **named, **(own.get(name) or {})}
            cls = given.get(name) if isinstance(given, Mapping) else given
            cls = cls or resolve_class("replay_buffer", types, f"{_BUFFER}.{name}")
            known.add_class(f"{_BUFFER}.{name}", cls)
            result[name] = _merge(_defaults_of(cls), {**shared, **named})
            result[name].name = name
    return result


def _takes_episodes(evaluator: Any) -> bool:
    """Return whether this evaluator class takes its number of episodes and stop value from the env section."""
    names = ("interaction", "battle_interaction")
    takers = tuple(SERIAL_EVALUATOR_REGISTRY.get(name) for name in names if name in SERIAL_EVALUATOR_REGISTRY)
    return isinstance(evaluator, type) and issubclass(evaluator, takers)


def _save(cfg: EasyDict, create: EasyDict | None, save_path: str, renew_dir: bool) -> None:
    with StartFolder(cfg.exp_name) as folder:
        cfg.exp_name = folder.taken = claim_experiment(cfg.exp_name, renew_dir)
        if get_rank() == 0:
            path = os.path.join(cfg.exp_name, save_path)
            has_state = os.path.exists(os.path.join(cfg.exp_name, "git_log.txt"))
            if save_path == "total_config.py" or not has_state:  # an evaluation keeps the git state of the training
                save_project_state(cfg.exp_name)
            save_config_py(cfg, path)
            save_config_formatted(cfg, formatted_path(path), create)


def _complete(create: EasyDict) -> EasyDict:
    """Add the default types of parallel training to `create` and return it."""
    if "env" not in create:
        raise ConfigError("create_config.env is missing; give its type, from which workers create their envs")
    for name, kind in _TYPES.items():
        create.setdefault(name, {"type": kind})
    complete_create_config(create)
    return create


def _main_section(user: EasyDict, create: EasyDict, of_system: list[UnknownKey], is_strict: bool) -> EasyDict:
    names = ("env", "env_manager", "policy")
    known = KnownKeys()
    tree = _new_tree(ConfigClasses(**{name: resolve_class(name, create[name]) for name in names}), create, known)
    policy = tree.policy
    for part, key, registry in (
        ("learn", "learner", "learner"),
        ("collect", "collector", "parallel_collector"),
        ("other", "commander", "commander"),
    ):
        cls = resolve_class(registry, create[key], f"create_config.{key}")
        _add_worker(policy[part], f"policy.{part}.{key}", cls, create[key], known)
    policy.other.replay_buffer.update(create.replay_buffer)
    own = _under(user, "policy", "other", "replay_buffer")
    policy.other.replay_buffer = _buffer_section(policy.other.replay_buffer, None, own, known)
    main = _merge(tree, user)
    unknown = [*_unknown_sinks(user), *known.find_unknown(user), *_unknown_of_create(create, known), *of_system]
    report_unknown(unknown, main, is_strict)
    _count_episodes(main)
    _set_reward_discount(main)
    if "unroll_len" in main.policy:
        main.policy.collect.unroll_len = main.policy.unroll_len
    main = with_arguments(main, partial(saved_form, is_json=True))  # workers get the sections in messages
    main.env, main.policy = map(EasyDict, map(saved_form, (main.env, main.policy)))
    return main


def _set_reward_discount(main: EasyDict) -> None:
    """Set the discount of the return by which rewards are normalized to that of the policy, if it is not given."""
    norm_reward = main.env.get("norm_reward")
    if isinstance(norm_reward, dict) and norm_reward.get("use_norm"):
        discounts = (value_at(main, path) for path in DISCOUNTS)
        norm_reward.setdefault("reward_discount", next((found for found in discounts if found is not None), 0.99))


def _count_episodes(main: EasyDict) -> None:
    """Set the number of episodes of each env in one task, and the evaluator's `n_episode` and `stop_value`."""
    env = main.env
    env_num = env.get("evaluator_env_num", 1)
    for key in ("n_evaluator_episode", "evaluator_env_num"):
        allowed = integer(1)(env.get(key, 1))
        if allowed is not None:
            raise ConfigError(f"env.{key} = {env[key]!r} is not allowed; it must be {allowed}")
    env.setdefault("collector_episode_num", 1)
    env.setdefault("evaluator_episode_num", math.ceil(env.n_evaluator_episode / env_num))
    main.policy.eval.evaluator.update(stop_value=env.stop_value, n_episode=env_num * env.evaluator_episode_num)


def _absolute(path: str, exp_name: str, new_name: str) -> str:
    """Return the absolute form of `path`, with the folder `exp_name` replaced by `new_name`."""
    path, folder = os.path.abspath(path), os.path.abspath(exp_name)
    if path == folder or path.startswith(folder + os.sep):
        path = os.path.abspath(new_name) + path[len(folder) :]
    return path
