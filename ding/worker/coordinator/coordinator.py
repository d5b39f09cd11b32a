"""The centre of parallel training: it asks the commander for tasks, gives them to workers, and keeps the buffers."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Mapping
from typing import Any

from easydict import EasyDict

from ding.utils.config_helper import (
    ConfigError,
    anything,
    check_config,
    default_config_of,
    instance_of,
    integer,
    number,
    one_of,
)
from ding.utils.log_helper import build_logger
from ding.worker.coordinator.base_parallel_commander import create_parallel_commander
from ding.worker.coordinator.buffer_room import BufferRoom, make_sample_store
from ding.worker.coordinator.comm_coordinator import CommCoordinator
from ding.worker.coordinator.run_state import Progress, RunState
from ding.worker.coordinator.task_assigner import TaskAssigner
from ding.worker.coordinator.task_run import COLLECTOR, LEARNER, Task
from ding.worker.coordinator.worker_callbacks import TaskState, WorkerCallbacks, failure_text

__all__ = ["Coordinator", "Progress", "TaskState", "failure_text"]

_RULES = {
    "collector_task_timeout": number(0),
    "learner_task_timeout": number(0),
    "task_timeout": number(0),
    "max_env_step": number(0),
    "transport": one_of("http", "local"),
    "host": instance_of(str, optional=True),
    "port": integer(0, 65535),
    "collector": instance_of(Mapping),
    "learner": instance_of(Mapping),
    "path_data": instance_of(str, optional=True),
    "operator_server": instance_of(Mapping),
    **dict.fromkeys(("exp_name", "path_policy"), anything),
}
# How long `close` waits for threads that should end at once.
_JOIN_S = 5.0


class Coordinator(WorkerCallbacks):
    """Runs a parallel training in threads of its own, until the commander ends it or something fails.

    Whoever makes one calls `start`, `wait` and `close`, and looks at `failure`. The methods called `deal_with_*` are
    told what happens on the workers; they may be called from any thread.

    Args:
        cfg: the compiled parallel config, with `main` and `system`. In `system.coordinator` are the address to listen
            at (`host`, `port`) and the workers (`learner` and `collector`, each `{name: [name, host, port]}`). It may
            have `transport` ('http', or 'local' for workers in this process); `path_data`, the folder whose files of
            samples are deleted when they are used up; `max_env_step`, after which the run ends.

    Raises:
        ConfigError: a value is not allowed.
        KeyError: there is no commander of that type.
    """

    config: dict[str, Any] = {
        # Seconds a task waits for a worker, or for its buffer.
        "collector_task_timeout": 30,
        "learner_task_timeout": 600,
        # Seconds a worker may take to answer one message.
        "task_timeout": 60,
        "operator_server": {},
    }

    _is_started = False
    _is_closed = True  # nothing is open before the constructor has done its work

    @classmethod
    def default_config(cls) -> EasyDict:
        """A fresh copy of the class's defaults, with `cfg_type` = `<ClassName>Dict`."""
        return default_config_of(cls)

    def __init__(self, cfg: Mapping[str, Any]) -> None:
        self._cfg = EasyDict(cfg)
        own = EasyDict({**self.config, **self._cfg.system.coordinator})
        check_config(own, type(self).__name__, _RULES)
        if own.operator_server:
            raise ConfigError("Coordinator: operator_server is not supported; list the workers in the config instead")
        exp_name = self._cfg.main.exp_name
        self._logger: Any = build_logger(os.path.join(".", exp_name, "log"), "coordinator", need_tb=False)[0]
        store = make_sample_store(own.get("transport", "http"), own.get("path_data"))
        room = BufferRoom(exp_name, store, self._logger)
        self._comm_coordinator = CommCoordinator(own, self, self._logger)
        timeouts_s = {LEARNER: own.learner_task_timeout, COLLECTOR: own.collector_task_timeout}
        self._assigner = TaskAssigner(self, timeouts_s)
        commander = create_parallel_commander(self._cfg.main)
        super().__init__(commander, room, RunState(own.get("max_env_step", math.inf)))
        self._life = threading.Lock()
        self._is_closed = False

    @property
    def system_shutdown_flag(self) -> bool:
        """Whether the run is over; it stays so."""
        return self._state.is_over

    @property
    def failure(self) -> BaseException | None:
        """What ended the run if it failed, else None; see `failure_text`."""
        return self._state.failure

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the run is over; False when `timeout_s` has passed first."""
        return self._state.wait(timeout_s)

    def progress(self) -> Progress:
        """How the run stands."""
        return self._state.progress()

    def start(self) -> None:
        """Connect the workers, and begin to give them tasks. Where that fails, it is closed.

        Raises:
            ConnectionError: workers of the config could not be reached; it names them all.
            RuntimeError: it was started or closed before.
        """
        with self._life:
            if self._is_started or self._is_closed:
                raise RuntimeError("a coordinator starts once; make another one")
            self._is_started = True
        try:
            self._comm_coordinator.start()
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
        self._room.wake()
        self._comm_coordinator.close()
        self._assigner.join(_JOIN_S)
        self._room.close()
        if self._commander_lock.acquire(timeout=_JOIN_S):  # not if the commander itself hangs
            try:
                self._commander.close()
            finally:
                self._commander_lock.release()
        self.info("coordinator is closed")

    def __del__(self) -> None:
        if not self._is_closed:
            self.close()

    def state_dict(self) -> dict[str, Any]:
        """Nothing, as yet: `{}`."""
        return {}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Do nothing, as yet."""

    def info(self, s: str) -> None:
        """Log a line."""
        self._logger.info("%s", s)

    def error(self, s: str) -> None:
        """Log a line about something that went wrong."""
        self._logger.error("%s", s)

    def _notify(self) -> None:
        self._assigner.notify()

    # Where the assigner gets tasks from, and brings them to.

    def free_count(self, kind: str) -> int:
        """How many workers of this kind wait for a task; none when the run is over."""
        return 0 if self._state.is_over else self._comm_coordinator.free_count(kind)

    def next_task(self, kind: str) -> Task | None:
        """The commander's next task of this kind."""
        with self._commander_lock:
            if kind == COLLECTOR:
                return self._commander.get_collector_task()
            return self._commander.get_learner_task()

    def can_begin(self, kind: str, task: Task) -> bool:
        """Whether there is what the task needs: samples need a buffer."""
        return kind == LEARNER or task["collector_cfg"]["eval_flag"] or task["buffer_id"] in self._replay_buffer

    def begin_task(self, kind: str, task: Task) -> bool:
        """Give the task to a free worker, if there is one."""
        # Known before it begins: its first data may come before `send` returns.
        self._task_state[task["task_id"]] = TaskState(task["task_id"])
        if kind == COLLECTOR:
            is_sent = self._comm_coordinator.send_collector_task(task)
        else:
            sent = dict(task)
            self._room.open(task["buffer_id"], sent.pop("replay_buffer_cfg"))
            is_sent = self._comm_coordinator.send_learner_task(sent)
        if not is_sent:
            self._task_state.pop(task["task_id"], None)
        return is_sent

    def drop_task(self, kind: str, task: Task) -> None:
        """The task has waited for too long."""
        self.error(f"{kind} task {task['task_id']} could not begin in time and is dropped")
        self._notify_fail(kind, task)
