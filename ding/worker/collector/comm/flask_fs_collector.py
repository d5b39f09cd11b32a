"""The comm collector for HTTP and shared folders, and a stand-in to try out a coordinator."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from ding.utils.file_helper import atomic_write
from ding.utils.registry_factory import COMM_COLLECTOR_REGISTRY
from ding.worker.collector.comm.comm_collector import CommCollector, single_reply
from ding.worker.transport.chunk import encode_chunk
from ding.worker.transport.http_transport import WorkerSlave
from ding.worker.transport.transport import COLLECTOR, Handler, TaskName


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
            TaskName.COLLECTOR_START: partial(self._start_task, COLLECTOR),
            TaskName.COLLECTOR_DATA: self._data_task,
            TaskName.COLLECTOR_CLOSE: lambda task: {**call["deal_with_collector_close"](), **self._ids("task_id")},
        }

    def _data_task(self, task: dict[str, Any]) -> dict[str, Any]:
        return {**single_reply(self._callback_fn["deal_with_collector_data"]()), **self._ids("buffer_id", "task_id")}


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
        {'gpu': 1, 'cpu': 20}
        >>> worker.close(), connector.close(), folder.cleanup()
        (None, None, None)
    """

    transport = "flask_fs"


_SAMPLES = 20  # until it is done
_PROGRESS = {"cur_episode": 1, "cur_step": 314, "cur_sample": 314}


class NaiveCollector(CollectorSlave):
    """A collector that sends 19 samples of random numbers, without any env, and reports that it is done.

    The n-th sample of a task, from 1, is the file `./<prefix>_<task id>_<n>`, an uncompressed chunk of one sample. A
    20th file is written, but its metadata is not sent.

    Args:
        prefix: prefix of the names of the files.
        args, kwargs: as for `Slave`.
    """

    def __init__(self, *args: Any, prefix: str = "", **kwargs: Any) -> None:
        callback_fn: dict[str, Callable[..., Any]] = {
            "deal_with_resource": lambda: {"cpu": "20", "gpu": "1"},
            "deal_with_collector_start": self._begin,
            "deal_with_collector_data": self._data,
            "deal_with_collector_close": self._report,
        }
        super().__init__(*args, callback_fn=callback_fn, **kwargs)
        self._prefix = prefix
        self._count = 0

    def _begin(self, task_info: dict[str, Any]) -> None:
        self._count = 0

    def _data(self) -> dict[str, Any]:
        self._count += 1
        path = f"./{self._prefix}_{self._current_task_info.get('task_id')}_{self._count}"
        with atomic_write(path) as file:
            file.write(encode_chunk(self._get_timestep(), "none"))
        if self._count < _SAMPLES:
            return {"data_id": path, "unroll_split_begin": 0}
        return {"collector_done": True, **_PROGRESS}

    def _report(self) -> dict[str, Any]:
        averages = {f"avg_{what}_per_{of}": 1.0 for what in ("time", "step") for of in ("episode", "step")}
        counts = {"train_iter": 0, "real_episode_count": 1, "step_count": 314, "sample_count": self._count}
        return {"eval_flag": False, **counts, **averages, "reward_mean": 0.0, "reward_std": 0.0, "reward_raw": [0.0]}

    def _get_timestep(self) -> list[dict[str, Any]]:
        """Return the steps of a sample; a subclass may return others."""
        sizes = {"obs": 4, "next_obs": 4, "reward": 3, "action": 1, "done": 1}
        return [{key: torch.rand(size) for key, size in sizes.items()}]
