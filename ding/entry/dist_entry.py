"""The roles of a parallel training started separately: on machines that share a folder, and on Kubernetes."""

from __future__ import annotations

import json
import logging
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from easydict import EasyDict

from ding.config.save import save_config_py, save_packed_config
from ding.config.utils import AGGREGATOR_PORT, ANY_HOST, Several
from ding.entry.checks import UNLIMITED, set_limits
from ding.entry.dist_config import (
    DistCoordinator,
    DistWorker,
    check_dist,
    check_shared_folders,
    give_ports,
    port_from,
    read_dist_config,
    section_of,
    seed_at,
    worker_class,
    write_mark,
)
from ding.entry.experiment import Experiment, read_configs
from ding.entry.worker_process import THREADS, be_worker, quiet_flask
from ding.torch_utils.checkpoint_helper import guard_training
from ding.utils.child_helper import Commands
from ding.utils.config_helper import value_at
from ding.utils.default_helper import set_pkg_seed

_KINDS = ("collector", "learner")
_URL_VARIABLE = "KUBERNETES_SERVER_URL"
_API = "v1alpha1"
_TIMEOUT_S = 60.0


def dist_add_replicas(
    replicas_type: str,
    kubeconfig: str | None,
    replicas: int,
    coordinator_name: str,
    namespace: str,
    cpus: int = 0,
    gpus: int = 0,
    memory: str | None = None,
) -> str:
    """Have the operator start further workers of a job.

    The request is sent with `kubectl` and, in the coordinator's pod, `curl`; no shell is involved.

    Args:
        replicas_type: 'collector' or 'learner'.
        kubeconfig: path of the config file of `kubectl`; None for its default.
        replicas: number of workers.
        coordinator_name: the pod of the coordinator.
        namespace: the namespace of the job.
        cpus, gpus, memory: resources of each worker; 0 and None leave them to the operator.

    Returns:
        The message of the operator.

    Raises:
        AssertionError: the pod or the namespace is missing, or the type is unknown.
        ValueError: a value is not allowed.
        RuntimeError: `kubectl`, `curl` or the operator has failed; the error has its message.
    """
    _check(replicas_type, coordinator_name, namespace)
    _at_least("replicas", replicas, 1)
    needs = {"cpus": cpus, "gpus": gpus, "memory": memory}
    for name in ("cpus", "gpus"):
        _at_least(name, needs[name], 0)
    request = {"replicas": replicas, **{name: need for name, need in needs.items() if need}}
    return _ask("POST", "replicas", {f"{replicas_type}s": request}, kubeconfig, coordinator_name, namespace)


def dist_delete_replicas(
    replicas_type: str, kubeconfig: str | None, replicas: int, coordinator_name: str, namespace: str
) -> str:
    """Have the operator end workers of a job; see `dist_add_replicas`."""
    _check(replicas_type, coordinator_name, namespace)
    _at_least("replicas", replicas, 1)
    request = {f"{replicas_type}s": {"replicas": replicas}}
    return _ask("DELETE", "replicas", request, kubeconfig, coordinator_name, namespace)


def dist_restart_replicas(
    replicas_type: str, kubeconfig: str | None, coordinator_name: str, namespace: str, restart_pod_name: str
) -> str:
    """Have the operator restart workers of a job; see `dist_add_replicas`.

    Args:
        restart_pod_name: the pods of the workers, separated by commas.
    """
    _check(replicas_type, coordinator_name, namespace)
    if not restart_pod_name:
        raise AssertionError("a restart needs the name of the pod (--restart-pod-name)")
    pods = [name.strip() for name in restart_pod_name.split(",")]
    return _ask("POST", "replicas/failed", {f"{replicas_type}s": pods}, kubeconfig, coordinator_name, namespace)


def _check(replicas_type: str, coordinator_name: str, namespace: str) -> None:
    if replicas_type not in _KINDS:
        raise AssertionError(f"replicas of the type {replicas_type!r} are not allowed; it must be one of {_KINDS}")
    if not coordinator_name or not namespace:
        raise AssertionError(
            "the name of the coordinator's pod (--coordinator-name) and the namespace (--namespace) must be given; got "
            f"{coordinator_name!r} and {namespace!r}"
        )


def _at_least(name: str, value: Any, least: int) -> None:
    if not isinstance(value, int) or value < least:
        raise ValueError(f"{name} = {value!r} is not allowed; it must be an integer of at least {least}")


