"""The comm collector for HTTP and shared folders."""

from __future__ import annotations

from typing import Any

from ding.utils.registry_factory import COMM_COLLECTOR_REGISTRY
from ding.worker.collector.comm.comm_collector import CommCollector
from ding.worker.transport.http_transport import WorkerSlave
from ding.worker.transport.transport import COLLECTOR_CLOSE, COLLECTOR_DATA, COLLECTOR_START, Handler


class CollectorSlave(WorkerSlave):
    """A slave that answers a coordinator's tasks by callback functions.

    Args:
        callback_fn: `deal_with_resource`, `deal_with_collector_start`, `deal_with_collector_data` and
            `deal_with_collector_close`; or as for `WorkerSlave`.
        args, kwargs: as for `Slave`.
    """

    def _handlers(self) -> dict[str, Handler]:
        call = self._callback_fn
        return {
            COLLECTOR_START: self._start_task,
            COLLECTOR_DATA: lambda task: {**call["deal_with_collector_data"](), **self._ids("buffer_id", "task_id")},
            COLLECTOR_CLOSE: lambda task: {**call["deal_with_collector_close"](), **self._ids("task_id")},
        }

    def _start_task(self, task: dict[str, Any]) -> dict[str, Any]:
        self._current_task_info = task["task_info"]
        self._callback_fn["deal_with_collector_start"](task["task_info"])
        return {"message": "collector task has started"}


@COMM_COLLECTOR_REGISTRY.register("flask_fs")
class FlaskFileSystemCollector(CommCollector):
    """A collector worker over HTTP; samples and weights are files in the folders `path_data` and `path_policy`.

    Args:
        cfg: `host`, `port` (0 for any free port), `path_data`, `path_policy`; with `trust_pickle` weights may hold any
            object. See also `CommCollector`.

    Raises:
        OSError: a folder cannot be made or written to.

    Example:
        >>> import tempfile
        >>> from easydict import EasyDict
        >>> from ding.worker.transport.http_transport import HttpConnector
        >>> folder = tempfile.TemporaryDirectory()
        >>> paths = {"path_data": f"{folder.name}/data", "path_policy": f"{folder.name}/policy"}
        >>> worker = FlaskFileSystemCollector(EasyDict(host="127.0.0.1", port=0, **paths))
        >>> connector = HttpConnector("127.0.0.1", 0)
        >>> worker.start(), connector.start()
        (None, None)
        >>> client = connector.client("collector0", "127.0.0.1", worker.port)
        >>> client.connect(timeout_s=5)
        >>> client.run({"name": "resource"}, timeout_s=5)
        {'gpu': 1, 'cpu': 20, 'batched': True}
        >>> worker.close(), connector.close(), folder.cleanup()
        (None, None, None)
    """

    transport = "flask_fs"
