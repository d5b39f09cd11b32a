"""The tasks of a run: where they come from, when they are given to workers, and what becomes of those that fail."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any

from ding.worker.coordinator.base_parallel_commander import BaseCommander
from ding.worker.coordinator.comm_coordinator import COLLECTOR, LEARNER, CommCoordinator, Task
from ding.worker.coordinator.run_state import RunState
from ding.worker.transport.tasks import REPLAY

if TYPE_CHECKING:
    from ding.worker.coordinator.buffers import KeptBufferRoom
    from ding.worker.coordinator.coordinator import Coordinator

# How long the commander may be busy with something else.
PATIENCE_S = 5.0


@dataclass(slots=True)
class TaskState:
    """A running task.

    Attributes:
        last_chunk: that its collector has told of last.
    """

    task_id: str
    start_time: float = field(default_factory=monotonic)
    last_chunk: Any = ""


class RunTasks:
    """Takes tasks from the commander and gives them to workers; the `TaskAssigner` says when. Thread-safe.

    Args:
        commander: decides which tasks there are; it is called under `lock`.
        coordinator: told of what goes wrong, and when there may be tasks to give.

    Attributes:
        running: the tasks that were given to workers, by id.
        finished: the ids of those that were done.
        learner_tasks: those that run, or are still to run; kept in step with the commander, under `lock`.
    """

    def __init__(
        self,
        commander: BaseCommander,
        room: KeptBufferRoom,
        state: RunState,
        comm: CommCoordinator,
        coordinator: Coordinator,
    ) -> None:
        self.commander, self.lock = commander, threading.RLock()
        self.running: dict[str, TaskState] = {}
        self.finished: list[str] = []
        self.learner_tasks: dict[str, Task] = {}
        self._room, self._state, self._comm, self._coordinator = room, state, comm, coordinator
        self._again: deque[Task] = deque()
        self._spare_collectors = 0  # at the start: so many more than places for their tasks
        self._collectors_since = 0  # by how many there are more since then, or fewer

    @contextlib.contextmanager
    def commander_in_time(self) -> Iterator[BaseCommander]:
        """Hold the lock.

        Raises:
            TimeoutError: the commander hangs.
        """
        if not self.lock.acquire(timeout=PATIENCE_S):
            raise TimeoutError(f"the commander has been busy for {PATIENCE_S:g} s")
        try:
            yield self.commander
        finally:
            self.lock.release()

    # Where the assigner gets tasks from, and brings them to.

    def free_count(self, kind: str) -> int:
        """How many workers of this kind wait for a task; none when the run is over."""
        return 0 if self._state.is_over else self._comm.free_count(kind)

    def next_task(self, kind: str) -> Task | None:
        """The commander's next task of this kind, or one that is to run again."""
        if kind == LEARNER and self._again:
            return self._again.popleft()
        with self.lock:
            if kind == COLLECTOR:
                return self.commander.get_collector_task()
            task = self.commander.get_learner_task()
            if task is not None:
                self.learner_tasks[task["task_id"]] = task
            return task

    def can_begin(self, kind: str, task: Task) -> bool:
        """Whether there is what the task needs: samples need a buffer."""
        return kind == LEARNER or task["collector_cfg"]["eval_flag"] or task["buffer_id"] in self._room.buffers

    def begin_task(self, kind: str, task: Task) -> bool:
        """Give the task to a free worker, if there is one."""
        # Known before it begins: its first data may come before `send` returns.
        self.running[task["task_id"]] = TaskState(task["task_id"])
        if kind == COLLECTOR:
            is_sent = self._comm.send_collector_task(self._with_replay(task))
        else:
            sent = dict(task)
            buffer_cfg = sent.pop("replay_buffer_cfg", None)
            if buffer_cfg is not None:  # else it is there: the task runs again
                self._room.open(task["buffer_id"], buffer_cfg)
            is_sent = self._comm.send_learner_task(self._with_replay(sent))
        if not is_sent:
            self.running.pop(task["task_id"], None)
        return is_sent

    def _with_replay(self, task: Task) -> Task:
        """The task, and where its worker finds the samples, if it is the worker that looks for them."""
        where = self._room.where(task["buffer_id"])
        return task if where is None else {**task, REPLAY: where}

    def drop_task(self, kind: str, task: Task) -> None:
        """The task has waited for too long. Where a training would be lost with it, the run ends."""
        self._coordinator.error(f"{kind} task {task['task_id']} could not begin in time and is dropped")
        if task.get("resume"):
            self.fail(kind, task, TimeoutError(f"no {kind} has come in time to go on with the task {task['task_id']}"))
        else:
            self.forget(kind, task)

    # What becomes of tasks that have begun.

    def finish(self, task_id: str) -> None:
        """The task is done."""
        self.running.pop(task_id, None)
        self.finished.append(task_id)

    def run_again(self, task: Task) -> None:
        """Have a learner task, whose buffer is still there, run on the next free learner, from where it stood."""
        self._again.append({**task, "resume": True})
        self._coordinator.notify()

    def fail(self, kind: str, task: Task, error: Exception) -> None:
        """The task has failed, and the run with it."""
        self._state.end(error)
        self.forget(kind, task)

    def forget(self, kind: str, task: Task) -> None:
        """The task has failed; the commander thinks of another."""
        try:
            state = self.running.pop(task["task_id"], None)
            if kind == COLLECTOR:
                self._state.drop_collector(task["task_id"])
                self._room.abandon("" if state is None else state.last_chunk)
            else:
                self.end_training(task["task_id"], task["buffer_id"])
            with self.lock:
                if kind == COLLECTOR:
                    self.commander.notify_fail_collector_task(task)
                else:
                    self.commander.notify_fail_learner_task(task)
                    self.learner_tasks.pop(task["task_id"], None)
            self._coordinator.notify()
        except Exception as e:
            self._coordinator.deal_with_error(e)

    def end_training(self, task_id: str, buffer_id: str | None) -> None:
        """A learner task has ended; the buffer, if one is named, goes with it."""
        self._room.forget_task(task_id)
        if buffer_id is not None:
            self._room.close_buffer(buffer_id)

    # How many collecting tasks may run at a time.

    def count_spare_collectors(self) -> None:
        """Those of the start are there: some may be more than there are places for tasks."""
        places = self.commander.collector_task_places
        if places is not None:
            self._spare_collectors = max(0, self._comm.workers.count(COLLECTOR) - places)

    def change_collectors(self, change: int) -> None:
        """There is a collector more (1) or less (-1); the commander is told where that changes its places for tasks."""
        with self.lock:
            before = self._places_since()
            self._collectors_since += change
            if self._places_since() > before:
                self.commander.increase_collector_task_space()
            elif self._places_since() < before:
                self.commander.decrease_collector_task_space()

    def _places_since(self) -> int:
        """How many places more than at the start, or fewer: those who were spare go, and come back, without one."""
        return max(0, self._collectors_since) + min(0, self._collectors_since + self._spare_collectors)

    def close(self) -> None:
        """Close the commander, unless it hangs."""
        with contextlib.suppress(TimeoutError), self.commander_in_time() as commander:
            commander.close()


