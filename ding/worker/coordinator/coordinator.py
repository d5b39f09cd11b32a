"""The center of parallel training: it takes tasks from the commander, gives them to workers, and owns the buffers."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from easydict import EasyDict

from ding.envs.env_manager.normalization import Normalization, moments_of_state
from ding.utils.config_helper import (
    NO_DEFAULT,
    Configurable,
    Setting,
    Settings,
    anything,
    boolean,
    check_section,
    instance_of,
    integer,
    number,
)
from ding.utils.data.nested import plain
from ding.utils.data.samples import part_of
from ding.utils.import_helper import import_module
from ding.utils.log_helper import build_logger
from ding.worker.coordinator.base_parallel_commander import BaseCommander, Task, create_parallel_commander
from ding.worker.coordinator.buffer_set import BufferSet
from ding.worker.coordinator.comm_coordinator import CommCoordinator, SampleList
from ding.worker.coordinator.limiter import create_limiter
from ding.worker.coordinator.parallel_run_state import ParallelRunState
from ding.worker.coordinator.run_monitor import Progress, RunMonitor, failure_text
from ding.worker.coordinator.scheduler import TaskScheduler, TaskState
from ding.worker.coordinator.status import RunStatus, read_status, status_pages
from ding.worker.coordinator.worker_table import ReconnectSupervisor, WorkerSupervisor
from ding.worker.learner.checkpoint import NORMALIZATION
from ding.worker.transport.transport import (
    COLLECTOR,
    DEFAULT_TRANSPORT,
    LEARNER,
    TaskStalled,
    WorkerLost,
    WorkerReleased,
    get_transport,
    transport_name,
)

__all__ = ["Coordinator", "Progress", "RunStatus", "TaskState", "failure_text"]

_user_log = logging.getLogger("ding")
# How long a restarted worker may take to be connected.
_REJOIN_S = 20.0
# How long `close` waits for threads that should end at once.
JOIN_S = 5.0
# Seconds without an env step after which the user is told; `task_silence_s` says when the worker is restarted.
TELL_SILENCE_S = 15.0


class Coordinator(Configurable):
    """The coordinator of a parallel training, which runs in threads of its own until the commander ends it or it fails.

    Call `start`, `wait` and `close`, and check `failure`. The methods named `deal_with_*` handle events of the workers
    and may be called from any thread.

    Args:
        cfg: the compiled parallel config, with `main` and `system`. `system.coordinator` contains the address to listen
            at (`host`, `port`) and the workers (`learner` and `collector`, each `{name: [name, host, port]}`). Optional
            are `transport` ('flask_fs', or 'local' for workers in this process); `path_data`, the folder whose sample
            files are deleted after use; `max_env_step`, after which the run ends; `operator_server`, for an operator
            that brings further workers, see `OperatorWorkers`.

    Raises:
        ConfigError: a value is not allowed, or a worker has no port.
        KeyError: the type of the commander is unknown.

    Attributes:
        buffers: the replay buffers.
        normalization: the statistics of all collectors, in plain values, for learners.
        supervisor: an object that brings back lost workers.
        on_evaluation: if set, called with the result of each evaluation task, before the commander may begin another.
        on_averages: if set, called with averages of the learner, a list of dicts with `train_iter` and `values`.
        parts: objects with `state_dict` and `load_state_dict` that are saved and resumed with the run, by name; set
            them before `start`.
    """

    settings = Settings(
        {
            "collector_task_timeout": Setting(
                30, number(0), "Seconds that a collector task may wait for a worker, or for its buffer."
            ),
            "learner_task_timeout": Setting(600, number(0), "Seconds that a learner task may wait for a worker."),
            "task_timeout": Setting(60, number(0), "Seconds that a worker may take to answer one message."),
            "task_silence_s": Setting(
                60,
                number(0),
                "Seconds without an env step or an iteration after which a worker is restarted; 0 for never.",
            ),
            "worker_return_timeout": Setting(
                60, number(0), "Seconds in which a lost worker may return at its old address."
            ),
            "max_restarts": Setting(
                3, integer(0), "Number of times that `parallel_pipeline` restarts a worker whose process has died."
            ),
            "restart_window_s": Setting(600, number(0), "Seconds within which `max_restarts` counts."),
            "max_env_step": Setting(NO_DEFAULT, number(0), "Number of env steps after which the run ends."),
            "state_interval_s": Setting(
                0, number(0), "Seconds between two writes of the state to the folder of the run; 0 for never."
            ),
            "resume": Setting(
                False, boolean, "Whether to resume from the saved state; without one, the run begins anew."
            ),
            "transport": Setting(NO_DEFAULT, transport_name, "Transport of the run; set by compilation."),
            "import_names": Setting(
                NO_DEFAULT, instance_of(list, tuple), "Modules that register the transport; set by compilation."
            ),
            "host": Setting(NO_DEFAULT, instance_of(str, optional=True), "Address at which the coordinator listens."),
            "port": Setting(NO_DEFAULT, integer(0, 65535), "Port of the coordinator; 0 for a free one."),
            "run_token": Setting(NO_DEFAULT, anything, "The secret of the run."),
            "collector": Setting(NO_DEFAULT, instance_of(Mapping), "Addresses of the collectors, by name."),
            "learner": Setting(NO_DEFAULT, instance_of(Mapping), "Addresses of the learners, by name."),
            "path_data": Setting(NO_DEFAULT, instance_of(str, optional=True), "Folder of the samples."),
            "path_policy": Setting(NO_DEFAULT, anything, "Folder of the weights."),
            "operator_server": Setting({}, instance_of(Mapping), "The operator that brings workers."),
            "exp_name": Setting(NO_DEFAULT, anything, "Folder of the run."),
            "ray": Setting(NO_DEFAULT, anything, "The section `ray` of the system config."),
        }
    )

    _is_started = False
    _is_closed = True  # nothing is open until the constructor is done

    def __init__(self, cfg: Mapping[str, Any]) -> None:
        self._cfg = EasyDict(cfg)
        own = EasyDict({"transport": DEFAULT_TRANSPORT, **self.config, **self._cfg.system.coordinator})
        import_module(own.get("import_names"), "coordinator.import_names")
        check_section(own, type(self))
        transport = get_transport(own.transport)
        exp_name = self._cfg.main.exp_name
        self._logger: Any = build_logger(os.path.join(".", exp_name, "log"), "coordinator", need_tb=False)[0]
        path_data = own.get("path_data")
        store = None if path_data is None else transport.sample_store(path_data)
        self.buffers = BufferSet(exp_name, store, self._logger)
        self._replay_buffer = self.buffers.buffers
        self._monitor = RunMonitor(own.get("max_env_step", math.inf), tell=self.info)
        self._comm_coordinator = CommCoordinator(own, self, self._logger)
        self._commander = create_parallel_commander(self._cfg.main)
        self._commander.env_steps = self._monitor.env_steps
        policy = self._cfg.main.policy
        settings = {**BaseCommander.config, **type(self._commander).config, **policy.other.commander}
        self.buffers.create_limiter = partial(create_limiter, policy, settings)
        self._scheduler = TaskScheduler(
            self._commander,
            self.buffers,
            self._monitor,
            self._comm_coordinator,
            self,
            {LEARNER: own.learner_task_timeout, COLLECTOR: own.collector_task_timeout},
        )
        self._task_state, self._historical_task = self._scheduler.running, self._scheduler.finished
        parts = self._scheduler, self.buffers, self._monitor
        self._run_state = ParallelRunState(*parts, self._cfg, own, self._logger, self, lambda: self.parts)
        self.supervisor: WorkerSupervisor = self._comm_coordinator.operator or ReconnectSupervisor(
            self._comm_coordinator.rejoin, self._deal_with_no_return, own.worker_return_timeout
        )
        self.on_evaluation: Callable[[Mapping[str, Any]], Any] | None = None
        self.on_averages: Callable[[list[dict[str, Any]]], Any] | None = None
        self._normalization = Normalization()
        self.normalization: Mapping[str, Any] = {}
        self.parts: dict[str, Any] = {NORMALIZATION: self._normalization}
        for path, page in status_pages(self.status).items():
            self._comm_coordinator.connector.serve_page(path, page)
        self._life = threading.Lock()
        self._is_closed = False

    @property
    def system_shutdown_flag(self) -> bool:
        """Whether the run is over; once True, it stays True."""
        return self._monitor.is_over

    @property
    def failure(self) -> BaseException | None:
        """The error that ended the run, or None; see `failure_text`."""
        return self._monitor.failure

    @property
    def is_solved(self) -> bool:
        """Whether an evaluation has reached the goal of the run."""
        return self._commander.is_solved

    @property
    def reason(self) -> str:
        """The reason why the run has ended; "" while it runs, and if it has failed."""
        return self._monitor.reason

    @property
    def url(self) -> str | None:
        """The address of the status page for a browser after `start`; None if the coordinator does not listen."""
        return self._comm_coordinator.connector.url

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the run is over; return False if `timeout_s` has passed first."""
        return self._monitor.wait(timeout_s)

    def progress(self) -> Progress:
        """Return the progress of the run."""
        return self._monitor.progress()

    def status(self) -> RunStatus:
        """Return the complete status of the run; over HTTP, the page at `url` shows it."""
        parts = self._monitor, self.buffers, self._comm_coordinator, self._scheduler
        return read_status(self._cfg.main.exp_name, *parts, self._is_closed)

    def start(self) -> None:
        """Connect the workers, and begin to give them tasks; close the coordinator if that fails.

        Raises:
            ConnectionError: workers of the config could not be reached; the message names them.
            StateError: the saved state is damaged or belongs to another run.
            RuntimeError: the coordinator was started or closed before.
        """
        with self._life:
            if self._is_started or self._is_closed:
                raise RuntimeError("a coordinator starts once; create another one")
            self._is_started = True
        try:
            self._run_state.begin()
            self._comm_coordinator.start()
            self._run_state.take_up()
            self._share_normalization()
            self._scheduler.start()
        except BaseException:
            self.close()
            raise
        self.info("coordinator is started")

    def close(self) -> None:
        """End all tasks, disconnect the workers and close the buffers, in bounded time. Further calls do nothing."""
        with self._life:
            is_closed, self._is_closed = self._is_closed, True
        if is_closed:
            return
        self._scheduler.end()
        self.supervisor.close()
        self.buffers.wake()
        self._comm_coordinator.close()
        self._scheduler.join(JOIN_S)
        self._run_state.end()
        self._scheduler.close()
        self.info("coordinator is closed")

    def __del__(self) -> None:
        # At interpreter exit, modules may be gone already; an error cannot reach a caller.
        with contextlib.suppress(Exception):
            if not self._is_closed:
                self.close()

    def info(self, s: str) -> None:
        """Log a line."""
        self._logger.info("%s", s)

    def error(self, s: str) -> None:
        """Log an error, and show it in the status."""
        self._monitor.add_error(s)
        self._logger.error("%s", s)

    def warn(self, s: str) -> None:
        """Log an error that the run survives, or tries to survive, and tell the user about it."""
        self.error(s)
        if not self._monitor.is_over:
            _user_log.warning("%s: %s", self._cfg.main.exp_name, s)

    # The run as a state that another coordinator can resume.

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the run, see `ParallelRunState.state_dict`."""
        return self._run_state.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Resume the run of a `state_dict`, see `ParallelRunState.load_state_dict`."""
        self._run_state.load_state_dict(state_dict)

    # Events of collectors.

    def deal_with_collector_send_data(self, task_id: str, buffer_id: str, data_id: str, data: Any) -> None:
        """Push samples that have arrived.

        Args:
            data: the metadata of one sample, or of several in a list.
        """
        if not self._is_known(task_id, "samples"):
            return
        samples = data if isinstance(data, list) else [data]
        count = len(samples)
        if not count:
            return
        pushed = self.buffers.push(buffer_id, samples)
        if pushed is None:
            log = self.info if self._monitor.is_over else self.error  # late samples are expected at the end
            log(f"{count} samples for the unknown buffer {buffer_id} are dropped")
        else:
            (newest,) = part_of(samples, -1, None)  # accessing an item of the whole would create all items
            self._monitor.take_samples(task_id, pushed, newest)

    def deal_with_collector_judge_finish(self, task_id: str, data: Mapping[str, Any]) -> bool:
        """Process the progress of a collector; return whether its task is done."""
        if not self._is_known(task_id, "an info"):
            return False
        data = dict(data)
        gathered = data.pop(NORMALIZATION, {})
        self._monitor.take_collector_info(task_id, data)
        with self._scheduler.lock:
            if gathered:
                self._normalization.merge([{name: moments_of_state(parts) for name, parts in gathered.items()}])
                self._share_normalization()
            self._commander.update_collector_info(task_id, data)
            return bool(self._commander.judge_collector_finish(task_id, data))

    def _share_normalization(self) -> None:
        self.normalization = plain(self._normalization.state_dict())

    def deal_with_collector_progress(self, task_id: str, progress: Mapping[str, Any]) -> None:
        """Note the number of env steps of a collector's task, possibly in the middle of an episode.

        The user is told once about a task whose env or policy seems to hang.
        """
        if not self._is_known(task_id, "progress"):
            return
        self._monitor.take_collector_info(task_id, progress)
        state, silence_s = self._task_state[task_id], progress.get("silence_s", 0.0)
        if silence_s > TELL_SILENCE_S and not state.is_silent:
            state.is_silent = True
            kind = "evaluation" if progress.get("eval_flag") else "collecting task"
            self.warn(f"the {kind} {task_id} has made no env step for {silence_s:.0f} s")

    def is_collector_task_useless(self, task_id: str) -> bool:
        """Return whether further results of the task would be of no use."""
        with self._scheduler.lock:
            return bool(self._commander.is_collector_task_useless(task_id))

    def deal_with_collector_finish_task(self, task_id: str, finished_task: Mapping[str, Any]) -> None:
        """Process the result of a collector task."""
        if not self._is_known(task_id, "the end"):
            return
        if finished_task.get("eval_flag"):  # the env steps of the weights, not those at the end of the evaluation
            finished_task = {"env_step": self._monitor.env_steps_at(finished_task.get("train_iter")), **finished_task}
        self._monitor.take_collector_end(task_id, finished_task)
        if self.on_evaluation is not None and finished_task.get("eval_flag"):
            self.on_evaluation(finished_task)  # first: the weights of the next evaluation replace those of this one
        with self._scheduler.lock:
            is_over = self._commander.finish_collector_task(task_id, finished_task)
        self._scheduler.finish(task_id)
        commander = self._commander
        reason = "an evaluation has reached the goal" if commander.is_solved else commander.end_reason
        if is_over and self._monitor.end(reason=reason):  # latched: later results do not change it
            self.info("the commander ends the run")
        self._scheduler.notify()

    # Events of learners.

    def deal_with_learner_get_data(
        self, task_id: str, buffer_id: str, batch_size: int, cur_learner_iter: int
    ) -> SampleList | None:
        """Return a batch for a learner; None while the buffer has none.

        Raises:
            RuntimeError: the task is unknown; all methods about learners may raise this.
        """
        self._require(task_id)
        return self.buffers.sample(task_id, buffer_id, batch_size, cur_learner_iter)

    def deal_with_learner_send_info(self, task_id: str, buffer_id: str, info: Mapping[str, Any]) -> None:
        """Process a learner's report of an iteration."""
        self._require(task_id)
        if not self.buffers.update(buffer_id, info.get("priority_info") or {}):
            self.error(f"priorities for the unknown buffer {buffer_id} are dropped")
        state, bad_files = self._task_state[task_id], int(info.get("bad_files", 0))
        if state.bad_files < bad_files >= 2 * state.bad_files:  # not each one of many
            state.bad_files = bad_files
            self.error(f"the learner of the task {task_id} has skipped {bad_files} bad files of samples; see its log")
        if self.on_averages is not None and info.get("averages"):
            self.on_averages(info["averages"])
        is_first = self._monitor.take_learner_info(info)
        with self._scheduler.lock:
            self._commander.update_learner_info(
                task_id, {key: value for key, value in info.items() if key != "averages"}
            )
        if is_first:  # a commander may have waited for it to give collector tasks
            self._scheduler.notify()

    def deal_with_learner_judge_finish(self, task_id: str, info: Mapping[str, Any]) -> bool:
        """Return whether the learner task is done."""
        self._require(task_id)
        with self._scheduler.lock:
            return bool(self._commander.judge_learner_finish(task_id, info))

    def deal_with_learner_finish_task(self, task_id: str, finished_task: Mapping[str, Any]) -> None:
        """Process the result of a learner task, and close its buffer."""
        self._require(task_id)
        with self._scheduler.lock:
            buffer_id = self._commander.finish_learner_task(task_id, finished_task)
            self._scheduler.learner_tasks.pop(task_id, None)
        self._scheduler.finish(task_id)
        self._scheduler.end_training(task_id, buffer_id)
        self._scheduler.notify()

    # Errors.

    def deal_with_task_error(self, kind: str, task: Task, error: Exception) -> None:
        """Handle the failure of a task: in the worker (`TaskFailed`), or here in the processing of its messages."""
        self.error(f"{kind} task {task['task_id']} has failed: {failure_text(error)}")
        self._scheduler.fail(kind, task, error)

    def deal_with_error(self, error: Exception) -> None:
        """End the run because of an error that belongs to no task."""
        self.error(f"the run has failed: {failure_text(error)}")
        self._monitor.end(error)

    def _is_known(self, task_id: str, what: str) -> bool:
        if task_id not in self._task_state:
            self.error(f"{what} of the unknown collector task {task_id} came and is ignored")
            return False
        return True

    def _require(self, task_id: str) -> None:
        if task_id not in self._task_state:
            running = sorted(map(str, list(self._task_state)))
            raise RuntimeError(f"the learner task {task_id} is unknown; running tasks: {running}")

    # Workers that join, leave, are lost and return.

    def deal_with_worker_free(self, kind: str, worker_id: str) -> None:
        """Handle that a worker is free."""
        self._scheduler.notify()

    def deal_with_increase_collector(self) -> None:
        """Handle that an operator has brought a collector."""
        with self._scheduler.lock:
            self._commander.increase_collector_task_space()
        self._scheduler.notify()

    def deal_with_decrease_collector(self) -> None:
        """Handle that a collector of an operator has left, or was lost."""
        with self._scheduler.lock:
            self._commander.decrease_collector_task_space()

    def deal_with_worker_lost(self, kind: str, worker_id: str, task: Task | None, error: WorkerLost) -> None:
        """Handle the loss of a worker, and of its task if it had one; the run continues if the worker may return."""
        if task is None and self._monitor.is_over:
            return
        if isinstance(error, TaskStalled):
            self._monitor.count_stalled_task()
        # The loss of a worker that was released is known already.
        tell = self.error if isinstance(error, WorkerReleased) else self.warn
        tell(f"{kind} {worker_id} is lost: {error}")
        will_return = not self._monitor.is_over and self.supervisor.lost(kind, worker_id, error)
        if task is None:
            if not will_return:
                self._deal_with_no_return(kind, worker_id, error)
        elif not will_return:
            self._scheduler.fail(kind, task, error)
        elif kind == LEARNER:
            self.buffers.forget_task(task["task_id"])
            self._scheduler.run_again(task)
        else:
            self._scheduler.forget(kind, task)

    def deal_with_worker_gone(self, kind: str, name: str, error: Exception) -> None:
        """Handle the death of a worker's process, which will be restarted or replaced."""
        tell = self.error if self._comm_coordinator.workers.find(name) is None else self.warn
        tell(f"{kind} {name} is gone: {error}")
        self._comm_coordinator.drop(kind, name, str(error))

    def deal_with_worker_back(self, kind: str, name: str, host: str, port: int) -> None:
        """Connect a worker that was restarted, or replaced, at this address."""
        try:
            self._comm_coordinator.join(kind, name, host, port, _REJOIN_S)
        except Exception as e:  # the supervisor, who has called this, goes on with other workers
            if not self._monitor.is_over and not self.supervisor.lost(kind, name, e):
                self.deal_with_error(e)

    def _deal_with_no_return(self, kind: str, name: str, error: Exception) -> None:
        others = self._comm_coordinator.workers.count(kind)
        self.warn(f"{kind} {name} has not returned; {others} others continue")
        if not others:
            self.deal_with_error(error)
