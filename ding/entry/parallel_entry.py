"""`parallel_pipeline`, with a coordinator in this process, and learners and collectors in their own processes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from easydict import EasyDict

from ding.config.read import read_packed_config
from ding.entry.checks import UNLIMITED
from ding.entry.parallel_run import adopt_workers, drive, run_parallel
from ding.entry.worker_process import RUN, WorkerPlan, WorkerProcess
from ding.entry.worker_process import run_collector as run_collector
from ding.entry.worker_process import run_learner as run_learner
from ding.interaction.access import read_run_token
from ding.utils.child_helper import ProcessEvent

Handle = tuple[WorkerProcess, ProcessEvent, ProcessEvent]


def parallel_pipeline(
    input_cfg: str | Sequence[Mapping[str, Any]],
    seed: int = 0,
    enable_total_log: bool = False,
    disable_flask_log: bool = True,
    max_train_iter: int = UNLIMITED,
    max_env_step: int = UNLIMITED,
    max_seconds: float = math.inf,
    platform: str = "local",
    address: str | None = None,
    resume: bool = False,
    strict_config: bool = False,
) -> None:
    """Train with learners and collectors in their own processes, until the task is solved or the budget is used up.

    The workers are started by this call and end with it, even if this process is killed. The first exception in an env,
    a policy, a learner or a collector ends the run; the raised error contains its traceback. SIGINT and SIGTERM end the
    run with status 130.

    With `transport = 'local'` in the system config all roles run in threads of this process, for tests and for
    debugging. With `transport = 'ray'` workers are actors of Ray, on this machine or on the nodes of a cluster.

    Besides configs, logs and the learner's checkpoints, `eval.jsonl` (one line per evaluation) and `result.pkl` (the
    outcome) are written to the experiment folder.

    Args:
        input_cfg: path of a config file, or the triple `(main_config, create_config, system_config)`, which is not
            changed.
        seed: the seed of the package, from which each worker's seed is derived.
        enable_total_log: whether the coordinator writes its log.
        disable_flask_log: whether the servers of the workers log errors only.
        max_train_iter: the exact number of batches to train on, after which the last weights are evaluated and the run
            ends; each is an iteration, but PPO takes several on a batch.
        max_env_step: the run ends as soon as the collectors have reported this number of env steps.
        max_seconds: the run ends after this number of seconds.
        platform: 'local', or 'ray', which sets `transport = 'ray'` in the system config.
        address: the address of the Ray cluster to join, `ray.address` in the system config. Without one, a cluster is
            started for the run on this machine.
        resume: whether to resume from the state that the coordinator has saved under `exp_name` (counters, replay
            buffers and the commander's state), and from the learner's newest checkpoint and weights. This is not exact:
            episodes begin anew, and samples after the last save are lost. Without a saved state the run begins anew,
            and an existing folder is set aside.
        strict_config: whether keys that nothing reads raise an error instead of logging a warning.

    Raises:
        TypeError: `input_cfg` is neither a path nor a triple.
        ConfigError: a value is not allowed, or something is missing.
        TaskFailed: a worker has failed a task; the error has the traceback.
        WorkerDied: the process of a worker has died; the error has its exit code or signal.
    """
    run_parallel(
        input_cfg,
        seed,
        enable_total_log,
        disable_flask_log,
        max_train_iter,
        max_env_step,
        max_seconds,
        platform=platform,
        address=address,
        resume=resume,
        strict_config=strict_config,
    )


def launch_learner(
    seed: int, config: Mapping[str, Any] | None = None, filename: str | None = None, name: str | None = None
) -> Handle:
    """Start a learner in a process of its own.

    Args:
        seed: the seed of the package in that process.
        config: the learner's section of the system config.
        filename, name: instead of `config`, a file that `dist_prepare_config` has written, and the section in it.

    Returns:
        The process, an event that is set when the learner accepts tasks, and an event that ends it when set.

    Raises:
        ValueError: neither `config` nor `filename` and `name` are given.
    """
    return _launch("learner", seed, config, filename, name)


def launch_collector(
    seed: int, config: Mapping[str, Any] | None = None, filename: str | None = None, name: str | None = None
) -> Handle:
    """Start a collector in a process of its own; see `launch_learner`."""
    return _launch("collector", seed, config, filename, name)


def _launch(kind: str, seed: int, config: Any, filename: str | None, name: str | None) -> Handle:
    if config is None:
        if filename is None or name is None:
            raise ValueError(f"launch_{kind} needs either config, or filename and name; got {filename=} and {name=}")
        config = read_packed_config(filename).system[name]
    section = EasyDict(config)
    token = read_run_token()
    if token is not None:  # the process starts without the variable
        section.setdefault("run_token", token)
    worker = WorkerProcess(WorkerPlan(name or kind, RUN[kind], section, seed))
    worker.start()
    return worker, worker.start_event, worker.close_event


def launch_coordinator(
    seed: int,
    config: Mapping[str, Any] | None = None,
    filename: str | None = None,
    learner_handle: Sequence[Handle] | None = None,
    collector_handle: Sequence[Handle] | None = None,
) -> None:
    """Run the coordinator in this process until the training is over, then end the workers.

    Args:
        seed: the seed of the package.
        config: the compiled config.
        filename: instead of `config`, a file that `dist_prepare_config` has written.
        learner_handle, collector_handle: the results of `launch_learner` and `launch_collector`. Other workers are
            connected at the addresses in the config.

    Raises:
        ValueError: neither `config` nor `filename` is given.
        Exception: see `parallel_pipeline`.
    """
    if config is None:
        if filename is None:
            raise ValueError("launch_coordinator needs either config or filename")
        config = read_packed_config(filename)
    cfg = EasyDict(config)
    cfg.seed = seed
    workers = [handle[0] for handle in [*(learner_handle or ()), *(collector_handle or ())]]
    drive(cfg, adopt_workers(cfg.system, workers))
