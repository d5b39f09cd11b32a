"""Compilation of configs from class defaults, the create config, whose classes are looked up, and the user's config."""

from __future__ import annotations

import copy
import functools
import math
import operator
import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from easydict import EasyDict

from ding.config.read import (  # noqa: F401 - all are found here, as those of `save`
    Config,
    put,
    read_config,
    read_config_directly,
    read_config_with_system,
    read_config_yaml,
)
from ding.config.save import (  # noqa: F401
    CREATE_SECTIONS,
    claim_experiment,
    formatted_path,
    save_config,
    save_config_formatted,
    save_config_py,
    save_config_yaml,
    save_project_state,
    split_config,
    write_saved,
)
from ding.config.topics import (
    DISCOUNTS,
    MAIN_SETTINGS,
    KnownKeys,
    UnknownKey,
    check_main,
    check_sections,
    check_seed,
    check_tree,
    report_unknown,
    unknown_entries,
)
from ding.config.utils import (
    SYSTEM_SETTINGS,
    Several,
    parallel_transform,
    parallel_transform_k8s,
    parallel_transform_slurm,
)
from ding.utils.config_helper import ConfigError, check_values, instance_of, integer, value_at
from ding.utils.default_helper import deep_merge_dicts
from ding.utils.import_helper import import_module
from ding.utils.metric_sinks import known_sinks
from ding.utils.pytorch_ddp_dist_helper import get_rank
from ding.utils.references import resolved, saved_form, with_arguments
from ding.utils.registry_factory import SERIAL_EVALUATOR_REGISTRY, registries
from ding.worker.collector.interaction_serial_evaluator import InteractionSerialEvaluator
from ding.worker.coordinator.base_serial_commander import BaseSerialCommander
from ding.worker.learner.base_learner import BaseLearner
from ding.worker.transport.transport import import_transport

# Entry of a create config -> (registry, packages whose import registers our classes). Collectors of parallel training
# have a registry of their own.
_SOURCES = {
    "env": ("env", "ding.envs"),
    "env_manager": ("env_manager", "ding.envs"),
    "policy": ("policy", "ding.policy"),
    "collector": ("serial_collector", "ding.worker.collector"),
    "evaluator": ("serial_evaluator", "ding.worker.collector"),
    "replay_buffer": ("buffer", "ding.worker.replay_buffer"),
    "reward_model": ("reward_model", None),
    "world_model": ("world_model", None),
    "learner": ("learner", "ding.worker.learner"),
    "commander": ("commander", "ding.worker.coordinator.one_vs_one_parallel_commander"),
    "parallel_collector": (
        "parallel_collector",
        [f"ding.worker.collector.{name}_parallel_collector" for name in ("zergling", "marine")],
    ),
}
ENTRIES = (*CREATE_SECTIONS, "learner", "commander", "comm_learner", "comm_collector", "league", "dataset")
# Type of the env section if the user creates the envs. Never registered.
GENERATED_ENV_TYPE = "ding_env_wrapper_generated"


# The classes of the serial pipelines that are not looked up by types, by argument of `compile_config`.
USUAL = {"learner": BaseLearner, "evaluator": InteractionSerialEvaluator}


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
    registry, package = _SOURCES[name]
    import_module(package)
    import_module(entry.get("import_names"), f"{where}.import_names")
    try:
        return registries[registry].get(entry["type"])
    except KeyError as e:
        hint = "add the module that registers it to import_names"
        raise KeyError(f"{where}: {e.args[0]}; {hint}") from None


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
    classes = {
        "env": env,
        "env_manager": env_manager,
        "policy": policy,
        "learner": learner,
        "collector": collector,
        "evaluator": evaluator,
        "buffer": buffer,
        "reward_model": reward_model,
        "world_model": world_model,
    }
    compiled = compile_pair(cfg, create_cfg, classes, seed, auto, strict_config)
    if save_cfg:
        save_compiled(compiled.cfg, compiled.create, save_path, renew_dir)
    return compiled.cfg


class Compilation(NamedTuple):
    """The result of compiling configs.

    Attributes:
        cfg: the compiled main config.
        create: the create config with its defaults; None if there is none.
        known: the keys that the classes read.
        system: the system config of a parallel run.
    """

    cfg: EasyDict
    create: Any
    known: KnownKeys
    system: Any = None


