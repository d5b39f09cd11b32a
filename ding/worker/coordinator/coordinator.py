"""The centre of parallel training: it asks the commander for tasks, gives them to workers, and keeps the buffers."""

from __future__ import annotations

import math
import os
import threading
from collections import deque
from collections.abc import Mapping
from typing import Any

from easydict import EasyDict

from ding.utils.config_helper import (
    ConfigError,
    anything,
    boolean,
    check_config,
    default_config_of,
    instance_of,
    integer,
    number,
)
from ding.utils.log_helper import build_logger
from ding.worker.coordinator.base_parallel_commander import create_parallel_commander
from ding.worker.coordinator.comm_coordinator import CommCoordinator
from ding.worker.coordinator.resuming import ResumingCallbacks
from ding.worker.coordinator.run_state import Progress, RunState
from ding.worker.coordinator.status import RunStatus, StatusReader
from ding.worker.coordinator.status_page import status_pages
from ding.worker.coordinator.task_assigner import TaskAssigner
from ding.worker.coordinator.task_run import COLLECTOR, LEARNER, Task
from ding.worker.coordinator.worker_callbacks import TaskState, failure_text
from ding.worker.coordinator.worker_keeper import ReturningWorkers, WorkerKeeper
from ding.worker.transport.link import WorkerLost
from ding.worker.transport.tasks import REPLAY
from ding.worker.transport.transport import DEFAULT_TRANSPORT, get_transport, transport_name

__all__ = ["Coordinator", "Progress", "RunStatus", "TaskState", "failure_text"]

_RULES = {
    "collector_task_timeout": number(0),
    "learner_task_timeout": number(0),
    "task_timeout": number(0),
    "task_silence_s": number(0),
    "worker_return_timeout": number(0),
    "max_restarts": integer(0),
    "restart_window_s": number(0),
    "max_env_step": number(0),
    "transport": transport_name,
    "host": instance_of(str, optional=True),
    "port": integer(0, 65535),
    "collector": instance_of(Mapping),
    "learner": instance_of(Mapping),
    "path_data": instance_of(str, optional=True),
    "operator_server": instance_of(Mapping),
    "state_interval_s": number(0),
    "resume": boolean,
    **dict.fromkeys(("exp_name", "path_policy"), anything),
}
# How long a worker that was started again may take to be connected.
_REJOIN_S = 20.0
# How long `close` waits for threads that should end at once.
_JOIN_S = 5.0


