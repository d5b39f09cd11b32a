"""What a collector needs to be driven by a coordinator."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from easydict import EasyDict

from ding.utils.default_helper import derive_seed
from ding.utils.import_helper import import_module
from ding.utils.registry_factory import COMM_COLLECTOR_REGISTRY
from ding.utils.system_helper import get_task_uid
from ding.worker.collector.base_parallel_collector import BaseParallelCollector, create_parallel_collector
from ding.worker.transport.imports import check_task
from ding.worker.transport.stores import check_plain_name

# They register the comm collectors of this package.
_OWN = tuple(f"ding.worker.collector.comm.{name}_collector" for name in ("flask_fs", "local", "ray"))


class BaseCommCollector(ABC):
    """Builds a collector for each task, and passes samples, weights and infos between it and the coordinator.

    Args:
        cfg: its own section of the system config. Tasks may have it import the modules in `import_names` and
            `task_import_names`, and no others. With `seed`, each task gets a seed of its own: collecting tasks and
            evaluations are counted, and the seed follows from `cfg.seed`, the kind and the number of the task.
    """

    def __init__(self, cfg: EasyDict) -> None:
        self._cfg = cfg
        self._collector_uid = get_task_uid()
        self._task_counts: Counter[bool] = Counter()
        self._end_flag = True

    @abstractmethod
    def get_policy_update_info(self, path: str) -> Any:
        """The newest weights under `path`, `{'model': ..., 'iter': ...}`; collectors call it."""

    @abstractmethod
    def send_metadata(self, metadata: Any) -> None:
        """Have the coordinator told of samples, or of how far the collector is; collectors call it."""

    @abstractmethod
    def send_stepdata(self, stepdata: Any) -> Any:
        """Put samples where learners find them; collectors call it as `send_stepdata(path, stepdata)`."""

    def start(self) -> None:
        """Begin to take tasks."""
        self._end_flag = False

    def close(self) -> None:
        """Take no more tasks. Idempotent."""
        self._end_flag = True

    @property
    def collector_uid(self) -> str:
        """The name of this worker."""
        return self._collector_uid

    def _create_collector(self, task_info: Mapping[str, Any]) -> BaseParallelCollector:
        """The collector of a task, which calls `get_policy_update_info`, `send_metadata` and `send_stepdata`.

        Raises:
            PermissionError: the task wants what only this worker's own config may allow, see `check_task`.
        """
        check_task(task_info, self._cfg)
        cfg = EasyDict(task_info["collector_cfg"])
        seed = self._next_seed(bool(cfg.get("eval_flag", False)), int(task_info.get("task_number", 0)))
        if seed is not None:
            cfg.seed = seed
        cfg.log_name = check_plain_name(task_info.get("collector_id", self._collector_uid))
        collector = create_parallel_collector(cfg)
        collector.get_policy_update_info = self.get_policy_update_info
        collector.send_metadata, collector.send_stepdata = self.send_metadata, self.send_stepdata
        return collector

    def _next_seed(self, is_eval: bool, told: int) -> int | None:
        """The seed of the next task of this kind, below 2^31; None where this worker has none.

        Args:
            told: how many tasks of this kind the coordinator has given to the worker of this name: those of earlier
                lives, too.
        """
        seed = self._cfg.get("seed")
        if seed is None:
            return None
        number = max(told, self._task_counts[is_eval])
        self._task_counts[is_eval] = number + 1
        return derive_seed(int(seed), int(is_eval), number)


def create_comm_collector(cfg: EasyDict) -> BaseCommCollector:
    """The comm collector of the type `cfg.type`, after importing `cfg.import_names`.

    Raises:
        KeyError: no comm collector is registered under that type.
    """
    collector: BaseCommCollector = comm_collector_class(cfg)(cfg=cfg)
    return collector


def comm_collector_class(cfg: Mapping[str, Any]) -> Callable[..., Any]:
    """What `create_comm_collector` calls.

    Raises:
        KeyError: no comm collector is registered under that type.
    """
    import_module([*_OWN, *cfg.get("import_names", [])])
    cls: Callable[..., Any] = COMM_COLLECTOR_REGISTRY.get(cfg["type"])
    return cls
