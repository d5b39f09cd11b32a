"""The connections of a coordinator to its workers, and the messages of the tasks that the workers run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ding.utils.data.plain_columns import from_plain
from ding.utils.system_helper import DaemonThreads
from ding.worker.coordinator.base_parallel_commander import Task
from ding.worker.coordinator.operator_server import OperatorWorkers
from ding.worker.coordinator.worker_table import Worker, WorkerTable
from ding.worker.learner.checkpoint import NORMALIZATION
from ding.worker.transport.chunk import chunks_of, pack_batches
from ding.worker.transport.transport import (
    COLLECTOR,
    DEFAULT_TRANSPORT,
    LEARNER,
    TaskName,
    TaskStalled,
    WorkerLost,
    WorkerReleased,
    connect,
    connect_all,
    get_transport,
)

SampleList = list[dict[str, Any]]  # samples, or their metadata
_START = {COLLECTOR: TaskName.COLLECTOR_START, LEARNER: TaskName.LEARNER_START}
_CLOSE = {COLLECTOR: TaskName.COLLECTOR_CLOSE, LEARNER: TaskName.LEARNER_CLOSE}
# How long a collector may take to end its task when the coordinator ends.
_ABORT_S = 3.0
# How many batches a message holds; a learner that wants more is asked again.
_MAX_BATCHES = 256
# How long a wait for samples may last before the learner is asked again whether it still needs them.
DATA_WAIT_S = 0.25
# How long a collector that must wait for the learner is asked nothing.
HOLD_S = 5.0


class TaskRun:
    """The exchange of messages about one task with one worker; used by one thread.

    Args:
        side: the coordinator, whose methods receive what the worker reports. It has the replay `buffers`, and the
            `normalization`, the statistics of all collectors, which a learner gets when they have changed.
        timeout_s: how long the worker may take to answer a message.
        is_ending: whether the coordinator ends all tasks.
        silence_limit_s: how long the task may make no progress; 0 for no limit.
    """

    def __init__(
        self,
        worker: Worker,
        task: Task,
        side: Any,
        timeout_s: float,
        is_ending: Callable[[], bool],
        silence_limit_s: float = 0.0,
    ) -> None:
        self.worker, self.task = worker, task
        self._side, self._timeout_s, self._is_ending = side, timeout_s, is_ending
        self._silence_limit_s = silence_limit_s
        self._sent_statistics: Mapping[str, Any] = {}
        self._demand: dict[str, Any] | None = None  # a learner's request, from its last answer
        # The ids of the task, not those in the worker's replies.
        self.task_id: str = task["task_id"]
        self.buffer_id: str = task["buffer_id"]

    def start(self) -> None:
        """Have the worker begin the task.

        Raises:
            TaskFailed, WorkerLost: see `WorkerClient.run`; all methods may raise them.
            TypeError: the task contains a value that a message cannot hold.
        """
        own = {f"{self.worker.kind}_id": self.worker.worker_id, "resource_info": self.worker.resource}
        self._send(_START[self.worker.kind], task_info={**self.task, **own})

    def run(self) -> bool:
        """Exchange messages until the task is done (return True) or the coordinator ends (return False).

        Raises:
            TaskStalled: a collector makes no env step, or a learner with data makes no iteration.
        """
        step = self._collect if self.worker.kind == COLLECTOR else self._learn
        while not self._is_ending():
            if step():
                return True
        return False

    def close(self) -> dict[str, Any]:
        """Have the worker end the task, and return its report.

        When the coordinator ends, the report of a collector is not needed, so a slow env is not waited for.
        """
        if self.worker.kind == COLLECTOR and self._is_ending():
            self._timeout_s = min(self._timeout_s, _ABORT_S)
        return self._send(_CLOSE[self.worker.kind])

    def _send(self, name: str, **content: Any) -> dict[str, Any]:
        return self.worker.client.run({"name": name, **content}, self._timeout_s)

    def _collect(self) -> bool:
        is_eval = self.task["collector_cfg"]["eval_flag"]
        if not is_eval and not self._side.buffers.ask(self.buffer_id, self.task_id, HOLD_S):
            self._send(TaskName.RESOURCE)  # a sign of life, which asks nothing of the samples that wait
            return bool(self._side.is_collector_task_useless(self.task_id))
        try:
            return self._take_collected(self._send(TaskName.COLLECTOR_DATA))
        finally:
            self._side.buffers.answered(self.buffer_id, self.task_id)

    def _take_collected(self, reply: Mapping[str, Any]) -> bool:
        samples, infos = from_plain(reply["samples"]), reply["infos"]
        if not (samples or infos):
            self._check_silence(reply, "made no env step")
        if reply.get("progress"):
            # Samples may have waited until the collector was asked for them.
            silence_s = 0.0 if samples else reply.get("silence_s", 0.0)
            self._side.deal_with_collector_progress(self.task_id, {**reply["progress"], "silence_s": silence_s})
        if samples:
            chunk = (chunks_of(samples) or [""])[0]
            self._side.deal_with_collector_send_data(self.task_id, self.buffer_id, chunk, samples)
        # A list, not a generator: every info counts, and `any` would stop at the first end.
        ends = [self._side.deal_with_collector_judge_finish(self.task_id, info) for info in infos]
        return any(ends) or self._side.is_collector_task_useless(self.task_id)

    def _learn(self) -> bool:
        demand, self._demand = self._demand, None
        if demand is None:
            demand = self._send(TaskName.LEARNER_GET_DATA, **self._news())
            if self._take_infos(demand):
                return True
        self._check_silence(demand, "made no iteration, though it has data,")
        batches = self._batches(demand)
        if not batches:
            return False
        self._demand = self._send(TaskName.LEARNER_LEARN, **pack_batches(batches), **self._news(), demand=True)
        return self._take_infos(self._demand)

    def _news(self) -> dict[str, Any]:
        """Return what the learner has not been told of the statistics of the collectors."""
        known, self._sent_statistics = self._sent_statistics, self._side.normalization
        return {} if self._sent_statistics == known else {NORMALIZATION: self._sent_statistics}

    def _check_silence(self, reply: Mapping[str, Any], what: str) -> None:
        """Check that the task makes progress, by the worker's clock: time in which it was not asked does not count.

        Raises:
            TaskStalled: the silence is longer than the limit.
        """
        silence_s, limit_s = float(reply.get("silence_s", 0.0)), self._silence_limit_s
        if limit_s and silence_s > limit_s:
            raise TaskStalled(
                f"{self.worker.kind} {self.worker.worker_id} has {what} for {silence_s:.0f} s in the task "
                f"{self.task_id}, more than task_silence_s = {limit_s:g} allows"
            )

    def _batches(self, demand: Mapping[str, Any]) -> list[SampleList]:
        """Return the requested batches that the buffer has.

        Without any, wait a moment for data; the learner may be done meanwhile, so it is asked again.
        """
        batches: list[SampleList] = []
        while len(batches) < min(demand["batch_num"], _MAX_BATCHES) and not self._is_ending():
            batch = self._side.deal_with_learner_get_data(
                self.task_id, self.buffer_id, demand["batch_size"], demand["cur_learner_iter"]
            )
            if batch is None:
                if not batches:
                    self._side.buffers.wait_for_push(self.task_id, DATA_WAIT_S)
                break
            batches.append(batch)
        return batches

    def _take_infos(self, reply: Mapping[str, Any]) -> bool:
        if reply["batches_done"]:
            self._side.buffers.trained(self.task_id, reply["batches_done"])
        is_done = False
        for info in reply["infos"]:
            if self._side.deal_with_learner_judge_finish(self.task_id, info):
                is_done = True
            else:
                self._side.deal_with_learner_send_info(self.task_id, self.buffer_id, info)
        return is_done


class CommCoordinator:
    """The coordinator's connections, which run tasks on workers, each in a thread of its own.

    Args:
        cfg: the coordinator section: `host`, `port`, `transport`, `task_timeout`, `task_silence_s` (0), `learner` and
            `collector`, each `{name: [name, host, port]}`; and `operator_server`, see `OperatorWorkers`, which is
            empty if there is none.
        callback_fn: the coordinator, whose methods `deal_with_*` receive all events.
        logger: a text logger.

    Attributes:
        workers: connected and lost workers.
        operator: an operator that brings further workers, or None.
        connector: the coordinator's end of the transport.

    Raises:
        ConfigError: the transport is unknown, or a value in `operator_server` is not allowed.
    """

    # Seconds within which every configured worker must be connected.
    _max_retry_second = 120.0

    def __init__(self, cfg: Mapping[str, Any], callback_fn: Any, logger: Any) -> None:
        self._cfg = cfg
        self._callback_fn = callback_fn
        self._logger = logger
        self.connector = get_transport(cfg.get("transport", DEFAULT_TRANSPORT)).connector(cfg)
        self.workers = WorkerTable()
        self._threads = DaemonThreads()
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self.operator: OperatorWorkers | None = None
        if cfg.get("operator_server"):
            joining = partial(self.join, timeout_s=self._max_retry_second)
            leaving = partial(self.drop, reason="the operator no longer lists it")
            self.operator = OperatorWorkers(cfg["operator_server"], joining, leaving, logger)

    def start(self) -> None:
        """Connect all workers of the config at the same time; with an operator, wait for further ones.

        Raises:
            ConnectionError: workers could not be reached in time (the message names them), or the operator has not
                brought enough workers.
        """
        self.connector.start()
        attempts = {
            name: partial(self._connect, kind, name, host, port, self._max_retry_second)
            for kind in (LEARNER, COLLECTOR)
            for name, host, port in self._cfg.get(kind, {}).values()
        }
        connect_all(attempts, self._max_retry_second)
        if self.operator is not None:
            self.operator.connect(self.workers.count, self._max_retry_second)

    def _connect(self, kind: str, name: str, host: str, port: int, timeout_s: float) -> None:
        client, resource = connect(self.connector, name, host, port, timeout_s)
        self.drop(kind, name, "another worker has taken its place")
        worker = Worker(kind, name, client, resource, f"{host}:{port}")
        self.workers.join(worker)
        self._logger.info("%s %s is connected: %s", kind, name, resource)
        client.watch(partial(self._lose_idle, worker))

    def join(self, kind: str, name: str, host: str, port: int, timeout_s: float) -> None:
        """Connect a worker that is not in the config.

        Raises:
            WorkerLost, TaskFailed: see `connect`.
        """
        self._connect(kind, name, host, port, timeout_s)
        if kind == COLLECTOR and self.operator is not None:
            self._callback_fn.deal_with_increase_collector()
        else:
            self._callback_fn.deal_with_worker_free(kind, name)

    def rejoin(self, kind: str, name: str, timeout_s: float) -> None:
        """Connect a lost worker of the config at its old address.

        Raises:
            WorkerLost, TaskFailed: see `connect`.
        """
        _, host, port = self._cfg[kind][name]
        self.join(kind, name, host, port, timeout_s)

    def drop(self, kind: str, name: str, reason: str) -> None:
        """Remove a worker that has died, without a message to it; its running task is lost."""
        worker = self.workers.find(name)
        if worker is not None:
            self._release(worker, partial(worker.client.drop, reason))

    def _release(self, worker: Worker, end: Callable[[], None], only_if_free: bool = False) -> bool:
        """Mark a worker as lost, and `end` its client; return False if it is lost already. See `WorkerTable.leave`."""
        if not self.workers.leave(worker, only_if_free):
            return False
        if worker.kind == COLLECTOR and self.operator is not None:
            self._callback_fn.deal_with_decrease_collector()
        end()
        return True

    def send_collector_task(self, collector_task: Task) -> bool:
        """Give the task to a free collector; return False if there is none. Callbacks report whether it begins."""
        return self._send(COLLECTOR, collector_task)

    def send_learner_task(self, learner_task: Task) -> bool:
        """Give the task to a free learner; return False if there is none. Callbacks report whether it begins."""
        return self._send(LEARNER, learner_task)

    def _send(self, kind: str, task: Task) -> bool:
        with self._lock:
            worker = None if self._ending.is_set() else self.workers.take(kind, task)
            if worker is None:
                return False
            run = TaskRun(
                worker,
                task,
                self._callback_fn,
                self._cfg["task_timeout"],
                self._ending.is_set,
                self._cfg.get("task_silence_s", 0.0),
            )
            # Starting may take long, and must not delay the next task.
            self._threads.start(f"coordinator_{kind}_task", self._execute, run)
        return True

    def _execute(self, run: TaskRun) -> None:
        worker, side = run.worker, self._callback_fn
        try:
            if self._run_to_end(run) and self.workers.set_free(worker):
                worker.client.watch(partial(self._lose_idle, worker))  # it may have been lost since its last answer
                side.deal_with_worker_free(worker.kind, worker.worker_id)
        except WorkerLost as e:
            if self._ending.is_set():
                worker.task = None
                return
            # A stalled worker still listens: it abandons the task, and may be connected again.
            end = worker.client.close if isinstance(e, TaskStalled) else partial(worker.client.drop, str(e))
            if not self._release(worker, end):
                e = WorkerReleased(f"{worker.kind} {worker.worker_id} was taken away from its task: {e}")
            side.deal_with_worker_lost(worker.kind, worker.worker_id, run.task, e)

    def _run_to_end(self, run: TaskRun) -> bool:
        """Run the task, and report errors in it, in the worker or in a callback, to the coordinator.

        Returns:
            Whether the worker may have another task.

        Raises:
            WorkerLost: the worker is lost.
        """
        is_done = is_closed = False
        try:
            run.start()
            self._logger.info("%s %s runs the task %s", run.worker.kind, run.worker.worker_id, run.task_id)
            is_done = run.run()
        except Exception as e:  # of the worker, or of a callback: it fails the task
            self._report(run, e)
        try:
            finished_task = run.close()
            is_closed = True
            if is_done and run.worker.kind == COLLECTOR:
                self._callback_fn.deal_with_collector_finish_task(run.task_id, finished_task)
            elif is_done:
                finished_task["buffer_id"] = run.buffer_id
                self._callback_fn.deal_with_learner_finish_task(run.task_id, finished_task)
        except Exception as e:  # as above
            self._report(run, e, is_known=not is_done)
        if not is_closed:
            self._lose_idle(run.worker, f"it could not end the task {run.task_id}", only_if_free=False)
        return is_closed

    def _report(self, run: TaskRun, error: Exception, is_known: bool = False) -> None:
        """Report the error of a task, unless `is_known` says that it has failed before; re-raise a `WorkerLost`."""
        if isinstance(error, WorkerLost):
            raise error
        if not is_known and not self._ending.is_set():
            self._callback_fn.deal_with_task_error(run.worker.kind, run.task, error)

    def _lose_idle(self, worker: Worker, reason: str, only_if_free: bool = True) -> None:
        """Report the loss of a worker without a task; the thread of a running task notices the loss itself."""
        if self._ending.is_set() or not self._release(worker, partial(worker.client.drop, reason), only_if_free):
            return
        error = WorkerLost(f"{worker.kind} {worker.worker_id} was lost while it had no task: {reason}")
        self._callback_fn.deal_with_worker_lost(worker.kind, worker.worker_id, None, error)

    def close(self, timeout_s: float = 15.0) -> None:
        """End all tasks, disconnect the workers and stop.

        Wait about `timeout_s` for the tasks, then a bounded time for the transport. Further calls do nothing.
        """
        with self._lock:
            self._ending.set()
        if self.operator is not None:
            self.operator.close()
        self._threads.join(timeout_s)
        stuck = sorted(task["task_id"] for _, task in self.workers.busy())
        if stuck:
            self._logger.error("tasks have not ended within %g s and are aborted: %s", timeout_s, stuck)
        self.connector.close()
        self._threads.join(1.0)  # without clients they end at once