# Section of a worker, the name of its class, and its entry in the create config, if that is not merged with others.
_WORKERS = (
    ("policy.learn.learner", "learner", ""),
    ("policy.collect.collector", "collector", ""),
    ("policy.eval.evaluator", "evaluator", "evaluator"),
    ("reward_model", "reward_model", ""),
    ("world_model", "world_model", "world_model"),
)


class _Compiler:
    """Configs in the making: the defaults of classes, under the create config, under the user's config.

    Args:
        cfg, create_cfg: the two configs of a user.

    Attributes:
        user, create: copies of them; `create` is empty if there is none.
        tree: the defaults of classes with the values of the create config.
        known: the keys that the classes read.
    """

    def __init__(self, cfg: Any, create_cfg: Any) -> None:
        self.user = _as_easydict(cfg, "cfg")
        self.create = EasyDict() if create_cfg is None else _as_easydict(create_cfg, "create_cfg")
        self.tree, self.known = EasyDict(), KnownKeys()
        check_sections(self.user)

    def complete_create(self) -> bool:
        """Add default entries to the create config, where None counts as missing; return if the buffer was missing.

        Raises:
            ConfigError: a required entry is missing, or an entry is not a dict.
        """
        create = self.create
        check_values(create, "create_config", dict.fromkeys(ENTRIES, instance_of(Mapping, optional=True)))
        for name in [name for name, entry in create.items() if entry is None]:
            del create[name]
        for name in ("env_manager", "policy"):
            if name not in create:
                raise ConfigError(f"create_config.{name} is missing; the config has {', '.join(create) or 'nothing'}")
        create.setdefault("env", {"type": GENERATED_ENV_TYPE})
        create.setdefault("collector", {"type": value_at(self.user, "policy.collect.collector.type") or "sample"})
        buffer_is_missing = "replay_buffer" not in create
        create.setdefault("replay_buffer", {"type": value_at(self.user, f"{_BUFFER}.type") or "advanced"})
        return buffer_is_missing

    def use_hindsight(self) -> bool:
        """Return whether the configs have the buffer `her`; if so, set what it needs: whole episodes.

        The setting `her` of the main config is replaced by those of the buffer.

        Raises:
            ConfigError: `her` is neither a bool nor a dict.
        """
        user, her = self.user, self.user.pop("her", False)
        if not isinstance(her, bool | Mapping):
            raise ConfigError(f"her = {her!r} is not allowed; it must be True, False or a dict such as {{'k': 4}}")
        main_section, create_entry = value_at(user, _BUFFER) or {}, self.create.get("replay_buffer") or {}
        if her is False and "her" not in (main_section.get("type"), create_entry.get("type")):
            return False
        self.create.replay_buffer = EasyDict(create_entry if create_entry.get("type") == "her" else {}, type="her")
        put(user, _BUFFER, EasyDict({**main_section, **(her if isinstance(her, Mapping) else {})}))
        user.policy.other.replay_buffer.pop("type", None)
        put(user, "policy.collect.traj_len_inf", True)
        return True

    def find_classes(self, found: dict[str, Any]) -> None:
        """Complete the create config, and add the classes that it names to `found`, which have precedence.

        For the evaluator, the type in the create config has precedence, because `found` always has the default one.
        Collector and buffer are looked up later, when the policy's defaults are known, but for the default buffer.
        """
        buffer_is_missing, is_hindsight = self.complete_create(), self.use_hindsight()
        for name in ("env", "env_manager", "policy", "reward_model", "world_model"):
            entry = self.create.get(name)
            if found.get(name) is None and entry and entry.get("type") != GENERATED_ENV_TYPE:
                found[name] = resolve_class(name, entry)
        if found.get("evaluator") is not None and "type" in self.create.get("evaluator", {}):
            found["evaluator"] = resolve_class("evaluator", self.create.evaluator)
        if buffer_is_missing and not is_hindsight:
            found["buffer"] = resolve_class("replay_buffer", self.create.replay_buffer)

    def add_sections(self, classes: Mapping[str, Any]) -> None:
        """Make the sections env and policy from the defaults of their classes and the create config."""
        for name in ("policy", "env"):
            cls = classes.get(name)
            self.tree[name] = EasyDict(deep_merge_dicts(MAIN_SETTINGS.config()[name], _defaults_of(cls)))
            self.tree[name].update(copy.deepcopy(self.create.get(name, {})))
            self.known.add_class(name, cls)
        manager = classes.get("env_manager") or resolve_class("env_manager", {"type": "base"})
        self.add_worker("env.manager", manager, "env_manager")

    def add_worker(self, path: str, cls: Any, entry: str = "") -> None:
        """Complete the section of a worker by its entry in the create config, and by the defaults of its class."""
        *above, key = path.split(".")
        section = functools.reduce(operator.getitem, above, self.tree)
        user_section = {**(section.get(key) or {}), **copy.deepcopy(dict(self.create.get(entry) or {}))}
        section[key] = EasyDict(deep_merge_dicts(_defaults_of(cls), user_section))
        self.known.add_class(path, cls)

    def add_buffers(self, given: Any, has_buffer: bool) -> None:
        """Complete the section of the buffer; with the policy's flag `multi_buffer`, one for each buffer name.

        Args:
            given: a class, or a dict from buffer name to class; None for the types in the section.
            has_buffer: whether the section gets the defaults of a class.
        """
        other = self.tree.policy.other
        section = other.replay_buffer
        section.update(copy.deepcopy(self.create.get("replay_buffer") or {}))
        if not has_buffer:
            self.known.add_class(_BUFFER, None)
            return
        main_section = value_at(self.user, _BUFFER) or {}  # its types only, as it is merged later
        if not section.get(_FLAG, False):
            if main_section.get(_FLAG, False):
                raise ConfigError(
                    f"{_BUFFER}.{_FLAG} = True is not allowed: this policy uses one buffer; leave the key out"
                )
            if isinstance(given, Mapping):
                raise ConfigError(f"buffer = {given!r} is not allowed: this policy uses one buffer; pass one class")
            cls = given or resolve_class("replay_buffer", section, f"{_BUFFER} (or create_config.replay_buffer)")
            self.known.add_class(_BUFFER, cls)
            other.replay_buffer = EasyDict(deep_merge_dicts(_defaults_of(cls), section))
            return
        result = other.replay_buffer = EasyDict({_FLAG: True})
        shared = {key: value for key, value in section.items() if not isinstance(value, Mapping) and key != _FLAG}
        for name, named in section.items():
            if isinstance(named, Mapping):
                types = {**shared, **named, **(main_section.get(name) or {})}
                cls = given.get(name) if isinstance(given, Mapping) else given
                cls = cls or resolve_class("replay_buffer", types, f"{_BUFFER}.{name}")
                self.known.add_class(f"{_BUFFER}.{name}", cls)
                result[name] = EasyDict(deep_merge_dicts(_defaults_of(cls), {**shared, **named}), name=name)

    def merge(self, is_strict: bool, unknown: Sequence[UnknownKey] = ()) -> EasyDict:
        """Return the defaults of classes with the user's values, after a report of keys that nothing reads.

        Args:
            unknown: further keys to report.
        """
        sections = {name: section for name, section in self.tree.items() if section}  # without models of no settings
        compiled = EasyDict(deep_merge_dicts(sections, self.user))
        logger = self.user.get("logger")
        found = unknown_entries(logger, "logger", ("sinks", *known_sinks())) if isinstance(logger, Mapping) else []
        found += [*self.known.find_unknown(self.user), *unknown_entries(self.create, "create_config", ENTRIES)]
        for name, path in CREATE_SECTIONS.items():
            if isinstance(self.create.get(name), Mapping):
                found += self.known.find_unknown(self.create[name], path, f"create_config.{name}")
        report_unknown([*found, *unknown], compiled, is_strict)
        compiled.setdefault("exp_name", "default_experiment")
        if "unroll_len" in compiled.policy:
            compiled.policy.collect.unroll_len = compiled.policy.unroll_len
        norm_reward = compiled.env.get("norm_reward")
        if isinstance(norm_reward, dict) and norm_reward.get("use_norm"):  # by the return with the policy's discount
            discounts = (value_at(compiled, path) for path in DISCOUNTS)
            norm_reward.setdefault("reward_discount", next((found for found in discounts if found is not None), 0.99))
        return compiled