# Commanders may go by the clock, so they are asked again after so many seconds in which nothing has happened.
_IDLE_S = 1.0


@dataclass(slots=True)
class _Waiting:
    task: Task
    since: float = field(default_factory=monotonic)


class TaskAssigner:
    """Gives tasks to workers in a thread of its own, each as soon as it can begin: none waits behind another.

    Args:
        tasks: where they come from and go to.
        timeouts_s: by kind of task, how long one may wait for what it needs.
        on_error: told what the assigning has ended with.
    """

    def __init__(self, tasks: RunTasks, timeouts_s: Mapping[str, float], on_error: Callable[[Exception], Any]) -> None:
        self._tasks, self._timeouts_s, self._on_error = tasks, timeouts_s, on_error
        self._waiting: dict[str, list[_Waiting]] = {LEARNER: [], COLLECTOR: []}
        self._changed = threading.Condition()
        self._is_notified = self._is_ending = False
        self._thread = threading.Thread(target=self._run, name="coordinator_assign", daemon=True)

    def start(self) -> None:
        """Begin, unless `end` was called before."""
        with self._changed:
            if not self._is_ending:
                self._thread.start()

    def notify(self) -> None:
        """Something has changed: a worker is free, say, or a task has ended."""
        with self._changed:
            self._is_notified = True
            self._changed.notify()

    def waiting_counts(self) -> dict[str, int]:
        """By kind, how many tasks wait until they can begin."""
        return {kind: len(waiting) for kind, waiting in self._waiting.items()}

    def end(self) -> None:
        """Assign nothing more."""
        with self._changed:
            self._is_ending = True
            self._changed.notify()

    def join(self, timeout_s: float) -> None:
        """Wait for the thread to end after `end`."""
        with self._changed:
            has_started = self._thread.ident is not None
        if has_started and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            while not self._is_ending:
                self._is_notified = False
                for kind in self._waiting:  # learners first: collectors need their buffers
                    self._assign(kind)
                self._rest()
        except Exception as e:
            self._on_error(e)

    def _assign(self, kind: str) -> None:
        waiting = self._waiting[kind]
        for entry in list(waiting):
            if self._has_begun(kind, entry.task):
                waiting.remove(entry)
            elif monotonic() - entry.since > self._timeouts_s[kind]:
                waiting.remove(entry)
                self._tasks.drop_task(kind, entry.task)
        # One more than there are workers may wait, so that a task that can begin finds its way past them.
        while not self._is_ending and (free := self._tasks.free_count(kind)) and len(waiting) <= free:
            task = self._tasks.next_task(kind)
            if task is None:
                return
            if not self._has_begun(kind, task):
                waiting.append(_Waiting(task))

    def _has_begun(self, kind: str, task: Task) -> bool:
        return self._tasks.can_begin(kind, task) and self._tasks.begin_task(kind, task)

    def _rest(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._is_notified or self._is_ending, self._seconds_to_rest())

    def _seconds_to_rest(self) -> float:
        now = monotonic()
        left = [entry.since + self._timeouts_s[kind] - now for kind, ws in self._waiting.items() for entry in ws]
        return min([_IDLE_S, *(max(0.001, seconds) for seconds in left)])
