"""The collector workers of parallel training, for any transport."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from easydict import EasyDict

from ding.utils.config_helper import Setting, Settings, integer, number
from ding.utils.data.nested import plain
from ding.utils.registry_factory import COMM_COLLECTOR_REGISTRY
from ding.worker.collector.base_parallel_collector import BaseParallelCollector
from ding.worker.collector.comm.base_comm_collector import BaseCommCollector
from ding.worker.collector.comm.collector_task import CollectorQueue, CollectorTask
from ding.worker.transport.chunk import DATA_ID, to_content
from ding.worker.transport.comm_worker import WORKER_SETTINGS, CommWorker, worker_thread
from ding.worker.transport.transport import QUEUE_SIZE, Handler, TaskName, transport_name


class CommCollector(CommWorker[CollectorTask], BaseCommCollector):
    """A collector worker, which runs the collector of one task at a time in a thread.

    Samples and weights go through stores, metadata and infos through a bounded queue. See also `CommWorker`.

    Args:
        cfg: as for `BaseCommCollector`, and `type`, the name of the transport; `path_data`, `path_policy`, `port`;
            `queue_size` (4096 samples), `data_interval_s` (0.2), `data_wait_s` (1.0), `data_timeout_s` (600.0) and
            `close_timeout_s` (30.0).

    Raises:
        ConfigError: a value is not allowed, or missing.

    Example:
        >>> from easydict import EasyDict
        >>> from ding.worker.transport.local_transport import LocalConnector
        >>> worker = CommCollector(EasyDict(type="local", path_data="data", path_policy="policy"))
        >>> worker.start()
        >>> client = LocalConnector().client("collector0", "", worker.port)
        >>> client.connect(timeout_s=1)
        >>> client.run({"name": "resource"}, timeout_s=1)
        {'gpu': 1, 'cpu': 20}
        >>> worker.close()
    """

    kind = "collector"
    settings = Settings(
        {
            "queue_size": Setting(4096, integer(1), "Capacity of the queue of samples and infos for the coordinator."),
            "data_interval_s": Setting(0.2, number(0), "Least seconds between two messages with samples."),
        },
        WORKER_SETTINGS,
    )

    def __init__(self, cfg: EasyDict) -> None:
        super().__init__(cfg)
        self._task = self._open_task({})

    @property
    def _collector(self) -> BaseParallelCollector | None:
        task = self._slot.task
        return None if task is None else task.collector

    def _open_task(self, task_info: Mapping[str, Any]) -> CollectorTask:
        queue_size = int(task_info.get(QUEUE_SIZE, self._cfg.queue_size))
        queue = CollectorQueue(queue_size, self._cfg.data_interval_s)
        # A coordinator that limits the queue may hold the collector for any time.
        timeout_s = None if QUEUE_SIZE in task_info else self._cfg.data_timeout_s
        return CollectorTask(task_info, self._sample_store, self._policy_store, queue, timeout_s)

    def _handlers(self) -> dict[str, Handler]:
        return {
            **super()._handlers(),
            TaskName.COLLECTOR_START: self._start_task,
            TaskName.COLLECTOR_DATA: self._data_task,
            TaskName.COLLECTOR_CLOSE: self._close_task,
        }

    def _start_task(self, task: dict[str, Any]) -> dict[str, Any]:
        self.deal_with_collector_start(task["task_info"])
        return {"message": "collector task has started"}

    def _data_task(self, task: dict[str, Any]) -> dict[str, Any]:
        own = self._slot.require()
        if self._overrides(CommCollector, "deal_with_collector_data"):
            return {**single_reply(self.deal_with_collector_data()), **own.ids}
        rows, infos = own.queue.take(self._cfg.data_wait_s)
        silence_s = own.collector.silence_s
        progress = {**own.collector.progress(), "silence_s": silence_s}
        return {"samples": to_content(rows), "progress": progress, "silence_s": silence_s, "infos": infos, **own.ids}

    def _close_task(self, task: dict[str, Any]) -> dict[str, Any]:
        report = self.deal_with_collector_close()
        return {**self._slot.end(), **report}  # it has ended: the last report, with the id of its task

    def deal_with_resource(self) -> dict[str, Any]:
        """Return the resources of this worker."""
        return {"gpu": 1, "cpu": 20}

    def deal_with_collector_start(self, task_info: dict[str, Any]) -> None:
        """Build the collector of a task, and start it in a thread.

        Raises:
            RuntimeError: another task is running, or the worker is closed.
        """
        self._slot.begin(partial(self._begin, task_info))

    def _begin(self, task_info: dict[str, Any]) -> CollectorTask:
        task = self._open_task(task_info)
        collector = task.collector = self._create_collector(task_info)
        # Of its task, so that a collector that outlives its task cannot affect the next one.
        for name in ("get_policy_update_info", "send_stepdata", "send_metadata"):
            setattr(collector, name, getattr(self if self._overrides(CommCollector, name) else task, name))
        self._task = task
        task.thread = worker_thread("collector_start", collector.start, task.queue)
        task.thread.start()
        return task

    def deal_with_collector_data(self) -> dict[str, Any]:
        """Return the metadata of the next sample, or the next info; wait until there is one."""
        return self._task.queue.take_one(self._cfg.data_timeout_s)

    def deal_with_collector_close(self) -> dict[str, Any]:
        """End the collector, and return its finish info; if none runs, that of the last task.

        Raises:
            TimeoutError: the thread of the collector does not end.
        """
        return {key: value for key, value in self._slot.end().items() if key != "task_id"}

    def _end(self, task: CollectorTask) -> dict[str, Any]:
        try:
            report: dict[str, Any] = plain(task.collector.get_finish_info())
        finally:
            task.close()
            try:
                task.collector.close()
            finally:
                self._join(task, "one of its envs or its policy")
        return report

    def get_policy_update_info(self, path: str) -> dict[str, Any] | None:
        """Return the newest weights, by the current task; see `CollectorTask`."""
        return self._task.get_policy_update_info(path)

    def send_stepdata(self, path: str, stepdata: Any) -> None:  # type: ignore[override]
        """Store samples by the current task; see `CollectorTask`."""
        self._task.send_stepdata(path, stepdata)

    def send_metadata(self, metadata: Any) -> None:
        """Send metadata or an info by the current task; see `CollectorTask`."""
        self._task.send_metadata(metadata)

    def close(self) -> None:
        """End a running task, and take no more; see `CommWorker.close`."""
        try:
            self._task.close()
        finally:
            super().close()


def single_reply(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the reply of a collector with the metadata of one sample, or one info."""
    is_sample = DATA_ID in entry
    return {"samples": to_content([dict(entry)] if is_sample else []), "infos": [] if is_sample else [dict(entry)]}


# The name of a transport is a type, too.
COMM_COLLECTOR_REGISTRY.derive = lambda name: CommCollector if transport_name(name) is None else None