def _ask(
    method: str, path: str, own: Mapping[str, Any], kubeconfig: str | None, coordinator_name: str, namespace: str
) -> str:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        raise RuntimeError("kubectl, which sends the request, is not installed or not on the PATH")
    in_pod = [kubectl, *([f"--kubeconfig={kubeconfig}"] if kubeconfig else []), "exec"]
    in_pod += [f"--namespace={namespace}", f"pod/{coordinator_name}", "--"]
    address = _run([*in_pod, "printenv", _URL_VARIABLE]).strip()
    parts = urlsplit(address if "://" in address else f"http://{address}")
    if not parts.hostname or parts.username is not None:
        raise RuntimeError(f"{_URL_VARIABLE} in the pod {coordinator_name} is {address!r}, which is not an address")
    body = json.dumps({"namespace": namespace, "coordinator": coordinator_name, **own})
    url = f"http://{parts.netloc}/{_API}/{path}"
    reply = _run(
        [*in_pod, "curl", "--silent", "--show-error", "--max-time", "30", "--request", method]
        + ["--header", "Content-Type: application/json", "--data-raw", body, url]
    )
    return _message(reply, url)


def _run(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"no answer within {_TIMEOUT_S:g} s: {list(command)}") from None
    if done.returncode:
        raise RuntimeError(f"exit code {done.returncode} of {list(command)}: {done.stderr.strip()}")
    return done.stdout


def _message(reply: str, url: str) -> str:
    try:
        content = json.loads(reply)
        is_done, message = bool(content["success"]), str(content.get("message") or "")
    except (ValueError, KeyError, TypeError, AttributeError):
        raise RuntimeError(f"the operator at {url} sent an unknown answer: {reply[:200]!r}") from None
    if not is_done:
        raise RuntimeError(f"the operator at {url} refuses: {message}")
    return message


# How long a rank may take to end on request, in which it may save a checkpoint.
_END_S = 20.0
# Variables that would override RANK and WORLD_SIZE.
_OTHER_PLACES = ("SLURM_LOCALID", "SLURM_NTASKS")


def spawn_ranks(options: Sequence[str], command: Sequence[str] = (sys.executable, "-m", "ding.entry.cli")) -> None:
    """Run `command` with `options` for each rank of this machine, and wait until all ranks have ended.

    The failure of a rank ends the others, and so does a signal that ends this process. If this process is killed, the
    ranks receive SIGTERM, on systems with a parent death signal.

    Raises:
        RuntimeError: a rank has failed.
        ValueError: an environment variable is not a number.
    """
    count, first = int(os.environ.get("LOCAL_WORLD_SIZE", 1)), int(os.environ.get("START_RANK", 0))
    world_size = int(os.environ.get("WORLD_SIZE", first + count))
    environment = {name: value for name, value in os.environ.items() if name not in _OTHER_PLACES}
    with guard_training(None), Commands(_END_S) as ranks:
        for local_rank in range(count):
            rank = first + local_rank
            places = {"RANK": rank, "LOCAL_RANK": local_rank, "WORLD_SIZE": world_size}
            rank_environment = {**environment, **{name: str(value) for name, value in places.items()}}
            ranks.start(rank, [*command, *options], env=rank_environment)
        while ranks:
            rank, status = ranks.wait()
            if status:
                how = f"exit code {status}" if status > 0 else f"signal {-status}"
                raise RuntimeError(f"rank {rank} has ended with {how}; see its output above")


