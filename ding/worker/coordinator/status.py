"""The status of a run, as an object, as JSON and as a web page."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from importlib.resources import files
from time import monotonic
from typing import Any

from ding.interaction.base import Page
from ding.worker.coordinator.buffer_set import BufferFill, BufferSet
from ding.worker.coordinator.comm_coordinator import CommCoordinator
from ding.worker.coordinator.run_monitor import RunMonitor, RunReport
from ding.worker.coordinator.scheduler import TaskScheduler
from ding.worker.coordinator.worker_table import WorkerStatus
from ding.worker.transport.transport import COLLECTOR, LEARNER


@dataclass(frozen=True, slots=True)
class RunningTask:
    """A task that was given to a worker, `seconds` ago."""

    task_id: str
    kind: str
    worker: str
    is_eval: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class QueueDepths:
    """Queue lengths: tasks that wait for a worker or their buffer, and batches that learners have not read yet."""

    learner_tasks: int
    collector_tasks: int
    batches: int


@dataclass(frozen=True, slots=True)
class RunStatus(RunReport):
    """The complete status of a run; `name` is that of the experiment."""

    name: str
    workers: tuple[WorkerStatus, ...]
    tasks: tuple[RunningTask, ...]
    queues: QueueDepths
    buffers: tuple[BufferFill, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the status as dicts, lists, numbers and strings; None for a number that is not finite."""
        plain: dict[str, Any] = _plain(self)
        return plain


def read_status(
    name: str, monitor: RunMonitor, buffers: BufferSet, comm: CommCoordinator, scheduler: TaskScheduler, is_closed: bool
) -> RunStatus:
    """Return the status of the run `name`, read from the parts of its coordinator without long waits.

    Any thread may call it.

    Args:
        is_closed: whether the coordinator was closed, even if the run was not over.
    """
    report, waiting, now, tasks = monitor.report(is_closed), scheduler.waiting_counts(), monotonic(), []
    for worker, task in comm.workers.busy():
        state = scheduler.running.get(task["task_id"])
        if state is not None:  # otherwise it is about to end
            is_eval = bool(task.get("collector_cfg", {}).get("eval_flag", False))
            seconds = now - state.start_time
            tasks.append(RunningTask(task["task_id"], worker.kind, worker.worker_id, is_eval, seconds))
    return RunStatus(
        **{field.name: getattr(report, field.name) for field in fields(report)},
        name=name,
        workers=comm.workers.statuses(),
        tasks=tuple(sorted(tasks, key=lambda task: -task.seconds)),
        queues=QueueDepths(waiting[LEARNER], waiting[COLLECTOR], buffers.batches_under_way()),
        buffers=tuple(buffers.levels()),
    )


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
    """Return the pages that a coordinator serves, by path.

    `/status`, the data, is behind the same checks as all other requests: off loopback it needs the bearer token. A
    browser cannot send the token when it opens a page, so `/`, the page, is served to every client that passes the
    checks of `Host` and `Origin`. It is the same few kilobytes for all and holds no data of the run.

    The page asks for the token if `/status` is refused, and sends it as `Authorization` to `/status` only: never in an
    address, which histories and logs keep, nor as a cookie, which is sent to other servers on the same host. It keeps
    the token in the tab (`sessionStorage`), and forgets it when it is refused, when the run is over, and when the
    coordinator has been silent for half a minute: another program may listen at its port by then.

    Names, addresses and tracebacks come from peers. The page sets them as text, never as markup. Should that fail, its
    `Content-Security-Policy` allows no script but the page's own (by its hash), and requests to this server only.

    Args:
        status: called for each request of the data.
    """
    return {
        "/": Page(page_text, "text/html; charset=utf-8", {"Content-Security-Policy": page_policy()}, is_public=True),
        "/status": Page(lambda: json.dumps(status().to_json(), allow_nan=False)),
    }


@functools.cache
def page_text() -> str:
    """Return the page, as self-contained HTML."""
    return files(__package__).joinpath(_NAME).read_text(encoding="utf-8")


@functools.cache
def page_policy() -> str:
    """Return the page's `Content-Security-Policy`: its own content only, and requests to its own server only."""
    return (
        f"default-src 'none'; script-src {_hash_of('script')}; style-src {_hash_of('style')}; img-src data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _hash_of(tag: str) -> str:
    """Return the source expression for the only element `tag` of the page."""
    (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page_text(), re.DOTALL)
    digest = hashlib.sha256(content.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
