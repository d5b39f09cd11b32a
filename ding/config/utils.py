"""The system section of parallel training (hosts, ports and folders of its roles), and a small example config."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from easydict import EasyDict

from ding.config.save import save_config_formatted as save_config_formatted
from ding.config.topics import MAX_SEED
from ding.utils.config_helper import (
    NO_DEFAULT,
    ConfigError,
    Setting,
    Settings,
    boolean,
    check_values,
    instance_of,
    integer,
    one_of,
    value_at,
)
from ding.utils.system_helper import find_free_port
from ding.worker.coordinator.coordinator import Coordinator
from ding.worker.transport.imports import named_imports
from ding.worker.transport.ray.ray_settings import ray_section
from ding.worker.transport.transport import DEFAULT_TRANSPORT, choose_transport, import_transport, transport_name

LOCAL_HOST = "127.0.0.1"
ANY_HOST = "0.0.0.0"
COLLECTOR_PORT, LEARNER_PORT, AGGREGATOR_PORT, COORDINATOR_PORT = 22270, 22271, 22272, 22273

_AUTO = "auto"
SYSTEM_SETTINGS = Settings(
    {
        "coordinator": Setting(NO_DEFAULT, instance_of(Mapping), "Settings of the coordinator."),
        "path_data": Setting(NO_DEFAULT, instance_of(str), "Folder of the samples; in that of the run by default."),
        "path_policy": Setting(NO_DEFAULT, instance_of(str), "Folder of the weights; in that of the run by default."),
        "communication_mode": Setting(NO_DEFAULT, one_of(_AUTO), "Kept for compatibility."),
        "learner_gpu_num": Setting(NO_DEFAULT, integer(0), "Number of GPUs, and of ranks, of a learner."),
        "comm_learner": Setting(NO_DEFAULT, instance_of(Mapping), "Settings of the processes of learners."),
        "comm_collector": Setting(NO_DEFAULT, instance_of(Mapping), "Settings of the processes of collectors."),
        "trust_pickle": Setting(NO_DEFAULT, boolean, "Whether pickles, which can run code, may be read."),
        "dist": Setting(NO_DEFAULT, instance_of(Mapping), "Settings of runs whose roles are started one by one."),
        "start_method": Setting(
            NO_DEFAULT, one_of("fork", "spawn", "forkserver"), "How the processes of workers start."
        ),
        "transport": Setting(NO_DEFAULT, transport_name, "How workers are connected."),
        "ray": Setting(NO_DEFAULT, instance_of(Mapping), "Settings of Ray."),
    }
)
_REQUIRED = ("path_data", "path_policy")

Several = str | int | Sequence[str | int] | None


def set_system_cfg(cfg: Mapping[str, Any]) -> EasyDict:
    """Return the full system section: `coordinator`, and `learner<i>` and `collector<i>` for each worker.

    Hosts and ports default to 'auto'. Each worker has a `seed`, the seed of the run plus its index, and after the
    largest one 0; `task_import_names`, all modules that the main config names; and the `exp_name`.

    Args:
        cfg: the user's system config as `system`, the compiled main config as `main`, and `seed`.

    Raises:
        ConfigError: a value is missing or not allowed.
    """
    main, user_system = cfg["main"], cfg["system"]
    own_modules = import_transport(user_system)
    check_values(user_system, "system_config", SYSTEM_SETTINGS.rules(), required=_REQUIRED)
    paths = {key: user_system[key] for key in _REQUIRED}
    auto = {"host": _AUTO, "port": _AUTO}
    transport = choose_transport(user_system).name
    coordinator = {**Coordinator.default_config(), **auto, "path_data": user_system["path_data"]}
    coordinator.update(copy.deepcopy(user_system.get("coordinator", {})), transport=transport)
    if own_modules:  # each role imports them
        coordinator["import_names"] = own_modules
    system = EasyDict(coordinator=coordinator)
    if "ray" in user_system or transport == "ray":
        system.ray = system.coordinator.ray = EasyDict(ray_section(user_system.get("ray", {})))
    if "start_method" in user_system:
        system.start_method = user_system["start_method"]
    modules = sorted(set(named_imports(main)))
    gpu_num = user_system.get("learner_gpu_num", 1)
    gpus = {"multi_gpu": gpu_num > 1, "gpu_num": gpu_num, "aggregator": False}
    for kind, count in (("learner", _worker_count(main, "learner")), ("collector", _worker_count(main, "collector"))):
        comm_section = {
            **auto,
            **copy.deepcopy(user_system.get(f"comm_{kind}", {"type": DEFAULT_TRANSPORT})),
            **paths,
            **(gpus if kind == "learner" else {}),
            "trust_pickle": user_system.get("trust_pickle", False),
            "task_import_names": modules,
            **({"exp_name": main["exp_name"]} if "exp_name" in main else {}),
        }
        if comm_section.get("type") == DEFAULT_TRANSPORT:  # the config may set only `transport`
            comm_section["type"] = transport
            if own_modules:
                comm_section["import_names"] = own_modules
        for index in range(count):
            seed = (cfg.get("seed", 0) + index) % (MAX_SEED + 1)
            system[f"{kind}{index}"] = EasyDict(copy.deepcopy({**comm_section, "seed": seed}))
    return system


def _worker_count(main: Mapping[str, Any], kind: str) -> int:
    where = f"policy.{'learn' if kind == 'learner' else 'collect'}.{kind}.{kind}_num"
    count = value_at(main, where, 1)
    allowed = integer(1)(count)
    if allowed is not None:
        raise ConfigError(f"{where} = {count!r} is not allowed; it must be {allowed}")
    return int(count)


def workers_of(system: Mapping[str, Any], kind: str) -> list[str]:
    """Return the names of the workers of this kind, in order."""
    return [name for name in system if name.startswith(kind) and name[len(kind) :].isdigit()]


def set_host_port(
    cfg: EasyDict,
    coordinator_host: str | None = None,
    learner_host: Several = None,
    collector_host: Several = None,
    coordinator_port: int | None = None,
    learner_port: Several = None,
    collector_port: Several = None,
) -> EasyDict:
    """Replace each 'auto' in `cfg.system`, in place, and return `cfg`.

    Hosts default to 127.0.0.1 and ports to free ones of this machine, a different one for each role. Free ports are
    not reserved. With port 0, a role chooses a free port when it starts and reports it to the process that started it.
    A single value applies to all workers of a kind; a list has one value for each.

    Raises:
        TypeError: a host or port is neither a value nor a list.
        ConfigError: a list is too short.
    """
    sections = []
    for kind, host, port in (
        ("coordinator", coordinator_host, coordinator_port),
        ("learner", learner_host, learner_port),
        ("collector", collector_host, collector_port),
    ):
        names = ["coordinator"] if kind == "coordinator" else workers_of(cfg.system, kind)
        hosts = each_of(f"{kind}_host", host or LOCAL_HOST, str, len(names))
        for name, own_host, own_port in zip(names, hosts, each_of(f"{kind}_port", port, int, len(names)), strict=False):
            section = cfg.system[name]
            section.host = own_host if section.host == _AUTO else section.host
            section.port = own_port if section.port == _AUTO else section.port
            sections.append(section)
    used_ports = {section.port for section in sections}
    for section in sections:
        while section.port is None:
            port = find_free_port(ANY_HOST)
            section.port = None if port in used_ports else port
            used_ports.add(port)
    return cfg


def each_of(what: str, given: Several, kind: type, count: int) -> Sequence[Any]:
    """Return a value for each of `count` workers, of a list or the same for all."""
    if given is None or isinstance(given, kind):
        return [given] * count
    if not isinstance(given, (list, tuple)):
        raise TypeError(f"{what} = {given!r} is not allowed; it must be {kind.__name__} or a list of {kind.__name__}")
    if len(given) < count:
        raise ConfigError(f"{what} = {given!r} is not allowed; it must have a value for each of the {count} workers")
    return given


def parallel_transform(
    cfg: Mapping[str, Any],
    coordinator_host: str | None = None,
    learner_host: Several = None,
    collector_host: Several = None,
    coordinator_port: int | None = None,
    learner_port: Several = None,
    collector_port: Several = None,
) -> EasyDict:
    """Return a copy of `cfg` with the full system section of a run on this machine; see `set_system_cfg`.

    Hosts, ports and errors are those of `set_host_port`.
    """
    result = EasyDict(copy.deepcopy(dict(cfg)))
    result.system = set_system_cfg(result)
    set_host_port(
        result, coordinator_host, learner_host, collector_host, coordinator_port, learner_port, collector_port
    )
    for kind in ("learner", "collector"):
        workers = {name: result.system[name] for name in workers_of(result.system, kind)}
        addresses = {name: [name, worker.host, worker.port] for name, worker in workers.items()}
        result.system.coordinator[kind] = EasyDict(addresses)
    return result


def parallel_transform_k8s(
    cfg: Mapping[str, Any],
    coordinator_port: int | None = None,
    learner_port: int | None = None,
    collector_port: int | None = None,
) -> EasyDict:
    """Return a copy of `cfg` with the full system section of a run on Kubernetes, where workers get hosts later.

    `system.learner` and `system.collector` are templates of further workers. The default ports are 22270 for
    collectors, 22271 for learners and 22273 for the coordinator.
    """
    result = EasyDict(copy.deepcopy(dict(cfg)))
    system = result.system = set_system_cfg(result)
    system.coordinator.update(host=ANY_HOST, port=coordinator_port or COORDINATOR_PORT, learner={}, collector={})
    for kind, port in (("learner", learner_port or LEARNER_PORT), ("collector", collector_port or COLLECTOR_PORT)):
        names = workers_of(system, kind)
        for name in names:
            system[name].port = port
        system[kind] = copy.deepcopy(system[names[0]])
        system[kind].host = ANY_HOST
    return result


def parallel_transform_slurm(*args: Any, **kwargs: Any) -> EasyDict:
    """Raise an error that says how to run on a slurm cluster, since this is not supported.

    Raises:
        NotImplementedError: Always.
    """
    raise NotImplementedError(
        "platform 'slurm' is not supported; use platform 'local' on one allocated node, or start the roles one by one "
        "with your hosts and ports"
    )


# DQN on CartPole, with the naive commander.
parallel_test_main_config = EasyDict(
    exp_name="parallel_test",
    env={
        "type": "gymnasium",
        "env_id": "CartPole-v1",
        "collector_env_num": 8,
        "collector_episode_num": 2,
        "evaluator_env_num": 5,
        "evaluator_episode_num": 1,
        "stop_value": 195,
    },
    policy={
        "cuda": False,
        "model": {"obs_shape": 4, "action_shape": 2, "encoder_hidden_size_list": [128, 128, 64], "dueling": True},
        "nstep": 3,
        "discount_factor": 0.97,
        "learn": {
            "batch_size": 32,
            "learning_rate": 0.001,
            "learner": {"learner_num": 1, "send_policy_freq": 1},
        },
        "collect": {"n_sample": 16, "collector": {"collector_num": 2, "update_policy_second": 3}},
        "other": {
            "eps": {"type": "exp", "start": 0.95, "end": 0.1, "decay": 100000},
            "replay_buffer": {"replay_buffer_size": 100000, "enable_track_used_data": False},
            "commander": {"collector_task_space": 2, "learner_task_space": 1, "eval_interval": 5},
        },
    },
)
parallel_test_create_config = EasyDict(
    env={"type": "gymnasium"},
    env_manager={"type": "subprocess"},
    policy={"type": "dqn_command"},
    learner={"type": "base"},
    collector={"type": "zergling"},
    commander={"type": "naive"},
    comm_learner={"type": "flask_fs"},
    comm_collector={"type": "flask_fs"},
)
parallel_test_system_config = EasyDict(
    coordinator={},
    path_data=".",
    path_policy=".",
    communication_mode="auto",
    learner_gpu_num=1,
)