class Coordinator(ResumingCallbacks):
    """Runs a parallel training in threads of its own, until the commander ends it or something fails.

    Whoever makes one calls `start`, `wait` and `close`, and looks at `failure`. The methods called `deal_with_*` are
    told what happens on the workers; they may be called from any thread.

    Args:
        cfg: the compiled parallel config, with `main` and `system`. In `system.coordinator` are the address to listen
            at (`host`, `port`) and the workers (`learner` and `collector`, each `{name: [name, host, port]}`). It may
            have `transport` ('flask_fs', or 'local' for workers in this process); `path_data`, the folder whose files
            of samples are deleted when they are used up; `max_env_step`, after which the run ends; `operator_server`,
            who brings further workers, see `OperatorWorkers`.

    Raises:
        ConfigError: a value is not allowed, or a worker has no port.
        KeyError: there is no commander of that type.
    """

    config: dict[str, Any] = {
        # Seconds a task waits for a worker, or for its buffer.
        "collector_task_timeout": 30,
        "learner_task_timeout": 600,
        # Seconds a worker may take to answer one message.
        "task_timeout": 60,
        # Seconds without an env step of a collector, or without an iteration of a learner that has data, after which
        # its task is abandoned and the worker restarted; 0 for never.
        "task_silence_s": 60,
        # Seconds in which a worker that was lost may come back at its old address.
        "worker_return_timeout": 60,
        # How often, within so many seconds, `parallel_pipeline` starts a worker again whose process has died.
        "max_restarts": 3,
        "restart_window_s": 600,
        "operator_server": {},
        # How often the state is written to `<exp_name>/coordinator_state.msgpack`; 0 for not at all.
        "state_interval_s": 0,
        # Whether to go on from the state that is there; where none is, the run begins anew.
        "resume": False,
    }

    _is_started = False
    _is_closed = True  # nothing is open before the constructor has done its work

    @classmethod
    def default_config(cls) -> EasyDict:
        """A fresh copy of the class's defaults, with `cfg_type` = `<ClassName>Dict`."""
        return default_config_of(cls)

    def __init__(self, cfg: Mapping[str, Any]) -> None:
        self._cfg = EasyDict(cfg)
        own = EasyDict({"transport": DEFAULT_TRANSPORT, **self.config, **self._cfg.system.coordinator})
        check_config(own, type(self).__name__, _RULES)
        transport = get_transport(own.transport)
        if transport.needs_addresses:
            _check_addresses(own)
        exp_name = self._cfg.main.exp_name
        self._logger: Any = build_logger(os.path.join(".", exp_name, "log"), "coordinator", need_tb=False)[0]
        room = transport.replay(exp_name, own.get("path_data"), self._logger)
        self._comm_coordinator = CommCoordinator(own, self, self._logger)
        timeouts_s = {LEARNER: own.learner_task_timeout, COLLECTOR: own.collector_task_timeout}
        self._assigner = TaskAssigner(self, timeouts_s)
        commander = create_parallel_commander(self._cfg.main)
        state = RunState(own.get("max_env_step", math.inf))
        commander.env_steps = state.env_steps
        super().__init__(commander, room, state, self._cfg, own, self._logger)
        return_timeout_s = own.worker_return_timeout if transport.workers_return else 0
        self.worker_keeper: WorkerKeeper = self._make_keeper(return_timeout_s)
        self._again: deque[Task] = deque()
        self._status_reader = StatusReader(
            exp_name, self._state, room, self._comm_coordinator, self._assigner, self._task_state
        )
        for path, page in status_pages(self.status).items():
            self._comm_coordinator.serve_page(path, page)
        self._life = threading.Lock()
        self._is_closed = False

    def _make_keeper(self, return_timeout_s: float) -> WorkerKeeper:
        comm = self._comm_coordinator
        if comm.operator is not None:
            return comm.operator
        return ReturningWorkers(comm.rejoin, self._deal_with_no_return, return_timeout_s)

    @property
    def system_shutdown_flag(self) -> bool:
        """Whether the run is over; it stays so."""
        return self._state.is_over

    @property
    def failure(self) -> BaseException | None:
        """What ended the run if it failed, else None; see `failure_text`."""
        return self._state.failure

    @property
    def is_solved(self) -> bool:
        """Whether an evaluation has reached the goal of the run."""
        return self._commander.is_solved

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the run is over; False when `timeout_s` has passed first."""
        return self._state.wait(timeout_s)

    def progress(self) -> Progress:
        """How the run stands."""
        return self._state.progress()

    def status(self) -> RunStatus:
        """How the run stands, in all that can be told of it; over HTTP this is what the page at `url` shows."""
        return self._status_reader.read(self._is_closed)

    @property
    def url(self) -> str | None:
        """Where a browser shows how the run stands, from `start` on; None where nothing listens."""
        return self._comm_coordinator.url

    def start(self) -> None:
        """Connect the workers, and begin to give them tasks. Where that fails, it is closed.

        Raises:
            ConnectionError: workers of the config could not be reached; it names them all.
            StateError: there is a state to go on from, but it is damaged or of another run.
            RuntimeError: it was started or closed before.
        """
        with self._life:
            if self._is_started or self._is_closed:
                raise RuntimeError("a coordinator starts once; make another one")
            self._is_started = True
        try:
            self._begin_keeping()
            self._comm_coordinator.start()
            places = self._commander.collector_task_places
            if places is not None:
                self._spare_collectors = max(0, self._comm_coordinator.workers.count(COLLECTOR) - places)
            self._take_up()
            self._assigner.start()
        except BaseException:
            self.close()
            raise
        self.info("coordinator is started")

    def close(self) -> None:
        """End all tasks, disconnect the workers, close the buffers. Bounded in time; idempotent."""
        with self._life:
            is_closed, self._is_closed = self._is_closed, True
        if is_closed:
            return
        self._assigner.end()
        self.worker_keeper.close()
        self._room.wake()
        self._comm_coordinator.close()
        self._assigner.join(_JOIN_S)
        self._end_keeping()
        self._close_room()
        if self._commander_lock.acquire(timeout=_JOIN_S):  # not if the commander itself hangs
            try:
                self._commander.close()
            finally:
                self._commander_lock.release()
        self.info("coordinator is closed")

    def __del__(self) -> None:
        if not self._is_closed:
            self.close()

    def info(self, s: str) -> None:
        """Log a line."""
        self._logger.info("%s", s)

    def error(self, s: str) -> None:
        """Log a line about something that went wrong."""
        self._state.history.add_error(s)
        self._logger.error("%s", s)

    def _notify(self) -> None:
        self._assigner.notify()

    # Workers that are lost and come back.

    def deal_with_worker_gone(self, kind: str, name: str, error: Exception) -> None:
        """The process of a worker has died; it, or another in its place, comes back."""
        self.error(f"{kind} {name} is gone: {error}")
        self._comm_coordinator.drop(kind, name, str(error))

    def deal_with_worker_back(self, kind: str, name: str, host: str, port: int) -> None:
        """A worker takes tasks (again) at this address."""
        try:
            self._comm_coordinator.join(kind, name, host, port, _REJOIN_S)
        except Exception as e:
            if not self._state.is_over and not self.worker_keeper.lost(kind, name, e):
                self.deal_with_error(e)

    def _deal_with_no_return(self, kind: str, name: str, error: Exception) -> None:
        others = self._comm_coordinator.workers.count(kind)
        self.error(f"{kind} {name} has not come back; {others} others go on")
        if not others:
            self.deal_with_error(error)

    def _is_brought_back(self, kind: str, worker_id: str, error: WorkerLost) -> bool:
        return not self._state.is_over and self.worker_keeper.lost(kind, worker_id, error)

    def _run_again(self, kind: str, task: Task) -> None:
        self._again.append({**task, "resume": True})
        self._notify()

    # Where the assigner gets tasks from, and brings them to.

    def free_count(self, kind: str) -> int:
        """How many workers of this kind wait for a task; none when the run is over."""
        return 0 if self._state.is_over else self._comm_coordinator.free_count(kind)

    def next_task(self, kind: str) -> Task | None:
        """The commander's next task of this kind, or one that is to run again."""
        if kind == LEARNER and self._again:
            return self._again.popleft()
        with self._commander_lock:
            if kind == COLLECTOR:
                return self._commander.get_collector_task()
            task = self._commander.get_learner_task()
            if task is not None:
                self._learner_tasks[task["task_id"]] = task
            return task

    def can_begin(self, kind: str, task: Task) -> bool:
        """Whether there is what the task needs: samples need a buffer."""
        return kind == LEARNER or task["collector_cfg"]["eval_flag"] or task["buffer_id"] in self._replay_buffer

    def begin_task(self, kind: str, task: Task) -> bool:
        """Give the task to a free worker, if there is one."""
        # Known before it begins: its first data may come before `send` returns.
        self._task_state[task["task_id"]] = TaskState(task["task_id"])
        if kind == COLLECTOR:
            is_sent = self._comm_coordinator.send_collector_task(self._with_replay(task))
        else:
            sent = dict(task)
            buffer_cfg = sent.pop("replay_buffer_cfg", None)
            if buffer_cfg is not None:  # else it is there: the task runs again
                self._room.open(task["buffer_id"], buffer_cfg)
            is_sent = self._comm_coordinator.send_learner_task(self._with_replay(sent))
        if not is_sent:
            self._task_state.pop(task["task_id"], None)
        return is_sent

    def _with_replay(self, task: Task) -> Task:
        """The task, and where its worker finds the samples, if it is the worker that looks for them."""
        where = self._room.where(task["buffer_id"])
        return task if where is None else {**task, REPLAY: where}

    def drop_task(self, kind: str, task: Task) -> None:
        """The task has waited for too long. Where a training would be lost with it, the run ends."""
        self.error(f"{kind} task {task['task_id']} could not begin in time and is dropped")
        if task.get("resume"):
            error = TimeoutError(f"no {kind} has come in time to go on with the task {task['task_id']}")
            self._deal_with_failed_task(kind, task, error)
        else:
            self._forget_failed_task(kind, task)


def _check_addresses(own: Mapping[str, Any]) -> None:
    """Refuse workers that could never be reached.

    Raises:
        ConfigError: the port of a worker is 0.
    """
    for kind in (LEARNER, COLLECTOR):
        for name, _, port in own.get(kind, {}).values():
            if not port:
                raise ConfigError(
                    f"system.coordinator.{kind}.{name} has port {port!r}, where it cannot be reached; start {name} "
                    f"first and write the port that it reports there, or compile the config without {kind}_port=0"
                )
