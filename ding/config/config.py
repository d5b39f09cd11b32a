"""Compiling configurations: class defaults, create config and user config merged into one tree."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Mapping
from typing import Any

from easydict import EasyDict

from ding.config.checks import check_import_names, check_key_names, check_sections, check_seed, check_values
from ding.config.experiment import StartFolder, claim_experiment, save_project_state
from ding.config.read import Config, read_config, read_config_directly, read_config_with_system, read_config_yaml
from ding.config.resolve import Parts, complete_create_config, resolve_class, resolve_parts
from ding.config.save import formatted_path, save_config, save_config_formatted, save_config_py, save_config_yaml
from ding.config.utils import Several, parallel_transform, parallel_transform_k8s, parallel_transform_slurm
from ding.utils.config_helper import ConfigError, integer
from ding.utils.default_helper import deep_merge_dicts
from ding.utils.pytorch_ddp_dist_helper import get_rank
from ding.utils.registry_factory import SERIAL_EVALUATOR_REGISTRY
from ding.worker.collector.interaction_serial_evaluator import InteractionSerialEvaluator
from ding.worker.coordinator.base_serial_commander import BaseSerialCommander
from ding.worker.learner.base_learner import BaseLearner

__all__ = [
    "Config",
    "compile_config",
    "compile_config_parallel",
    "read_config",
    "read_config_directly",
    "read_config_with_system",
    "read_config_yaml",
    "save_config",
    "save_config_py",
    "save_config_yaml",
    "save_project_state",
]

PLATFORMS = ("local", "slurm", "k8s", "ray")

# Types that the create config of a parallel training may leave out.
_TYPES = {
    "learner": "base",
    "collector": "zergling",
    "commander": "solo",
    "comm_learner": "flask_fs",
    "comm_collector": "flask_fs",
}

_POLICY_TEMPLATE: dict[str, Any] = {
    "model": {},
    "learn": {"learner": {}},
    "collect": {"collector": {}},
    "eval": {"evaluator": {}},
    "other": {"replay_buffer": {}},
}
_ENV_TEMPLATE: dict[str, Any] = {"manager": {}, "stop_value": int(1e10), "n_evaluator_episode": 4}
_FLAG = "multi_buffer"


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
) -> EasyDict:
    """The whole configuration of an experiment: class defaults, under the create config, under the user's `cfg`.

    A value in `cfg` always wins, with three exceptions: `seed` is the argument; the evaluator's `stop_value` and
    `n_episode` are `env.stop_value` and `env.n_evaluator_episode`; a taken `exp_name` is renewed. Neither `cfg` nor
    `create_cfg` is changed.

    Args:
        env_manager: the class, as all the next ones; with `auto`, the create config names what is None here.
        buffer: a class, or a dict from buffer name to class for policies with several buffers.
        auto: look classes up by the types in `create_cfg`.
        save_cfg: create the folder `exp_name` and write there the tree (`save_path`), the runnable pair
            (`formatted_<save_path>`) and the git state.
        renew_dir: append a time stamp to `exp_name` where that folder exists, rather than use it.

    Raises:
        TypeError: `cfg` or `create_cfg` is not a dict.
        ConfigError: a part of the config that is needed is missing or contradicts the policy; a key is misspelt or in
            the wrong section; or a value is not allowed.
        KeyError: a type is not registered.
        OSError: the folder cannot be created or written to.
    """
    seed = check_seed(seed)
    user = _as_easydict(cfg, "cfg")
    create = None if create_cfg is None else _as_easydict(create_cfg, "create_cfg")
    check_sections(user)
    check_import_names(user, "main_config")
    parts = Parts(env, env_manager, policy, learner, collector, evaluator, buffer, reward_model, world_model)
    if auto:
        if create is None:
            raise ConfigError("auto=True needs create_cfg, the types of what the config is made for")
        parts = resolve_parts(parts, create, complete_create_config(create))
    elif policy is None:
        raise ConfigError("without auto=True, compile_config needs policy=<the policy class>")
    types = create if auto and create is not None else EasyDict()
    tree = _class_defaults(parts, types, auto, create)
    has_buffer = _add_workers(tree.policy, parts, user, has_types=create is not None)
    compiled = _merge(tree, user)
    check_key_names(user, tree, compiled, parts.policy, parts.env)
    if "unroll_len" in compiled.policy:
        compiled.policy.collect.unroll_len = compiled.policy.unroll_len
    compiled.seed = seed
    if _takes_episodes(parts.evaluator):
        compiled.policy.eval.evaluator.stop_value = compiled.env.stop_value
        compiled.policy.eval.evaluator.n_episode = compiled.env.n_evaluator_episode
    if "exp_name" not in compiled:
        compiled.exp_name = "default_experiment"
    check_values(compiled, has_buffer)
    if save_cfg:
        _save(compiled, create if auto else None, save_path, renew_dir)
    return compiled


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
) -> EasyDict:
    """The configuration of all roles: `main` (as of `compile_config`), `system` (see `set_system_cfg`) and `seed`.

    A value in `cfg` wins over those of the create config and of the classes. None of the arguments is changed. The
    policy's type must be that of a command mode policy, such as `dqn_command`. What the create config may leave out:
    `learner` (base), `collector` (zergling), `commander` (solo), `comm_learner` and `comm_collector` (flask_fs),
    `replay_buffer` (advanced). `env.evaluator_episode_num` follows from `env.n_evaluator_episode` where it is missing;
    `env.collector_episode_num` is 1.

    Args:
        system_cfg: `coordinator`, `path_data`, `path_policy`, `communication_mode` ('auto'), `learner_gpu_num`. The two
            folders are `data` and `policy` in that of the experiment where they are missing; they become absolute, and
            move along when the experiment gets another name.
        save_cfg: create the folder `exp_name` and write there the tree (`save_path`) and the git state.
        platform: 'local', 'k8s', or 'ray', which is `transport = 'ray'` in the system config.
        coordinator_host: all hosts and ports as for `set_host_port`.
        renew_dir: append a time stamp to `exp_name` where that folder exists, rather than use it.

    Raises:
        TypeError: a config is not a dict.
        ConfigError: a part of the config that is needed is missing, or a value is not allowed.
        KeyError: a type is not registered, or there is no such platform.
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
    main = _main_section(user, create)
    exp_name = main.setdefault("exp_name", "default_experiment")
    check_values(main, has_buffer=True)
    with StartFolder(exp_name) as started:
        if save_cfg:
            main.exp_name = started.taken = claim_experiment(exp_name, renew_dir)
        for key, folder in (("path_data", "data"), ("path_policy", "policy")):
            system[key] = _place(system.get(key) or os.path.join(exp_name, folder), exp_name, main.exp_name)
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