def dist_prepare_config(
    filename: str,
    seed: int,
    platform: str,
    coordinator_host: str | None = None,
    learner_host: Several = None,
    collector_host: Several = None,
    coordinator_port: int | None = None,
    learner_port: Several = None,
    collector_port: Several = None,
    *,
    exp_name: str | None = None,
    max_train_iter: int = UNLIMITED,
    max_env_step: int = UNLIMITED,
) -> str:
    """Compile a config file for roles that are started separately, and return the path of the result.

    The file has `main_config`, `create_config` and `system_config`. The result is written to `<filename>.pkl`, which is
    not a pickle.

    Call this in the folder that all machines share: the folders for samples and weights lie in it unless `path_data`
    and `path_policy` of `system_config` are set, and every machine must have them at the same path. On the platform
    'local' every role checks that. `system_config.dist` sets how many seconds a worker waits for its first coordinator
    (`coordinator_wait_s`, 3600), and for another one after its loss (`coordinator_lost_s`, 60).

    Args:
        seed: seed of the run, from which each worker's seed is derived.
        platform: 'local' (machines that reach each other at the given hosts) or 'k8s' (see `parallel_transform_k8s`).
        coordinator_host: address or name at which the coordinator listens and others reach it; None for 127.0.0.1.
        learner_host, collector_host: the same for the workers: one for all of a kind, or a list with one for each.
        coordinator_port: port of the coordinator.
        learner_port, collector_port: one port for all workers of a kind, where further workers on the same host get the
            next ports, or a list. The default ports begin with 22270.
        exp_name: a name that replaces the one in the config.
        max_train_iter, max_env_step: the budget, see `parallel_pipeline`.

    Raises:
        ConfigError: a value is not allowed, or two roles have the same port.
        TypeError: the config contains a value that needs pickle, such as a function.
        NotImplementedError: the platform is 'slurm'.
        KeyError: the platform is unknown.
    """
    set_pkg_seed(seed, use_cuda=False)
    main, create, system = read_configs(filename, 3)
    if exp_name is not None:
        main["exp_name"] = exp_name
    dist = check_dist(system.pop("dist", {}))
    set_limits(main, system, max_train_iter, max_env_step)
    system.setdefault("coordinator", {})
    # A restarted coordinator resumes the run; its workers wait for it meanwhile.
    system["coordinator"] = {"state_interval_s": 10, "resume": True, **system["coordinator"]}
    renew = not value_at(main, "policy.learn.resume_training")
    # On machines, `give_ports` assigns the ports.
    ports = (coordinator_port, learner_port, collector_port) if platform == "k8s" else (0, 0, 0)
    hosts = coordinator_host, learner_host, collector_host
    experiment = Experiment.parallel((main, create, system), seed)
    cfg = experiment.place(hosts=hosts, ports=ports, platform=platform, renew=renew)
    cfg.system.dist = dist
    if platform == "local":
        if coordinator_host is not None:
            cfg.system.coordinator.host = coordinator_host
        give_ports(cfg.system, coordinator_port, learner_port, collector_port)
        dist.mark = write_mark(cfg.system.learner0)
    save_config_py(cfg, os.path.join(cfg.main.exp_name, "total_config.py"))
    path = f"{filename}.pkl"
    save_packed_config(cfg, path)
    return path


def read_coordinator_config(
    filename: str, seed: int | None = None, coordinator_port: int | None = None, disable_flask_log: bool = True
) -> EasyDict:
    """Return the compiled config for a coordinator in this process; see `dist_launch_coordinator`."""
    if disable_flask_log:
        quiet_flask()
    cfg = read_dist_config(filename)
    coordinator = cfg.system.coordinator
    coordinator.port = port_from(coordinator_port, "COORDINATOR_PORT", coordinator.port)
    check_shared_folders(cfg, coordinator)
    if seed is not None:
        cfg.seed = seed
    return cfg


def dist_launch_coordinator(
    filename: str,
    seed: int | None = None,
    coordinator_port: int | None = None,
    disable_flask_log: bool = True,
    enable_total_log: bool = False,
) -> DistCoordinator:
    """Start the coordinator in threads of this process; its workers may start before or after it.

    Call `wait` on the result, which returns when the run is over. The command `ding -m dist -M coordinator` also writes
    `eval.jsonl` and `result.pkl`, and shows the progress.

    Args:
        filename: the file that `dist_prepare_config` has written.
        seed: seed of the package; None for the seed of the config.
        coordinator_port: the port to listen at; None for the environment variable `COORDINATOR_PORT` if it is a number,
            else for the port of the config.
        disable_flask_log: whether Flask servers of user code log errors only; the servers of ding log no requests.
        enable_total_log: whether the coordinator writes its log.

    Raises:
        ConnectionError: workers could not be reached within two minutes; the message names them.
        ConfigError: the file is invalid, or the shared folders are missing.
        PermissionError: the coordinator would accept connections from other machines without a token.
        OSError: the coordinator cannot listen at the address.
    """
    cfg = read_coordinator_config(filename, seed, coordinator_port, disable_flask_log)
    logging.getLogger("coordinator_logger").disabled = not enable_total_log
    set_pkg_seed(cfg.seed, use_cuda=False)
    return DistCoordinator(cfg)


def dist_launch_learner(
    filename: str,
    seed: int | None = None,
    learner_port: int | None = None,
    name: str | None = None,
    disable_flask_log: bool = True,
) -> DistWorker:
    """Start a learner in threads of this process.

    Call `wait` on the result, which returns when the coordinator is lost. With several ranks, call it in each process,
    with `RANK` and `WORLD_SIZE` in the environment, or use `dist_launch_spawn_learner`.

    Args:
        filename: the file that `dist_prepare_config` has written.
        seed: seed of the package; None for the seed of the config.
        learner_port: the port to listen at, to which a rank adds its number; None for the environment variable
            `LEARNER_PORT` if it is a number, else for the port of the config. The coordinator connects to the address
            in the config.
        name: name of the learner in the config; None for `learner`, or the only one.
        disable_flask_log: whether Flask servers of user code log errors only; the servers of ding log no requests.

    Raises:
        ConfigError: there is no such learner, or the shared folders are missing.
        PermissionError: the learner would accept connections from other machines without a token.
        OSError: the learner cannot listen at the address.
    """
    return _launch("learner", filename, seed, learner_port, name, disable_flask_log)


