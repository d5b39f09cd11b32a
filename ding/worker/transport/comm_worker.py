"""The workers of parallel training, which run one task of a coordinator at a time, in a thread."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, NoReturn, TypeVar

from easydict import EasyDict

from ding.interaction.exception import TaskFail, failure_for, failure_of
from ding.torch_utils.thread_count import keep_thread_count
from ding.utils.config_helper import (
    NO_DEFAULT,
    Setting,
    Settings,
    anything,
    boolean,
    check_section,
    instance_of,
    integer,
    number,
)
from ding.utils.system_helper import DaemonThreads
from ding.worker.transport.transport import DEFAULT_TRANSPORT, Handler, TaskName, WorkerServer, get_transport

_logger = logging.getLogger("ding")

WORKER_SETTINGS = Settings(
    {
        "data_wait_s": Setting(1.0, number(0), "Seconds that a request of the coordinator may wait for new data."),
        "data_timeout_s": Setting(
            600.0,
            number(0),
            "Seconds that the worker may wait for the coordinator to accept or send data, and it for an item.",
        ),
        "close_timeout_s": Setting(30.0, number(0), "Seconds that the end of a task may take."),
        "path_data": Setting(NO_DEFAULT, instance_of(str), "Folder of the samples."),
        "path_policy": Setting(NO_DEFAULT, instance_of(str), "Folder of the weights."),
        "host": Setting(NO_DEFAULT, instance_of(str, optional=True), "Address at which the worker listens."),
        "port": Setting(NO_DEFAULT, integer(0, 65535), "Port of the worker; 0 for a free one."),
        "task_import_names": Setting(NO_DEFAULT, instance_of(list, tuple), "Modules that a task may import."),
        "trust_pickle": Setting(NO_DEFAULT, boolean, "Whether pickles, which can run code, may be read."),
        "seed": Setting(NO_DEFAULT, integer(0, optional=True), "Seed of the worker."),
        "run_token": Setting(NO_DEFAULT, anything, "The secret of the run."),
        "nice": Setting(NO_DEFAULT, integer(0, 19), "Priority of a process that `parallel_pipeline` starts."),
        "torch_threads": Setting(NO_DEFAULT, integer(1), "Threads of a process that `parallel_pipeline` starts."),
        "exp_name": Setting(NO_DEFAULT, anything, "Folder of the run."),
    }
)
WORKER_REQUIRED = ("path_data", "path_policy")


def task_fail(result: Mapping[str, Any]) -> TaskFail:
    """Return an exception that sends `result`, which has a `message`, to the coordinator."""
    return TaskFail(result=result, message=result["message"])


def dispatch(task: dict[str, Any], handlers: Mapping[str, Handler]) -> Any:
    """Call the handler for the name of the task, and return its result.

    Raises:
        TaskFail: the task has no name, or there is no handler for it.
    """
    handler = handlers.get(task.get("name", ""))
    if handler is None:
        raise TaskFail(result={"message": "task name error"}, message=f"task name {task.get('name')!r} error")
    return handler(task)


class WorkerTask:
    """A task of a worker.

    Args:
        task_info: the task, as the coordinator has sent it.

    Attributes:
        ids: `task_id` and `buffer_id`.
        thread: the thread that runs it; set before it starts.
    """

    thread: threading.Thread

    def __init__(self, task_info: Mapping[str, Any]) -> None:
        self.ids = {key: task_info.get(key) for key in ("task_id", "buffer_id")}


class WorkerQueue:
    """The queue between the threads of a task and the thread that answers the coordinator. This class is thread-safe.

    `close`, `fail` and `finish` end all waits. A subclass sets `kind`, the kind of the worker for messages.
    """

    kind: str

    def __init__(self) -> None:
        self._is_closed = self._is_finished = False
        self._failure: dict[str, Any] | None = None
        self._changed = threading.Condition()

    def _has_reports(self) -> bool:
        """Return whether there are reports that the coordinator has not taken yet."""
        raise NotImplementedError

    def finish(self) -> None:
        """Report that the thread has ended."""
        with self._changed:
            self._is_finished = True
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """Report that the thread has failed; all waits, also later ones, raise the first error."""
        with self._changed:
            if self._failure is None:
                self._failure = failure_of(error)  # as text: the error itself would keep its stack frames alive
            self._changed.notify_all()

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._is_closed

    def wait_closed(self, timeout_s: float) -> bool:
        """Wait for `close`; return whether it is called within `timeout_s`."""
        with self._changed:
            return self._changed.wait_for(lambda: self._is_closed, timeout_s)

    def _is_over(self) -> bool:
        return self._is_closed or self._is_finished or self._failure is not None

    def _wait(self, is_there: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until `is_there` returns True, or the end; return False after the timeout.

        Raises:
            TaskFail: see `_raise_if_over`.
        """
        has_come = self._changed.wait_for(lambda: self._is_over() or is_there(), timeout_s)
        self._raise_if_over()
        return has_come

    def _raise_if_over(self) -> None:
        """Raise an error if there is nothing left for the coordinator to expect.

        Raises:
            TaskFail: the thread has failed, the queue was closed, or the thread has ended and all reports were taken.
        """
        self._raise_failure()
        if self._is_closed:
            self._fail_task(f"the {self.kind} has been closed")
        if self._is_finished and not self._has_reports():
            self._fail_task(f"the {self.kind} has ended, and all its reports were taken")

    def _fail_task(self, reason: str) -> NoReturn:
        raise task_fail(failure_for(reason, f"{self.kind.capitalize()}Closed"))

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise task_fail(self._failure)


