"""The centre of parallel training: it asks the commander for tasks, gives them to workers, and keeps the buffers."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Mapping
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
from ding.worker.coordinator.comm_coordinator import (
    COLLECTOR,
    LEARNER,
    CommCoordinator,
    Rows,
    Task,
    TaskStalled,
    failure_text,
)
from ding.worker.coordinator.run_state import Progress, RunState
from ding.worker.coordinator.saved_run import SavedRun
from ding.worker.coordinator.scheduler import RunTasks, TaskAssigner, TaskState
from ding.worker.coordinator.status import RunStatus, StatusReader, status_pages
from ding.worker.coordinator.worker_table import ReturningWorkers, WorkerKeeper
from ding.worker.transport.ledger import DATA_ID
from ding.worker.transport.link import TaskFailed, WorkerLost
from ding.worker.transport.stores import StorageError
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
    "run_token": anything,
    "collector": instance_of(Mapping),
    "learner": instance_of(Mapping),
    "path_data": instance_of(str, optional=True),
    "replay_shards": integer(1),
    "operator_server": instance_of(Mapping),
    "state_interval_s": number(0),
    "resume": boolean,
    **dict.fromkeys(("exp_name", "path_policy", "ray"), anything),
}
# How long a worker that was started again may take to be connected.
_REJOIN_S = 20.0
# How long `close` waits for threads that should end at once.
_JOIN_S = 5.0
# How long a wait for samples may last before the learner is asked again whether it still wants them.
_DATA_WAIT_S = 0.25
# So many collecting tasks in a row may fail to write samples, each of which has tried for some seconds.
_MAX_STORAGE_ERRORS = 5


# What learners count, and how it is told.
_LOSSES = {
    "bad_files": "has passed over {} bad files of samples",
    "unwritten_weights": "could not write its weights {} times",
    "unwritten_checkpoints": "could not save {} of its checkpoints",
}


class Coordinator:
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

    Attributes:
        worker_keeper: who brings back workers that are lost.
        on_evaluation: if set, called with what is reported at the end of each evaluation.
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
        # Parts of each replay buffer, where the transport keeps samples in shards.
        "replay_shards": 1,
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
        room = transport.replay(exp_name, own, self._logger)
        self._room, self._replay_buffer = room, room.buffers
        self._state = RunState(own.get("max_env_step", math.inf))
        self._comm_coordinator = CommCoordinator(own, self, self._logger)
        self._commander = create_parallel_commander(self._cfg.main)
        self._commander.env_steps = self._state.env_steps
        self._tasks = RunTasks(self._commander, room, self._state, self._comm_coordinator, self)
        self._task_state, self._historical_task = self._tasks.running, self._tasks.finished
        timeouts_s = {LEARNER: own.learner_task_timeout, COLLECTOR: own.collector_task_timeout}
        self._assigner = TaskAssigner(self._tasks, timeouts_s, lambda error: self.deal_with_error(error))
        self._saved = SavedRun(self._tasks, room, self._state, self._cfg, own, self._logger, self)
        return_timeout_s = own.worker_return_timeout if transport.workers_return else 0
        self.worker_keeper: WorkerKeeper = self._make_keeper(return_timeout_s)
        self.on_evaluation: Callable[[Mapping[str, Any]], Any] | None = None
        self._storage_errors = 0  # since samples have come
        self._told_losses: dict[tuple[str, str], int] = {}  # by task and kind: how many there were when told of last
        self._status_reader = StatusReader(
            exp_name, self._state, room, self._comm_coordinator, self._assigner, self._tasks.running
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
            self._saved.begin()
            self._comm_coordinator.start()
            self._tasks.count_spare_collectors()
            self._saved.take_up()
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
        self._saved.end()
        self._tasks.close()
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

    # The run as a state that another coordinator can go on from.

    def state_dict(self) -> dict[str, Any]:
        """See `SavedRun.state_dict`."""
        return self._saved.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """See `SavedRun.load_state_dict`."""
        self._saved.load_state_dict(state_dict)

    def resume(self, path: str | None = None) -> None:
        """See `SavedRun.resume`."""
        self._saved.resume(path)

    # What happens on collectors.

    def deal_with_collector_send_data(self, task_id: str, buffer_id: str, data_id: str, data: Any) -> None:
        """Samples have come.

        Args:
            data: the metadata of one sample, or of several in a list.
        """
        if not self._is_known(task_id, "samples"):
            return
        rows = data if isinstance(data, list) else [data]
        newest = rows[-1:][0] if rows else {}  # a part, for looking at an item makes all of them
        if rows:
            self._task_state[task_id].last_chunk = newest.get(DATA_ID, "")
            self._storage_errors = 0
        taken = self._room.push(buffer_id, rows)
        if taken is None:
            self._tell_dropped(buffer_id, len(rows))
        elif rows:
            self._count_samples(task_id, taken, newest)

    def deal_with_collector_pushed(self, task_id: str, buffer_id: str, newest: Mapping[str, Any]) -> None:
        """A collector has given samples to the shards of a buffer itself.

        Args:
            newest: the metadata of the last of them, with `pushed` and `dropped`: how many they were.
        """
        if not self._is_known(task_id, "samples"):
            return
        if newest["dropped"]:
            self._tell_dropped(buffer_id, newest["dropped"])
        if newest["pushed"]:
            self._storage_errors = 0
        self._count_samples(task_id, int(newest["pushed"]), newest)

    def _tell_dropped(self, buffer_id: str, count: int) -> None:
        say = self.info if self._state.is_over else self.error  # what comes after the end is no surprise
        say(f"{count} samples for the unknown buffer {buffer_id} are dropped")

    def _count_samples(self, task_id: str, count: int, newest: Mapping[str, Any]) -> None:
        if self._state.take_samples(task_id, count, newest):
            self._end_at_limit()

    def deal_with_collector_judge_finish(self, task_id: str, data: Mapping[str, Any]) -> bool:
        """A collector tells how far it is; returns whether its task is done."""
        if not self._is_known(task_id, "an info"):
            return False
        if self._state.take_collector_info(task_id, data):
            self._end_at_limit()
        with self._tasks.lock:
            self._commander.update_collector_info(task_id, data)
            return bool(self._commander.judge_collector_finish(task_id, data))

    def deal_with_collector_progress(self, task_id: str, progress: Mapping[str, Any]) -> None:
        """A collector tells, in the middle of an episode perhaps, how many env steps its task has made."""
        if self._is_known(task_id, "progress") and self._state.take_collector_info(task_id, progress):
            self._end_at_limit()

    def is_collector_task_useless(self, task_id: str) -> bool:
        """Whether nobody needs what the task would bring from now on."""
        with self._tasks.lock:
            return bool(self._commander.is_collector_task_useless(task_id))

    def deal_with_collector_finish_task(self, task_id: str, finished_task: Mapping[str, Any]) -> None:
        """A collector task is done."""
        if not self._is_known(task_id, "the end"):
            return
        if self._state.take_collector_end(task_id, finished_task):
            self._end_at_limit()
        with self._tasks.lock:
            is_over = self._commander.finish_collector_task(task_id, finished_task)
        self._tasks.finish(task_id)
        if self.on_evaluation is not None and finished_task.get("eval_flag"):
            self.on_evaluation(finished_task)
        reason = "an evaluation has reached the goal" if self._commander.is_solved else "the training is through"
        if is_over and self._state.end(reason=reason):  # latched: what finishes later cannot take it back
            self.info("the commander ends the run")
        self._assigner.notify()

    # What happens on learners.

    def deal_with_learner_get_data(
        self, task_id: str, buffer_id: str, batch_size: int, cur_learner_iter: int
    ) -> Rows | None:
        """A batch for a learner; None while the buffer cannot give one.

        Raises:
            RuntimeError: the task is unknown; of all methods about learners.
        """
        self._require(task_id)
        return self._room.sample(task_id, buffer_id, batch_size, cur_learner_iter)

    def deal_with_learner_level(self, buffer_id: str, level: int) -> None:
        """A learner that draws its batches itself has found so many samples in its buffer."""
        self._room.note_level(buffer_id, level)

    def wait_for_data(self, task_id: str) -> None:
        """Wait a moment for samples to come, after a learner of this task got none."""
        self._room.wait_for_push(task_id, _DATA_WAIT_S)

    def deal_with_learner_batches_done(self, task_id: str, count: int) -> None:
        """The learner has read the `count` oldest batches that it was given."""
        self._room.trained(task_id, count)

    def deal_with_learner_send_info(self, task_id: str, buffer_id: str, info: Mapping[str, Any]) -> None:
        """A learner tells of an iteration."""
        self._require(task_id)
        if not self._room.update(buffer_id, info.get("priority_info") or {}):
            self.error(f"priorities for the unknown buffer {buffer_id} are dropped")
        self._tell_losses(task_id, info)
        is_first = self._state.take_learner_info(info)
        with self._tasks.lock:
            self._commander.update_learner_info(task_id, info)
        if is_first:  # a commander may have held collectors back until now
            self._assigner.notify()

    def _tell_losses(self, task_id: str, info: Mapping[str, Any]) -> None:
        """What may happen often is told of each time there is twice as much: not each time, and not only at first."""
        for kind, text in _LOSSES.items():
            count = int(info.get(kind, 0))
            if count >= max(1, 2 * self._told_losses.get((task_id, kind), 0)):
                self._told_losses[task_id, kind] = count
                self.error(f"the learner of the task {task_id} {text.format(count)}; see its log")
        lost_shards = int(info.get("lost_shards", 0))
        if lost_shards > self._told_losses.get((task_id, "lost_shards"), 0):
            self._told_losses[task_id, "lost_shards"] = lost_shards
            self.error(
                f"the learner of the task {task_id} has lost {lost_shards} shards of its replay buffer so far, with "
                f"{info['lost_samples']} samples in them; others are in their place"
            )

    def deal_with_learner_judge_finish(self, task_id: str, info: Mapping[str, Any]) -> bool:
        """Whether the learner task is done."""
        self._require(task_id)
        with self._tasks.lock:
            return bool(self._commander.judge_learner_finish(task_id, info))

    def deal_with_learner_finish_task(self, task_id: str, finished_task: Mapping[str, Any]) -> None:
        """A learner task is done; its buffer goes."""
        self._require(task_id)
        with self._tasks.lock:
            buffer_id = self._commander.finish_learner_task(task_id, finished_task)
            self._tasks.learner_tasks.pop(task_id, None)
        for kind in (*_LOSSES, "lost_shards"):
            self._told_losses.pop((task_id, kind), None)
        self._tasks.finish(task_id)
        self._tasks.end_training(task_id, buffer_id)
        self._assigner.notify()

    # Workers that come and go, and what goes wrong.

    def deal_with_worker_free(self, kind: str, worker_id: str) -> None:
        """A worker waits for a task."""
        self._assigner.notify()

    def deal_with_worker_lost(self, kind: str, worker_id: str, task: Task | None, error: WorkerLost) -> None:
        """A worker has gone, with the task that it had. Where it may be brought back, the run goes on without it."""
        if task is None and self._state.is_over:
            return
        if isinstance(error, TaskStalled):
            self._state.count_stalled_task()
        self.error(f"{kind} {worker_id} is lost: {error}")
        is_brought_back = self._is_brought_back(kind, worker_id, error)
        if task is None:
            if not is_brought_back:
                self._deal_with_no_return(kind, worker_id, error)
        elif not is_brought_back:
            self._tasks.fail(kind, task, error)
        elif kind == LEARNER:
            self._room.forget_task(task["task_id"])
            self._tasks.run_again(task)
        else:
            self._tasks.forget(kind, task)

    def deal_with_task_error(self, kind: str, task: Task, error: Exception) -> None:
        """A task has failed: in the worker (`TaskFailed`), or here while its messages were dealt with."""
        self.error(f"{kind} task {task['task_id']} has failed: {failure_text(error)}")
        if kind == COLLECTOR and self._may_pass(error):
            self._tasks.forget(kind, task)
        else:
            self._tasks.fail(kind, task, error)

    def _may_pass(self, error: Exception) -> bool:
        """Whether a collector could not write its samples, and not yet so many in a row that none can."""
        if not (isinstance(error, TaskFailed) and error.result.get("exception") == StorageError.__name__):
            return False
        with self._tasks.lock:
            self._storage_errors += 1
            return self._storage_errors <= _MAX_STORAGE_ERRORS

    def deal_with_error(self, error: Exception) -> None:
        """Something has failed here that belongs to no task; the run ends."""
        self.error(f"the run has failed: {failure_text(error)}")
        self._state.end(error)

    def deal_with_increase_collector(self) -> None:
        """A collector has come: in the place of one that has gone, or in addition."""
        self._tasks.change_collectors(1)
        self._assigner.notify()

    def deal_with_decrease_collector(self) -> None:
        """A collector has gone. The commander is told where there are fewer than may run tasks."""
        self._tasks.change_collectors(-1)

    def _end_at_limit(self) -> None:
        if self._state.end(reason="max_env_step is reached"):
            self.info(f"the run ends after {self._state.progress().env_steps} env steps, as max_env_step says")

    def _is_known(self, task_id: str, what: str) -> bool:
        if task_id not in self._task_state:
            self.error(f"{what} of the unknown collector task {task_id} came and is ignored")
            return False
        return True

    def _require(self, task_id: str) -> None:
        if task_id not in self._task_state:
            raise RuntimeError(f"the learner task {task_id} is unknown; those running: {sorted(self._task_state)}")

    def notify(self) -> None:
        """There may be tasks to give, or workers to give them to."""
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
