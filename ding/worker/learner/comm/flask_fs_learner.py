"""The comm learner for HTTP and shared folders, and a stand-in for one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from ding.utils.file_helper import atomic_write
from ding.utils.msgpack_helper import unpack
from ding.utils.registry_factory import COMM_LEARNER_REGISTRY
from ding.worker.learner.comm.chunk_source import read_patiently
from ding.worker.learner.comm.comm_learner import CommLearner, SingleBatches
from ding.worker.learner.comm.learner_task import SendLearnInfoHook, SendPolicyHook
from ding.worker.transport.chunk import pick_sample, samples_of
from ding.worker.transport.comm_worker import task_fail
from ding.worker.transport.http_transport import WorkerSlave
from ding.worker.transport.transport import LEARNER, Handler, TaskName

__all__ = ["FlaskFileSystemLearner", "LearnerSlave", "SendLearnInfoHook", "SendPolicyHook"]

# How long `load_data_fn` waits for a late file.
READ_TIMEOUT_S = 5.0


class LearnerSlave(WorkerSlave):
    """A slave that answers a coordinator's tasks by callback functions.

    Args:
        callback_fn: `deal_with_resource`, `deal_with_learner_start`, `deal_with_get_data`, `deal_with_learner_learn`
            and `deal_with_learner_close`; see also `WorkerSlave`.
        args, kwargs: as for `Slave`.
    """

    def _handlers(self) -> dict[str, Handler]:
        return {
            TaskName.LEARNER_START: self._begin_task,
            TaskName.LEARNER_GET_DATA: lambda task: {**self._single.ask(), **self._both_ids()},
            TaskName.LEARNER_LEARN: lambda task: {**self._single.learn(task), **self._both_ids()},
            TaskName.LEARNER_CLOSE: self._close_task,
        }

    def _begin_task(self, task: dict[str, Any]) -> dict[str, Any]:
        call = self._callback_fn
        self._single = SingleBatches(call["deal_with_get_data"], call["deal_with_learner_learn"])
        return self._start_task(LEARNER, task)

    def _both_ids(self) -> dict[str, Any]:
        return self._ids("task_id", "buffer_id")

    def _close_task(self, task: dict[str, Any]) -> dict[str, Any]:
        self._callback_fn["deal_with_learner_close"]()
        return self._both_ids()


@COMM_LEARNER_REGISTRY.register("flask_fs")
class FlaskFileSystemLearner(CommLearner):
    """A learner worker over HTTP; samples and weights are files in the folders `path_data` and `path_policy`.

    Args:
        cfg: `host`, `port` (an int, to which the rank is added, or a list by rank; 0 for any free port),
            `path_data`, `path_policy`. See also `CommLearner`.

    Raises:
        OSError: a folder cannot be made or written to.

    Example:
        >>> import tempfile
        >>> from easydict import EasyDict
        >>> from ding.worker.transport.http_transport import HttpConnector
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     cfg = EasyDict(host="127.0.0.1", port=0, path_data=f"{folder}/data", path_policy=f"{folder}/policy")
        ...     learner, connector = FlaskFileSystemLearner(cfg), HttpConnector("127.0.0.1", 0)
        ...     learner.start(), connector.start()
        ...     client = connector.client("learner0", "127.0.0.1", learner.port)
        ...     client.connect(timeout_s=10)
        ...     client.run({"name": "resource"}, timeout_s=10)
        ...     connector.close(), learner.close()
        (None, None)
        {'gpu': 1}
        (None, None)
    """

    transport = "flask_fs"

    @staticmethod
    def load_data_fn(path: str, meta: Mapping[str, Any], decompressor: Callable[[Any], Any] | None) -> Any:
        """Return one sample of the chunk in the file `path`, with `meta` added; wait a few seconds for a late file.

        Args:
            decompressor: decompresses the chunk; None if it is not compressed.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: the file is damaged, or does not have the sample.
        """

        def read() -> Any:
            with open(path, "rb") as file:
                data = file.read()
            chunk = data if decompressor is None else decompressor(data)
            return pick_sample(samples_of(unpack(chunk) if isinstance(chunk, bytes) else chunk), meta)

        return read_patiently(read, repr(path), READ_TIMEOUT_S, threading.Event().wait)


_BATCHES = 6  # until it is done


class NaiveLearner(LearnerSlave):
    """A learner that takes six batches of two samples, without training, and reports that it is done.

    With the last batch it creates the file `<prefix>_final_model.pth`.

    Args:
        prefix: prefix of the path of the file.
        args, kwargs: as for `Slave`.
    """

    def __init__(self, *args: Any, prefix: str = "", **kwargs: Any) -> None:
        callback_fn: dict[str, Callable[..., Any]] = {
            "deal_with_resource": lambda: {"gpu": "1", "cpu": "20"},
            "deal_with_learner_start": self._begin,
            "deal_with_get_data": lambda: {"batch_size": 2, "cur_learner_iter": 1},
            "deal_with_learner_learn": self._learn,
            "deal_with_learner_close": lambda: None,
        }
        super().__init__(*args, callback_fn=callback_fn, **kwargs)
        self._prefix = prefix
        self._count = 0

    def _begin(self, task_info: dict[str, Any]) -> None:
        self._count = 0

    def _learn(self, data: list[dict[str, Any]]) -> dict[str, Any]:
        if any("data_id" not in row for row in data):
            raise task_fail({"message": "a sample has no data_id"})
        self._count += 1
        keys = ("replay_unique_id", "replay_buffer_idx")
        priority_info = {**{key: [row[key] for row in data] for key in keys}, "priority": [1.0] * len(data)}
        info: dict[str, Any] = {"learner_step": self._count, "priority_info": priority_info}
        if self._count >= _BATCHES:
            info["learner_done"] = True
            with atomic_write(f"{self._prefix}_final_model.pth"):
                pass  # nothing was learnt
        return info