def dist_launch_collector(
    filename: str,
    seed: int | None = None,
    collector_port: int | None = None,
    name: str | None = None,
    disable_flask_log: bool = True,
) -> DistWorker:
    """Start a collector in threads of this process; see `dist_launch_learner`.

    Collectors with the same seed, or with the shared section on Kubernetes, derive different seeds from their names, or
    from their hosts and ports.
    """
    return _launch("collector", filename, seed, collector_port, name, disable_flask_log)


def _launch(
    kind: str, filename: str, seed: int | None, port: int | None, name: str | None, disable_flask_log: bool
) -> DistWorker:
    if disable_flask_log:
        quiet_flask()
    cfg = read_dist_config(filename)
    name, section = section_of(cfg, kind, name)
    section.port = port_from(port, f"{kind.upper()}_PORT", section.port)
    check_shared_folders(cfg, section)
    cls = worker_class(kind, section)
    if kind == "collector" and (seed is not None or name == kind):  # others may have the same one
        place = f"{socket.gethostname()}:{section.port}" if name == kind else name
        section.seed = seed = seed_at(section.get("seed", 0) if seed is None else seed, place)
    be_worker(section, seed, THREADS[kind])
    return DistWorker(name, cls, section, cfg.system.dist)


def dist_launch_learner_aggregator(
    filename: str | None = None,
    seed: int | None = None,
    aggregator_host: str | None = None,
    aggregator_port: int | None = None,
    name: str | None = None,
    disable_flask_log: bool = True,
) -> DistWorker:
    """Start an aggregator in threads of this process, which presents several learners as one to their coordinator.

    Call `wait` on the result, which returns when the coordinator is lost.

    Args:
        filename: the file that `dist_prepare_config` has written; None for learners listed by an operator, which then
            connect at the next port.
        seed: seed of the package.
        aggregator_host: address for tasks; None for that of the config, or without a file for all addresses.
        aggregator_port: port for tasks; None for the environment variable `AGGREGATOR_PORT` if it is a number, else for
            the port of the config, or without a file for 22272.
        name: name of the aggregator in the config; None for `learner_aggregator`, or the only one.
        disable_flask_log: whether Flask servers of user code log errors only; the servers of ding log no requests.

    Raises:
        ConfigError: there is no such aggregator.
        ConnectionError: its learners could not be reached.
        PermissionError: the aggregator would accept connections from other machines without a token.
        OSError: the aggregator cannot listen at an address.
    """
    from ding.worker.adapter.learner_aggregator import LearnerAggregator

    if disable_flask_log:
        quiet_flask()
    set_pkg_seed(seed or 0, use_cuda=False)
    port = partial(port_from, aggregator_port, "AGGREGATOR_PORT")
    if filename is None:
        host, own_port = aggregator_host or ANY_HOST, port(AGGREGATOR_PORT)
        section = EasyDict(
            slave={"host": host, "port": own_port}, master={"host": host, "port": own_port + 1}, learner={}
        )
        return DistWorker(name or "learner_aggregator", LearnerAggregator, section, check_dist({}))
    cfg = read_dist_config(filename)
    name, section = section_of(cfg, "learner_aggregator", name)
    section.slave.update(host=aggregator_host or section.slave.host, port=port(section.slave.port))
    return DistWorker(name, LearnerAggregator, section, cfg.system.dist)


def dist_launch_spawn_learner(
    filename: str,
    seed: int | None = None,
    learner_port: int | None = None,
    name: str | None = None,
    disable_flask_log: bool = True,
) -> None:
    """Start the ranks of a learner on this machine by the command line, and wait until they end.

    The environment selects them: `LOCAL_WORLD_SIZE` (1) ranks, beginning with `START_RANK` (0), of `WORLD_SIZE`. For
    the arguments see `dist_launch_learner`.

    Raises:
        RuntimeError: a rank has failed; the others are ended first.
        ValueError: one of these variables is not a number.
    """
    options = ["--disable-flask-log", str(bool(disable_flask_log))]
    for option, value in (("-s", seed), ("-lp", learner_port), ("--module-name", name)):
        options += [] if value is None else [option, str(value)]
    spawn_ranks(["-m", "dist", "-M", "learner", "-c", filename, *options])