def compile_pair(
    cfg: Mapping[str, Any],
    create_cfg: Mapping[str, Any] | None,
    classes: Mapping[str, Any] = USUAL,
    seed: int = 0,
    auto: bool = True,
    is_strict: bool = False,
) -> Compilation:
    """Compile like `compile_config`, without writing files.

    Args:
        classes: those that are not looked up, by argument of `compile_config`.
    """
    seed, compiler = check_seed(seed), _Compiler(cfg, create_cfg if auto else None)
    create, found, has_create = compiler.create, dict(classes), create_cfg is not None
    if auto:
        if not has_create:
            raise ConfigError("create_cfg = None is not allowed with auto=True; pass the create config")
        compiler.find_classes(found)
    elif found.get("policy") is None:
        raise ConfigError("policy = None is not allowed without auto=True; pass policy=<the policy class>")
    compiler.add_sections(found)
    policy = compiler.tree.policy
    policy.collect.collector.update(copy.deepcopy(create.get("collector") or {}))
    if auto:
        policy.other.commander = BaseSerialCommander.default_config()
        compiler.known.add_class("policy.other.commander", BaseSerialCommander)
    if has_create and found.get("collector") is None:  # looked up now, as the policy's defaults may name it
        where = "policy.collect.collector (or create_config.collector)"
        found["collector"] = resolve_class("collector", policy.collect.collector, where)
    for path, name, entry in _WORKERS:
        compiler.add_worker(path, found.get(name), entry)
    has_buffer = has_create or found.get("buffer") is not None
    compiler.add_buffers(found.get("buffer"), has_buffer)
    compiled = compiler.merge(is_strict)
    compiled.seed = seed
    evaluator = found.get("evaluator")
    names = [name for name in ("interaction", "battle_interaction") if name in SERIAL_EVALUATOR_REGISTRY]
    if isinstance(evaluator, type) and issubclass(evaluator, tuple(map(SERIAL_EVALUATOR_REGISTRY.get, names))):
        # Its number of episodes and its stop value come from the env section.
        compiled.policy.eval.evaluator.stop_value = compiled.env.stop_value
        compiled.policy.eval.evaluator.n_episode = compiled.env.n_evaluator_episode
    check_main(compiled, has_buffer)
    return Compilation(compiled, create if auto else None, compiler.known)


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
    hosts = coordinator_host, learner_host, collector_host
    ports = coordinator_port, learner_port, collector_port
    compiled = compile_triple(cfg, create_cfg, system_cfg, seed, strict_config)
    return place_parallel(compiled, hosts, ports, platform, save_path if save_cfg else None, renew_dir)


