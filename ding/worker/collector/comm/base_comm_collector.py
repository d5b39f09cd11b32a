"""The interface of collector workers that a coordinator drives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from typing import Any

from easydict import EasyDict

from ding.utils.default_helper import derive_seed
from ding.utils.system_helper import get_task_uid
from ding.worker.collector.base_parallel_collector import BaseParallelCollector, create_parallel_collector
from ding.worker.transport.imports import check_task
from ding.worker.transport.stores import check_plain_name
from ding.worker.transport.transport import comm_class


class BaseCommCollector(ABC):
    """Base of the collector workers.

    A worker builds a collector for each task, and passes samples, weights and infos between it and the coordinator.

    Args:
        cfg: the worker's section of the system config. Tasks may import the modules in `import_names` and
            `task_import_names` only. With `seed`, each task has its own seed, derived from `cfg.seed`, the kind of the
            task (collecting or evaluation) and its number.
    """

    def __init__(self, cfg: EasyDict) -> None:
        self._cfg = cfg
        self._collector_uid = get_task_uid()
        self._task_counts: Counter[bool] = Counter()
        self._end_flag = True

    @abstractmethod
    def get_policy_update_info(self, path: str) -> Any:
        """Return the newest weights under `path`, `{'model': ..., 'iter': ...}`; collectors call it."""

    @abstractmethod
    def send_metadata(self, metadata: Any) -> None:
        """Send the metadata of samples, or an info, to the coordinator; collectors call it."""

    @abstractmethod
    def send_stepdata(self, stepdata: Any) -> Any:
        """Store samples for the learners; collectors call it as `send_stepdata(path, stepdata)`."""

    def start(self) -> None:
        """Begin to take tasks."""
        self._end_flag = False

    def close(self) -> None:
        """Take no more tasks. Further calls do nothing."""
        self._end_flag = True

    @property
    def collector_uid(self) -> str:
        """The name of this worker."""
        return self._collector_uid

    def _create_collector(self, task_info: Mapping[str, Any]) -> BaseParallelCollector:
        """Return the collector of a task, which calls `get_policy_update_info`, `send_metadata` and `send_stepdata`.

        Raises:
            PermissionError: the task needs a permission that the config of this worker does not give; see `check_task`.
        """
        check_task(task_info, self._cfg)
        cfg = EasyDict(task_info["collector_cfg"])
        if self._cfg.get("seed") is not None:
            is_eval = bool(cfg.get("eval_flag", False))
            cfg.seed = derive_seed(int(self._cfg.seed), int(is_eval), self._task_counts[is_eval])
            self._task_counts[is_eval] += 1
        name = task_info.get("collector_id", self._collector_uid)
        # A worker that an operator has added is named by its address.
        cfg.log_name = check_plain_name(name.replace(":", "_") if isinstance(name, str) else name)
        collector = create_parallel_collector(cfg)
        collector.get_policy_update_info = self.get_policy_update_info
        collector.send_metadata, collector.send_stepdata = self.send_metadata, self.send_stepdata
        return collector


def create_comm_collector(cfg: EasyDict) -> BaseCommCollector:
    """Return the comm collector of the type `cfg.type`, after importing `cfg.import_names`.

    The name of a transport is a type, too: that of a `CommCollector` with this transport.

    Raises:
        KeyError: no comm collector is registered under that type, and it names no transport.
    """
    collector: BaseCommCollector = comm_class("collector", cfg)(cfg=cfg)
    return collector
