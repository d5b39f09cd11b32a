"""The status of a run, as an object, as JSON and as a web page."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from importlib.resources import files
from time import monotonic
from typing import Any

from ding.utils.page import Page
from ding.worker.coordinator.buffers import BufferRoom
from ding.worker.coordinator.comm_coordinator import COLLECTOR, LEARNER, CommCoordinator, failure_text
from ding.worker.coordinator.run_state import ErrorNote, Evaluation, Progress, RunState
from ding.worker.coordinator.scheduler import TaskAssigner, TaskState
from ding.worker.coordinator.worker_table import WorkerStatus


@dataclass(frozen=True, slots=True)
class RunningTask:
    """A task that was given to a worker, `seconds` ago."""

    task_id: str
    kind: str
    worker: str
    is_eval: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class BufferFill:
    """How full a buffer is; `fraction` is in [0, 1]."""

    buffer_id: str
    size: int
    capacity: int
    fraction: float


@dataclass(frozen=True, slots=True)
class QueueDepths:
    """What waits: tasks for a worker or for their buffer, and batches for the learner to read them."""

    learner_tasks: int
    collector_tasks: int
    batches: int


@dataclass(frozen=True, slots=True)
class RunStatus:
    """How a run stands, in all that is told of it.

    Attributes:
        name: the experiment's.
        started_at: ISO 8601, in UTC.
        seconds: since the start; until the end, where it is over.
        is_over: nothing more will come.
        reason: why it is over, with the traceback of a failure; None while it runs.
        samples_per_s, updates_per_s: over the last five seconds.
        stalled_tasks: tasks that were abandoned because they made no progress.
        evaluations: the learning curve; of very many, a part.
        errors: the last ones, the newest last.
    """

    name: str
    started_at: str
    seconds: float
    is_over: bool
    is_failed: bool
    reason: str | None
    progress: Progress
    samples_per_s: float
    updates_per_s: float
    workers: tuple[WorkerStatus, ...]
    tasks: tuple[RunningTask, ...]
    queues: QueueDepths
    buffers: tuple[BufferFill, ...]
    stalled_tasks: int
    evaluations: tuple[Evaluation, ...]
    errors: tuple[ErrorNote, ...]

    def to_json(self) -> dict[str, Any]:
        """The same in what JSON has: dicts, lists, numbers, strings; None for a number that is not finite."""
        plain: dict[str, Any] = _plain(self)
        return plain


class StatusReader:
    """Reads the status of the run `name` from the parts of its coordinator. Thread-safe."""

    def __init__(
        self,
        name: str,
        state: RunState,
        room: BufferRoom,
        comm: CommCoordinator,
        assigner: TaskAssigner,
        task_states: Mapping[str, TaskState],
    ) -> None:
        self._name, self._state, self._room = name, state, room
        self._comm, self._assigner, self._task_states = comm, assigner, task_states

    def read(self, is_closed: bool) -> RunStatus:
        """How the run stands now. Waits for nothing that takes long.

        Args:
            is_closed: the coordinator has been closed, whether the run was over or not.
        """
        state, history = self._state, self._state.history
        tasks = _running(self._comm, self._task_states)
        samples_per_s, updates_per_s = history.rates()
        waiting = self._assigner.waiting_counts()
        return RunStatus(
            name=self._name,
            started_at=history.started_at,
            seconds=history.seconds,
            is_over=state.is_over or is_closed,
            is_failed=state.failure is not None,
            reason=_reason(state, is_closed),
            progress=state.progress(),
            samples_per_s=samples_per_s,
            updates_per_s=updates_per_s,
            workers=self._comm.workers.statuses(),
            tasks=tasks,
            queues=QueueDepths(waiting[LEARNER], waiting[COLLECTOR], self._room.batches_under_way()),
            buffers=tuple(_fill(*level) for level in self._room.levels()),
            stalled_tasks=state.stalled_tasks,
            evaluations=history.evaluations(),
            errors=history.errors(),
        )


def _running(comm: CommCoordinator, states: Mapping[str, TaskState]) -> tuple[RunningTask, ...]:
    now, tasks = monotonic(), []
    for run in comm.running():
        state = states.get(run.task_id)
        if state is not None:  # else it is at its end
            is_eval = bool(run.task.get("collector_cfg", {}).get("eval_flag", False))
            worker = run.worker
            tasks.append(RunningTask(run.task_id, worker.kind, worker.worker_id, is_eval, now - state.start_time))
    return tuple(sorted(tasks, key=lambda task: -task.seconds))


def _reason(state: RunState, is_closed: bool) -> str | None:
    if state.failure is not None:
        return failure_text(state.failure)
    if state.is_over:
        return state.reason
    return "it was closed" if is_closed else None


def _fill(buffer_id: str, size: int, capacity: int) -> BufferFill:
    return BufferFill(buffer_id, size, capacity, size / capacity if capacity else 0.0)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    return value


_NAME = "status_page.html"


def status_pages(status: Callable[[], RunStatus]) -> dict[str, Page]:
    """What a coordinator serves, by path.

    Args:
        status: called for each request of the data.
    """
    return {
        "/": Page(page_text, "text/html; charset=utf-8", {"Content-Security-Policy": page_policy()}, is_public=True),
        "/status": Page(lambda: json.dumps(status().to_json(), allow_nan=False)),
    }


@functools.cache
def page_text() -> str:
    """The page: HTML that needs nothing else."""
    return files(__package__).joinpath(_NAME).read_text(encoding="utf-8")


@functools.cache
def page_policy() -> str:
    """The page's `Content-Security-Policy`: only what is in the page, and only requests to where it came from."""
    allowed = {
        "default-src": "'none'",
        "script-src": _hash_of("script"),
        "style-src": _hash_of("style"),
        "img-src": "data:",
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in allowed.items())


def _hash_of(tag: str) -> str:
    """The source expression for the one element `tag` of the page."""
    (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page_text(), re.DOTALL)
    digest = hashlib.sha256(content.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
