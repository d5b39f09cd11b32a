"""The roles of a parallel training, started separately on machines that share a folder."""

from __future__ import annotations

import logging
import socket
from functools import partial

from easydict import EasyDict

from ding.config.save import save_packed_config
from ding.config.utils import AGGREGATOR_PORT, ANY_HOST, Addresses, Several
from ding.entry.dist_config import (
    check_dist,
    check_shared_folders,
    compile_dist_config,
    read_dist_config,
    section_of,
)
from ding.entry.dist_roles import (
    DistCoordinator,
    DistWorker,
    port_from,
    seed_at,
    worker_class,
)
from ding.entry.progress import UNLIMITED
from ding.entry.rank_spawner import spawn_ranks
from ding.entry.replicas import dist_add_replicas, dist_delete_replicas, dist_restart_replicas
from ding.entry.worker_process import THREADS, be_worker, quiet_flask
from ding.utils.default_helper import set_pkg_seed

__all__ = [
    "dist_add_replicas",
    "dist_delete_replicas",
    "dist_launch_collector",
    "dist_launch_coordinator",
    "dist_launch_learner",
    "dist_launch_learner_aggregator",
    "dist_launch_spawn_learner",
    "dist_prepare_config",
    "dist_restart_replicas",
    "read_coordinator_config",
]


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
    hosts = coordinator_host, learner_host, collector_host
    given = Addresses(*hosts, coordinator_port, learner_port, collector_port)
    limits = {"max_train_iter": max_train_iter, "max_env_step": max_env_step}
    cfg = compile_dist_config(filename, seed, platform, given, exp_name=exp_name, **limits)
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
        host, own = aggregator_host or ANY_HOST, port(AGGREGATOR_PORT)
        section = EasyDict(slave={"host": host, "port": own}, master={"host": host, "port": own + 1}, learner={})
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
