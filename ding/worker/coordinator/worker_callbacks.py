"""What a coordinator does when its workers tell it something."""

from __future__ import annotations

import threading
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from ding.worker.coordinator.base_parallel_commander import BaseCommander
from ding.worker.coordinator.kept_buffers import KeptBufferRoom
from ding.worker.coordinator.run_state import RunState
from ding.worker.coordinator.task_run import COLLECTOR, LEARNER, Rows, Task, TaskStalled
from ding.worker.transport.ledger import DATA_ID
from ding.worker.transport.link import TaskFailed, WorkerLost
from ding.worker.transport.stores import StorageError

# How long a wait for samples may last before the learner is asked again whether it still wants them.
_DATA_WAIT_S = 0.25
# So many collecting tasks in a row may fail to write samples, each of which has tried for some seconds.
_MAX_STORAGE_ERRORS = 5


@dataclass(slots=True)
class TaskState:
    """A running task.

    Attributes:
        last_chunk: that its collector has told of last.
    """

    task_id: str
    start_time: float = field(default_factory=monotonic)
    last_chunk: Any = ""


class WorkerCallbacks(ABC):
    """The methods called `deal_with_*` are told what happens on the workers. Thread-safe.

    Args:
        commander: decides; it is called under one lock.

    Attributes:
        on_evaluation: if set, called with what is reported at the end of each evaluation.
    """

    def __init__(self, commander: BaseCommander, room: KeptBufferRoom, state: RunState) -> None:
        self._commander = commander
        self._commander_lock = threading.RLock()
        self._room, self._state = room, state
        self._replay_buffer = room.buffers
        self._task_state: dict[str, TaskState] = {}
        self._historical_task: list[str] = []
        self._learner_tasks: dict[str, Task] = {}  # those that run, or are still to run
        self._spare_collectors = 0  # at the start: so many more than places for their tasks
        self._collectors_since = 0  # by how many there are more since then, or fewer
        self._storage_errors = 0  # since samples have come
        self._told_losses: dict[tuple[str, str], int] = {}  # by task and kind: how many there were when told of last
        self.on_evaluation: Callable[[Mapping[str, Any]], Any] | None = None

    @abstractmethod
    def info(self, s: str) -> None:
        """Log a line."""

    @abstractmethod
    def error(self, s: str) -> None:
        """Log a line about something that went wrong."""

    @abstractmethod
    def _notify(self) -> None:
        """There may be tasks to give, or workers to give them to."""

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
        with self._commander_lock:
            self._commander.update_collector_info(task_id, data)
            return bool(self._commander.judge_collector_finish(task_id, data))

    def deal_with_collector_progress(self, task_id: str, progress: Mapping[str, Any]) -> None:
        """A collector tells, in the middle of an episode perhaps, how many env steps its task has made."""
        if self._is_known(task_id, "progress") and self._state.take_collector_info(task_id, progress):
            self._end_at_limit()

    def is_collector_task_useless(self, task_id: str) -> bool:
        """Whether nobody needs what the task would bring from now on."""
        with self._commander_lock:
            return bool(self._commander.is_collector_task_useless(task_id))

    def deal_with_collector_finish_task(self, task_id: str, finished_task: Mapping[str, Any]) -> None:
        """A collector task is done."""
        if not self._is_known(task_id, "the end"):
            return
        if self._state.take_collector_end(task_id, finished_task):
            self._end_at_limit()
        with self._commander_lock:
            is_over = self._commander.finish_collector_task(task_id, finished_task)
        self._task_state.pop(task_id, None)
        self._historical_task.append(task_id)
        if self.on_evaluation is not None and finished_task.get("eval_flag"):
            self.on_evaluation(finished_task)
        reason = "an evaluation has reached the goal" if self._commander.is_solved else "the training is through"
        if is_over and self._state.end(reason=reason):  # latched: what finishes later cannot take it back
            self.info("the commander ends the run")
        self._notify()

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
        with self._commander_lock:
            self._commander.update_learner_info(task_id, info)
        if is_first:  # a commander may have held collectors back until now
            self._notify()

    def _tell_losses(self, task_id: str, info: Mapping[str, Any]) -> None:
        """Bad files are told of each time there are twice as many: not each one, and not only the first."""
        bad_files, lost_shards = int(info.get("bad_files", 0)), int(info.get("lost_shards", 0))
        if bad_files >= max(1, 2 * self._told_losses.get((task_id, "bad_files"), 0)):
            self._told_losses[task_id, "bad_files"] = bad_files
            self.error(
                f"the learner of the task {task_id} has passed over {bad_files} bad files of samples; see its log"
            )
        if lost_shards > self._told_losses.get((task_id, "lost_shards"), 0):
            self._told_losses[task_id, "lost_shards"] = lost_shards
            self.error(
                f"the learner of the task {task_id} has lost {lost_shards} shards of its replay buffer so far, with "
                f"{info['lost_samples']} samples in them; others are in their place"
            )

    def deal_with_learner_judge_finish(self, task_id: str, info: Mapping[str, Any]) -> bool:
        """Whether the learner task is done."""
        self._require(task_id)
        with self._commander_lock:
            return bool(self._commander.judge_learner_finish(task_id, info))

    def deal_with_learner_finish_task(self, task_id: str, finished_task: Mapping[str, Any]) -> None:
        """A learner task is done; its buffer goes."""
        self._require(task_id)
        with self._commander_lock:
            buffer_id = self._commander.finish_learner_task(task_id, finished_task)
            self._learner_tasks.pop(task_id, None)
        self._task_state.pop(task_id, None)
        for kind in ("bad_files", "lost_shards"):
            self._told_losses.pop((task_id, kind), None)
        self._historical_task.append(task_id)
        self._end_training(task_id, buffer_id)
        self._notify()

    # Workers that come and go, and what goes wrong.

    def deal_with_worker_free(self, kind: str, worker_id: str) -> None:
        """A worker waits for a task."""
        self._notify()

    def deal_with_worker_lost(self, kind: str, worker_id: str, task: Task | None, error: WorkerLost) -> None:
        """A worker has gone, with the task that it had. Where it may be brought back, the run goes on without it."""
        if isinstance(error, TaskStalled):
            self._state.count_stalled_task()
        self.error(f"{kind} {worker_id} is lost: {error}")
        is_brought_back = self._is_brought_back(kind, worker_id, error)
        if task is None:
            if not is_brought_back:
                self._deal_with_no_return(kind, worker_id, error)
        elif not is_brought_back:
            self._deal_with_failed_task(kind, task, error)
        elif kind == LEARNER:
            self._room.forget_task(task["task_id"])
            self._run_again(kind, task)
        else:  # the commander thinks of another
            self._forget_failed_task(kind, task)

    @abstractmethod
    def _is_brought_back(self, kind: str, worker_id: str, error: WorkerLost) -> bool:
        """Whether somebody sees to it that a lost worker, or another in its place, comes back."""

    @abstractmethod
    def _deal_with_no_return(self, kind: str, name: str, error: Exception) -> None:
        """A worker is lost for good; the run goes on if there are others of its kind."""

    @abstractmethod
    def _run_again(self, kind: str, task: Task) -> None:
        """Have a task, whose buffer is still there, run on the next free worker, from where it stood."""

    def deal_with_task_error(self, kind: str, task: Task, error: Exception) -> None:
        """A task has failed: in the worker (`TaskFailed`), or here while its messages were dealt with."""
        self.error(f"{kind} task {task['task_id']} has failed: {failure_text(error)}")
        if kind == COLLECTOR and self._may_pass(error):
            self._forget_failed_task(kind, task)  # the commander thinks of another
        else:
            self._deal_with_failed_task(kind, task, error)

    def _may_pass(self, error: Exception) -> bool:
        """Whether a collector could not write its samples, and not yet so many in a row that none can."""
        if not (isinstance(error, TaskFailed) and error.result.get("exception") == StorageError.__name__):
            return False
        with self._commander_lock:
            self._storage_errors += 1
            return self._storage_errors <= _MAX_STORAGE_ERRORS

    def deal_with_error(self, error: Exception) -> None:
        """Something has failed here that belongs to no task; the run ends."""
        self.error(f"the run has failed: {failure_text(error)}")
        self._state.end(error)

    def deal_with_increase_collector(self) -> None:
        """A collector has come: in the place of one that has gone, or in addition."""
        self._change_collectors(1)
        self._notify()

    def deal_with_decrease_collector(self) -> None:
        """A collector has gone. The commander is told where there are fewer than may run tasks."""
        self._change_collectors(-1)

    def _change_collectors(self, change: int) -> None:
        with self._commander_lock:
            before = self._places_since()
            self._collectors_since += change
            if self._places_since() > before:
                self._commander.increase_collector_task_space()
            elif self._places_since() < before:
                self._commander.decrease_collector_task_space()

    def _places_since(self) -> int:
        """How many places more than at the start, or fewer: those who were spare go, and come back, without one."""
        return max(0, self._collectors_since) + min(0, self._collectors_since + self._spare_collectors)

    def _deal_with_failed_task(self, kind: str, task: Task, error: Exception) -> None:
        self._state.end(error)
        self._forget_failed_task(kind, task)

    def _forget_failed_task(self, kind: str, task: Task) -> None:
        try:
            state = self._task_state.pop(task["task_id"], None)
            if kind == COLLECTOR:
                self._state.drop_collector(task["task_id"])
                self._room.abandon("" if state is None else state.last_chunk)
            else:
                self._end_training(task["task_id"], task["buffer_id"])
            self._notify_fail(kind, task)
        except Exception as e:
            self.deal_with_error(e)

    def _notify_fail(self, kind: str, task: Task) -> None:
        with self._commander_lock:
            if kind == COLLECTOR:
                self._commander.notify_fail_collector_task(task)
            else:
                self._commander.notify_fail_learner_task(task)
                self._learner_tasks.pop(task["task_id"], None)
        self._notify()

    def _end_training(self, task_id: str, buffer_id: str | None) -> None:
        self._room.forget_task(task_id)
        if buffer_id is not None:
            self._room.close_buffer(buffer_id)

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


def failure_text(error: BaseException) -> str:
    """What to tell about the failure of a run: the worker's own traceback where it failed there, else that of here."""
    if isinstance(error, (TaskFailed, WorkerLost)):
        return str(error)
    return "".join(traceback.format_exception(type(error), error, error.__traceback__))