def compile_triple(
    cfg: Mapping[str, Any],
    create_cfg: Mapping[str, Any],
    system_cfg: Mapping[str, Any],
    seed: int = 0,
    is_strict: bool = False,
) -> Compilation:
    """Compile the main section of a parallel run like `compile_config_parallel`; the rest is up to `place_parallel`."""
    seed, system = check_seed(seed), _as_easydict(system_cfg, "system_cfg")
    compiler = _Compiler(cfg, create_cfg)
    create = compiler.create
    if "env" not in create:
        raise ConfigError("create_config.env is missing; give its type, from which workers create their envs")
    for name, kind in _TYPES.items():
        create.setdefault(name, {"type": kind})
    compiler.complete_create()
    if compiler.use_hindsight():
        raise ConfigError(
            "the replay buffer 'her' works in serial training only, because the buffers of parallel training hold no "
            "observations; leave out parallel, or her"
        )
    import_transport(create)
    import_transport(system)
    check_values(system, "system_config", SYSTEM_SETTINGS.rules())
    compiler.add_sections({name: resolve_class(name, create[name]) for name in ("env", "env_manager", "policy")})
    for mode, name in (("learn", "learner"), ("collect", "collector"), ("other", "commander")):
        registry = "parallel_collector" if name == "collector" else name
        cls = resolve_class(registry, create[name], f"create_config.{name}")
        compiler.add_worker(f"policy.{mode}.{name}", cls, name)
    compiler.add_buffers(None, has_buffer=True)
    main = compiler.merge(is_strict, unknown_entries(system, "system_config", SYSTEM_SETTINGS))
    env, env_num = main.env, main.env.get("evaluator_env_num", 1)
    for key in ("n_evaluator_episode", "evaluator_env_num"):
        allowed = integer(1)(env.get(key, 1))
        if allowed is not None:
            raise ConfigError(f"env.{key} = {env[key]!r} is not allowed; it must be {allowed}")
    env.setdefault("collector_episode_num", 1)
    env.setdefault("evaluator_episode_num", math.ceil(env.n_evaluator_episode / env_num))
    main.policy.eval.evaluator.update(stop_value=env.stop_value, n_episode=env_num * env.evaluator_episode_num)
    check_main(main, has_buffer=True)
    system.seed = seed
    return Compilation(main, create, compiler.known, system)


