"""The thread that asks for tasks whenever a worker is free, and gives them to workers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any

from ding.worker.coordinator.task_run import COLLECTOR, LEARNER, Task

if TYPE_CHECKING:
    from ding.worker.coordinator.run_tasks import RunTasks

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