T = TypeVar("T", bound=WorkerTask)


class TaskSlot(Generic[T]):
    """A slot for one task at a time, which starts and ends tasks. This class is thread-safe.

    Args:
        kind: the kind of worker, for messages.
        end: ends a task, in bounded time, and returns its report; called once for each task.
        timeout_s: how long a thread waits for another one that starts or ends a task, and how long a new task waits
            for the end of an abandoned one. After that, a task that hangs is left behind.

    Attributes:
        task: the current task, if any.
    """

    def __init__(self, kind: str, end: Callable[[T], dict[str, Any]], timeout_s: float) -> None:
        self.task: T | None = None
        self._kind, self._end, self._timeout_s = kind, end, timeout_s
        self._lock = threading.RLock()
        self._is_closed = False
        self._abandoning = DaemonThreads()
        self._report: dict[str, Any] = {}

    def begin(self, make: Callable[[], T]) -> T:
        """Make a task and return it.

        Raises:
            RuntimeError: another task runs, or the slot is closed.
            TimeoutError: another task takes too long to start or end; `end` and `close` raise it, too.
        """
        self._abandoning.join(self._timeout_s)
        with self._alone():
            if self._is_closed:
                raise RuntimeError("the worker is closed; it takes no more tasks")
            if self.task is not None:
                raise RuntimeError(f"the {self._kind} is busy with the task {self.task.ids['task_id']}; close it first")
            self._report = {}
            self.task = make()
            return self.task

    def require(self) -> T:
        """Return the current task.

        Raises:
            TaskFail: there is none.
        """
        task = self.task
        if task is None:
            raise task_fail({"message": f"no {self._kind} task runs"})
        return task

    def end(self) -> dict[str, Any]:
        """End the current task and return its report; without a task, return the last report."""
        with self._alone():
            task, self.task = self.task, None
            if task is not None:
                self._report = {**self._end(task), "task_id": task.ids["task_id"]}
            return dict(self._report)

    def abandon(self) -> None:
        """End the current task, whose coordinator has left, in a thread; another coordinator may connect."""
        self._abandoning.start(f"{self._kind}_abandon", self._end_abandoned)

    def _end_abandoned(self) -> None:
        try:
            with self._alone():  # it may be starting
                task, self.task = self.task, None
            if task is not None:  # it may hang, and must not block others
                self._end(task)
        except Exception:  # no caller is left
            _logger.exception("the task of a coordinator that has left has failed to end")

    def close(self) -> None:
        """End the task, and start no other. Further calls do nothing."""
        self._is_closed = True
        try:
            self.end()
        finally:
            self._abandoning.join(self._timeout_s)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the right to start or end a task."""
        if not self._lock.acquire(timeout=self._timeout_s):
            raise TimeoutError(f"the {self._kind} has been starting or ending a task for {self._timeout_s:g} s")
        try:
            yield
        finally:
            self._lock.release()


class TaskServer(Generic[T]):
    """A worker, or a group of them, that a coordinator gives one task at a time.

    Attributes:
        on_presence: if set, called with True for each task of a coordinator, and with False when it is lost.
    """

    on_presence: Callable[[bool], Any] | None = None
    _slot: TaskSlot[T]
    _server: WorkerServer

    @property
    def port(self) -> int:
        """The port of the worker, or its number within one process; known after `start`."""
        return self._server.port

    def serve(self, task: dict[str, Any]) -> Any:
        """Run a task of the coordinator.

        Raises:
            TaskFail: the task has failed; if the worker has raised an error, the result has its traceback.
        """
        if self.on_presence is not None:
            self.on_presence(True)
        return dispatch(task, self._handlers())

    def _handlers(self) -> Mapping[str, Handler]:
        """Return the handlers of tasks by name."""
        raise NotImplementedError

    def deal_with_lost_coordinator(self) -> None:
        """End the task of a coordinator that has disconnected, in a thread; another coordinator may connect."""
        if self.on_presence is not None:
            self.on_presence(False)
        self._slot.abandon()


class CommWorker(TaskServer[T]):
    """A mixin for comm learners and comm collectors, which receives tasks and runs one at a time.

    It is the first base class. The methods called `deal_with_*` answer the coordinator's tasks, one at a time; `close`
    and `deal_with_lost_coordinator` may be called from other threads during a task.

    Args:
        cfg: the section of the worker.

    Attributes:
        kind: the kind of worker, for messages.
        transport: the name of the transport; by default it is the type in the section.
        settings: the keys of the section.

    Raises:
        ConfigError: a value is not allowed, or missing.
    """

    kind: str
    transport: str | None = None
    settings: Settings

    def __init__(self, cfg: EasyDict) -> None:
        cfg = EasyDict({**self.settings.config(), **cfg})
        check_section(cfg, type(self), required=WORKER_REQUIRED)
        super().__init__(cfg)  # type: ignore[call-arg]  # the comm worker
        transport = self._transport = get_transport(self.transport or cfg.get("type", DEFAULT_TRANSPORT))
        self._cfg = cfg
        self._sample_store = transport.sample_store(cfg.path_data)
        self._policy_store = transport.policy_store(cfg.path_policy, bool(cfg.get("trust_pickle", False)))
        self._slot = TaskSlot[T](self.kind, self._end, cfg.close_timeout_s)
        self._server = transport.worker_server(
            self.serve, {**cfg, "port": self._own_port()}, self.deal_with_lost_coordinator
        )

    def _own_port(self) -> int:
        return int(self._cfg.get("port", 0))

    def deal_with_resource(self) -> dict[str, Any]:
        """Return the resources of this worker."""
        raise NotImplementedError

    def _handlers(self) -> Mapping[str, Handler]:
        return {TaskName.RESOURCE: lambda task: self.deal_with_resource()}

    def _end(self, task: T) -> dict[str, Any]:
        """End a task, in bounded time, and return its report."""
        raise NotImplementedError

    def _overrides(self, base: type, *names: str) -> bool:
        """Return whether the class of this worker overrides one of these methods of `base`."""
        return any(getattr(type(self), name) is not getattr(base, name) for name in names)

    def _join(self, task: T, cause: str) -> None:
        """Wait for the thread of a task to end.

        Raises:
            TimeoutError: the thread does not end.
        """
        limit_s = self._cfg.close_timeout_s
        task.thread.join(limit_s)
        if task.thread.is_alive():
            raise TimeoutError(
                f"the {self.kind} of the task {task.ids['task_id']} has not ended within {limit_s:g} s and is "
                f"abandoned; {cause} hangs"
            )

    def start(self) -> None:
        """Start to accept tasks.

        Raises:
            OSError: the port is in use.
        """
        self._server.start()
        super().start()  # type: ignore[misc]

    def close(self) -> None:
        """End a running task, and take no more tasks, in bounded time. Further calls do nothing.

        Raises:
            TimeoutError: the task does not end.
        """
        with contextlib.ExitStack() as closing:
            closing.callback(self._server.close)
            closing.callback(super().close)  # type: ignore[misc]
            self._slot.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # half-built, or at interpreter exit: no caller could handle an error
            self.close()


def worker_thread(
    name: str, work: Callable[[], Any], queue: WorkerQueue, on_failure: Callable[[], Any] | None = None
) -> threading.Thread:
    """Return a daemon thread, not started yet, that runs `work` and reports its end to `queue`.

    Args:
        on_failure: called after an error of `work` was reported.
    """

    def run() -> None:
        try:
            keep_thread_count()
            work()
        except BaseException as e:  # any error is reported to the coordinator
            queue.fail(e)
            if on_failure is not None:
                on_failure()
        else:
            queue.finish()

    return threading.Thread(target=run, name=name, daemon=True)
