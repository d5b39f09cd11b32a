"""One parallel training, from its configs to its outcome and its metrics."""

from __future__ import annotations

import copy
import logging
import math
import os
import pickle
import re
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any

import numpy as np
from easydict import EasyDict

from ding.config.utils import workers_of
from ding.entry.checks import UNLIMITED, check_limits, check_saved, set_limits
from ding.entry.experiment import Experiment, read_configs
from ding.entry.progress import ProgressLine
from ding.entry.run_folder import (
    BEST,
    EVALUATIONS,
    RunFolder,
    append_record,
    mean_return,
    read_evaluations,
    write_result,
)
from ding.entry.run_state import Start
from ding.entry.serial_run import env_name
from ding.entry.supervisor import ProcessBackend, Supervisor, ThreadBackend
from ding.entry.worker_process import (
    COLLECTOR_NICE,
    CREATE,
    END_S,
    RUN,
    WorkerPlan,
    WorkerProcess,
    refuse_in_main_of_worker,
)
from ding.interaction.access import draw_run_token
from ding.torch_utils.checkpoint_helper import guard_training
from ding.utils.config_helper import ConfigError, positive
from ding.utils.default_helper import closing, set_pkg_seed
from ding.utils.file_helper import save_file
from ding.utils.metric_sinks import RunInfo, check_logger, create_metric_writer, cut_file
from ding.utils.references import refuse_while_importing
from ding.utils.state_folder import hold_run
from ding.worker.collector.interaction_serial_evaluator import EvalRecord
from ding.worker.coordinator.coordinator import Coordinator, Progress
from ding.worker.coordinator.solo_parallel_commander import REPORTED
from ding.worker.learner.checkpoint import EXTRA, NORMALIZATION
from ding.worker.transport.stores import EVALUATED
from ding.worker.transport.transport import Launch, get_transport

_logger = logging.getLogger("ding")


class ParallelMetrics:
    """The writer of evaluations and the learner's averages to the sinks of a run. It is thread-safe.

    The rows have the worker `evaluator` or `learner`. Iterations that a restarted learner trains again are not written
    again. The state has the positions of the sinks and the length of `eval.jsonl`; `load_state_dict` cuts them.

    Args:
        main: the compiled main config; `logger` chooses the sinks.

    Raises:
        ConfigError: the section `logger` has an unknown name or a wrong value.
        ImportError: a sink needs a package that is not installed.
    """

    def __init__(self, main: Mapping[str, Any]) -> None:
        folder = os.path.join(".", main["exp_name"], "log", "metrics")
        # The commander and the learner write TensorBoard files themselves.
        settings = main.get("logger", {})
        self._writer = create_metric_writer(folder, RunInfo(main["exp_name"], main), settings, has_tensorboard=False)
        self._evaluations = os.path.join(main["exp_name"], EVALUATIONS)
        self._lock = threading.Lock()
        self._last_iter = -1  # the last iteration of the learner's rows

    def add_evaluation(self, finished_task: Mapping[str, Any], env_step: int) -> None:
        """Add the result of an evaluation task with episodes."""
        values = {shown: finished_task[key] for key, shown in REPORTED.items()}
        self._writer.add_scalars_of("evaluator", values, _newest(finished_task.get("train_iter")), env_step)
        self._writer.flush()

    def add_averages(self, rows: Sequence[Mapping[str, Any]], env_step: int) -> None:
        """Add averages of the learner, each with `train_iter` and `values`."""
        with self._lock:
            for row in rows:
                if row["train_iter"] > self._last_iter:
                    self._last_iter = row["train_iter"]
                    self._writer.add_scalars_of("learner", row["values"], row["train_iter"], env_step)

    def state_dict(self) -> dict[str, Any]:
        """Write all rows, and return the positions of the sinks and the learner."""
        with self._lock:
            size = os.path.getsize(self._evaluations) if os.path.exists(self._evaluations) else 0
            return {"writer": self._writer.state_dict(), "last_iter": self._last_iter, "eval_size": size}

    def load_state_dict(self, state: Mapping[str, Any]) -> list[str]:
        """Remove the rows and evaluations after `state`, and return [], as no part of it can be missing."""
        self._writer.load_state_dict(state["writer"])
        self._last_iter = state["last_iter"]
        cut_file(self._evaluations, state["eval_size"])
        return []

    def close(self) -> None:
        """Write all rows and close the sinks. Further calls do nothing."""
        self._writer.close()


