"""The scheduler of a run, which gets tasks from the commander, gives them to workers, and handles their failure."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Protocol

from ding.utils.system_helper import DaemonThreads
from ding.worker.coordinator.base_parallel_commander import BaseCommander, Task
from ding.worker.coordinator.buffer_set import BufferSet
from ding.worker.coordinator.comm_coordinator import CommCoordinator
from ding.worker.coordinator.run_monitor import RunMonitor
from ding.worker.transport.transport import COLLECTOR, LEARNER, QUEUE_SIZE

# How long the caller waits for a commander that is busy.
COMMANDER_TIMEOUT_S = 5.0
# A commander may depend on the time, so it is asked again after this time without any event.
IDLE_S = 1.0


class RunOwner(Protocol):
    """The owner of a run, who informs the user and ends the run after errors."""

    def info(self, s: str) -> None:
        """Log a line."""

    def error(self, s: str) -> None:
        """Log an error."""

    def warn(self, s: str) -> None:
        """Log an error that the run survives, or tries to survive, and tell the user about it."""

    def deal_with_error(self, error: Exception) -> None:
        """End the run because of an error that belongs to no task."""


@dataclass(slots=True)
class TaskState:
    """A running task.

    Attributes:
        bad_files: number of bad files of samples that was logged last.
        is_silent: whether the user was told that it makes no env steps.
    """

    task_id: str
    start_time: float = field(default_factory=monotonic)
    bad_files: int = 0
    is_silent: bool = False


class TaskScheduler:
    """The scheduler that gives the commander's tasks to free workers, in a thread of its own.

    This class is thread-safe.

    A task begins as soon as it can; none waits behind another.

    Args:
        commander: decides which tasks exist; it is called under `lock`.
        owner: receives errors.
        timeouts_s: seconds that a task may wait for a worker or for its buffer, by kind of task.

    Attributes:
        running: the tasks that were given to workers, by id.
        finished: the ids of finished tasks.
        learner_tasks: the learner tasks that run or wait, by id; consistent with the commander under `lock`.
    """

    def __init__(
        self,
        commander: BaseCommander,
        buffers: BufferSet,
        monitor: RunMonitor,
        comm: CommCoordinator,
        owner: RunOwner,
        timeouts_s: Mapping[str, float],
    ) -> None:
        self.commander, self.lock = commander, threading.RLock()
        self.running: dict[str, TaskState] = {}
        self.finished: list[str] = []
        self.learner_tasks: dict[str, Task] = {}
        self._buffers, self._monitor, self._comm, self._owner = buffers, monitor, comm, owner
        self._timeouts_s = timeouts_s
        self._again: deque[Task] = deque()
        self._waiting: dict[str, list[tuple[Task, float]]] = {LEARNER: [], COLLECTOR: []}  # tasks, and since when
        self._changed = threading.Condition()
        self._is_notified = self._is_ending = False
        self._threads = DaemonThreads()

    @contextlib.contextmanager
    def locked_commander(self) -> Iterator[BaseCommander]:
        """Hold the lock, and give the commander to the `with` block.

        Raises:
            TimeoutError: the commander hangs.
        """
        if not self.lock.acquire(timeout=COMMANDER_TIMEOUT_S):
            raise TimeoutError(f"the commander has been busy for {COMMANDER_TIMEOUT_S:g} s")
        try:
            yield self.commander
        finally:
            self.lock.release()

    # The thread that gives tasks to workers.

    def start(self) -> None:
        """Start the thread, unless `end` was called before."""
        with self._changed:
            if not self._is_ending:
                self._threads.start("coordinator_assign", self._run)

    def notify(self) -> None:
        """Report a change, for example that a worker is free, or that a task has ended."""
        with self._changed:
            self._is_notified = True
            self._changed.notify()

    def waiting_counts(self) -> dict[str, int]:
        """Return the number of tasks of each kind that wait to begin."""
        return {kind: len(waiting) for kind, waiting in self._waiting.items()}

    def end(self) -> None:
        """Stop giving tasks to workers."""
        with self._changed:
            self._is_ending = True
            self._changed.notify()

    def join(self, timeout_s: float) -> None:
        """Wait for the thread to end after `end`."""
        self._threads.join(timeout_s)

    def close(self) -> None:
        """Close the commander, unless it hangs."""
        with contextlib.suppress(TimeoutError), self.locked_commander() as commander:
            commander.close()

    def _run(self) -> None:
        try:
            while not self._is_ending:
                self._is_notified = False
                for kind in self._waiting:  # learners first: collectors need their buffers
                    self._assign(kind)
                now = monotonic()
                left_s = [
                    since + self._timeouts_s[kind] - now for kind, tasks in self._waiting.items() for _, since in tasks
                ]
                idle_s = max(0.001, min([IDLE_S, *left_s]))
                with self._changed:
                    self._changed.wait_for(lambda: self._is_notified or self._is_ending, idle_s)
        except Exception as e:  # the thread has no caller; commanders are users' code
            self._owner.deal_with_error(e)

    def _assign(self, kind: str) -> None:
        waiting = self._waiting[kind]
        for entry in list(waiting):
            task, since = entry
            if self.begin_task(kind, task):
                waiting.remove(entry)
            elif monotonic() - since > self._timeouts_s[kind]:
                waiting.remove(entry)
                self.drop_task(kind, task)
        # One more task than free workers may wait, so that a task that can begin is not kept out by those that cannot.
        while not self._is_ending and (free := self.free_count(kind)) and len(waiting) <= free:
            next_task = self.next_task(kind)
            if next_task is None:
                return
            if not self.begin_task(kind, next_task):
                waiting.append((next_task, monotonic()))

    def free_count(self, kind: str) -> int:
        """Return the number of free workers of this kind; 0 when the run is over."""
        return 0 if self._monitor.is_over else self._comm.workers.free_count(kind)

    def next_task(self, kind: str) -> Task | None:
        """Return the commander's next task of this kind, or one that is to run again."""
        if kind == LEARNER and self._again:
            return self._again.popleft()
        with self.lock:
            task = self.commander.get_collector_task() if kind == COLLECTOR else self.commander.get_learner_task()
            if task is not None and kind == LEARNER:
                self.learner_tasks[task["task_id"]] = task
            return task

    def begin_task(self, kind: str, task: Task) -> bool:
        """Give the task to a free worker; return False if there is none, or no buffer for the collected samples."""
        collects = kind == COLLECTOR and not task["collector_cfg"]["eval_flag"]
        if collects and task["buffer_id"] not in self._buffers.buffers:
            return False
        # Registered before it begins: its first data may arrive before `send` returns.
        self.running[task["task_id"]] = TaskState(task["task_id"])
        sent = dict(task)
        sent.pop("replay_buffer_cfg", None)
        if kind == LEARNER and task["buffer_id"] not in self._buffers.buffers:  # one that runs again finds it open
            self._buffers.open(task["buffer_id"], task["replay_buffer_cfg"])
        if collects and self._buffers.is_limited(task["buffer_id"]):
            sent[QUEUE_SIZE] = 1  # so it waits with its next chunk until the last one is inserted
        send = self._comm.send_collector_task if kind == COLLECTOR else self._comm.send_learner_task
        is_sent = send(sent)
        if not is_sent:
            self.running.pop(task["task_id"], None)
        return is_sent

    def drop_task(self, kind: str, task: Task) -> None:
        """Drop a task that has waited too long; end the run if a training would be lost with the task."""
        self._owner.error(f"{kind} task {task['task_id']} could not begin in time and is dropped")
        if task.get("resume"):
            self.fail(kind, task, TimeoutError(f"no {kind} was free in time to resume the task {task['task_id']}"))
        else:
            self.forget(kind, task)

    # What follows from tasks that have begun.

    def finish(self, task_id: str) -> None:
        """Record that the task is done."""
        self.running.pop(task_id, None)
        self.finished.append(task_id)

    def run_again(self, task: Task) -> None:
        """Give a learner task, whose buffer is still open, to the next free learner, which resumes it."""
        self._again.append({**task, "resume": True})
        self.notify()

    def fail(self, kind: str, task: Task, error: Exception) -> None:
        """End the run, because the task has failed."""
        self._monitor.end(error)
        self.forget(kind, task)

    def forget(self, kind: str, task: Task) -> None:
        """Report a failed task to the commander, which may give another one."""
        try:
            self.running.pop(task["task_id"], None)
            if kind == COLLECTOR:
                self._monitor.drop_collector(task["task_id"])
            else:
                self.end_training(task["task_id"], task["buffer_id"])
            with self.lock:
                if kind == COLLECTOR:
                    self.commander.notify_fail_collector_task(task)
                else:
                    self.commander.notify_fail_learner_task(task)
                    self.learner_tasks.pop(task["task_id"], None)
            self.notify()
        except Exception as e:  # commanders are users' code; the first failure stays the reason
            self._owner.deal_with_error(e)

    def end_training(self, task_id: str, buffer_id: str | None) -> None:
        """Forget the batches of a learner task that has ended, and close its buffer, if one is given."""
        self._buffers.forget_task(task_id)
        if buffer_id is not None:
            self._buffers.close_buffer(buffer_id)
