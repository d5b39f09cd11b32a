"""The messages between the parts of a coordinator: tasks, and the events of workers; it imports none of the parts."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any, Protocol

from ding.worker.transport.transport import TaskFailed, WorkerLost

Task = dict[str, Any]
SampleList = list[dict[str, Any]]  # samples, or their metadata
COLLECTOR, LEARNER = "collector", "learner"


class TaskStalled(WorkerLost):
    """The error of a worker that answers, but whose task makes no progress."""


def failure_text(error: BaseException) -> str:
    """Return the text for the failure of a run: the worker's traceback if it failed there, otherwise the local one."""
    if isinstance(error, (TaskFailed, WorkerLost)):
        return str(error)
    return "".join(traceback.format_exception(type(error), error, error.__traceback__))


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


class TaskListener(Protocol):
    """The receiver of the workers' reports about tasks; see the methods of `Coordinator` with the same names."""

    def deal_with_collector_send_data(self, task_id: str, buffer_id: str, data_id: str, data: Any) -> None: ...
    def deal_with_collector_pushed(self, task_id: str, buffer_id: str, newest: Mapping[str, Any]) -> None: ...
    def deal_with_collector_progress(self, task_id: str, progress: Mapping[str, Any]) -> None: ...
    def deal_with_collector_judge_finish(self, task_id: str, data: Mapping[str, Any]) -> bool: ...
    def is_collector_task_useless(self, task_id: str) -> bool: ...
    def deal_with_collector_finish_task(self, task_id: str, finished_task: Mapping[str, Any]) -> None: ...
    def deal_with_learner_get_data(
        self, task_id: str, buffer_id: str, batch_size: int, cur_learner_iter: int
    ) -> SampleList | None: ...
    def deal_with_learner_level(self, buffer_id: str, level: int) -> None: ...
    def wait_for_data(self, task_id: str) -> None: ...
    def deal_with_learner_batches_done(self, task_id: str, count: int) -> None: ...
    def deal_with_learner_judge_finish(self, task_id: str, info: Mapping[str, Any]) -> bool: ...
    def deal_with_learner_send_info(self, task_id: str, buffer_id: str, info: Mapping[str, Any]) -> None: ...
    def deal_with_learner_finish_task(self, task_id: str, finished_task: Mapping[str, Any]) -> None: ...


class WorkerListener(TaskListener, Protocol):
    """The receiver of the events of workers, and of their tasks."""

    def deal_with_worker_free(self, kind: str, worker_id: str) -> None: ...
    def deal_with_increase_collector(self) -> None: ...
    def deal_with_decrease_collector(self) -> None: ...
    def deal_with_worker_lost(self, kind: str, worker_id: str, task: Task | None, error: WorkerLost) -> None: ...
    def deal_with_task_error(self, kind: str, task: Task, error: Exception) -> None: ...
    def deal_with_error(self, error: Exception) -> None: ...


class WorkerSupervisor(Protocol):
    """A supervisor that brings back lost workers, and has the coordinator connect them again."""

    def lost(self, kind: str, name: str, error: Exception) -> bool:
        """Handle the loss of a worker; return whether it will be brought back."""

    def close(self) -> None:
        """Stop bringing workers back, in bounded time. Further calls do nothing."""