# How often the progress is printed and signals are handled, because a signal just before a wait does not end it.
_TICK_S = 0.5
# How often a coordinator writes the state of a run, unless its config says otherwise.
_STATE_INTERVAL_S = 30


@dataclass(frozen=True, slots=True)
class ParallelOutcome:
    """The outcome of a parallel training.

    Attributes:
        cfg: the compiled config: `main`, `system` and `seed`.
        stop: whether an evaluation reached the stop value.
        reason: why the run has ended; "" if it was closed before its end, for example when its time was over.
        returns: returns of the episodes of the last evaluation; [] if there was none.
        seconds: duration of the run in seconds, from the call to the end.
    """

    cfg: EasyDict
    stop: bool
    reason: str
    progress: Progress
    returns: list[Any]
    seconds: float


def run_parallel(
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
    evaluates_end: bool = False,
) -> ParallelOutcome:
    """Train like `parallel_pipeline`, and return the outcome.

    Args:
        evaluates_end: whether the last iteration is evaluated in this process if no collector has.
    """
    refuse_while_importing()
    start = monotonic()
    refuse_in_main_of_worker()
    main, create, system = read_configs(input_cfg, 3)
    if platform not in ("local", "ray"):
        raise ConfigError(f"platform = {platform!r} is not allowed here; it must be 'local' or 'ray'")
    if address is not None and platform != "ray":
        raise ConfigError(f"address = {address!r} has no effect on the platform 'local'; set platform to 'ray'")
    if platform == "ray":
        system["transport"] = "ray"
        system["ray"] = {**system.get("ray", {}), **({} if address is None else {"address": address})}
    check_saved(main, is_needed=system.get("transport") != "ray")  # messages to actors take any object
    check_limits(positive, max_seconds=max_seconds)
    set_limits(main, system, max_train_iter, max_env_step)
    check_logger(main.get("logger", {}))
    system.setdefault("coordinator", {}).setdefault("state_interval_s", _STATE_INTERVAL_S)
    experiment = Experiment.parallel((main, create, system), seed, strict_config)
    with ExitStack() as stack:
        begin = experiment.choose_start(resume)
        closing(stack, begin.lock)
        # Each worker listens at any free port and reports it: a port chosen in advance may be in use by then.
        cfg = experiment.place(ports=(0, 0, 0), renew=begin.renew)
        _check_ranks(cfg, system.get("learner_gpu_num", 1))
        for key in ("path_data", "path_policy"):
            os.makedirs(cfg.system.learner0[key], exist_ok=True)  # fails at once if that is impossible
        workers = make_workers(cfg.system, disable_flask_log)
        main, create = copy.deepcopy((experiment.main, experiment.create))
        evaluate_last = partial(_evaluate, main, create, seed) if evaluates_end else None
        return drive(cfg, workers, enable_total_log, start, start + max_seconds, begin, evaluate_last)


def _evaluate(main: Any, create: Any, seed: int, checkpoint: str) -> EvalRecord:
    """Evaluate a checkpoint with the configs of its run, whose folder gets no further logs."""
    from ding.entry.trained import evaluate_pair  # here: only these runs need it

    return evaluate_pair((main, create), seed, checkpoint)


def drive(
    cfg: EasyDict,
    workers: Supervisor | None,
    enable_total_log: bool = False,
    start: float | None = None,
    deadline: float = math.inf,
    begin: Start | None = None,
    evaluate_last: Callable[[str], EvalRecord] | None = None,
) -> ParallelOutcome:
    """Run the coordinator of a compiled config in this process, then end the workers.

    Args:
        workers: the supervisor of the workers; None if they are started elsewhere, and exit when their coordinator is
            gone.
        start, deadline: times by `time.monotonic`.
        begin: how the run starts, with the lock of its folder; None if no state was looked for yet.
        evaluate_last: evaluates the checkpoint of the last iteration, if no collector has.
    """
    with ExitStack() as stack:
        if begin is None or begin.lock is None:
            stack.enter_context(hold_run(cfg.main.exp_name) or nullcontext())
        logger = logging.getLogger("coordinator_logger")
        stack.callback(setattr, logger, "disabled", logger.disabled)
        logger.disabled = not enable_total_log
        stack.enter_context(guard_training(None))  # the learner saves its checkpoint when its task ends
        if workers is not None:
            stack.push(_ending(workers, workers.end))
            workers.start()  # before any thread starts, as a forked process would lack it
        set_pkg_seed(cfg.seed, use_cuda=False)
        run = ParallelRun(cfg, monotonic() if start is None else start, evaluate_last)
        stack.push(_ending(workers, run.close))
        if begin is not None:
            run.load(begin.take_state())
        if workers is not None:
            workers.supervise(run.coordinator)
        run.train(deadline)
    return run.outcome()