# What both share.


def _as_easydict(cfg: Any, what: str) -> EasyDict:
    """A copy of the argument called `what`; a TypeError where it is no dict."""
    if not isinstance(cfg, Mapping):
        raise TypeError(f"{what} must be an EasyDict or a dict, got {type(cfg).__name__}: {cfg!r}")
    return EasyDict(copy.deepcopy(cfg))


def _merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> EasyDict:
    """`base` with the values of `over` in it, at all depths."""
    return EasyDict(deep_merge_dicts(dict(base), dict(over)))


def _defaults_of(cls: Any) -> Mapping[str, Any]:
    """The default config of a class; {} where it has none."""
    return cls.default_config() if hasattr(cls, "default_config") else {}


def _under(tree: Mapping[str, Any], *path: str) -> Any:
    """The value under `path`, {} where the path ends early."""
    for key in path:
        tree = tree.get(key) or {}
    return tree


def _class_defaults(parts: Parts, types: EasyDict, auto: bool, create: EasyDict | None) -> EasyDict:
    """The sections env, policy, reward_model and world_model as the classes and the create config make them."""
    tree = EasyDict(env=_env_section(parts, types), policy=_merge(_POLICY_TEMPLATE, _defaults_of(parts.policy)))
    policy = tree.policy
    policy.update(copy.deepcopy(types.get("policy", {})))
    for name, section in (
        ("collector", policy.collect.collector),
        ("evaluator", policy.eval.evaluator),
        ("replay_buffer", policy.other.replay_buffer),
    ):
        section.update(copy.deepcopy(types.get(name) or {}))
    if auto:
        policy.other.commander = BaseSerialCommander.default_config()
    for name, cls, entry in (
        ("reward_model", parts.reward_model, {}),
        ("world_model", parts.world_model, _under(create or {}, "world_model")),
    ):
        section = EasyDict(_defaults_of(cls))
        if cls is not None:
            section.update(copy.deepcopy(entry))
        if section:
            tree[name] = section
    return tree


def _env_section(parts: Parts, types: EasyDict) -> EasyDict:
    """The env section as the classes of env and manager, and the create config, make it."""
    section = _merge(_ENV_TEMPLATE, _defaults_of(parts.env))
    section.update(copy.deepcopy(types.get("env", {})))
    manager = parts.env_manager or resolve_class("env_manager", {"type": "base"})
    section.manager = _merge(_defaults_of(manager), section.manager)
    section.manager.update(copy.deepcopy(types.get("env_manager", {})))
    return section


def _add_workers(policy: EasyDict, parts: Parts, user: EasyDict, has_types: bool) -> bool:
    """Put the defaults of learner, collector, evaluator and buffers under what the policy section says of them.

    Returns:
        whether the section of the buffer has the defaults of a buffer's class.
    """
    policy.learn.learner = _merge(_defaults_of(parts.learner), policy.learn.learner)
    if has_types or parts.collector is not None:
        section = policy.collect.collector
        cls = parts.collector or resolve_class(
            "collector", section, "policy.collect.collector (or create_config.collector)"
        )
        policy.collect.collector = _merge(_defaults_of(cls), section)
    if parts.evaluator is not None:
        policy.eval.evaluator = _merge(_defaults_of(parts.evaluator), policy.eval.evaluator)
    has_buffer = has_types or parts.buffer is not None
    if has_buffer:
        own = _under(user, "policy", "other", "replay_buffer")
        policy.other.replay_buffer = _buffer_section(policy.other.replay_buffer, parts.buffer, own)
    return has_buffer


