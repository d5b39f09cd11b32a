"""`compile_config_parallel`: the whole configuration of a parallel training."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any

from easydict import EasyDict

from ding.config.checks import check_import_names, check_key_names, check_seed, check_values
from ding.config.compile import POLICY_TEMPLATE, as_easydict, buffer_section, defaults_of, env_section, merge, under
from ding.config.experiment import claim_experiment, save_project_state
from ding.config.platforms import Several, parallel_transform, parallel_transform_k8s, parallel_transform_slurm
from ding.config.resolve import Parts, complete_create_config, resolve_class
from ding.config.save import save_config_py
from ding.utils.config_helper import ConfigError, integer
from ding.utils.pytorch_ddp_dist_helper import get_rank

PLATFORMS = ("local", "slurm", "k8s")

_TYPES = {
    "learner": "base",
    "collector": "zergling",
    "commander": "solo",
    "comm_learner": "flask_fs",
    "comm_collector": "flask_fs",
}


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
        platform: 'local' or 'k8s'.
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
    check_seed(seed)
    user, system = as_easydict(cfg, "cfg"), as_easydict(system_cfg, "system_cfg")
    check_import_names(user, "main_config")
    create = _complete(as_easydict(create_cfg, "create_cfg"))
    main = _main_section(user, create)
    exp_name = main.setdefault("exp_name", "default_experiment")
    check_values(main, has_buffer=True)
    if save_cfg:
        main.exp_name = claim_experiment(exp_name, renew_dir)
    for key, folder in (("path_data", "data"), ("path_policy", "policy")):
        system[key] = _place(system.get(key) or os.path.join(exp_name, folder), exp_name, main.exp_name)
    main.policy.other.commander.update(path_policy=system.path_policy, transport=_transport(system))
    for name in ("comm_learner", "comm_collector"):
        system[name] = EasyDict({**create[name], **system.get(name, {})})
    whole = {"main": main, "system": system, "seed": seed}
    if platform == "k8s":
        result = parallel_transform_k8s(whole, coordinator_port, learner_port, collector_port)  # type: ignore[arg-type]
    else:
        hosts = coordinator_host, learner_host, collector_host
        result = parallel_transform(whole, *hosts, coordinator_port, learner_port, collector_port)
    if save_cfg and get_rank() == 0:
        save_project_state(main.exp_name)
        save_config_py(result, os.path.join(main.exp_name, save_path))
    return result


def _transport(system: Mapping[str, Any]) -> str:
    transport: str = (system.get("coordinator") or {}).get("transport", "http")
    return transport


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
    env = env_section(Parts(env=env_cls, env_manager=manager_cls), create)
    policy_cls = resolve_class("policy", create.policy)
    policy = merge(POLICY_TEMPLATE, defaults_of(policy_cls))
    policy.update(create.policy)
    for section, key, name, registry in (
        (policy.learn, "learner", "learner", "learner"),
        (policy.collect, "collector", "collector", "parallel_collector"),
        (policy.other, "commander", "commander", "commander"),
    ):
        cls = resolve_class(registry, create[name], f"create_config.{name}")
        section[key] = merge(defaults_of(cls), section.get(key) or {})
        section[key].update(create[name])
    policy.other.replay_buffer.update(create.replay_buffer)
    own = under(user, "policy", "other", "replay_buffer")
    policy.other.replay_buffer = buffer_section(policy.other.replay_buffer, None, own)
    defaults = {"env": env, "policy": policy}
    main = merge(defaults, user)
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