def _ending(workers: Supervisor | None, end: Callable[[], None]) -> Callable[..., None]:
    """Return what ends a part of a run as `__exit__` does; a second signal meanwhile kills the workers."""

    def leave(kind: object, error: BaseException | None, trace: object) -> None:
        try:
            end()
        except SystemExit:
            if workers is not None and isinstance(error, SystemExit):
                workers.kill()
            raise

    return leave


_OF_ITERATION = re.compile(r"iteration_(\d+)\.pth\.tar")


class ParallelRun:
    """The coordinator of a run, with its output on the terminal, in the experiment's folder and in the sinks.

    Args:
        start: start of the run, a time by `time.monotonic`.
        evaluate_last: evaluates the checkpoint of the last iteration at the end, if no collector has.
    """

    def __init__(self, cfg: EasyDict, start: float, evaluate_last: Callable[[str], EvalRecord] | None = None) -> None:
        self._cfg, self._start, self._evaluate = cfg, start, evaluate_last
        self._is_solved = False
        self._returns: list[Any] = []
        self._evaluated_iter: int | None = None  # the iteration of the weights with these returns
        self._best = -math.inf
        self._is_late = False
        if cfg.system.coordinator.get("resume"):
            self._take_evaluations()
        with ExitStack() as stack:
            self._metrics = ParallelMetrics(cfg.main)
            stack.callback(self._metrics.close)
            self.coordinator = Coordinator(cfg)
            stack.pop_all()
        self.coordinator.on_evaluation = self._deal_with_evaluation
        self.coordinator.on_averages = self._record_averages
        self.coordinator.parts["metrics"] = self._metrics
        main = cfg.main
        max_env_step = cfg.system.coordinator.get("max_env_step") or UNLIMITED
        max_train_iter = main.policy.learn.learner.get("train_iterations") or UNLIMITED
        self._line = ProgressLine(max_env_step, max_train_iter=max_train_iter)
        self._line.begin(main.policy.type.removesuffix("_command"), env_name(main.env), cfg.seed, main.exp_name)

    def train(self, deadline: float) -> None:
        """Train until the run is over or the deadline has passed."""
        try:
            self.start()
            self._is_late = not self.wait(deadline)
        except ConnectionError:  # a worker has died before it was connected
            if self.coordinator.failure is None:
                raise
        self.end()

    def load(self, state: Mapping[str, Any] | None) -> None:
        """Resume the run of a state, if there is one; call this before `start`."""
        if state is None:
            return
        self.coordinator.load_state_dict(state)
        self._line.env_steps_before = self.coordinator.progress().env_steps
        self._take_evaluations()
        logging.getLogger("ding").warning(
            "%s: resumes from the saved counters and buffers, and the newest weights; this is not exact: episodes "
            "begin anew, and samples after the last save are lost",
            self._cfg.main.exp_name,
        )

    def start(self) -> None:
        """Start the coordinator; see `Coordinator.start`."""
        self.coordinator.start()
        if self.coordinator.url is not None:
            self._line.say(f"Status page: {self.coordinator.url}")

    def wait(self, deadline: float = math.inf) -> bool:
        """Wait until the run is over; return False if the deadline has passed first."""
        while not self.coordinator.wait(min(_TICK_S, max(0.0, deadline - monotonic()))):
            if monotonic() >= deadline:
                return False
            progress = self.coordinator.progress()
            self._line.advance(progress.env_steps, progress.train_iter, f"policy lag {progress.policy_lag}")
        return True

    def end(self) -> None:
        """End all tasks.

        Raises:
            Exception: the failure of the run.
        """
        with ExitStack() as stack:
            stack.callback(self.close)
            self.coordinator.close()  # the learner saves its last weights
            if self.coordinator.failure is not None:
                raise self.coordinator.failure
            self._evaluate_last()

    def close(self) -> None:
        """End all tasks. Further calls do nothing."""
        with ExitStack() as stack:  # a failure or an interrupt loses no rows
            stack.callback(self._line.close)
            stack.callback(self._metrics.close)
            self.coordinator.close()

    def _record_averages(self, rows: list[dict[str, Any]]) -> None:
        self._metrics.add_averages(rows, self.coordinator.progress().env_steps)

    def _evaluate_last(self) -> None:
        """Evaluate the weights of the last iteration, unless a collector has: the run may end at any time."""
        if self._evaluate is None:
            return
        main = self._cfg.main
        names = map(_OF_ITERATION.fullmatch, there := RunFolder(main.exp_name).checkpoints())
        train_iter = max((int(name[1]) for name in names if name), default=0)
        if train_iter <= (self._evaluated_iter or 0):
            return
        record = self._evaluate(path := there[f"iteration_{train_iter}.pth.tar"])
        returns, steps, episodes = record.returns, sum(record.lengths), len(record.returns)
        averages = {
            "avg_time_per_episode": record.seconds / episodes,
            "avg_time_per_step": record.seconds / steps,
            "avg_step_per_episode": steps / episodes,
        }
        rewards = {"reward_mean": float(np.mean(returns)), "reward_std": float(np.std(returns)), "reward_raw": returns}
        counts = {"train_iter": train_iter, "real_episode_count": episodes, "step_count": steps}
        if self._record({**counts, **averages, **rewards}):
            shutil.copyfile(path, os.path.join(main.exp_name, "ckpt", BEST))
        goal = main.env.get("stop_value")
        self._is_solved = goal is not None and rewards["reward_mean"] >= goal

    def _deal_with_evaluation(self, finished_task: Mapping[str, Any]) -> None:
        # An evaluation that was aborted has no episodes.
        if finished_task["real_episode_count"] and self._record(finished_task):
            self._save_best()

    def _record(self, finished_task: Mapping[str, Any]) -> bool:
        """Record an evaluation, and return whether it is the best so far."""
        # Some collectors list the returns by env.
        returns = finished_task["reward_raw"]
        self._returns = [value for item in returns for value in (item if isinstance(item, list) else [item])]
        self._evaluated_iter = _newest(finished_task.get("train_iter"))
        env_steps = finished_task.get("env_step", self.coordinator.progress().env_steps)
        self._metrics.add_evaluation(finished_task, env_steps)
        self._line.evaluated(float(np.mean(self._returns)), self._evaluated_iter, env_steps)
        record = {
            "train_iter": finished_task.get("train_iter"),
            "env_step": env_steps,
            "seed": self._cfg.seed,
            "returns": self._returns,
            "lengths": None,
            "seconds": finished_task["avg_time_per_episode"] * finished_task["real_episode_count"],
        }
        append_record(self._cfg.main.exp_name, record)
        before, self._best = self._best, max(self._best, float(np.mean(self._returns)))
        return self._best > before

    def _take_evaluations(self) -> None:
        """Restore the last and the best evaluation of a run that resumes."""
        lines = [line for line in read_evaluations(self._cfg.main.exp_name) if line["returns"]]
        if lines:
            self._returns, self._evaluated_iter = lines[-1]["returns"], _newest(lines[-1]["train_iter"])
            self._best = max(float(np.mean(line["returns"])) for line in lines)

    def _save_best(self) -> None:
        """Save the weights that were just evaluated as the best checkpoint."""
        main = self._cfg.main
        transport = get_transport(self._cfg.system.coordinator.transport)
        try:
            version = transport.policy_store(main.policy.other.commander.path_policy).read(EVALUATED)
            assert version is not None  # no version is known
            state = {"model": version.state["model"], "last_iter": version.state["iter"]}
            if NORMALIZATION in version.state:
                state[EXTRA] = {NORMALIZATION: version.state[NORMALIZATION]}
            save_file(os.path.join(main.exp_name, "ckpt", BEST), state)
        except (OSError, ValueError, KeyError, pickle.UnpicklingError) as e:  # a shared folder may contain any file
            self.coordinator.error(f"the best checkpoint could not be saved: {e!r}")

    def outcome(self) -> ParallelOutcome:
        """Return the outcome; it is also printed, and written to the experiment's folder."""
        progress, stop = self.coordinator.progress(), self.coordinator.is_solved or self._is_solved
        info = {"eval_episode_return": self._returns}
        main = self._cfg.main
        # The learner may have trained on since its last report.
        train_iter = max(progress.train_iter, self._evaluated_iter or 0)
        write_result(main.exp_name, stop, progress.env_steps, train_iter, info)
        reason = self.coordinator.reason
        if (reason or self._is_late) and not stop:
            self._line.say(f"The training ends: {reason or 'max_seconds is reached'}.")
        self._line.finish(
            stop,
            main.env.stop_value,
            train_iter,
            progress.env_steps,
            mean_return(info),
            main.exp_name,
            evaluated_iter=self._evaluated_iter,
        )
        return ParallelOutcome(self._cfg, stop, reason, progress, self._returns, monotonic() - self._start)