def _buffer_section(section: EasyDict, given: Any, own: Mapping[str, Any]) -> EasyDict:
    """The buffer section; with the policy's flag `multi_buffer`, one sub-section for each of its buffer names.

    Args:
        own: the user's section, which names types; it is not merged in.
    """
    where = "policy.other.replay_buffer"
    if not section.get(_FLAG, False):
        if own.get(_FLAG, False):
            raise ConfigError(f"{where}.{_FLAG} is True, but this policy uses one buffer; leave the key out")
        if isinstance(given, Mapping):
            raise ConfigError(f"buffer={given!r} names several buffers, but this policy uses one; pass one class")
        cls = given or resolve_class("replay_buffer", section, f"{where} (or create_config.replay_buffer)")
        return _merge(_defaults_of(cls), section)
    result = EasyDict({_FLAG: True})
    shared = {key: value for key, value in section.items() if not isinstance(value, Mapping) and key != _FLAG}
    for name, named in section.items():
        if isinstance(named, Mapping):
            types = {**shared, **named, **(own.get(name) or {})}
            cls = given.get(name) if isinstance(given, Mapping) else given
            cls = cls or resolve_class("replay_buffer", types, f"{where}.{name}")
            result[name] = _merge(_defaults_of(cls), {**shared, **named})
            result[name].name = name
    return result


def _takes_episodes(evaluator: Any) -> bool:
    """Whether this evaluator class gets its episode count and stop value from the env section."""
    names = ("interaction", "battle_interaction")
    takers = tuple(SERIAL_EVALUATOR_REGISTRY.get(name) for name in names if name in SERIAL_EVALUATOR_REGISTRY)
    return isinstance(evaluator, type) and issubclass(evaluator, takers)


def _save(cfg: EasyDict, create: EasyDict | None, save_path: str, renew_dir: bool) -> None:
    with StartFolder(cfg.exp_name) as folder:
        cfg.exp_name = folder.taken = claim_experiment(cfg.exp_name, renew_dir)
        if get_rank() == 0:
            save_project_state(cfg.exp_name)
            path = os.path.join(cfg.exp_name, save_path)
            save_config_py(cfg, path)
            save_config_formatted(cfg, formatted_path(path), create)


# Parallel training.


def _complete(create: EasyDict) -> EasyDict:
    """Fill in the entries that may be left out."""
    if "env" not in create:
        raise ConfigError("create_config lacks the entry 'env': workers make their envs themselves, by its type")
    for name, kind in _TYPES.items():
        create.setdefault(name, {"type": kind})
    complete_create_config(create)
    return create


def _main_section(user: EasyDict, create: EasyDict) -> EasyDict:
    env_cls, manager_cls = resolve_class("env", create.env), resolve_class("env_manager", create.env_manager)
    env = _env_section(Parts(env=env_cls, env_manager=manager_cls), create)
    policy_cls = resolve_class("policy", create.policy)
    policy = _merge(_POLICY_TEMPLATE, _defaults_of(policy_cls))
    policy.update(create.policy)
    for section, key, name, registry in (
        (policy.learn, "learner", "learner", "learner"),
        (policy.collect, "collector", "collector", "parallel_collector"),
        (policy.other, "commander", "commander", "commander"),
    ):
        cls = resolve_class(registry, create[name], f"create_config.{name}")
        section[key] = _merge(_defaults_of(cls), section.get(key) or {})
        section[key].update(create[name])
    policy.other.replay_buffer.update(create.replay_buffer)
    own = _under(user, "policy", "other", "replay_buffer")
    policy.other.replay_buffer = _buffer_section(policy.other.replay_buffer, None, own)
    defaults = {"env": env, "policy": policy}
    main = _merge(defaults, user)
    check_key_names(user, defaults, main, policy_cls, env_cls)
    _count_episodes(main)
    if "unroll_len" in main.policy:
        main.policy.collect.unroll_len = main.policy.unroll_len
    return main


def _count_episodes(main: EasyDict) -> None:
    """Say how many episodes each env plays in one task, and tell the evaluator's section of it and of the goal."""
    env = main.env
    env_num = env.get("evaluator_env_num", 1)
    for key in ("n_evaluator_episode", "evaluator_env_num"):
        allowed = integer(1)(env.get(key, 1))
        if allowed is not None:
            raise ConfigError(f"env.{key} = {env[key]!r} is not allowed; it must be {allowed}")
    env.setdefault("collector_episode_num", 1)
    env.setdefault("evaluator_episode_num", math.ceil(env.n_evaluator_episode / env_num))
    main.policy.eval.evaluator.update(stop_value=env.stop_value, n_episode=env_num * env.evaluator_episode_num)


def _place(path: str, exp_name: str, new_name: str) -> str:
    """The absolute form of `path`, which moves along with the experiment if it lies in its folder."""
    path, folder = os.path.abspath(path), os.path.abspath(exp_name)
    if path == folder or path.startswith(folder + os.sep):
        path = os.path.abspath(new_name) + path[len(folder) :]
    return path