def place_parallel(
    compiled: Compilation,
    hosts: Sequence[Any] = (None, None, None),
    ports: Sequence[Any] = (None, None, None),
    platform: str = "local",
    save_path: str | None = "total_config.py",
    renew: bool = True,
) -> EasyDict:
    """Return the config of a parallel run, `main`, `system` and `seed`, from the result of `compile_triple`.

    Args:
        hosts, ports: those of the coordinator, the learners and the collectors; see `set_host_port`.
        platform: see `compile_config_parallel`.
        save_path: name of the file of the config in the folder of the experiment, which is created; None for none.
        renew: whether to append a time stamp to `exp_name` if the folder exists.
    """
    if platform not in PLATFORMS:
        raise KeyError(f"not support platform type: {platform!r}; it must be one of {', '.join(PLATFORMS)}")
    if platform == "slurm":
        return parallel_transform_slurm()
    main, create, system = EasyDict(compiled.cfg), compiled.create, EasyDict(compiled.system)
    seed, exp_name = system.pop("seed"), main.exp_name
    if save_path is not None:
        main.exp_name = claim_experiment(exp_name, renew)
    before, renamed = os.path.abspath(exp_name), os.path.abspath(main.exp_name)
    for key, folder in (("path_data", "data"), ("path_policy", "policy")):
        path = os.path.abspath(system.get(key) or os.path.join(exp_name, folder))
        if path == before or path.startswith(before + os.sep):  # it moves with the folder of the run
            path = renamed + path[len(before) :]
        system[key] = path
    main.policy.other.commander.path_policy = system.path_policy
    for name in ("comm_learner", "comm_collector"):
        system[name] = EasyDict({**create[name], **system.get(name, {})})
    if platform == "ray":
        system.transport = "ray"
    main_form = with_arguments(main, partial(saved_form, is_json=True))  # as workers get it in messages
    main_form.env, main_form.policy = map(EasyDict, map(saved_form, (main_form.env, main_form.policy)))
    cfg = {"main": main_form, "system": system, "seed": seed}
    coordinator_port, learner_port, collector_port = ports
    if platform == "k8s":
        result = parallel_transform_k8s(cfg, coordinator_port, learner_port, collector_port)
    else:
        coordinator_host, learner_host, collector_host = hosts
        result = parallel_transform(
            cfg, coordinator_host, learner_host, collector_host, coordinator_port, learner_port, collector_port
        )
    if save_path is not None and get_rank() == 0:
        save_project_state(main.exp_name)
        save_config_py(result, os.path.join(main.exp_name, save_path))
    return result


_CONFIGS = {"cfg": "main_config", "create_cfg": "create_config", "system_cfg": "system_config"}


def _as_easydict(cfg: Any, what: str) -> EasyDict:
    """Return a copy of the argument `what`, or raise TypeError if it is not a dict.

    Objects that a saved config names are there again, but in the section `env`, which is read where the envs are made.
    """
    if not isinstance(cfg, Mapping):
        raise TypeError(f"{what} must be an EasyDict or a dict, got {type(cfg).__name__}: {cfg!r}")
    cfg = with_arguments(cfg)
    check_tree(cfg, _CONFIGS[what])
    sections = copy.deepcopy(cfg).items()
    return EasyDict({key: section if key == "env" else resolved(section, key) for key, section in sections})


def _defaults_of(cls: Any) -> dict[str, Any]:
    """Return the default config of a class, or {} if it has none."""
    return dict(cls.default_config()) if hasattr(cls, "default_config") else {}


def save_compiled(cfg: EasyDict, create: EasyDict | None, save_path: str, renew_dir: bool) -> None:
    """Create the folder of an experiment, whose `exp_name` may change, and write its configs to it."""
    cfg.exp_name = claim_experiment(cfg.exp_name, renew_dir)
    if get_rank() == 0:
        path = os.path.join(cfg.exp_name, save_path)
        has_state = os.path.exists(os.path.join(cfg.exp_name, "git_log.txt"))
        if save_path == "total_config.py" or not has_state:  # an evaluation keeps the git state of the training
            save_project_state(cfg.exp_name)
        data = saved_form(cfg, is_json=True)
        main, types = split_config(data, create and saved_form(create, is_json=True))
        write_saved(path, {"exp_config": data})
        write_saved(formatted_path(path), {"main_config": main, "create_config": types})