def make_workers(system: EasyDict, is_quiet: bool = True) -> Supervisor:
    """Return the workers of a compiled system config, in processes, threads or actors as its transport requires.

    Args:
        is_quiet: whether the servers of the workers log errors only.

    Raises:
        ConfigError: the transport is unknown, or a worker would compute with several threads in a forked process.
    """
    kinds = {name: kind for kind in CREATE for name in workers_of(system, kind)}
    launch = get_transport(system.coordinator.transport).launch
    if launch is Launch.THREAD:
        return Supervisor(system, kinds, ThreadBackend(system, kinds))
    for name, kind in kinds.items():
        if kind == "collector":
            system[name].setdefault("nice", COLLECTOR_NICE)
    # Passed in memory only, as arguments and variables of a process are readable to others, and are inherited.
    token = draw_run_token()
    for section in (system.coordinator, *(system[name] for name in kinds)):
        section.run_token = token
    if launch is Launch.ACTOR:
        from ding.entry.ray_workers import ActorBackend  # here: it needs Ray

        return Supervisor(system, kinds, ActorBackend(system, kinds, is_quiet))
    workers = []
    for name, kind in kinds.items():
        section = system[name]
        plan = WorkerPlan(name, RUN[kind], section, section.get("seed", 0), is_quiet, END_S[kind])
        worker = WorkerProcess(plan, system.get("start_method"))
        if section.get("torch_threads", 1) > 1 and worker.start_method == "fork":
            raise ConfigError(
                f"{name}.torch_threads = {section.torch_threads} is not allowed in a forked process, which could wait "
                "for threads of its parent forever; set system_config.start_method = 'spawn'"
            )
        workers.append(worker)
    return adopt_workers(system, workers)


def adopt_workers(system: EasyDict, workers: Sequence[WorkerProcess]) -> Supervisor:
    """Return the supervisor of workers in processes, which may have been started before."""
    kinds = {name: kind for kind in CREATE for name in workers_of(system, kind)}
    return Supervisor(system, {worker.name: kinds[worker.name] for worker in workers}, ProcessBackend(workers))


def _newest(train_iter: Any) -> int | None:
    """Return the iteration of evaluated weights; the latest one for several players."""
    return None if train_iter is None else int(np.max(train_iter))


def _check_ranks(cfg: EasyDict, ranks: int) -> None:
    if ranks <= 1:
        return
    if get_transport(cfg.system.coordinator.transport).launch is not Launch.ACTOR:
        raise ConfigError(
            f"system_config.learner_gpu_num = {ranks} is not allowed here: parallel_pipeline starts several ranks of a "
            "learner on Ray only; set transport = 'ray', start the ranks one by one, or set it to 1"
        )
    if not cfg.main.policy.get("multi_gpu"):
        raise ConfigError(
            f"policy.multi_gpu = False is not allowed with system_config.learner_gpu_num = {ranks}: the models of the "
            "ranks would drift apart; set it to True"
        )
